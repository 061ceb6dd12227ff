"""Processes that are killed before any step on the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stratalog.store.api import compacting, replacing
from stratalog.store.device.disk import OsDisk
from stratalog.store.device.os_file import OsFile

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
