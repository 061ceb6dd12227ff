"""Finds the messages of a segment that some subscription has still to get, and that therefore outlive retention.

Of every topic with an index these are its delayed messages. Of a topic that keeps what is not acknowledged they are all
of its messages; of a work queue also where it has no subscription. A copy is wanted if its message is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ..errors import StoreCorrupt
from ..format.arrays import Bools, Int64s
from ..format.delays import LogPlace
from ..format.dues import NO_DUES
from ..format.hidden import is_hidden
from ..log.lane import Lane
from ..log.streams import Stream
from ..segment.part import Part
from ..segment.sealed import SealedSegment
from .due_scan import NO_ROWS, DueRows, DueScan
from .messages import are_over, were_moved
from .parts import places_of
from .topic import DelayedTopic

if TYPE_CHECKING:
    from .delays import Delays

MESSAGE_COST_BYTES = 16  # of a message on disk, beside its data, about


class KeepingSettings(Protocol):
    """The settings of a topic that keeps what is not acknowledged; see `topics.settings`."""

    @property
    def keep(self) -> str:
        """What keeps its messages."""

    @property
    def retention_bytes(self) -> int | None:
        """The most that it keeps."""

    @property
    def ttl_ms(self) -> int | None:
        """The age from which on no subscription gets a message."""


Kept = Mapping[str, KeepingSettings]  # the topics that keep what is not acknowledged


class WantedMessages(NamedTuple):
    """Wanted messages of one queue in one segment: the topic, and the bytes that they take on disk; or its copies."""

    topic: str
    queue_id: int
    offsets: Int64s
    size_bytes: int
    are_copies: bool = False


class SegmentContent(NamedTuple):
    """The part of a segment in which there may be wanted messages.

    Attributes:
        has_dues: it has messages with delivery times.
        kept: the streams in it whose topics keep what is not acknowledged.
        copies: the topics whose copies are in it.
    """

    has_dues: bool
    kept: list[Stream]
    copies: list[DelayedTopic]

    def __bool__(self) -> bool:
        """Whether there may be some."""
        return self.has_dues or bool(self.kept or self.copies)


def content_of(delays: Delays, kept: Kept, lane: Lane, sealed: SealedSegment) -> SegmentContent:
    """The part of a lane's segment in which there may be wanted messages: a look at its footer.

    Raises StoreCorrupt if some topic keeps its messages, and the segment does not say whose it has.
    """
    try:
        footer = sealed.footer
    except StoreCorrupt:  # the streams of its messages are not known
        if kept:
            raise
        return SegmentContent(has_dues=False, kept=[], copies=[])
    streams: list[Stream] = []
    if kept:
        there = [lane.streams[number] for number in footer.numbers[footer.counts > 0].tolist()]
        streams = [stream for stream in there if stream.topic in kept and not is_hidden(stream.topic)]
    copied = [topic for topic in list(delays.with_copies) if _has_copies(topic, lane, sealed)]
    return SegmentContent(footer.dues != NO_DUES, streams, copied)


def _has_copies(topic: DelayedTopic, lane: Lane, sealed: SealedSegment) -> bool:
    stream = topic.copies.stream
    return stream is not None and stream.lane is lane and stream.number >= 0 and sealed.first_of(stream.number)[1] > 0


def copied_in(delays: Delays, lane: Lane, sealed: SealedSegment) -> Iterator[tuple[str, int, int, int]]:
    """Yield of which messages a lane's segment has copies: the topic, queue id, and offsets from one up to another."""
    for topic in [topic for topic in list(delays.with_copies) if _has_copies(topic, lane, sealed)]:
        assert topic.copies.stream is not None, "it has copies there"
        begin, count = sealed.first_of(topic.copies.stream.number)
        with topic.lock:
            copies = topic.copies
            rows = np.flatnonzero((copies.at >= begin) & (copies.at < begin + count))
            of_queues = copies.of_queues() if len(rows) else []
        for queue_id, mine, offsets in of_queues:
            here = offsets[np.isin(mine, rows)]
            if len(here):
                yield topic.name, queue_id, int(here.min()), int(here.max()) + 1


def wanted_in(
    delays: Delays, kept: Kept, lane: Lane, sealed: SealedSegment, content: SegmentContent
) -> Iterator[WantedMessages]:
    """Yield the wanted messages of a lane's segment, by queue. Raises StoreError, OSError."""
    whole = [stream for stream in content.kept if not has_expired(delays, kept[stream.topic], sealed)]
    if content.has_dues:
        numbers = {stream.number for stream in whole}
        for rows in rows_of(lane, sealed):
            for number in np.unique(rows.numbers).tolist():
                if number not in numbers:
                    yield from _delayed(delays, kept, lane.streams[number], rows.take(rows.numbers == number))
    for stream in whole:
        yield from unacknowledged_in(delays, stream, sealed)
    for topic in content.copies:
        settings = kept.get(topic.name)
        has_over = settings is not None and has_expired(delays, settings, sealed)
        yield from _copied(delays, kept, topic, sealed, only_delayed=has_over)


def has_expired(delays: Delays, settings: KeepingSettings, sealed: SealedSegment) -> bool:
    """Whether no subscription gets a topic's messages of a segment any more, but for delayed ones: they are too old."""
    return settings.ttl_ms is not None and sealed.record.newest_ms < delays.parts.clock.wall_ms() - settings.ttl_ms


def rows_of(lane: Lane, sealed: SealedSegment) -> Iterator[DueRows]:
    """Yield the messages of a segment that have a delivery time."""
    scan = DueScan(lane, LogPlace(sealed.segment.sequence, 0))
    while scan.place.sequence == sealed.segment.sequence:
        part = scan.look(-1)
        if part is None:
            break
        yield part.rows
        scan.move(part)


def still_wanted(delays: Delays, topic: DelayedTopic, queue_id: int, offsets: Int64s) -> Bools:
    """(n,) which messages of a topic with an index, whose offsets ascend, some subscription has still to get."""
    if delays.subscribers is None:
        with topic.lock:
            found = topic.are_pending(queue_id, offsets)
    else:
        found = unacknowledged(delays, topic.name, queue_id, offsets)
    return found & ~are_over(topic, queue_id, offsets)


def are_copies_wanted(
    delays: Delays, kept: Kept, topic: DelayedTopic, queue_id: int, offsets: Int64s, times_ms: Int64s
) -> Bools:  # fmt: skip
    """(n,) `still_wanted` for messages that have copies, with their delivery times: 0 for one without."""
    found = still_wanted(delays, topic, queue_id, offsets)
    return found & ~_are_over(delays, kept, topic, queue_id, offsets, times_ms)


def copies_to_keep(delays: Delays, topic: DelayedTopic, queue_id: int, offsets: Int64s, times_ms: Int64s) -> Bools:
    """(n,) which copies of a queue's messages are not forgotten: those that `are_copies_wanted`.

    Of those that are only too old, subscriptions may have used some up: these go to the dead letters first. If that has
    to be asked again, all of these stay. Raises StoreError.
    """
    wanted = still_wanted(delays, topic, queue_id, offsets)
    too_old = wanted & _are_over(delays, delays.kept(), topic, queue_id, offsets, times_ms)
    if too_old.any() and delays.subscribers is not None:
        begin, end = int(offsets[too_old].min()), int(offsets[too_old].max()) + 1
        if not delays.subscribers.save_used_up(topic.name, queue_id, begin, end):
            return wanted
    return wanted & ~too_old


def unacknowledged(delays: Delays, topic: str, queue_id: int, offsets: Int64s) -> Bools:
    """(n,) which messages, whose offsets ascend, some subscription has not acknowledged; of a work queue without a
    subscription all.
    """
    assert delays.subscribers is not None, "a store that removes segments has them"
    return delays.subscribers.unacknowledged(topic, queue_id, offsets, without=delays.is_work_queue(topic))


def delayed_in(
    delays: Delays, kept: Kept, lane: Lane, sealed: SealedSegment, number: int
) -> tuple[int, float]:  # fmt: skip
    """The bytes of a stream's wanted delayed messages in a segment, and the time at which half of these, of those that
    expire, are too old by their own times.
    """
    size_bytes, found = 0, list[Int64s]()
    for rows in rows_of(lane, sealed):
        mine = _wanted_delayed(delays, kept, lane.streams[number], rows.take(rows.numbers == number))
        size_bytes += int(mine.sizes.sum())
        found.append(mine.times_ms)
    ttl_ms = kept[lane.streams[number].topic].ttl_ms
    if ttl_ms is None or not found:
        return size_bytes, math.inf
    times_ms = np.sort(np.concatenate(found)) + ttl_ms
    times_ms = times_ms[times_ms >= delays.parts.clock.wall_ms()]  # the others were moved, and do not expire
    return size_bytes, int(times_ms[len(times_ms) // 2]) if len(times_ms) else math.inf


def _delayed(delays: Delays, kept: Kept, stream: Stream, rows: DueRows) -> Iterator[WantedMessages]:
    """The wanted ones of a queue's delayed messages."""
    rows = _wanted_delayed(delays, kept, stream, rows)
    if len(rows.offsets):
        yield WantedMessages(stream.topic, stream.queue_id, rows.offsets, int(rows.sizes.sum()))


def _wanted_delayed(delays: Delays, kept: Kept, stream: Stream, rows: DueRows) -> DueRows:
    """Those of a queue's messages that are delayed and wanted, by offset."""
    topic = delays.find(stream.topic)
    rows = rows.take(rows.times_ms > rows.written_ms)
    if topic is None or not len(rows.offsets):
        return NO_ROWS
    rows = rows.take(np.argsort(rows.offsets))
    rows = rows.take(_are_wanted(delays, topic, stream, rows.offsets))
    return rows.take(~_are_over(delays, kept, topic, stream.queue_id, rows.offsets, rows.times_ms))


def _are_over(
    delays: Delays, kept: Kept, topic: DelayedTopic, queue_id: int, offsets: Int64s, times_ms: Int64s
) -> Bools:  # fmt: skip
    """(n,) which messages of a queue are too old by their delivery times, so that no subscription gets them."""
    settings = kept.get(topic.name)
    if settings is None or settings.ttl_ms is None:
        return np.zeros(len(offsets), np.bool_)
    over: Bools = (times_ms > 0) & (times_ms < delays.parts.clock.wall_ms() - settings.ttl_ms)
    over[over] = ~were_moved(topic, places_of(np.full(int(over.sum()), queue_id), offsets[over]))
    return over


def _are_wanted(delays: Delays, topic: DelayedTopic | None, stream: Stream, ascending: Int64s) -> Bools:
    """(n,) which messages of a queue some subscription has still to get, and have no copy."""
    if topic is None:
        return unacknowledged(delays, stream.topic, stream.queue_id, ascending)
    wanted = still_wanted(delays, topic, stream.queue_id, ascending)
    with topic.lock:
        return wanted & ~topic.copies.has(stream.queue_id, ascending)


def unacknowledged_in(delays: Delays, stream: Stream, sealed: SealedSegment) -> Iterator[WantedMessages]:
    """The wanted ones of all messages that a queue has in a segment."""
    first, count = sealed.first_of(stream.number)
    offsets = np.arange(max(first, stream.low), first + count)
    offsets = offsets[_are_wanted(delays, delays.find(stream.topic), stream, offsets)]
    if len(offsets):
        lengths = lengths_of(sealed, stream.number, first, first + count)[offsets - first]
        there = lengths >= 0
        if there.any():
            size_bytes = int(lengths[there].sum()) + MESSAGE_COST_BYTES * int(there.sum())
            yield WantedMessages(stream.topic, stream.queue_id, offsets[there], size_bytes)


def lengths_of(sealed: SealedSegment, number: int, begin: int, end: int) -> Int64s:
    """(end - begin,) the length of each message of a stream, which are in a segment; -1 for one that a repair gave up.

    Raises StoreCorrupt, OSError.
    """
    found = np.full(end - begin, -1, np.int64)
    parts: list[Part] = []
    sealed.add_parts(parts, None, number, begin, end - begin)
    for _, flat, entries, _, offset in parts:
        at = offset - begin
        found[at : at + len(entries)] = np.asarray(flat)[3 * np.asarray(entries) + 1]
    return found


def _copied(
    delays: Delays, kept: Kept, topic: DelayedTopic, sealed: SealedSegment, *, only_delayed: bool
) -> Iterator[WantedMessages]:
    """The wanted messages of a topic whose copies lie in a segment: all, or those with a delivery time."""
    stream = topic.copies.stream
    assert stream is not None, "it has copies there"
    begin, count = sealed.first_of(stream.number)
    with topic.lock:
        copies = topic.copies
        rows = np.flatnonzero((copies.at >= begin) & (copies.at < begin + count))
        rows = rows[copies.times_ms[rows] > 0] if only_delayed else rows
        of_queues, sizes, times_ms = copies.of_queues() if len(rows) else [], copies.sizes, copies.times_ms
    for queue_id, mine, offsets in of_queues:
        wanted = np.isin(mine, rows) & are_copies_wanted(delays, kept, topic, queue_id, offsets, times_ms[mine])
        if wanted.any():
            yield WantedMessages(topic.name, queue_id, offsets[wanted], int(sizes[mine[wanted]].sum()), are_copies=True)
