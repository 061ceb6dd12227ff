"""Where a stream's messages are among a lane's sealed segments, without a look at each.

A full footer tells of every stream how far it has got, and in which of the segments before it, back to the full one
before, the stream has messages. So a search goes over the full footers by bisection, then over the few segments of one
group that have the stream. Behind the newest full footer the same is kept in memory.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import StoreCorrupt
from ..format.footer import Footer, FooterData

if TYPE_CHECKING:
    from .sealed import SealedSegment

Numbers = npt.NDArray[np.uint32]
GROUP_SEGMENTS = 64  # at the most: one bit each, the full footer's own segment among them
GONE_KEPT = 128  # full footers of removed segments that are still known
ONE = np.uint64(1)


class Present(NamedTuple):
    """In which of some segments in a row streams have messages.

    `numbers`, `bits` (n,): the streams that have any, ascending; bit i stands for the segment `end` - i. `unknown`:
    some that may have messages of any stream. `rows`: how many the footers of all have.
    """

    end: int
    numbers: Numbers = np.empty(0, np.uint32)
    bits: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
    unknown: tuple[int, ...] = ()
    rows: int = 0

    def behind(self, sequence: int, numbers: Numbers | None) -> Present:
        """The same and one more segment, which has messages of these streams; None: of any."""
        steps = sequence - self.end
        bits = self.bits << np.uint64(steps) if steps < GROUP_SEGMENTS else np.zeros(len(self.bits), np.uint64)
        if numbers is None:
            return Present(sequence, self.numbers, bits, (*self.unknown, sequence), self.rows)
        merged = np.union1d(self.numbers, numbers).astype(np.uint32)
        both = np.zeros(len(merged), np.uint64)
        both[merged.searchsorted(self.numbers)] = bits
        both[merged.searchsorted(numbers)] |= ONE
        return Present(sequence, merged, both, self.unknown, self.rows + len(numbers))

    def column(self, streams: int) -> npt.NDArray[np.uint64]:
        """(streams,) the bits of each, as the full footer of the segment `end` has them."""
        column = np.zeros(streams, np.uint64)
        column[self.numbers] = self.bits
        for sequence in self.unknown:
            if self.end - sequence < GROUP_SEGMENTS:
                column |= ONE << np.uint64(self.end - sequence)
        return column

    def has(self, number: int, sequence: int) -> bool:
        """Whether a segment may have messages of a stream."""
        if sequence in self.unknown or self.end - sequence >= GROUP_SEGMENTS:
            return True
        row = int(self.numbers.searchsorted(number))
        found = row < len(self.numbers) and int(self.numbers[row]) == number
        return found and bool(int(self.bits[row]) >> (self.end - sequence) & 1)


def streams_in(footer: Footer | FooterData) -> Numbers:
    """The streams with messages in a footer's segment, ascending."""
    return np.asarray(footer.numbers[footer.counts > 0], np.uint32)


class Groups:
    """The groups of one lane's sealed segments. Any number of threads may ask.

    Invariants:
        * `_known` is replaced as a whole: the sequences of the full footers, ascending, up to a segment, and what is
          present behind the last of them. It has all from `_since` on; an older view is looked at by itself;
        * it grows by whole views alone, in which no segment behind `_known` is missing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: tuple[list[int], Present] = [], Present(0)
        self._since = 0
        self.wants_full = False  # the newest full footer's segment is to be removed: the next one is to be full

    def look(self, sealed: Sequence[SealedSegment]) -> tuple[list[int], Present]:
        """The full footers up to the end of a view's sealed segments, and the streams of those behind the last one.

        `sealed`: all that the view has. Raises OSError.
        """
        known = self._known
        end = sealed[-1].segment.sequence if sealed else known[1].end
        if known[1].end < end:
            with self._lock:
                known = self._known
                if known[1].end < end:
                    known = self._known = self._with(self._without_gone(known, sealed[0].segment.sequence), sealed)
        fulls = known[0]
        if sealed and sealed[0].segment.sequence < self._since:
            return self._with(([], Present(0)), sealed)
        if fulls and fulls[-1] > end:  # an older view: what is present behind a later full footer tells nothing of it
            fulls = fulls[: bisect_right(fulls, end)]
            return self._with((fulls, Present(fulls[-1] if fulls else 0)), sealed)
        return known

    def _without_gone(self, known: tuple[list[int], Present], first: int) -> tuple[list[int], Present]:
        """Forget full footers of segments that were removed long ago; slower threads may still have the newer ones."""
        fulls, present = known
        gone = bisect_left(fulls, first)
        if gone < 2 * GONE_KEPT:
            return known
        self._since = fulls[gone - GONE_KEPT]  # first: whoever sees the shorter list sees this
        return fulls[gone - GONE_KEPT :], present

    def _with(self, known: tuple[list[int], Present], sealed: Sequence[SealedSegment]) -> tuple[list[int], Present]:
        fulls, present = known
        begin = bisect_right(sealed, present.end, key=lambda one: one.segment.sequence)
        fresh = sealed[begin:]
        fulls = [*fulls, *(one.segment.sequence for one in fresh if one.record.full)]
        last = fulls[-1] if fulls else 0
        if last > present.end:
            present = Present(last)
        for one in fresh:
            sequence = one.segment.sequence
            if sequence > last:
                numbers = None
                with suppress(StoreCorrupt):
                    numbers = streams_in(one.footer)
                present = present.behind(sequence, numbers)
        return fulls, present

    # -- searching ------------------------------------------------------------------------------------

    def where(self, sealed: Sequence[SealedSegment], number: int, offset: int) -> int:
        """Index of the segment that has an offset of a stream, or where it goes on behind it; their number if nowhere.

        Raises StoreCorrupt where damage hides that.
        """
        if not sealed:
            return 0
        fulls, present = self.look(sealed)
        low, high = bisect_left(fulls, sealed[0].segment.sequence), len(fulls)
        at = bisect_right(
            fulls, offset, low, high, key=lambda sequence: sealed[index_of(sealed, sequence)].first_offset(number)
        )
        first = index_of(sealed, fulls[at - 1]) if at > low else -1
        if first >= 0:
            begins, count = sealed[first].first_of(number)
            if begins + count > offset:
                return first
        following = index_of(sealed, fulls[at]) if at < high else len(sealed)
        for index in self._candidates(sealed, number, (first + 1, following), present):
            begins, count = sealed[index].first_of(number)
            if count and begins + count > offset:
                return index
        return following

    def around_damage(self, sealed: Sequence[SealedSegment], number: int, offset: int) -> int:
        """The last segment whose first offset of the stream is at most `offset`, past those whose index is lost; or -1.

        Of the full ones each step passes over those that stand in a row; then one group is looked at.
        """
        fulls = [index for index, one in enumerate(sealed) if one.record.full]
        low, high = 0, len(fulls)
        while low < high:
            middle = at = (low + high) // 2
            first = None
            while first is None and at < high:
                with suppress(StoreCorrupt):
                    first = sealed[fulls[at]].first_offset(number)
                at += 1
            if first is not None and first <= offset:
                low = at
            else:  # those in between are lost, and have the first offset of the one after them
                high = middle
        last = fulls[low - 1] if low else -1
        end = next((index for index in fulls[low:] if sealed[index].in_file() is not None), len(sealed))
        for index in range(last + 1, end):
            if not sealed[index].record.full:
                with suppress(StoreCorrupt):
                    begins, count = sealed[index].first_of(number)
                    last = index if count and begins <= offset else last
        return last

    def _candidates(
        self, sealed: Sequence[SealedSegment], number: int, between: tuple[int, int], present: Present
    ) -> Sequence[int]:
        """The segments of a group, without its full one, that may have messages of a stream."""
        low, high = between
        if low >= high:
            return ()
        if high == len(sealed):
            return [index for index in range(low, high) if present.has(number, sealed[index].segment.sequence)]
        full = sealed[high]
        bits, end = full.presence(number), full.segment.sequence
        return [
            index
            for index in range(low, high)
            if (steps := end - sealed[index].segment.sequence) >= GROUP_SEGMENTS or bits >> steps & 1
        ]

    def first_from(self, sealed: Sequence[SealedSegment], number: int, begin: int = 0) -> int | None:
        """The first offset of a stream in a view's segments from an index on; None if it has none there.

        Where a full footer is among them, it tells also where such a stream goes on. Raises StoreCorrupt.
        """
        if begin >= len(sealed):
            return None
        if sealed[begin].record.full:
            return sealed[begin].first_offset(number)
        fulls, present = self.look(sealed)
        at = bisect_left(fulls, sealed[begin].segment.sequence)
        following = index_of(sealed, fulls[at]) if at < len(fulls) else len(sealed)
        for index in self._candidates(sealed, number, (begin, following), present):
            begins, count = sealed[index].first_of(number)
            if count:
                return begins
        return sealed[following].first_offset(number) if following < len(sealed) else None


def index_of(sealed: Sequence[SealedSegment], sequence: int) -> int:
    """The index of the segment with this number, or of the first one behind it."""
    at = sequence - sealed[0].segment.sequence  # as long as no segment between them was given up
    if 0 <= at < len(sealed) and sealed[at].segment.sequence == sequence:
        return at
    return bisect_left(sealed, sequence, key=lambda one: one.segment.sequence)


# -- all streams of a lane ------------------------------------------------------------------------------


def offsets_behind_sealed(sealed: Sequence[SealedSegment], end: int) -> npt.NDArray[np.int64] | None:
    """(streams,) where the streams go on behind the first `end` segments, by their files; None if damage hides it."""
    begin = end - 1
    while begin >= 0 and not sealed[begin].record.full:
        begin -= 1
    if begin < 0:
        return None
    offsets: npt.NDArray[np.int64] | None = None
    for one in sealed[begin:end]:
        index = one.in_file()
        if index is None:
            return None
        footer = index.footer
        if footer.is_full or offsets is None:
            offsets = footer.next_offsets
        else:
            offsets = grown(offsets, one.record.streams)
            offsets[footer.stream] = footer.next_offsets
    return offsets


def offsets_before(
    sealed: Sequence[SealedSegment], begin: int, behind: Callable[[], npt.NDArray[np.int64] | None]
) -> npt.NDArray[np.int64] | None:
    """(streams,) with which offsets the segment at an index begins; `behind`: where the streams go on after all.

    Of damaged segments the newest is made first, so that no call goes deep. None if damage hides it.
    """
    end = begin
    while end < len(sealed) and not (sealed[end].record.full and sealed[end].in_file() is not None):
        end += 1
    offsets = behind() if end == len(sealed) else sealed[end].footer.first
    if offsets is None:
        return None
    offsets = np.array(offsets, np.int64)
    for one in reversed(sealed[begin:end]):
        try:
            footer = one.footer
        except StoreCorrupt:
            return None
        numbers = footer.numbers
        offsets = grown(offsets, int(numbers[-1]) + 1 if len(numbers) else 0)
        offsets[numbers] = footer.first
    return offsets


def grown(offsets: npt.NDArray[np.int64], streams: int) -> npt.NDArray[np.int64]:
    """A copy for so many streams at least: later ones begin at 0."""
    column = np.zeros(max(streams, len(offsets)), np.int64)
    column[: len(offsets)] = offsets
    return column
