"""Recovery of the store and its peers: a process is killed in the middle of a write, and its folder opened again."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

from ..machine.folders import drop_page_cache, files_of, sub_folder
from ..peers.found import Found, Opener
from ..peers.messages import Messages
from ..peers.peer import BATCH, RECOVERY
from ..references.rawfile import read_sequential
from ..report.progress import Run
from ..workload.checker import WrongResult
from .parts import Count, Part
from .peers_work import QUEUES, Figures, PeerFailed, Work, batch_messages

LOOK_S = 0.001
STUCK_S = 120.0  # without a message: a server may take a minute to start
ORPHAN_S = 0.2  # between two looks of the writing process for its parent
MOST_TIMES = 4  # the messages that were asked for: then it waits for its kill
NAMES_BYTES = 36  # of a socket in a temporary folder of a temporary folder, after the name of the run's folder
SOCKET_BYTES = 107  # of the name of a socket
RAW = "raw.recovery"
COUNTS = (
    Count(figure="first_ms", what="until the first message", unit="ms", better="lower", noise=0.3,
          meaning="from the opening until a message was read; a server is started in it"),
    Count(figure="all_ms", what="until all were read", unit="ms", better="lower", noise=0.2,
          meaning="from the opening until every message was read once and counted, none by a stored counter"),
)  # fmt: skip


def recovery_works(crashed: Crashed, run: Run) -> Iterator[Work]:
    """One work: a cold opening of what a killed process left."""
    what = "after a kill, cold page cache"
    measure = partial(_recovered, crashed, run)
    yield Work("recovery", RECOVERY, what, measure, COUNTS, beside=RAW, beside_what="the raw device")


class Crashed:
    """The folders that killed processes left, one for each peer, and how many messages they had acknowledged."""

    def __init__(self, base: Path, messages: Messages, size_bytes: int) -> None:
        self.base, self.messages, self._size_bytes = base, messages, size_bytes
        self._acknowledged: dict[str, int] = {}

    def folder(self, found: Found) -> Path:
        """The folder of a peer; to be copied before it is opened."""
        name = found.kind.NAME
        made = self.base / f"crashed-{name}"
        if name not in self._acknowledged:
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            count = max(1, self._size_bytes // self.messages.mean_bytes)
            self._acknowledged[name] = write_and_kill(found.open, made, self.messages, count)
        return made

    def acknowledged(self, found: Found) -> dict[int, int]:
        """Queue -> messages that were acknowledged before the kill."""
        return self.messages.shares(self._acknowledged[found.kind.NAME], QUEUES)

    def raw_part(self, store: Found) -> Part:
        """The bytes of the messages, read from the store's files without the page cache."""

        def raw() -> Figures:
            folder = self.folder(store)
            drop_page_cache(folder)
            files = sorted(files_of(folder), key=lambda path: path.stat().st_size, reverse=True)
            wanted = self.messages.bytes_of(self.acknowledged(store))
            began = perf_counter()
            got = read_sequential(files, wanted, direct=True)
            took = perf_counter() - began
            if got < wanted:
                raise WrongResult(f"the store's files gave {got:,} of the {wanted:,} bytes of its messages")
            return {"all_ms": 1e3 * took}

        meaning = "one thread that reads as many bytes from the store's files, with O_DIRECT"
        what = "the raw device, as many bytes read"
        return Part(RAW, raw, (Count(figure="all_ms", what=what, unit="ms", better="lower", meaning=meaning),))


def write_and_kill(opener: Opener, folder: Path, messages: Messages, count: int) -> int:
    """Write in a process of its own, with a server if the peer has one; kill all of it when `count` are durable.

    Returns how many messages were acknowledged at the kill, or a few less. Raises PeerFailed.
    """
    context = multiprocessing.get_context("spawn")
    acknowledged = context.Value("q", 0)
    with _temporary(folder.parent) as temporary:
        given = opener, folder, temporary, messages, acknowledged, MOST_TIMES * count, os.getpid()
        child = context.Process(target=_write, args=given, daemon=False)
        child.start()
        try:
            done = _until(count, child, acknowledged)
        finally:  # also an interrupt: it would go on writing to a folder that is being removed
            assert child.pid is not None
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.kill()
            child.join()
    if done < count:
        raise PeerFailed(f"the writing process ended with {child.exitcode} after {done:,} of {count:,} messages")
    return done


def _temporary(base: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder for what a killed process leaves: in the run's folder, unless a socket's name would get too long."""
    fits = len(os.fsencode(base)) + NAMES_BYTES <= SOCKET_BYTES
    return tempfile.TemporaryDirectory(dir=base if fits else None, ignore_cleanup_errors=True)


def _until(count: int, child: Any, acknowledged: Any) -> int:
    """Wait for so many messages, or for the child's end; how many there are. Raises PeerFailed if none comes."""
    done: int = 0
    until = time.monotonic() + STUCK_S
    while child.is_alive() and acknowledged.value < count:
        time.sleep(LOOK_S)
        if acknowledged.value > done:
            done, until = acknowledged.value, time.monotonic() + STUCK_S
        elif time.monotonic() > until:
            raise PeerFailed(f"the writing process acknowledged nothing in {STUCK_S:g} s, after {done:,} messages")
    done = acknowledged.value
    return done


def _write(
    opener: Opener, folder: Path, temporary: str, messages: Messages, acknowledged: Any, most: int, parent: int
) -> None:
    """Write until the kill, or until there are `most` messages. A group of processes of its own has the server too.

    Raises nothing if `parent` is gone: all of the group is killed.
    """
    os.setsid()
    tempfile.tempdir = temporary
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    peer, rows, size = opener(folder, 0), messages.rows(QUEUES), batch_messages(messages)
    while acknowledged.value < most:
        some = list(islice(rows, size))
        if BATCH in peer.WORKS:
            peer.append_batch(peer.batch_of(some))
            acknowledged.value += size
        else:
            for row in some:
                peer.append(row)
                acknowledged.value += 1
    while True:  # `_end_with` ends it if nobody kills it
        time.sleep(ORPHAN_S)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(ORPHAN_S)
    os.killpg(0, signal.SIGKILL)


def _recovered(crashed: Crashed, run: Run, found: Found) -> Figures:
    left = crashed.folder(found)
    with sub_folder(crashed.base, "copy") as base:
        folder = base / "peer"
        shutil.copytree(left, folder, ignore=_no_sockets)
        drop_page_cache(folder)
        began = perf_counter()
        with closing(found.open(folder, 0)) as peer:
            chunks, first_s = peer.read_all(), 0.0
            for chunk in chunks:
                if chunk and not first_s:
                    first_s = perf_counter() - began
            all_s = perf_counter() - began
            run.checked(crashed.messages.check(peer.read_all(), crashed.acknowledged(found), at_least=True))
    return {"first_ms": 1e3 * first_s, "all_ms": 1e3 * all_s}


def _no_sockets(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if not (path := Path(folder, name)).is_file() and not path.is_dir()}
