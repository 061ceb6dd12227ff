"""Finding messages by stream and offset, over open tables and footers alike; nothing is fetched here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from ..errors import OffsetOutOfRange, StoreCorrupt
from ..log.lane import Lane
from ..log.sealed_log import offset_after_sealed
from ..log.streams import Stream
from ..log.write import View
from ..segment.borders import firsts_in
from ..segment.part import Part, count_of, end_of, lengths_of
from ..segment.sealed import SealedSegment
from ..segment.windows import SPARSE_BYTES

STEP_MESSAGES = 16384  # a longer answer comes in steps: it is of lists
FEW_MESSAGES = 1024  # of more, most calls get no further than their bytes
FEW_EMPTY = 4  # segments in a row that have nothing of a stream: then it is searched where it goes on


class Finder:
    """Looks into the views of lanes. Has no state; any number of threads may use it.

    A footer may be damaged, and its frames too, so that it cannot be made again. StoreCorrupt is then raised for
    messages that this segment may have, and for no others.
    """

    def bounds(self, stream: Stream) -> tuple[int, int]:
        """(first, next): the offsets that can be read are first .. next - 1. Never raises for damage.

        The messages of an oldest segment whose index is lost are not counted: `first` is the first one after them.
        """
        low = stream.low  # before the view: a later trim may reach past its end
        view, number = stream.lane.view, stream.number
        if number < 0:
            return 0, 0
        first = next_offset = None
        if view.sealed:
            try:
                first = stream.lane.groups.first_from(view.sealed, number)
            except StoreCorrupt:
                first = first_offset(stream.lane, view, number)
            next_offset = offset_after_sealed(stream.lane, view, number)
            first = next_offset if first is None else first
        for opened in view.open:
            row = opened.table.row(number)
            if row is not None:
                first = row[0] if first is None else first
                next_offset = row[0] + len(row[1])
        if first is None or first < low:
            first = low
        return first, next_offset or 0

    def whole_bounds(self, stream: Stream) -> tuple[int, int]:
        """The `bounds` of a stream of the store's own, of which all records from its low on count.

        Raises StoreCorrupt if damage may hide the first of them: without these the others say something else.
        """
        first, end = self.bounds(stream)
        sealed = stream.lane.view.sealed
        if first > stream.low and sealed:
            stream.lane.groups.first_from(sealed, stream.number)
        return first, end

    def bounds_of(self, streams: Sequence[Stream]) -> list[tuple[int, int]]:
        """The `bounds` of each; a lane is asked once for all of its streams, unless footers of it are damaged."""
        lows = [stream.low for stream in streams]  # before the views, as above
        of_lane: dict[int, list[int]] = {}
        for at, stream in enumerate(streams):
            if stream.number >= 0:
                of_lane.setdefault(stream.lane.index, []).append(at)
        found = [(0, 0)] * len(streams)
        for places in of_lane.values():
            lane = streams[places[0]].lane
            view, numbers = lane.view, np.array([streams[at].number for at in places], np.int64)
            firsts = firsts_in(view.sealed, numbers)
            if firsts is None:
                for at in places:
                    found[at] = self.bounds(streams[at])
                continue
            opened = [one.table.rows_now() for one in view.open]
            for at, number, sealed_first in zip(places, numbers.tolist(), firsts.tolist(), strict=True):
                rows = [by_number[number] for by_number in opened if number in by_number]
                if rows:
                    following = rows[-1][0] + len(rows[-1][1])
                else:
                    following = offset_after_sealed(lane, view, number) if view.sealed else 0
                first = sealed_first if sealed_first >= 0 else rows[0][0] if rows else following
                found[at] = max(first, lows[at]), following
        return found

    def parts(  # noqa: PLR0912  # a call more costs as much as finding a message
        self, stream: Stream, view: View, offset: int, limit: int
    ) -> list[Part]:
        """Where up to `limit` messages from `offset` on lie, in offset order; holes that a repair left are passed over.

        A long answer has lists of all of its places: see `steps`. Raises OffsetOutOfRange below the first offset,
        StoreCorrupt where damage keeps one of the messages from being found.
        """
        found: list[Part] = []
        number = stream.number
        if number < 0:
            return found
        if offset < stream.low:
            raise OffsetOutOfRange(stream.topic, stream.queue_id, offset, *self.bounds(stream))
        if limit <= 0:
            self._check_first(stream, view, offset)
            return found
        opened, at, begun = len(view.open), offset, True
        try:
            while opened:  # the newest first: most reads are of what was just written
                opened -= 1
                row = view.open[opened].table.row(number)
                if row is not None and row[0] <= offset:
                    break
            else:
                row, begun = None, False
                limit = _add_sealed(stream.lane, view, number, offset, limit, found)
                if found:
                    at = end_of(found[-1])
            if limit:
                for segment, table in view.open[opened:]:
                    row = row or table.row(number)  # the first one's is known
                    if row is None:
                        continue
                    if at < row[0]:
                        if begun:  # what is between them was not durable yet at the look at the one before
                            break
                        at = row[0]  # a repair may have left a gap after the sealed ones
                    begun = True
                    entries = row[1][at - row[0] : at - row[0] + limit]
                    if entries:
                        is_sparse = segment.header.capacity_bytes > SPARSE_BYTES * len(row[1])
                        found.append((segment, table.flat, entries, is_sparse, at))
                        at, limit = at + len(entries), limit - len(entries)
                    row = None
        except StoreCorrupt:
            if not found or found[0][4] > offset:
                self._check_first(stream, view, offset)
            raise
        if not found or found[0][4] > offset:
            self._check_first(stream, view, offset)
        return found

    def parts_within(self, stream: Stream, view: View, offset: int, limit: int, max_bytes: int) -> list[Part]:
        """As `parts`, in steps, as long as they do not pass `max_bytes`."""
        found, left = list[Part](), max_bytes
        for some in self.steps(stream, view, offset, limit, FEW_MESSAGES):
            found += some
            left -= sum([sum(lengths_of(part)) for part in some])
            if left < 0:
                break
        return found

    def steps(
        self, stream: Stream, view: View, offset: int, limit: int, step: int = STEP_MESSAGES
    ) -> Iterator[list[Part]]:
        """As `parts`, so many messages at a time; what comes after them is not looked for before it is asked for."""
        first = offset
        while True:
            try:
                some = self.parts(stream, view, offset, min(limit, step))
            except OffsetOutOfRange:  # a trim came in between: the result ends before it
                if offset == first:
                    raise
                return
            if some:
                yield some
            limit -= step
            if limit <= 0 or count_of(some) < step:
                return
            offset = end_of(some[-1])

    def _check_first(self, stream: Stream, view: View, offset: int) -> None:
        """Raises OffsetOutOfRange below the first offset; StoreCorrupt if damage may have had the message."""
        if offset < first_offset(stream.lane, view, stream.number):
            if view.sealed:
                _ = view.sealed[0].index  # raises if it is damaged
            raise OffsetOutOfRange(stream.topic, stream.queue_id, offset, *self.bounds(stream))


def open_end(stream: Stream) -> int | None:
    """The offset after the stream's last durable message, if that is in an open segment. Never reads the device."""
    for _, table in reversed(stream.lane.view.open):
        row = table.row(stream.number)
        if row is not None:
            return row[0] + len(row[1])
    return None


def first_offset(lane: Lane, view: View, number: int, at: int = 0) -> int:
    """The first offset of a stream that can be found in a view, from the sealed segment `at` on; 0 if none."""
    if not view.sealed:
        return _first_open(view, number)
    try:
        first = lane.groups.first_from(view.sealed, number, at)
        return offset_after_sealed(lane, view, number) if first is None else first
    except StoreCorrupt:
        return _first_behind(lane, view, at + 1, number)


def _first_behind(lane: Lane, view: View, at: int, number: int) -> int:
    """The first offset in the sealed segments from index `at` on and the open ones; else the next offset."""
    for segment in view.sealed[at:]:
        with suppress(StoreCorrupt):
            first, count = segment.first_of(number)
            if count or segment.record.full:
                return first
    return offset_after_sealed(lane, view, number)


def _first_open(view: View, number: int) -> int:
    """The stream's first offset in the open segments, 0 if none has messages of it."""
    for opened in view.open:
        row = opened.table.row(number)
        if row is not None:
            return row[0]
    return 0


def _add_sealed(lane: Lane, view: View, number: int, offset: int, limit: int, parts: list[Part]) -> int:
    """Add the parts of sealed segments; returns how many messages are still wanted."""
    sealed, empty = view.sealed, 0
    count = sealed.span[2]
    try:
        index = lane.groups.where(sealed, number, offset)
    except StoreCorrupt:
        index = _around_damage(lane, view, number, offset)
    while index < count:
        segment = sealed.at(index)
        try:
            left = segment.add_parts(parts, lane.ring, number, offset, limit)
        except StoreCorrupt:
            if _has_index(segment) or offset < _first_behind(lane, view, index + 1, number):
                raise  # else only this footer knew whether it has the message
            left = limit
        if left < limit:
            if not left:
                return 0
            last = parts[-1]
            limit, offset, empty = left, last[4] + len(last[2]), 0
        else:
            empty += 1
            if empty > FEW_EMPTY:
                index, empty = max(index, _where(lane, view, number, offset) - 1), 0
        index += 1
    return limit


def _has_index(segment: SealedSegment) -> bool:
    with suppress(StoreCorrupt):
        return segment.index is not None
    return False


def _where(lane: Lane, view: View, number: int, offset: int) -> int:
    """As `Groups.where`, also around damage: a segment whose index is lost counts as one without messages, and the
    answer is then before it."""
    try:
        return lane.groups.where(view.sealed, number, offset)
    except StoreCorrupt:
        return _around_damage(lane, view, number, offset)


def _around_damage(lane: Lane, view: View, number: int, offset: int) -> int:
    return max(lane.groups.around_damage(view.sealed, number, offset), 0)


def can_be_read(lane: Lane, view: View, number: int, offset: int) -> bool:
    """Whether a stream's first offset is at most `offset`; sealed segments are only asked if they must be."""
    if offset < lane.streams[number].low:
        return False
    for opened in reversed(view.open):
        row = opened.table.row(number)
        if row is not None and row[0] <= offset:
            return True
    return offset >= first_offset(lane, view, number)
