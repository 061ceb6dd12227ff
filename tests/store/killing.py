"""Processes that are killed: before any step on the disk, or at a random moment while they tell of what they do."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stratalog.store.api import compacting, replacing
from stratalog.store.device.disk import OsDisk
from stratalog.store.device.os_file import OsFile

from .helpers import ROOT

PIPE = "PIPE"  # as an argument of a child: the number of its end of the pipe

STEPS: list[tuple[Any, str]] = [
    (OsDisk, "force_folder"), (OsDisk, "rename"), (OsDisk, "link"), (OsFile, "force"), (OsFile, "write"),
    (compacting, "exchange"), (replacing, "exchange"), (shutil, "rmtree"), (os, "unlink"),
]  # fmt: skip


def killed_at(step: int, work: Callable[[], object], counted: Path) -> int:
    """Do some work in a process that dies before its step of this number; how many steps it did, 0 if it was killed.

    The number goes through the file `counted`. A step of -1 never comes.
    """
    counted.write_text("0")
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return int(counted.read_text())
    done = 0

    def counting(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            nonlocal done
            if done == step:
                os._exit(1)
            done += 1
            return call(*given, **named)

        return run

    try:
        for owner, name in STEPS:
            setattr(owner, name, counting(getattr(owner, name)))
        work()
        counted.write_text(str(done))
    finally:
        os._exit(0)


def told_until_killed(
    module: str, given: Sequence[object], record: struct.Struct, alive_s: float, awaited: int = 1
) -> list[tuple[Any, ...]]:
    """Start a module as a child and kill it: the whole records that it had written to its pipe.

    It is killed `alive_s` after the first `awaited` records. One that ends by itself is an AssertionError.
    """
    reading, writing = os.pipe()
    arguments = [str(writing if one is PIPE else one) for one in given]
    child = subprocess.Popen([sys.executable, "-m", module, "--child", *arguments], cwd=ROOT, pass_fds=[writing])
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        content = pipe.read(awaited * record.size)
        killer = threading.Timer(alive_s, child.send_signal, [signal.SIGKILL])
        killer.start()
        content += pipe.read()
        killer.join()
    assert child.wait() == -signal.SIGKILL, "the child ended by itself"
    assert len(content) >= record.size, "it has begun"
    return list(record.iter_unpack(content[: len(content) // record.size * record.size]))
