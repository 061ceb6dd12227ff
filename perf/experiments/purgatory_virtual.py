"""The benchmark of the purgatory on a virtual clock, in one thread: the cost of a rate without the rest of the machine.

The clock moves by one millisecond at a time. In each, new requests are made, requests with an ended latency are
completed, and due timers fire. The processor time of all this, over the virtual time, is the part of one interpreter
that the rate takes. A design saturates when that part is 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ...index import Purgatory, TimingWheel
from ..references.old_purgatory import OldPurgatory
from ..report.figures import Figures
from ..workload.checker import WrongResult
from ..workload.requests import KEYS, Ends, Profile, Request, Taker

WARM_UP_PART = 0.25  # of the requests; until then fewer are pending than later


class VirtualClock:
    """A clock that the run sets, in seconds."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        """The time of the run."""
        return self.now_s


def designs(purge_interval: int, clock: VirtualClock) -> dict[str, tuple[Taker, Callable[[], None]]]:
    """Both designs, each with the step of its timer thread."""
    old = OldPurgatory(purge_interval, clock, has_thread=False)
    wheel = TimingWheel()

    def old_step() -> None:
        old.step()

    def new_step() -> None:
        for payload in wheel.advance(round(clock.now_s * 1000)):
            payload()

    return {"old": (old, old_step), "new": (Purgatory(wheel, purge_interval), new_step)}


def run(
    design: str, profile: Profile, rate: int, requests: int, timeout_ms: int, size_bytes: int, interval: int, seed: int
) -> Figures:
    """The cost of one rate. Raises WrongResult unless each request has ended once."""
    clock, ends, chance = VirtualClock(), Ends(), np.random.default_rng([seed, 7])
    purgatory, step = designs(interval, clock)[design]
    arrivals_ms = np.cumsum(chance.exponential(1000 / rate, requests)).astype(np.int64)
    latencies_ms = profile.draw_ms(requests, chance)
    is_completed = latencies_ms < timeout_ms
    ends_ms = np.where(is_completed, arrivals_ms + np.ceil(latencies_ms).astype(np.int64), -1)
    order = np.argsort(ends_ms, kind="stable")
    order = order[np.searchsorted(ends_ms[order], 0) :]
    last_ms = int(arrivals_ms[-1])
    made_until = np.searchsorted(arrivals_ms, np.arange(last_ms + 1), side="right").tolist()
    over_until = np.searchsorted(ends_ms[order], np.arange(last_ms + timeout_ms + 2), side="right").tolist()
    to_end, opened = order.tolist(), is_completed.tolist()
    waiting: list[Request | None] = [None] * requests
    made = over = most_pending = 0
    warm_ms = int(last_ms * WARM_UP_PART)
    began_s = warm_s = time.process_time()
    warm_made = 0
    for now_ms in range(last_ms + timeout_ms + 2):
        clock.now_s = now_ms / 1000
        for number in range(made, until := made_until[min(now_ms, last_ms)]):
            request = Request(timeout_ms, size_bytes, ends)
            if opened[number]:
                waiting[number] = request
            purgatory.try_complete_else_watch(request, KEYS)
        made = until
        for number in to_end[over : over_until[now_ms]]:
            ended, waiting[number] = waiting[number], None
            if ended is not None:
                ended.force_complete()
        over = over_until[now_ms]
        step()
        if now_ms == warm_ms:
            warm_s, warm_made = time.process_time(), made
        if now_ms == last_ms:
            cpu_s, virtual_s = time.process_time() - warm_s, (last_ms - warm_ms) / 1000
            most_pending = made - len(ends.all)
    if len(ends.all) != requests:
        raise WrongResult(f"{len(ends.all):,} ends of {requests:,} requests")
    return {"requests": requests, "interpreters": cpu_s / virtual_s, "pending": most_pending,
            "cpu_us_per_request": cpu_s / max(1, requests - warm_made) * 1e6,
            "timed_out": len(ends.late_ms), "total_cpu_s": time.process_time() - began_s}  # fmt: skip
