"""One way to write or read a device, for some seconds: rates, and the time of each call."""

from __future__ import annotations

import mmap
import os
import random
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter_ns

from ..machine.folders import drop_page_cache
from ..machine.threads import run_together
from ..workload.latencies import Latencies
from .device import Seconds
from .rawfile import STEP_BYTES, Preparation, RawFile, open_direct, round_up

Call = Callable[[], int]


@dataclass(frozen=True)
class Writes:
    """A way to write: so many bytes a call, by so many threads, each to a file of its own."""

    size_bytes: int
    writers: int = 1
    direct: bool = True
    forced: bool = True
    preparation: Preparation = "prewritten"
    file_bytes: int = 64 << 20

    def measure(self, folder: Path, seconds: float) -> dict[str, float]:
        """ "mb_per_s", "calls", "p50", "p99", "p99.9" and "max" (us) of writes. `folder` is left empty."""
        size = max(self.file_bytes // self.writers, 4 * round_up(self.size_bytes))
        files: list[RawFile] = []
        try:
            for at in range(self.writers):
                files.append(RawFile(folder / f"raw-{at}", size, self.preparation, direct=self.direct))
            way = RawFile.write_forced if self.forced else RawFile.write_unforced
            return rates([partial(way, file, self.size_bytes) for file in files], seconds)
        finally:
            for file in files:
                file.close()


@dataclass(frozen=True)
class Reads:
    """A way to read: so many bytes a call, by so many threads of one file, at random places or one after the other."""

    size_bytes: int
    readers: int = 1
    direct: bool = True
    at_random: bool = True
    file_bytes: int = 64 << 20

    def measure(self, folder: Path, seconds: float, seed: int = 1) -> dict[str, float]:
        """The figures of `Writes.measure`, of reads. The page cache has the file only without `direct`."""
        path = folder / "read"
        size = max(self.file_bytes, 4 * round_up(self.size_bytes))
        writer = RawFile(path, size)
        try:
            for _ in range(size // STEP_BYTES):
                writer.write_unforced(STEP_BYTES)
            os.fsync(writer.descriptor)
            if self.direct:
                drop_page_cache(folder)
            return self._rates(path, size, seconds, seed)
        finally:
            writer.close()

    def _rates(self, path: Path, size: int, seconds: float, seed: int) -> dict[str, float]:
        opened: list[int] = []
        try:
            for _ in range(self.readers):
                opened.append(open_direct(path, os.O_RDONLY)[0] if self.direct else os.open(path, os.O_RDONLY))
            calls = [self._call(one, size, random.Random(seed + at)) for at, one in enumerate(opened)]
            return rates(calls, seconds)
        finally:
            for one in opened:
                os.close(one)

    def _call(self, descriptor: int, size: int, dice: random.Random) -> Call:
        buffer, places = memoryview(mmap.mmap(-1, round_up(self.size_bytes))), size // round_up(self.size_bytes)
        step, at = len(buffer), 0

        def call() -> int:
            nonlocal at
            place = dice.randrange(places) if self.at_random else at
            at = (at + 1) % places
            return os.preadv(descriptor, [buffer], place * step)

        return call


def rates(calls: Sequence[Call], seconds: float) -> dict[str, float]:
    """Call each in a thread of its own until the time is over. A call returns its bytes."""
    over, times, moved = Seconds(seconds), [array("q") for _ in calls], [0] * len(calls)

    def go_on(number: int, call: Call) -> None:
        note, clock, total = times[number].append, perf_counter_ns, 0
        while True:
            began = clock()
            total += call()
            note(clock() - began)
            if over():
                moved[number] = total
                return

    took = run_together([partial(go_on, number, call) for number, call in enumerate(calls)])
    latencies = Latencies()
    for one in times:
        latencies.add(one)
    return {"mb_per_s": sum(moved) / took / 1e6, "calls": latencies.count, **latencies.marks_us()}
