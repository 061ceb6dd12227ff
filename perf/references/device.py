"""The device alone: forced writes of one size, as fast as possible."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..machine.threads import run_together
from .rawfile import Preparation, RawFile, round_up

RAW_FILE_BYTES = 64 << 20
Over = Callable[[], bool]


class Seconds:
    """Says whether so many seconds are over since the first call. Several threads call it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None

    def __call__(self) -> bool:
        now = time.perf_counter()
        if self._end is None:
            self._end = now + self._seconds
        return now >= self._end


class SecondsOrCalls(Seconds):
    """Says whether so many seconds are over since the first call, or more calls were made than `calls`."""

    def __init__(self, seconds: float, calls: int) -> None:
        super().__init__(seconds)
        self._most, self._calls = calls, itertools.count(1)  # `next` of it is one step for all threads

    def __call__(self) -> bool:
        return next(self._calls) > self._most or super().__call__()


@dataclass(frozen=True)
class DeviceRate:
    """The rate of the device."""

    written_bytes: int
    forces: int
    seconds: float
    call: str

    @property
    def mb_per_s(self) -> float:
        """MB (10^6 bytes) a second."""
        return self.written_bytes / self.seconds / 1e6


def raw_device(
    folder: Path,
    write_bytes: int,
    writers: int,
    over: Over,
    *,
    preparation: Preparation = "prewritten",
    file_bytes: int = RAW_FILE_BYTES,
) -> DeviceRate:
    """`writers` threads, each with forced writes of `write_bytes` to a file of its own, until `over()`."""
    size = max(file_bytes, 4 * round_up(write_bytes))
    files = [RawFile(folder / f"raw-{index}", size, preparation) for index in range(writers)]
    totals, forces = [0] * writers, [0] * writers

    def write(index: int) -> None:
        while not over():
            totals[index] += files[index].write_forced(write_bytes)
            forces[index] += 1

    try:
        took = run_together([partial(write, index) for index in range(writers)])
        return DeviceRate(sum(totals), sum(forces), took, files[0].call)
    finally:
        for file in files:
            file.close()


def write_call(folder: Path) -> str:
    """The way of forced writes on this machine, in words."""
    file = RawFile(folder / "call", 0)
    try:
        return file.call
    finally:
        file.close()
