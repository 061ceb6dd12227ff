"""What the machine gives without an engine, measured in the same run as the store (the issue's two
references).

`raw_device` is the device alone; `thread_floor` and `asyncio_floor` are producers that wait for a real write
and force, with nothing between: no framing, no checksums, no offsets. The producers run the workload's own
loop, so that a message costs the same to make; the bare floor makes none.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from perf.producers import Track, asynchronous, blocking
from perf.rawfile import Preparation, RawFile, round_up
from perf.threads import run_together
from perf.workload import Sizes, Workload

FLOOR_FILE_BYTES = 256 << 20
RAW_FILE_BYTES = 64 << 20
MESSAGES_PER_S_MAX = 250_000
IDLE_WAIT_S = 0.05
Waiter = TypeVar("Waiter")


@dataclass(frozen=True)
class RawRate:
    """What the device takes: bytes and forces a second."""

    mb_per_s: float
    forces_per_s: float
    direct: bool


@dataclass(frozen=True)
class FloorRate:
    """What producers without an engine reach: messages a second, payload MB a second, messages a force."""

    messages_per_s: float
    mb_per_s: float
    mean_batch: float


def raw_device(
    folder: Path,
    write_bytes: int,
    writers: int,
    seconds: float,
    *,
    preparation: Preparation = "prewritten",
    file_bytes: int = RAW_FILE_BYTES,
) -> RawRate:
    """`writers` threads, each write + fdatasync of `write_bytes` to its own file."""
    files = [
        RawFile(folder / f"raw-{index}", max(file_bytes, 4 * write_bytes), preparation)
        for index in range(writers)
    ]
    totals, forces = [0] * writers, [0] * writers

    def write(index: int) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            totals[index] += files[index].write_forced(write_bytes)
            forces[index] += 1

    try:
        took = run_together([partial(write, index) for index in range(writers)])
        return RawRate(sum(totals) / took / 1e6, sum(forces) / took, files[0].direct)
    finally:
        for file in files:
            file.close()


class FloorEnded(Exception):
    """The time is up: raised in the producers."""


class Flusher(Generic[Waiter]):
    """One thread that takes all who wait, does one write + force of their bytes, and releases them.

    `sleeping` is set before the last look at `pending`; a producer looks at it after its own append. So
    either the flusher sees the append or the producer sees the flag.
    """

    def __init__(self, file: RawFile, release: Callable[[Sequence[tuple[Waiter, int]]], None]) -> None:
        self.pending: deque[tuple[Waiter, int]] = deque()
        self.stopped = False
        self._closing = False
        self.forces = 0
        self.messages = 0
        self._file = file
        self._release = release
        self._sleeping = False
        self._wake = threading.Lock()
        self._wake.acquire()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def add(self, waiter: Waiter, size_bytes: int) -> None:
        """Hands over one message; the waiter is released when it is durable."""
        if self.stopped:
            raise FloorEnded
        self.pending.append((waiter, size_bytes))
        if self._sleeping:
            self._sleeping = False
            with contextlib.suppress(RuntimeError):  # another producer woke it in the same moment
                self._wake.release()

    def _run(self) -> None:
        pending = self.pending
        while not self._closing or pending:
            if not pending:
                self._sleeping = True
                if not pending:
                    self._wake.acquire(timeout=IDLE_WAIT_S)
                self._sleeping = False
                continue
            taken = [pending.popleft() for _ in range(len(pending))]
            self._file.write_forced(round_up(sum(size for _, size in taken)))
            self.forces += 1
            self.messages += len(taken)
            self._release(taken)

    def close(self) -> None:
        """Ends the flusher; called when no producer is left (`stopped` makes them leave)."""
        self.stopped = self._closing = True
        self._thread.join()


def _rate(
    flusher: Flusher[threading.Lock] | Flusher[asyncio.Future[int]], sizes: Sizes, seconds: float
) -> FloorRate:
    rate = flusher.messages / seconds
    return FloorRate(rate, rate * sizes.mean / 1e6, flusher.messages / max(1, flusher.forces))


def _plans(work: Workload, seconds: float) -> list[Track]:
    total = MESSAGES_PER_S_MAX * seconds * work.sizes.mean
    return [Track(plan) for plan in work.plan(int(total))]


def _release_locks(taken: Sequence[tuple[threading.Lock, int]]) -> None:
    for lock, _ in taken:
        lock.release()


def thread_floor(
    folder: Path,
    threads: int,
    sizes: Sizes,
    seconds: float,
    *,
    seed: int = 0,
    bare: bool = False,
    file_bytes: int = FLOOR_FILE_BYTES,
) -> FloorRate:
    """`threads` producers, each blocking on its own lock until one flusher thread wrote and forced.

    With `bare`, the producers make no messages: they only hand over sizes.
    """
    file = RawFile(folder / "floor", file_bytes)
    work = Workload(seed, sizes, threads)
    tracks = _plans(work, seconds)
    flusher = Flusher(file, _release_locks)

    def produce(track: Track) -> None:
        lock = threading.Lock()
        lock.acquire()
        add, wait = flusher.add, lock.acquire

        def append(topic: str, queue_id: int, data: bytes) -> int:
            add(lock, len(data))
            wait()
            return 0

        try:
            if bare:
                for size in track.plan.sizes.tolist():
                    add(lock, size)
                    wait()
            else:
                blocking(append, work, track)
        except FloorEnded:
            pass

    timer = threading.Timer(seconds, lambda: setattr(flusher, "stopped", True))
    timer.start()
    try:
        took = run_together([partial(produce, track) for track in tracks])
    finally:
        timer.cancel()
        flusher.close()
        file.close()
    return _rate(flusher, sizes, took)


def asyncio_floor(
    folder: Path,
    tasks: int,
    sizes: Sizes,
    seconds: float,
    *,
    seed: int = 0,
    file_bytes: int = FLOOR_FILE_BYTES,
) -> FloorRate:
    """`tasks` tasks on one event loop; one flusher thread answers a batch with one call_soon_threadsafe."""
    file = RawFile(folder / "floor", file_bytes)
    work = Workload(seed, sizes, tasks)
    tracks = _plans(work, seconds)

    def resolve(taken: Sequence[tuple[asyncio.Future[int], int]]) -> None:
        for future, _ in taken:
            future.set_result(0)

    def release(taken: Sequence[tuple[asyncio.Future[int], int]]) -> None:
        taken[0][0].get_loop().call_soon_threadsafe(resolve, taken)

    flusher = Flusher(file, release)
    add = flusher.add

    def append(topic: str, queue_id: int, data: bytes) -> asyncio.Future[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        add(future, len(data))
        return future

    began = time.perf_counter()
    timer = threading.Timer(seconds, lambda: setattr(flusher, "stopped", True))
    timer.start()
    try:
        asynchronous(append, work, tracks)
    except FloorEnded:
        pass
    finally:
        took = time.perf_counter() - began
        timer.cancel()
        flusher.close()
        file.close()
    return _rate(flusher, sizes, took)
