"""The place of a scanned segment's messages in their queues, in a repair.

A frame has the low 16 bits of each offset. They place a message among the 65,536 offsets after the one before it. That
is certain only if fewer messages can be missing in between; counts in the log tell how many are. The exact offsets in a
neighbour's footer decide what is open then. What stays open is not sure, and is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..format.arrays import Bools, Int64s, Uint16s

NO_OFFSET = -1  # as a stream's next offset: it is not known
ANY = 1 << 62  # as a number of lost messages
WINDOW = 1 << 16


@dataclass
class OffsetBounds:
    """The known bounds of a segment's offsets, besides their low bits.

    first (streams,): where each stream goes on from, or NO_OFFSET.
    before: lost messages before the segment, of any stream, that `first` does not count; ANY if that is unknown.
    ends (some streams,): where each ends: exactly at the segment's end, if `is_exact`, else there or later, by as much
        as is lost in between. None if no later footer says.
    inside: lost messages from the segment's begin to `ends`, or to its own end; ANY if that is unknown.
    lows (some streams,): low bits of each one's next message after the segment, or NO_OFFSET.
    is_partial: `ends` are of some streams alone.
    """

    first: Int64s
    before: int = 0
    ends: Int64s | None = None
    is_exact: bool = False
    inside: int = ANY
    lows: Int64s | None = None
    is_partial: bool = False

    def share(self, segments: int) -> OffsetBounds:
        """The bounds of the first of so many empty segments, each of which leaves out its share of what is lost."""
        if self.ends is None or not self.is_exact or segments == 1:
            return self
        first = _of_each(self.first, len(self.ends))
        is_open = (first == NO_OFFSET) | (self.ends == NO_OFFSET)
        part = np.where(is_open, self.ends, first + (self.ends - first) // segments)
        return replace(self, ends=part)


@dataclass
class PlacedMessages:
    """Where each stream begins, how many offsets it has here, and the place of each message among these, from 0."""

    first: Int64s
    counts: Int64s
    places: Int64s
    is_sure: bool


class _Rows:
    """The messages of those streams that have any, by stream and in log order."""

    def __init__(self, lows: Uint16s, missing: Int64s, start: Int64s, bounds: OffsetBounds) -> None:
        self.streams = np.flatnonzero(np.diff(start))
        self.heads, self.tails = start[self.streams], start[self.streams + 1] - 1
        self.lows = lows.astype(np.int64)
        self.first = bounds.first[self.streams]
        self.known = self.first != NO_OFFSET
        self.jumps, gaps = np.zeros(len(lows), np.int64), np.zeros(len(lows), np.int64)
        self.jumps[1:] = (self.lows[1:] - self.lows[:-1] - 1) % WINDOW
        self.jumps[self.heads] = np.where(self.known, (self.lows[self.heads] - self.first) % WINDOW, 0)
        gaps[1:] = missing[1:] - missing[:-1]
        gaps[self.heads] = np.where(self.known, missing[self.heads] + bounds.before, 0)
        self.behind = bounds.inside - missing[self.tails]  # lost messages after each stream's last one
        self.open = self.jumps + WINDOW <= gaps  # there may be whole windows more in these
        self.wrong = self.jumps > gaps  # what is not lost is missing
        self.ends = _of_each(bounds.ends, len(bounds.first))

    def sums(self, values: npt.NDArray[np.generic]) -> Int64s:
        """The sum of each stream's values."""
        return np.add.reduceat(values.astype(np.int64), self.heads) if len(self.heads) else np.zeros(0, np.int64)


def _of_each(some: Int64s | None, streams: int) -> Int64s:
    """The values of all streams: NO_OFFSET for those that are not among `some`."""
    values = np.full(streams, NO_OFFSET, np.int64)
    if some is not None:
        values[: len(some)] = some[:streams]
    return values


def place(lows: Uint16s, missing: Int64s, start: Int64s, bounds: OffsetBounds) -> PlacedMessages:
    """Place a segment's messages. Where the bounds contradict each other the low bits decide, and nothing is sure.

    Args:
        lows (messages,): low bits of the offsets, by stream and in log order.
        missing (messages,): how many messages of the segment are lost before each, of any stream.
        start (streams + 1,): each stream's messages are start[i] .. start[i + 1] - 1.
        bounds: what else is known.
    """
    rows = _Rows(lows, missing, start, bounds)
    ends = rows.ends[rows.streams]
    sure = ~rows.wrong.any() if len(lows) else np.True_
    if bounds.is_exact:
        sure &= _fit(rows, ends)
    else:
        sure &= not rows.open.any()
    behind = np.where(rows.ends == NO_OFFSET, _of_each(bounds.lows, len(bounds.first)), rows.ends)
    first = np.where(bounds.first == NO_OFFSET, behind, bounds.first)
    reach = rows.sums(1 + rows.jumps)
    blind = ~rows.known
    sure &= _count_back(rows, ends, reach, blind)
    first[rows.streams[blind]] = rows.first[blind]
    sure &= bool(((bounds.first != NO_OFFSET) | (rows.ends != NO_OFFSET)).all())
    if not bounds.is_exact and bounds.inside:
        sure &= bool(np.isin(np.flatnonzero(bounds.first == NO_OFFSET), rows.streams).all())
    first[first == NO_OFFSET] = 0
    counts = np.zeros(len(first), np.int64)
    counts[rows.streams] = reach
    if bounds.is_exact:
        counts = np.maximum(counts, rows.ends - first)
    inner = (1 + rows.jumps).cumsum() - 1
    base = inner[rows.heads] - rows.jumps[rows.heads]
    return PlacedMessages(first, counts, inner - base.repeat(np.diff(start)[rows.streams]), bool(sure))


def _fit(rows: _Rows, ends: Int64s) -> bool:
    """Put whole windows where the exact ends say that they are missing. Are all jumps sure then?

    No more than have room before the end, where the next segment's messages begin: offsets that an earlier repair left
    out are free as well, and `behind` does not count them.
    """
    known = rows.known & (ends != NO_OFFSET)
    rest = np.where(known, ends - rows.first - rows.sums(1 + rows.jumps), 0)  # missing, and not in a jump
    choices = rows.sums(rows.open)
    wanted, room = -(-(rest - rows.behind).clip(0) // WINDOW), rest.clip(0) // WINDOW
    hidden = np.minimum(wanted, room) * WINDOW
    one = known & (choices == 1)
    for index in np.flatnonzero(one & (hidden > 0)).tolist():
        at = rows.heads[index] + np.flatnonzero(rows.open[rows.heads[index] : rows.tails[index] + 1])[0]
        rows.jumps[at] += hidden[index]
    told = one & (rows.behind < WINDOW) & (wanted <= room)
    settled = (rest >= 0) & ((choices == 0) | (rest < WINDOW) | told)
    return bool((settled & (known | (choices == 0)))[rows.known].all())


def _count_back(rows: _Rows, ends: Int64s, reach: Int64s, blind: Bools) -> bool:
    """Count back from their ends where streams begin of which nothing before the segment is known. Is that sure?"""
    if not blind.any():
        return True
    last_low = rows.lows[rows.tails]
    slack = (ends - 1 - last_low) % WINDOW
    begins = ends - slack - reach
    told = blind & (ends != NO_OFFSET) & (begins >= 0)
    rows.first = np.where(told, begins, np.where(blind, rows.lows[rows.heads], rows.first))
    sure = told & (slack + WINDOW > rows.behind) & (rows.sums(rows.open) == 0)
    return bool(sure[blind].all())
