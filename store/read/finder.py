"""Finding messages by stream and offset, over open tables and footers alike; nothing is fetched here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import numpy as np

from ..errors import OffsetOutOfRange, StoreCorrupt
from ..log.lane import Lane
from ..log.streams import Stream
from ..log.write import OpenSegment, View
from ..segment.firsts import firsts_in
from ..segment.remade import offset_behind
from ..segment.run import Run

RUN_MESSAGES = 16384  # a longer run is cut: its places are lists


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
            next_offset = offset_behind(stream.lane, view, number)
            first = next_offset if first is None else first
        for opened in view.open:
            row = opened.table.row(number)
            if row is not None:
                first = row[0] if first is None else first
                next_offset = row[0] + len(row[1])
        if first is None or first < low:
            first = low
        return first, next_offset or 0

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
                    following = offset_behind(lane, view, number) if view.sealed else 0
                first = sealed_first if sealed_first >= 0 else rows[0][0] if rows else following
                found[at] = max(first, lows[at]), following
        return found

    def runs(self, stream: Stream, offset: int, limit: int) -> Iterable[Run]:
        """Up to `limit` messages from `offset` on, as of now.

        Raises OffsetOutOfRange below the first, StoreCorrupt at the first message that damage keeps from being found.
        """
        lane, number = stream.lane, stream.number
        view = lane.view
        if number < 0 or limit <= 0:
            return ()
        if offset < stream.low:
            raise OffsetOutOfRange(stream.topic, stream.queue_id, offset, *self.bounds(stream))
        at = len(view.open)
        while at:  # the newest first: most reads are of what was just written
            at -= 1
            row = view.open[at].table.row(number)
            if row is not None and row[0] <= offset:
                return _open_runs(view.open[at:], number, offset, limit)
        try:
            index = lane.groups.where(view.sealed, number, offset)
        except StoreCorrupt:
            index = _around_damage(lane, view, number, offset)
        if index < len(view.sealed) and limit <= RUN_MESSAGES:
            # As most calls find it: one segment has all that is wanted. A generator costs as much as finding that out.
            try:
                segment = view.sealed[index]
                first, count = segment.first_of(number)
                if first <= offset and offset + limit <= first + count:
                    run = segment.run(lane.ring, number, offset, limit)
                    if len(run.entries) == limit:
                        return (run,)
            except StoreCorrupt:
                pass  # the long way says what of it can be found
        if offset < first_offset(lane, view, number):
            if view.sealed:
                _ = view.sealed[0].index  # raises if it is damaged: it may have had this message
            raise OffsetOutOfRange(stream.topic, stream.queue_id, offset, *self.bounds(stream))
        return _all_runs(stream, view, offset, limit, index)


def first_offset(lane: Lane, view: View, number: int, at: int = 0) -> int:
    """The first offset of a stream that can be found in a view, from the sealed segment `at` on; 0 if none."""
    if not view.sealed:
        return _first_open(view, number)
    try:
        first = lane.groups.first_from(view.sealed, number, at)
        return offset_behind(lane, view, number) if first is None else first
    except StoreCorrupt:
        return _first_behind(lane, view, at + 1, number)


def _first_behind(lane: Lane, view: View, at: int, number: int) -> int:
    """The first offset in the sealed segments from index `at` on and the open ones; else the next offset."""
    for segment in view.sealed[at:]:
        with suppress(StoreCorrupt):
            first, count = segment.first_of(number)
            if count or segment.record.full:
                return first
    return offset_behind(lane, view, number)


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


def _all_runs(stream: Stream, view: View, offset: int, limit: int, index: int) -> Iterator[Run]:
    """Of the sealed segments, from `index` on, and then of the open ones."""
    number, lane, sealed = stream.number, stream.lane, view.sealed
    while index < len(sealed) and limit > 0:
        segment = sealed[index]
        try:
            first, count = segment.first_of(number)
        except StoreCorrupt:
            if offset < _first_behind(lane, view, index + 1, number):
                raise  # only this footer knew whether it has the message
            index += 1
            continue
        end = first + count
        if offset < end and count:
            offset = max(offset, first)  # a repair may have left a gap before this segment
            asked = min(limit, RUN_MESSAGES, end - offset)
            run = segment.run(lane.ring, number, offset, asked)
            offset += asked
            if run.entries:
                yield run
                limit -= len(run.entries)
            if offset == end:
                index += 1
        elif count or index + 1 == len(sealed):
            index += 1
        else:  # of many segments that have nothing of this stream
            index = max(index + 1, _where(lane, view, number, offset))
    if limit > 0:
        # A repair may have left a gap after the sealed ones. Between open ones there is none: messages that seem to
        # be missing there are not durable yet.
        yield from _open_runs(view.open, number, max(offset, _first_open(view, number)), limit)


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
