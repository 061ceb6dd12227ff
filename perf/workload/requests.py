"""The requests of the purgatory's benchmark (R40): exponential arrivals, log-normal latencies, and their ends."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ...index import BulkTimingWheel, DelayedOperation, TimerThread
from ..machine.usage import cpu_seconds, resident_bytes
from .checker import WrongResult

QUARTILE = 0.674490  # the 75th percentile of a normal distribution of deviation 1
KEYS = ("key-1", "key-2", "key-3")  # of each request, as in the source's code
BATCH = 512  # requests that are made without a look at the clock, at most
SLEEP_S = 0.001  # what arrives within a tick is taken together: a sleep a request costs more than the request
SAMPLE_S = 0.05
LATE_MS = 5.0
GIVE_UP_S = 60.0


IdArray = npt.NDArray[np.int64]


class Profile(NamedTuple):
    """How long requests take: a log-normal distribution by two of its percentiles."""

    name: str
    p75_ms: float
    p50_ms: float

    def draw_ms(self, count: int, chance: np.random.Generator) -> npt.NDArray[np.float64]:
        """So many latencies."""
        mean = math.log(self.p50_ms)
        return chance.lognormal(mean, (math.log(self.p75_ms) - mean) / QUARTILE, count)


PROFILES = (Profile("few time out", 60, 20), Profile("half time out", 400, 200))


class Taker(Protocol):
    """A purgatory of either design."""

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Sequence[str]) -> bool:
        """Take in a request."""


class Ends:
    """What has become of the requests."""

    def __init__(self) -> None:
        self.all: list[None] = []  # an item each: to append one is a single step of the interpreter
        self.late_ms: list[float] = []  # of those that timed out


class Request(DelayedOperation):
    """100 bytes, and its end is counted."""

    __slots__ = ("data", "due_s", "ends")

    def __init__(self, timeout_ms: int, size_bytes: int, ends: Ends) -> None:
        super().__init__(timeout_ms)
        self.data = bytes(size_bytes)
        self.ends = ends
        self.due_s = time.monotonic() + timeout_ms / 1000

    def on_complete(self) -> None:
        """Count."""
        self.ends.all.append(None)

    def on_expiration(self) -> None:
        """Note how late it is."""
        self.ends.late_ms.append((time.monotonic() - self.due_s) * 1000)


class Drive:
    """One run: a thread makes requests as they arrive, one completes those whose latency is over, one expires them."""

    def __init__(
        self, profile: Profile, rate: float, requests: int, timeout_ms: int, size_bytes: int, seed: int
    ) -> None:
        chance = np.random.default_rng([seed, 7])
        self.requests, self.timeout_ms, self.size_bytes = requests, timeout_ms, size_bytes
        self.arrivals_s = np.cumsum(chance.exponential(1 / rate, requests))
        self.latencies_ms = profile.draw_ms(requests, chance)
        self.ends = Ends()
        self._open: list[Request | None] = [None] * requests  # those that are to be completed
        self._wheel = BulkTimingWheel()
        self._ids = np.zeros(requests, np.int64)  # of the completions, ascending ..
        self._of = np.zeros(requests, np.int64)  # .. and the request of each
        self._planned = 0
        self._noting = threading.Lock()
        self.most_pending = 0
        self.grown_bytes = 0

    def run(self, purgatory: Taker) -> dict[str, float | int]:
        """The figures. Raises WrongResult unless each request has ended once."""
        with TimerThread(self._wheel, on_due=self._complete) as completions:
            cpu_s, began_s = cpu_seconds(), time.monotonic()
            self._make(purgatory, began_s, completions)
            made_s = time.monotonic() - began_s
            limit = time.monotonic() + GIVE_UP_S
            while len(self.ends.all) < self.requests and time.monotonic() < limit:
                time.sleep(0.01)
            time.sleep(0.05)
            cpu_s = cpu_seconds() - cpu_s
        if len(self.ends.all) != self.requests:
            raise WrongResult(f"{len(self.ends.all):,} ends of {self.requests:,} requests")
        late = np.array(self.ends.late_ms or [0.0])
        return {
            "achieved_per_s": self.requests / made_s,
            "behind_ms": (made_s - float(self.arrivals_s[-1])) * 1000,
            "cpu_us_per_request": cpu_s / self.requests * 1e6,
            "timed_out": len(self.ends.late_ms),
            "late_p99_ms": float(np.percentile(late, 99)),
            "late_expiries": int((late > LATE_MS).sum()),
            "early_expiries": int((late < 0).sum()),
            "most_pending": self.most_pending,
            "grown_mb": self.grown_bytes / 1e6,
        }

    def _make(self, purgatory: Taker, began_s: float, completions: TimerThread[IdArray]) -> None:
        at, sample_s, before = 0, 0.0, resident_bytes()
        is_completed = (self.latencies_ms < self.timeout_ms).tolist()
        take = purgatory.try_complete_else_watch
        while at < self.requests:
            now_s = time.monotonic() - began_s
            end = min(int(np.searchsorted(self.arrivals_s, now_s)), at + BATCH, self.requests)
            if end == at:
                time.sleep(SLEEP_S)
                continue
            for number in range(at, end):
                request = Request(self.timeout_ms, self.size_bytes, self.ends)
                if is_completed[number]:
                    self._open[number] = request
                take(request, KEYS)
            self._plan(np.flatnonzero(self.latencies_ms[at:end] < self.timeout_ms) + at, completions.now_ms)
            at = end
            if now_s >= sample_s:
                sample_s = now_s + SAMPLE_S
                self.most_pending = max(self.most_pending, at - len(self.ends.all))
                self.grown_bytes = max(self.grown_bytes, resident_bytes() - before)

    def _plan(self, completed: npt.NDArray[np.intp], now_ms: int) -> None:
        """Have these requests completed when their latency is over."""
        begin, end = self._planned, self._planned + len(completed)
        self._of[begin:end] = completed
        deadlines = now_ms + np.ceil(self.latencies_ms[completed]).astype(np.int64)
        with self._noting:  # one that is due at once may not be looked up before its id is noted
            self._ids[begin:end] = self._wheel.add(deadlines)
            self._planned = end

    def _complete(self, ids: IdArray) -> None:
        with self._noting:
            numbers = self._of[np.searchsorted(self._ids[: self._planned], ids)].tolist()
        for number in numbers:
            request, self._open[number] = self._open[number], None
            if request is not None:
                request.force_complete()
