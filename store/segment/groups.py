"""Where a stream's messages are among a lane's sealed segments, without a look at each.

A full footer tells of every stream how far it has got, and in which of the segments before it, back to the full one
before, the stream has messages. So a search is a bisection over the full footers, then one over those segments of a
single group that have the stream. For the segments after the newest full footer this is kept in memory (`present`).
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..errors import StoreCorrupt
from .present import Backwards, Numbers, Present, last_at_most, streams_in

if TYPE_CHECKING:
    from .sealed import SealedSegment
    from .sealed_segments import SealedSegments

GROUP_SEGMENTS = 1024  # at the most, the full footer's own segment among them
MANY_SEGMENTS = 64  # of fewer a bisection alone asks as few
GUESSES = 3
GONE_KEPT = 128  # full footers of removed segments that are still known
GROUPS_KEPT = 4  # older groups that were put together of their small footers

Known = tuple[list[int], Present]


class Groups:
    """The groups of one lane's sealed segments. Any number of threads may ask.

    Invariants:
        * `_known` is replaced as a whole: the sequences of the full footers, ascending, up to a segment, and the
          streams of the segments after the last of them. It has all from `_since` on; an older view is looked at by
          itself. The list grows in place, so that a seal does not copy it: a search ends with its own view;
        * it grows by whole views alone, in which no segment after those of `_known` is missing.

    Attributes:
        wants_full: the newest full footer's segment is to be removed: the next one is to be full.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: Known = [], Present.since(0)
        self._since = 0
        self._older: dict[int, Present] = {}  # groups that are in no footer, by the full one they begin with
        self._all_full = 0, 0, 0  # the first, last and number of segments that had full footers alone, when last looked
        self.wants_full = False

    def begin(self, sealed: Sequence[SealedSegment], present: Present | None) -> None:
        """Start with an opening's segments; `present`: of those after the newest full footer, or None."""
        fulls = [one.segment.sequence for one in sealed if one.record.full]
        if present is not None and fulls[-1:] == [present.begin] and present.end == sealed[-1].segment.sequence:
            self._known = fulls, present

    def known_at(self, sealed: Sequence[SealedSegment]) -> Known:
        """The full footers up to the end of a view's sealed segments, and the streams of those after the last one.

        `sealed`: all that the view has. `Present` may know later segments than the view. Raises OSError.
        """
        known = self._known
        end = sealed[-1].segment.sequence if sealed else known[1].end
        if known[1].end < end:
            with self._lock:
                known = self._known
                if known[1].end < end:
                    before = known[1]
                    known = self._known = _with(self._without_gone(known, sealed[0].segment.sequence), sealed)
                    if known[1].begin != before.begin:
                        self._keep(before)  # a thread with an older view goes on with it
        fulls = known[0]
        if sealed and sealed[0].segment.sequence < self._since:
            return _with(([], Present.since(0)), sealed)
        if fulls and fulls[-1] > end:  # an older view: `Present` after a later full footer tells nothing of it
            fulls = fulls[: bisect_right(fulls, end)]
            return fulls, self._group(sealed, fulls[-1] if fulls else 0, end)
        return known

    def _without_gone(self, known: Known, first: int) -> Known:
        """Forget full footers of segments that were removed long ago; slower threads may still have the newer ones."""
        fulls, present = known
        gone = bisect_left(fulls, first)
        if gone < 2 * GONE_KEPT:
            return known
        self._since = fulls[gone - GONE_KEPT]  # first: a thread that sees the shorter list sees this
        return fulls[gone - GONE_KEPT :], present

    def _keep(self, present: Present) -> None:
        """Keep a few older groups; others are made again of their footers."""
        older = dict(self._older)
        older.pop(present.begin, None)
        for begin in sorted(older)[: max(0, len(older) + 1 - GROUPS_KEPT)]:
            del older[begin]
        self._older = {**older, present.begin: present}

    def _group(self, sealed: Sequence[SealedSegment], begin: int, end: int) -> Present:
        """`Present` after the full footer of the segment `begin`, up to the segment `end`, by small footers."""
        found = self._older.get(begin)
        if found is None or found.end < end:
            found = Present.since(begin)
            low = bisect_right(sealed, begin, key=lambda one: one.segment.sequence)
            high = bisect_right(sealed, end, key=lambda one: one.segment.sequence)
            found = _grown_by(found, sealed[low:high])
            self._keep(found)
        return found

    # -- searching ------------------------------------------------------------------------------------

    def where(self, sealed: SealedSegments, number: int, offset: int) -> int:
        """Index of the segment from which a reader looks for a stream's messages from `offset` on: none before has any.

        It has the message itself, or ends before it, or begins after it (a gap). `len(sealed)`: no segment has any.
        Raises StoreCorrupt where damage hides that.
        """
        oldest, newest, count = span = sealed.span
        if not count:
            return 0
        if span == self._all_full:  # a lane of few streams; without a call for the key, as it is in every read
            at, high = 0, count
            if high > MANY_SEGMENTS:
                at, high = around(sealed, number, offset)
            while at < high:
                middle = (at + high) >> 1
                if sealed.at(middle).first_offset(number) <= offset:
                    at = middle + 1
                else:
                    high = middle
            return at - 1 if at else 0  # it may end before the offset: a reader looks at its messages in any case
        fulls, present = self.known_at(sealed)
        low = bisect_left(fulls, oldest)
        high = bisect_right(fulls, newest, low)  # others may add later ones
        if high - low == count:
            self._all_full = span
            return self.where(sealed, number, offset)
        at = bisect_right(
            fulls, offset, low, high, key=lambda sequence: sealed[index_of(sealed, sequence)].first_offset(number)
        )
        first = index_of(sealed, fulls[at - 1]) if at > low else -1
        if first >= 0:
            begins, messages = sealed[first].first_of(number)
            if begins + messages > offset:
                return first
        following = index_of(sealed, fulls[at]) if at < high else count
        candidates = self._candidates(sealed, number, (first + 1, following), present)
        last = _last_begun(sealed, candidates, number, offset)
        for nth in range(max(0, last), len(candidates)):  # mostly it is the first or the second
            index = candidates[nth]
            begins, messages = sealed[index].first_of(number)
            if messages and begins + messages > offset:
                return index
        return following

    def around_damage(self, sealed: Sequence[SealedSegment], number: int, offset: int) -> int:
        """The last segment whose first offset of the stream is at most `offset`, past those whose index is lost; or -1.

        Among the segments with the stream, each step passes over a row of lost ones, and over no others.
        """
        if not sealed:
            return -1
        view = sealed[0].segment.sequence, sealed[-1].segment.sequence
        fulls, present = self.known_at(sealed)
        fulls = fulls[bisect_left(fulls, view[0]) : bisect_right(fulls, view[1])]
        at = last_at_most(len(fulls), offset, lambda nth: _first_of(sealed[index_of(sealed, fulls[nth])], number))
        last = begin = index_of(sealed, fulls[at]) if at >= 0 else -1
        for sequence in [*fulls[at + 1 :], None]:  # more than one where full ones are lost
            end = len(sealed) if sequence is None else index_of(sealed, sequence)
            candidates = self._candidates(sealed, number, (begin + 1, end), present)
            found = _last_begun(sealed, candidates, number, offset)
            if found >= 0:
                last = candidates[found]
            if sequence is None or sealed[end].in_file() is not None:
                break
            begin = end
        return last

    def _candidates(
        self, sealed: Sequence[SealedSegment], number: int, between: tuple[int, int], present: Present
    ) -> Sequence[int]:
        """The segments of a group, without its full one, that may have messages of a stream: their indexes."""
        low, high = between
        if low >= high:
            return ()
        if high == len(sealed):
            sequences = present.segments_of(number)
        else:
            told = None
            with suppress(StoreCorrupt):
                told = _told_by(sealed[high], number)
            if told is None:
                begin, end = (sealed[at].segment.sequence if at >= 0 else 0 for at in (low - 1, high - 1))
                told = self._group(sealed, begin, end).segments_of(number)
            sequences = told
        first, last = sealed[low].segment.sequence, sealed[high - 1].segment.sequence
        begin = bisect_left(sequences, first)
        return _Indexes(sealed, sequences, begin, bisect_right(sequences, last, begin))

    def first_from(self, sealed: Sequence[SealedSegment], number: int, begin: int = 0) -> int | None:
        """The first offset of a stream in a view's segments from an index on; None if it has none there.

        A full footer among them also gives the next offset of a stream without messages. Raises StoreCorrupt.
        """
        if begin >= len(sealed):
            return None
        if sealed[begin].record.full:
            return sealed[begin].first_offset(number)
        fulls, present = self.known_at(sealed)
        at = bisect_left(fulls, sealed[begin].segment.sequence)
        following = index_of(sealed, fulls[at]) if at < len(fulls) else len(sealed)
        for index in self._candidates(sealed, number, (begin, following), present):
            begins, count = sealed[index].first_of(number)
            if count:
                return begins
        return sealed[following].first_offset(number) if following < len(sealed) else None


def around(sealed: Sequence[SealedSegment], number: int, offset: int) -> tuple[int, int]:
    """A guess by proportion: the two indexes between which a bisection goes on, of segments with full footers alone.

    Most segments have equally many messages of a stream, so the guess is near. It reads the footers of a few segments;
    a bisection would read a dozen, each for this search alone.
    """
    at, high = 0, len(sealed)
    begins, ends = sealed[0].first_offset(number), sealed[-1].first_offset(number)
    if not begins <= offset < ends:
        return (high, high) if ends <= offset else (0, 1)
    for _ in range(GUESSES):
        middle = at + (offset - begins) * (high - at) // (ends - begins)
        if not at <= middle < high:
            break
        found = sealed[middle].first_offset(number)
        if found <= offset:
            at, begins = middle + 1, found
        else:
            high, ends = middle, found
        if at == high or ends == begins:
            break
    return at, high


class _Indexes(Sequence[int]):
    """The indexes of some segments, by their numbers `begin` .. `end` - 1 of a list."""

    def __init__(self, sealed: Sequence[SealedSegment], sequences: Sequence[int], begin: int, end: int) -> None:
        self._sealed = sealed
        self._sequences = sequences
        self._begin = begin
        self._count = end - begin

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        """A single one."""
        if at >= self._count:
            raise IndexError(at)
        return index_of(self._sealed, self._sequences[self._begin + at])


def _with(known: Known, sealed: Sequence[SealedSegment]) -> Known:
    """`known`, with the later segments of a view added; after an interrupt, only what its list lacks is added."""
    fulls, present = known
    begin = bisect_right(sealed, present.end, key=lambda one: one.segment.sequence)
    fresh = sealed[begin:]
    last = fulls[-1] if fulls else 0
    fulls.extend([one.segment.sequence for one in fresh if one.record.full and one.segment.sequence > last])
    last = fulls[-1] if fulls else 0
    if last > present.end:
        present = Present.since(last)
    return fulls, _grown_by(present, [one for one in fresh if one.segment.sequence > last])


def _grown_by(present: Present, small: Sequence[SealedSegment]) -> Present:
    """`present`, with the streams of some small footers added."""
    for one in small:
        numbers = None
        with suppress(StoreCorrupt):
            numbers = _streams_of(one)
        present = present.with_segment(one.segment.sequence, numbers)
    return present


def _streams_of(one: SealedSegment) -> Numbers:
    """The streams with messages in a segment, ascending. Raises StoreCorrupt, OSError."""
    fresh, one.fresh = one.fresh, None
    if fresh is not None:
        return fresh
    with briefly(one):
        return streams_in(one.footer)


@contextmanager
def briefly(one: SealedSegment) -> Iterator[None]:
    """Close a file again that is opened inside: a group has many, and most are looked at once."""
    was_open = one.segment.is_open
    try:
        yield
    finally:
        if not was_open:
            one.segment.let_go()


def _told_by(full: SealedSegment, number: int) -> Sequence[int] | None:
    """The segments of the group before a full footer that may have a stream's messages, ascending; None if unknown.

    Raises StoreCorrupt, OSError.
    """
    told = full.segments_before(number)
    if told is None:
        return None
    steps, of_any = told
    if len(of_any):  # seldom: those were damaged when it was written
        steps = sorted({*steps, *of_any}, reverse=True)
    return Backwards(full.segment.sequence, steps)


def _last_begun(sealed: Sequence[SealedSegment], indexes: Sequence[int], number: int, offset: int) -> int:
    """Which of some segments, the last whose first offset of a stream is known and at most `offset`; or -1."""
    return last_at_most(len(indexes), offset, lambda nth: _begin_of(sealed[indexes[nth]], number))


def _begin_of(one: SealedSegment, number: int) -> int | None:
    """The first offset of a stream in a segment; None if it has no messages there, or its index is lost."""
    with suppress(StoreCorrupt):
        begins, count = one.first_of(number)
        return begins if count else None
    return None


def _first_of(full: SealedSegment, number: int) -> int | None:
    """The first offset of a stream by a full footer: its next offset if it has no messages there."""
    with suppress(StoreCorrupt):
        return full.first_offset(number)
    return None


def index_of(sealed: Sequence[SealedSegment], sequence: int) -> int:
    """The index of the segment with this number, or of the first one after it."""
    at = sequence - sealed[0].segment.sequence  # as long as no segment between them was given up
    if 0 <= at < len(sealed) and sealed[at].segment.sequence == sequence:
        return at
    return bisect_left(sealed, sequence, key=lambda one: one.segment.sequence)
