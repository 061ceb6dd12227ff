"""What was said of delayed messages, and stays so whatever the clock does.

Up to which time they were given out: an index that is made anew leaves these out. And which were reported as due before
the index had read them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..device.clock import Clock
from .parts import are_among

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class GivenOut:
    """Times of a topic, in ms since 1970. Used under the topic's lock.

    Invariant: a message that is in the tracker, or that somebody was told comes later, has a time after `until_ms`; so
    an index that is made anew has it again. What is given out twice thereby is left out by who has had it.

    Attributes:
        until_ms: what was due then, or earlier, was given out.
        skipped_ms: of a topic that is behind: what was due then, of the messages it has not read, is not added.
        latest_ms: the latest time that the clock has shown when times were compared with it.
        told_ms: of an index that was made anew: the latest time that it had shown by then. What was due then may have
            been given out, or told to be due, and be in the index again: if the clock was set back.
    """

    def __init__(self, clock: Clock) -> None:
        """At an opening all that is due was given out: nobody was there before."""
        self._clock = clock
        self.until_ms = self.skipped_ms = self.latest_ms = clock.wall_ms()
        self.told_ms = 0

    def now_ms(self) -> int:
        """The time, to compare times of delivery with. What is after it was not given out: a clock may be set back."""
        now_ms = self._clock.wall_ms()
        self.latest_ms = max(self.latest_ms, now_ms)
        self.owes(now_ms + 1)
        return now_ms

    def owes(self, time_ms: int) -> None:
        """A message with this time is pending, or counts as pending."""
        self.until_ms = min(self.until_ms, time_ms - 1)
        self.skipped_ms = min(self.skipped_ms, time_ms - 1)

    def behind(self, tick_ms: int) -> None:
        """The topic reads on from an earlier place. An index with coarse times has given out less."""
        self.skipped_ms = self.until_ms - (tick_ms - 1)

    def made_anew(self, until_ms: int) -> None:
        """The index is made anew: without what was due at `until_ms`."""
        self.until_ms, self.told_ms = until_ms, self.latest_ms

    def passed_ms(self, *, is_behind: bool) -> int:
        """Messages of the log whose time is not after this one are due: they are not added."""
        now_ms = self.now_ms()
        return min(now_ms, self.skipped_ms) if is_behind else now_ms


class ReportedDue:
    """Messages that were said to be due, by place as `places_of` gives it. Of an index that is behind; else empty."""

    def __init__(self) -> None:
        self._due = BitMap64()

    def __contains__(self, place: int) -> bool:
        return place in self._due

    def are_due(self, places: Int64s) -> Bools:
        """(n,) which were reported as due."""
        return are_among(places, self._due)

    def are_later(self, places: Int64s, unread: Bools, times_ms: Int64s, now_ms: int) -> Bools:
        """(n,) which of the `unread` ones come later. The others of them are due from now on."""
        later = unread & (times_ms > now_ms) & ~self.are_due(places)
        self._due.update(places[unread & ~later].tolist())
        return later

    def clear(self) -> None:
        """The index has read all."""
        self._due.clear()
