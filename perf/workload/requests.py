"""The requests of the purgatory's benchmark (R40): exponential arrivals, log-normal latencies, and their ends."""

from __future__ import annotations

import gc
import math
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ...index import DelayedOperation
from ..machine.usage import cpu_seconds
from .checker import WrongResult
from .latencies import Latencies

QUARTILE = 0.674490  # the 75th percentile of a normal distribution of deviation 1
KEYS = ("key-1", "key-2", "key-3")  # of each request, as in the source's code
BATCH = 512  # requests that are made, or completed, without a look at the clock, at most
SLEEP_S = 0.001  # what arrives within a tick is taken together: a sleep a request costs more than the request
COLLECT_AT = 50_000  # objects that are new: the collector's own 700 has it look through most requests several times
GIVE_UP_S = 60.0


class Profile(NamedTuple):
    """The latencies of requests: a log-normal distribution by two of its percentiles."""

    name: str
    p75_ms: float
    p50_ms: float

    def draw_ms(self, count: int, chance: np.random.Generator) -> npt.NDArray[np.float64]:
        """So many latencies."""
        mean = math.log(self.p50_ms)
        return chance.lognormal(mean, (math.log(self.p75_ms) - mean) / QUARTILE, count)


PROFILES = (Profile("few time out", 60, 20), Profile("half time out", 400, 200))


class Load(NamedTuple):
    """The requests of a run: how many, how often they arrive, how long each takes, and how large it is."""

    profile: Profile
    rate: int
    requests: int
    timeout_ms: int
    size_bytes: int
    seed: int

    def draw(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The arrivals in seconds, and the latencies in milliseconds."""
        chance = np.random.default_rng([self.seed, 7])
        arrivals_s = np.cumsum(chance.exponential(1 / self.rate, self.requests))
        return arrivals_s, self.profile.draw_ms(self.requests, chance)


class Taker(Protocol):
    """A purgatory of either design."""

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Sequence[str]) -> bool:
        """Take in a request."""


class Ends:
    """The counts of ended requests."""

    def __init__(self) -> None:
        self.all: list[None] = []  # an item each: to append one is a single step of the interpreter
        self.late_ns = array("q")  # of those that timed out

    def check(self, requests: int) -> None:
        """Raise WrongResult unless each request has ended once."""
        if len(self.all) != requests:
            raise WrongResult(f"{len(self.all):,} ends of {requests:,} requests")


class Request(DelayedOperation):
    """A request of 100 bytes, whose end is counted."""

    __slots__ = ("data", "due_ns", "ends")

    def __init__(self, timeout_ms: int, size_bytes: int, ends: Ends) -> None:
        super().__init__(timeout_ms)
        self.data = bytes(size_bytes)
        self.ends = ends
        self.due_ns = time.monotonic_ns() + timeout_ms * 1_000_000

    def on_complete(self) -> None:
        """Count the end."""
        self.ends.all.append(None)

    def on_expiration(self) -> None:
        """Note how late it is."""
        self.ends.late_ns.append(time.monotonic_ns() - self.due_ns)


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Let the collector of cycles visit new objects after `COLLECT_AT` of them, and older ones never."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AT, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class Drive:
    """One run: a thread makes requests as they arrive, one completes those whose latency is over, one expires them.

    The cost of a request for the two threads here is kept low, because it is no part of a design: requests that arrive
    or end within a tick are taken together, and the order of the ends is known in advance. If requests are made late,
    latencies count from then on.
    """

    def __init__(self, load: Load, *, times_out: bool = True) -> None:
        """Without `times_out` only this run completes requests: those with a longer latency at their time-out."""
        self.load = load
        self.arrivals_s, latencies_ms = load.draw()
        ends_s = self.arrivals_s + np.minimum(latencies_ms, load.timeout_ms) / 1000
        self.last_end_s = float(ends_s.max())
        self.is_completed = latencies_ms < load.timeout_ms if times_out else np.ones(load.requests, np.bool_)
        ends_s[~self.is_completed] = np.inf
        self._order = np.argsort(ends_s, kind="stable")[: int(np.count_nonzero(self.is_completed))]
        self._ends_s = ends_s[self._order]
        self.ends = Ends()
        self._waiting: list[Request | None] = [None] * load.requests  # those that are to be completed
        self._behind_s = 0.0  # so late are requests made
        self._is_over = False

    def run(self, purgatory: Taker) -> dict[str, float]:
        """ "per_s", the rate at which requests were made and ended; "cpu_us" of one; "p50" and "p99" of the lateness
        of time-outs in microseconds. Raises WrongResult unless each request has ended once, none of them
        early.
        """
        requests = self.load.requests
        with collecting_rarely():
            cpu_s, began_s = cpu_seconds(), time.monotonic()
            completing = threading.Thread(target=self._complete, args=(began_s,), daemon=True)
            completing.start()
            try:
                self._make(purgatory, began_s)
                made_s = time.monotonic() - began_s
                limit = time.monotonic() + GIVE_UP_S
                while len(self.ends.all) < requests and time.monotonic() < limit:
                    time.sleep(SLEEP_S)  # the other two threads have the rest to do
                over_s = time.monotonic() - began_s
            finally:
                self._is_over = True
                completing.join()
            cpu_s = cpu_seconds() - cpu_s
        self.ends.check(requests)
        if early := sum(late < 0 for late in self.ends.late_ns):
            raise WrongResult(f"{early:,} of {requests:,} requests expired early")
        planned_s = float(self.arrivals_s[-1])
        late_s = max(0.0, made_s - planned_s, over_s - self.last_end_s)
        late = Latencies()
        late.add(self.ends.late_ns)
        return {
            "per_s": self.load.rate * planned_s / (planned_s + late_s), "cpu_us": cpu_s / requests * 1e6,
            **late.marks_us(),
        }  # fmt: skip

    def _make(self, purgatory: Taker, began_s: float) -> None:
        at = 0
        is_completed, waiting = self.is_completed.tolist(), self._waiting
        take, requests, ends = purgatory.try_complete_else_watch, self.load.requests, self.ends
        timeout_ms, size_bytes = self.load.timeout_ms, self.load.size_bytes
        while at < requests:
            now_s = time.monotonic() - began_s
            end = min(int(np.searchsorted(self.arrivals_s, now_s)), at + BATCH, requests)
            if end == at:
                self._behind_s = 0.0
                time.sleep(SLEEP_S)  # until something has arrived
                continue
            self._behind_s = now_s - float(self.arrivals_s[at])
            for number in range(at, end):
                request = Request(timeout_ms, size_bytes, ends)
                if is_completed[number]:
                    waiting[number] = request
                take(request, KEYS)
            at = end

    def _complete(self, began_s: float) -> None:
        at, waiting = 0, self._waiting
        not_made: list[int] = []
        while not self._is_over and (at < len(self._order) or not_made):
            now_s = time.monotonic() - began_s - self._behind_s
            end = min(int(np.searchsorted(self._ends_s, now_s)), at + BATCH)
            due, not_made, is_behind = not_made + self._order[at:end].tolist(), [], end == at + BATCH
            at = end
            for number in due:
                request, waiting[number] = waiting[number], None
                if request is None:
                    not_made.append(number)
                else:
                    request.force_complete()
            if not is_behind:
                time.sleep(SLEEP_S)  # until something is over
