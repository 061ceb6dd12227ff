"""Which topic a receipt is of, for a subscription of several topics."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ..format.arrays import Bools, Int64s
from .in_flight import NOTHING

FEW_RANGES = 1024  # so many are kept before those are looked for whose messages are over

NO_RANGE = 0, -1 << 63, ""

Range: TypeAlias = "tuple[int, int, str]"  # its first receipt, the one after its last, and the topic
AreLive: TypeAlias = "Callable[[str, Int64s, Int64s], Bools]"


class ReceiptTopics:
    """Ranges of receipts, each of one topic. Any number of threads may use it.

    The messages of one look have receipts without a gap, so a range is one look. Ranges whose messages are all over are
    dropped once there may be more of them than of the others: memory goes by what consumers have.

    Invariant: the ranges ascend, and none of them overlap.
    """

    def __init__(self, are_live: AreLive) -> None:
        """`are_live(topic, begins, ends)` says (n,) which ranges have a receipt that is still good for something."""
        self._are_live = are_live
        self._lock = threading.Lock()
        self._ranges: list[Range] = []
        self._most = FEW_RANGES

    def __len__(self) -> int:
        return len(self._ranges)

    def note(self, first: int, count: int, topic: str) -> None:
        """`count` messages of a topic were given out, with the receipts from `first` on."""
        with self._lock:
            at = bisect_right(self._ranges, first, key=_begin)
            before = self._ranges[at - 1] if at else None
            if before is not None and before[1:] == (first, topic):
                self._ranges[at - 1] = before[0], first + count, topic
            else:
                self._ranges.insert(at, (first, first + count, topic))
            is_full = len(self._ranges) > self._most
        if is_full:
            self._drop_old()

    def topic_of(self, receipt: int) -> str | None:
        """The topic of a receipt; None if it was not given out here, or its message is over."""
        with self._lock:
            at = bisect_right(self._ranges, receipt, key=_begin) - 1
            return self._ranges[at][2] if at >= 0 and receipt < self._ranges[at][1] else None

    def by_topic(self, receipts: Int64s) -> tuple[dict[str, Int64s], Int64s]:
        """Receipts (n,) by their topics, ascending, and those (m,) that are unknown."""
        ascending, found, unknown, at = np.unique(receipts), dict[str, list[Int64s]](), [NOTHING], 0
        with self._lock:
            while at < len(ascending):
                number = bisect_right(self._ranges, int(ascending[at]), key=_begin) - 1
                _, end, topic = self._ranges[number] if number >= 0 else NO_RANGE
                count = int(ascending[at:].searchsorted(end))
                if count:
                    found.setdefault(topic, []).append(ascending[at : at + count])
                else:
                    unknown.append(ascending[at : at + 1])
                at += max(count, 1)
        return {topic: np.concatenate(parts) for topic, parts in found.items()}, np.concatenate(unknown)

    def _drop_old(self) -> None:
        """Drop the ranges whose messages are over. Ranges that come or grow meanwhile stay."""
        with self._lock:
            ranges = list(self._ranges)
        of_topic: dict[str, list[Range]] = {}
        for one in ranges:
            of_topic.setdefault(one[2], []).append(one)
        over = set[Range]()
        for topic, mine in of_topic.items():
            begins, ends = np.array([one[:2] for one in mine], np.int64).T
            over.update([mine[at] for at in np.flatnonzero(~self._are_live(topic, begins, ends)).tolist()])
        with self._lock:
            self._ranges = [one for one in self._ranges if one not in over]
            self._most = max(FEW_RANGES, 2 * len(self._ranges))


def _begin(one: Range) -> int:
    return one[0]
