"""Waiting requests on a virtual clock, in one thread: the cost of a rate without the rest of the machine.

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
from ..workload.requests import KEYS, Ends, Load, Request, Taker

WARM_UP_PART = 0.25  # of the requests; until then fewer are pending than later


class VirtualClock:
    """A clock that the run sets, in seconds."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        """The time of the run."""
        return self.now_s


def design(is_new: bool, purge_interval: int, clock: VirtualClock) -> tuple[Taker, Callable[[], object]]:
    """A purgatory, and the step of its timer thread."""
    if not is_new:
        old = OldPurgatory(purge_interval, clock, has_thread=False)
        return old, old.step
    wheel = TimingWheel()

    def step() -> None:
        for payload in wheel.advance(round(clock.now_s * 1000)):
            payload()

    return Purgatory(wheel, purge_interval), step


def run(is_new: bool, load: Load, purge_interval: int) -> dict[str, float]:
    """ "per_s", what one interpreter achieves of the rate; "cpu_us" of a request; "timed_out" and "pending", which are
    alike for both designs. Raises WrongResult unless each request ends once.
    """
    clock, ends = VirtualClock(), Ends()
    purgatory, step = design(is_new, purge_interval, clock)
    arrivals_s, latencies_ms = load.draw()
    arrivals_ms = (arrivals_s * 1000).astype(np.int64)
    is_completed = latencies_ms < load.timeout_ms
    ends_ms = np.where(is_completed, arrivals_ms + np.ceil(latencies_ms).astype(np.int64), -1)
    order = np.argsort(ends_ms, kind="stable")
    order = order[np.searchsorted(ends_ms[order], 0) :]
    last_ms = int(arrivals_ms[-1])
    steps = np.arange(last_ms + load.timeout_ms + 2)
    made_until = np.searchsorted(arrivals_ms, steps, side="right").tolist()
    over_until = np.searchsorted(ends_ms[order], steps, side="right").tolist()
    to_end, opened = order.tolist(), is_completed.tolist()
    waiting: list[Request | None] = [None] * load.requests
    made = over = warm_made = pending = 0
    warm_ms = int(last_ms * WARM_UP_PART)
    warm_s = cpu_s = 0.0
    for now_ms in steps.tolist():
        clock.now_s = now_ms / 1000
        for number in range(made, made_until[now_ms]):
            request = Request(load.timeout_ms, load.size_bytes, ends)
            if opened[number]:
                waiting[number] = request
            purgatory.try_complete_else_watch(request, KEYS)
        made = made_until[now_ms]
        for number in to_end[over : over_until[now_ms]]:
            ended, waiting[number] = waiting[number], None
            if ended is not None:
                ended.force_complete()
        over = over_until[now_ms]
        step()
        if now_ms == warm_ms:
            warm_s, warm_made = time.process_time(), made
        if now_ms == last_ms:
            cpu_s, pending = time.process_time() - warm_s, made - len(ends.all)
    ends.check(load.requests)
    interpreters = cpu_s / (max(1, last_ms - warm_ms) / 1000)
    return {
        "per_s": load.rate / max(interpreters, 1.0),
        "cpu_us": cpu_s / max(1, load.requests - warm_made) * 1e6, "timed_out": len(ends.late_ns), "pending": pending,
    }  # fmt: skip
