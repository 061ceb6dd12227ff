"""How many acknowledgements a record waits for."""

from __future__ import annotations

from collections.abc import Callable, Collection

GATHER_S = 0.002  # at most: then the record goes with those that are there
LOOK_S = 0.02
FEWEST_THREADS = 8
LONGEST_GAP_S = 0.00025  # from one acknowledgement to the next, on average


class Gathering:
    """Follows how many threads acknowledge, and how fast: where many do, most of them share a record.

    The processor is the limit then, and a frame costs as much of it as four acknowledgements. A record waits for seven
    of eight threads, so that one that is slow holds nobody up; for fewer if they don't come in `GATHER_S`, and at least
    for half of them. One thread at a time.

    Attributes:
        wanted: acknowledgements of the next record, if they come in time.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._since_s = monotonic_s()
        self._count = 0
        self._threads: set[int] = set()
        self.wanted = 1

    def note(self, thread_ids: Collection[int]) -> None:
        """A record has acknowledgements of these threads."""
        self._count += len(thread_ids)
        self._threads.update(thread_ids)
        now_s = self._monotonic_s()
        past_s = now_s - self._since_s
        if past_s >= LOOK_S:
            self.wanted = self._next_wanted(past_s)
            self._since_s, self._count = now_s, 0
            self._threads.clear()

    def _next_wanted(self, past_s: float) -> int:
        threads, count = len(self._threads), self._count
        if threads < FEWEST_THREADS or past_s > count * LONGEST_GAP_S:
            return 1
        return max(threads // 2, min(threads - threads // 8, int(count * GATHER_S / past_s)))
