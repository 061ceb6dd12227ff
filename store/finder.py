"""Finding messages by stream and offset, over open tables and footers alike; nothing is fetched here."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from .errors import OffsetOutOfRange
from .run import Run
from .sealed import SealedSegment
from .streams import Stream
from .write import OpenSegment, View

RUN_MESSAGES = 16384  # a longer run is cut: its places are lists


class Finder:
    """Looks into the views of lanes. Has no state; any number of threads may use it."""

    def bounds(self, stream: Stream) -> tuple[int, int]:
        """(first, next): the offsets that can be read are first .. next - 1."""
        view, number = stream.lane.view, stream.number
        if number < 0:
            return 0, 0
        first = next_offset = None
        if view.sealed:
            first = view.sealed[0].first_offset(number)
            begin, count = view.sealed[-1].first_of(number)
            next_offset = begin + count
        for opened in view.open:
            row = opened.table.row(number)
            if row is not None:
                first = row[0] if first is None else first
                next_offset = row[0] + len(row[1])
        return first or 0, next_offset or 0

    def runs(self, stream: Stream, offset: int, limit: int) -> Iterator[Run]:
        """Up to `limit` messages from `offset` on, as of now. Raises OffsetOutOfRange below the first."""
        view, number = stream.lane.view, stream.number
        if number < 0 or limit <= 0:
            return iter(())
        at = len(view.open)
        while at:  # the newest first: most reads are of what was just written
            at -= 1
            row = view.open[at].table.row(number)
            if row is not None and row[0] <= offset:
                return _open_runs(view.open[at:], number, offset, limit)
        if offset < first_offset(view, number):
            raise OffsetOutOfRange(stream.topic, stream.queue_id, offset, *self.bounds(stream))
        return _all_runs(stream, view, offset, limit)


def first_offset(view: View, number: int) -> int:
    """The first offset of a stream that a view knows, 0 if none."""
    if view.sealed:
        return view.sealed[0].first_offset(number)
    return _first_open(view, number)


def _first_open(view: View, number: int) -> int:
    """The stream's first offset in the open segments, 0 if none has messages of it."""
    for opened in view.open:
        row = opened.table.row(number)
        if row is not None:
            return row[0]
    return 0


def _open_runs(opened: Iterable[OpenSegment], number: int, offset: int, limit: int) -> Iterator[Run]:
    for segment, table in opened:
        while limit > 0:
            asked = min(limit, RUN_MESSAGES)
            entries = table.find(number, offset, asked)
            count = len(entries)
            if count:
                yield Run(segment, table, range(offset, offset + count), entries, table.places(entries))
                offset, limit = offset + count, limit - count
            if count < asked:
                break


def _all_runs(stream: Stream, view: View, offset: int, limit: int) -> Iterator[Run]:
    """Of the sealed segments, and then of the open ones."""
    number, ring, sealed = stream.number, stream.lane.ring, view.sealed
    index = _last_from(sealed, number, offset)
    while 0 <= index < len(sealed) and limit > 0:
        segment = sealed[index]
        first, count = segment.first_of(number)
        end = first + count
        if offset < end and count:
            offset = max(offset, first)  # a repair may have left a gap before this segment
            asked = min(limit, RUN_MESSAGES, end - offset)
            run = segment.run(ring, number, offset, asked)
            offset += asked
            if run.entries:
                yield run
                limit -= len(run.entries)
            if offset == end:
                index += 1
        elif count or index + 1 == len(sealed):
            index += 1
        else:  # of many segments that have nothing of this stream
            index = max(index + 1, _last_from(sealed, number, offset))
    if limit > 0:
        # A repair may have left a gap behind the sealed ones. Between open ones there is none: what looks like
        # one is not durable yet.
        yield from _open_runs(view.open, number, max(offset, _first_open(view, number)), limit)


def _last_from(sealed: tuple[SealedSegment, ...], number: int, offset: int) -> int:
    """Index of the last segment whose first offset of the stream is at most `offset`; -1 if there is none.

    A segment without messages of the stream has the first offset of the one that follows it, and one that does
    not know the stream yet says 0: so this is the one that holds the offset, if any does.
    """
    return bisect_right(sealed, offset, key=lambda segment: segment.first_offset(number)) - 1


def can_be_read(view: View, number: int, offset: int) -> bool:
    """Whether a stream's first offset is at most `offset`; sealed segments are only asked if they must be."""
    for opened in reversed(view.open):
        row = opened.table.row(number)
        if row is not None and row[0] <= offset:
            return True
    return offset >= first_offset(view, number)
