"""Producers without an engine: they wait for a real forced write, with no store between.

No framing, no checksums, no offsets, no reader. One thread writes what all producers handed over, and releases them.
The producers run the workload's own loop, so a message costs the same to make; with `bare` they make none. It is no
bound: a store that overlaps its writes, or wakes fewer threads, can be faster.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from ..machine.threads import run_together
from ..workload.contest import Sizes, Workload
from ..workload.producers import Track, asynchronous, blocking
from .device import Over
from .rawfile import RawFile, round_up

FILE_BYTES = 256 << 20
PLANNED_MESSAGES_PER_S = 250_000
IDLE_WAIT_S = 0.05
Waiter = TypeVar("Waiter")


@dataclass(frozen=True)
class NoEngineRate:
    """The rate of the producers."""

    messages: int
    payload_bytes: int
    written_bytes: int
    forces: int
    seconds: float

    @property
    def messages_per_s(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds

    @property
    def mean_batch(self) -> float:
        """Messages a forced write."""
        return self.messages / max(1, self.forces)


class Ended(Exception):
    """Raised in the producers when the time is over."""


class Writer(Generic[Waiter]):
    """One thread that takes all waiting messages, writes and forces them at once, and releases their producers.

    `sleeping` is set before the last look at `pending`; a producer checks it after its own append. So either the
    thread sees the append, or the producer sees the flag.
    """

    def __init__(self, file: RawFile, over: Over, release: Callable[[Sequence[tuple[Waiter, int]]], None]) -> None:
        self.pending: deque[tuple[Waiter, int]] = deque()
        self.forces = self.messages = self.payload_bytes = self.written_bytes = 0
        self._over = over
        self._stopped = False
        self._file = file
        self._release = release
        self._sleeping = False
        self._wake = threading.Lock()
        self._wake.acquire()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def add(self, waiter: Waiter, size_bytes: int) -> None:
        """Hand over one message; the waiter is released when it is durable. Raises Ended when the time is over."""
        if self._stopped:
            raise Ended
        self.pending.append((waiter, size_bytes))
        if self._sleeping:
            self._sleeping = False
            with contextlib.suppress(RuntimeError):  # another producer woke it in the same moment
                self._wake.release()

    def _run(self) -> None:
        pending = self.pending
        while pending or not self._stopped:
            if not pending:
                self._sleeping = True
                if not pending:
                    self._wake.acquire(timeout=IDLE_WAIT_S)
                self._sleeping = False
                continue
            taken = [pending.popleft() for _ in range(len(pending))]
            size = sum(size for _, size in taken)
            self.written_bytes += self._file.write_forced(round_up(size))
            self.forces += 1
            self.messages += len(taken)
            self.payload_bytes += size
            self._stopped = self._stopped or self._over()
            self._release(taken)

    def close(self) -> None:
        """End the thread when no producer waits any more."""
        self._stopped = True
        self._thread.join()

    def rate(self, seconds: float) -> NoEngineRate:
        """The counts over the time that they took."""
        return NoEngineRate(self.messages, self.payload_bytes, self.written_bytes, self.forces, seconds)


@contextmanager
def _writer(
    folder: Path, file_bytes: int, over: Over, release: Callable[[Sequence[tuple[Waiter, int]]], None]
) -> Iterator[Writer[Waiter]]:
    """The writing thread over a fresh file, which is removed after."""
    file = RawFile(folder / "no-engine", file_bytes)
    writer = Writer(file, over, release)
    try:
        yield writer
    finally:
        writer.close()
        file.close()


def _tracks(producers: int, sizes: Sizes, seconds: float, seed: int) -> tuple[Workload, list[Track]]:
    """Tracks with more messages than can be written in that time."""
    work = Workload(seed, sizes, producers)
    return work, [Track(plan) for plan in work.plan(int(PLANNED_MESSAGES_PER_S * seconds * sizes.mean))]


def _release_locks(taken: Sequence[tuple[threading.Lock, int]]) -> None:
    for lock, _ in taken:
        lock.release()


def threads_without_engine(
    folder: Path,
    threads: int,
    sizes: Sizes,
    seconds: float,
    over: Over,
    *,
    seed: int = 0,
    bare: bool = False,
    file_bytes: int = FILE_BYTES,
) -> NoEngineRate:
    """Threads that each block on a lock of their own until their message was written and forced.

    `seconds` only says how many messages are planned; the run ends with `over()`.
    """
    work, tracks = _tracks(threads, sizes, seconds, seed)
    with _writer(folder, file_bytes, over, _release_locks) as writer:

        def produce(track: Track) -> None:
            lock = threading.Lock()
            lock.acquire()
            add, wait = writer.add, lock.acquire

            def append(topic: str, queue_id: int, data: bytes) -> int:
                add(lock, len(data))
                wait()
                return 0

            with contextlib.suppress(Ended):
                if not bare:
                    blocking(append, work, track)
                    return
                for size in track.plan.sizes.tolist():
                    add(lock, size)
                    wait()

        took = run_together([partial(produce, track) for track in tracks])
        return writer.rate(took)


def tasks_without_engine(
    folder: Path,
    tasks: int,
    sizes: Sizes,
    seconds: float,
    over: Over,
    *,
    seed: int = 0,
    file_bytes: int = FILE_BYTES,
) -> NoEngineRate:
    """Producers without an engine as tasks of one event loop; one call into the loop answers a whole batch."""
    work, tracks = _tracks(tasks, sizes, seconds, seed)

    def resolve(taken: Sequence[tuple[asyncio.Future[int], int]]) -> None:
        for future, _ in taken:
            future.set_result(0)

    def release(taken: Sequence[tuple[asyncio.Future[int], int]]) -> None:
        taken[0][0].get_loop().call_soon_threadsafe(resolve, taken)

    with _writer(folder, file_bytes, over, release) as writer:
        add = writer.add

        def append(topic: str, queue_id: int, data: bytes) -> asyncio.Future[int]:
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            add(future, len(data))
            return future

        began = time.perf_counter()
        with contextlib.suppress(Ended):
            asynchronous(append, work, tracks)
        return writer.rate(time.perf_counter() - began)
