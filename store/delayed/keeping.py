"""Retention and delayed messages: an expired segment may have messages that are still wanted.

Kept or copied? While the expired segments hold little but wanted messages, they are kept: copying the messages would
free nothing. When more than a third of the bytes is waste, the wanted messages of the oldest segment are copied to the
log's end, under their old names, and the segment goes. So expired segments take at most 1.5 times the bytes of their
wanted messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..config import StoreConfig
from ..errors import StoreCorrupt
from ..format.arrays import Int64s
from ..format.delays import COPIES, DELAYS, LogPlace
from ..format.dues import NO_DUES
from ..format.hidden import hidden_parts, hidden_topic
from ..log.lane import Lane
from ..log.retention import expired_segments, size_of
from ..log.streams import Stream
from ..read.message import Message
from ..segment.sealed import SealedSegment
from .due_scan import DueRows, DueScan
from .messages import fetch
from .parts import Subscribers
from .topic import DelayedTopic

if TYPE_CHECKING:
    from .delays import Delays

MOST_WASTE = 1.5  # bytes on disk for each wanted one
LOOK_S = 1.0  # between two checks of the wanted messages ..
LOOK_TIMES = 20  # .. and so many times as long as a check takes
COPIED_BYTES = 4 << 20  # by one append


class _WantedMessages(NamedTuple):
    """Wanted messages of one queue in one segment: the topic, and the bytes that they take on disk."""

    topic: DelayedTopic
    queue_id: int
    offsets: Int64s
    size_bytes: int


class _WantedOfLane:
    """The wanted messages of a lane's expired segments.

    Invariant: the sums are those of the segments in it; each segment is added and dropped by itself.

    Attributes:
        until_s: at this time all segments are checked again.
        rest_s: until this time new expired segments are not looked for.
        all_bytes: of the segments.
        topics: wanted bytes by topic.
    """

    def __init__(self) -> None:
        self.until_s = self.rest_s = 0.0
        self.all_bytes = self._wanted_bytes = 0
        self.topics: Counter[str] = Counter()
        self._wanted: dict[int, tuple[int, Counter[str]]] = {}  # by sequence: size, and wanted bytes by topic

    @property
    def is_kept(self) -> bool:
        """Whether the segments hold little but wanted messages, so that they are kept."""
        return self._wanted_bytes > 0 and self.all_bytes <= MOST_WASTE * self._wanted_bytes

    def has(self, sealed: SealedSegment) -> bool:
        """Whether a segment was checked."""
        return sealed.segment.sequence in self._wanted

    def add(self, sealed: SealedSegment, wanted: Sequence[_WantedMessages]) -> None:
        """Add a segment that was checked."""
        topics: Counter[str] = Counter()
        for one in wanted:
            topics[one.topic.name] += one.size_bytes
        self._wanted[sealed.segment.sequence] = size_of(sealed), topics
        self._count(size_of(sealed), topics)

    def drop(self, sealed: SealedSegment) -> None:
        """Drop a segment that goes."""
        size_bytes, topics = self._wanted.pop(sealed.segment.sequence, (0, Counter[str]()))
        self._count(-size_bytes, Counter({topic: -wanted for topic, wanted in topics.items()}))

    def _count(self, size_bytes: int, topics: Counter[str]) -> None:
        self.all_bytes += size_bytes
        self._wanted_bytes += topics.total()
        self.topics.update(topics)


class Keeping:
    """Says whether a segment may go, and copies its wanted messages if so. Called by the store's upkeep alone.

    Attributes:
        copied_messages: since the opening.
        kept: by topic, the bytes of segments that are kept for it.
    """

    def __init__(self, delays: Delays, config: StoreConfig, lanes: Sequence[Lane]) -> None:
        self._delays = delays
        self._config = config
        self._lanes = lanes
        self._looks: dict[int, _WantedOfLane] = {}  # by lane
        self.copied_messages = 0
        self.kept: dict[str, int] = {}

    @property
    def extra_bytes(self) -> int:
        """Bytes kept beyond retention, without segments whose check is due."""
        now_s = self._delays.parts.clock.monotonic_s()
        looks = list(self._looks.values())
        return self._copies_bytes() + sum(look.all_bytes for look in looks if look.is_kept and now_s < look.until_s)

    def _copies_bytes(self) -> int:
        return sum(topic.copies.size_bytes for topic in list(self._delays.with_copies))

    def may_go(self, lane: Lane, oldest: SealedSegment) -> bool:
        """Whether a lane's oldest segment may be removed now. Raises StoreError, OSError: then it may not.

        For a segment that never had a delayed message it only looks at the segment's footer.
        """
        delays = self._delays
        if not delays.is_open or self._is_held_by_damage(lane, oldest):
            return False
        has_dues = _has_dues(oldest)
        if has_dues:
            delays.cover_subscribed_topics()
        if not delays.topics:
            return True
        if has_dues:
            self._look(lane, oldest)
            if self._looks[lane.index].is_kept:
                return False
        delays.catch_up()  # an index that meets a message after its copy takes the copy for a due message
        if has_dues:
            self._copy(list(self._wanted(lane, oldest)))
        self._move_records(lane, oldest)
        if lane.index in self._looks:
            self._looks[lane.index].drop(oldest)
            self._tell_kept()
        return True

    def _look(self, lane: Lane, oldest: SealedSegment) -> None:
        """Find the wanted messages of a lane's expired segments. A result holds for a while, so each segment is scanned
        once, whichever of them go meanwhile."""
        clock = self._delays.parts.clock
        now_s, look = clock.monotonic_s(), self._looks.get(lane.index)
        if look is not None and now_s < look.rest_s and look.has(oldest):
            return
        self._delays.catch_up()
        is_new = look is None or now_s >= look.until_s
        if look is None or is_new:
            look = _WantedOfLane()
        for sealed in self._expired(lane, oldest):
            if not look.has(sealed):
                look.add(sealed, list(self._wanted(lane, sealed)) if _has_dues(sealed) else [])
        end_s = clock.monotonic_s()
        look.rest_s = now_s + LOOK_TIMES * (end_s - now_s)
        if is_new:
            look.until_s = max(now_s + LOOK_S, look.rest_s)
        self._looks[lane.index] = look
        self._tell_kept()

    def _expired(self, lane: Lane, oldest: SealedSegment) -> list[SealedSegment]:
        """The expired segments of a lane; the oldest one is always among them."""
        now_ms = self._delays.parts.clock.wall_ms()
        found = expired_segments(self._lanes, self._config, now_ms, self._copies_bytes())
        mine = [one for one in found if one.segment.header.lane == lane.index and one is not oldest]
        return [oldest, *mine]

    def _tell_kept(self) -> None:
        """Set `kept` by the newest results."""
        kept: dict[str, int] = {}
        for look in list(self._looks.values()):
            for topic, size_bytes in look.topics.items() if look.is_kept else ():
                kept[topic] = kept.get(topic, 0) + size_bytes
        self.kept = kept

    # -- damage ---------------------------------------------------------------------------------------

    def _is_held_by_damage(self, lane: Lane, oldest: SealedSegment) -> bool:
        """Whether a segment has messages of a topic whose changes cannot be read, and that a subscription may want."""
        if not self._delays.damaged:
            return False
        for name in list(self._delays.damaged):
            for kind in (DELAYS, COPIES):
                stream = self._delays.parts.hidden.find(hidden_topic(kind, name))
                if stream is not None and stream.lane is lane and stream.number >= 0:
                    begin, count = oldest.first_of(stream.number)
                    if count and begin + count > stream.low:
                        return True
        return any(self._of_damaged_topic(lane, rows) for rows in _rows_of(lane, oldest))

    def _of_damaged_topic(self, lane: Lane, rows: DueRows) -> bool:
        """Whether some of these are delayed messages of such a topic, and not acknowledged by all subscriptions."""
        subscribers = self._delays.subscribers
        for number in np.unique(rows.numbers).tolist():
            stream: Stream = lane.streams[number]
            if stream.topic in self._delays.damaged:
                mine = rows.offsets[(rows.numbers == number) & (rows.times_ms > rows.written_ms)]
                mine = np.sort(mine[mine >= stream.low])
                if len(mine) and (subscribers is None or _any_wanted(subscribers, stream, mine)):
                    return True
        return False

    # -- wanted messages ------------------------------------------------------------------------------

    def _wanted(self, lane: Lane, sealed: SealedSegment) -> Iterator[_WantedMessages]:
        for rows in _rows_of(lane, sealed):
            for number in np.unique(rows.numbers).tolist():
                yield from self._wanted_of(lane, number, rows)

    def _wanted_of(self, lane: Lane, number: int, rows: DueRows) -> Iterator[_WantedMessages]:
        stream, delays = lane.streams[number], self._delays
        mine = rows.numbers == number
        parts = hidden_parts(stream.topic)
        if parts is not None and parts.kind == COPIES:
            topic = delays.find(parts.names[0])
            if topic is not None:
                yield from _copies_wanted(delays, topic, rows.offsets[mine], rows.sizes[mine])
            return
        topic = delays.find(stream.topic)
        mine &= rows.times_ms > rows.written_ms
        if topic is None or not mine.any():
            return
        offsets = rows.offsets[mine]
        order = np.argsort(offsets)
        wanted = delays.wanted(topic, stream.queue_id, offsets[order])
        with topic.lock:
            wanted &= ~topic.copies.has(stream.queue_id, offsets[order])
        kept = order[wanted]
        if len(kept):
            yield _WantedMessages(topic, stream.queue_id, offsets[kept], int(rows.sizes[mine][kept].sum()))

    # -- copying --------------------------------------------------------------------------------------

    def _copy(self, wanted: Sequence[_WantedMessages]) -> None:
        """Write copies of messages, durably, and note them."""
        for one in wanted:
            messages: list[Message] = []
            size = 0
            for offset in one.offsets.tolist():
                try:
                    message = fetch(one.topic, one.queue_id, offset)
                except StoreCorrupt:  # a damaged message cannot be copied
                    continue
                if message is not None:
                    messages.append(message)
                    size += len(message.data)
                if size >= COPIED_BYTES:
                    self._write(one.topic, messages)
                    messages, size = [], 0
            self._write(one.topic, messages)

    def _write(self, topic: DelayedTopic, messages: Sequence[Message]) -> None:
        if messages:
            rows = topic.copies.append(messages)
            with topic.lock:
                if topic.is_lagging:  # its scan comes too late for them; if this fails, they are copied once more
                    topic.add(*np.array([(one.queue_id, one.offset, one.deliver_at_ms) for one in messages]).T)
                self._delays.with_copies.add(topic)
                topic.copies.take_in(rows)
            self.copied_messages += len(messages)

    def _move_records(self, lane: Lane, oldest: SealedSegment) -> None:
        """If the segment has records of changed delays, write the changes again."""
        for topic in list(self._delays.topics.values()):
            stream = topic.decisions.stream
            if stream.lane is lane and stream.number >= 0:
                begin, count = oldest.first_of(stream.number)
                if count and begin + count > stream.low:
                    topic.decisions.compact()


def _rows_of(lane: Lane, sealed: SealedSegment) -> Iterator[DueRows]:
    """Yield the messages of a segment that have a delivery time."""
    scan = DueScan(lane, LogPlace(sealed.segment.sequence, 0))
    while scan.place.sequence == sealed.segment.sequence:
        part = scan.look(-1)
        if part is None:
            break
        yield part.rows
        scan.move(part)


def _has_dues(sealed: SealedSegment) -> bool:
    try:
        return sealed.footer.dues != NO_DUES
    except StoreCorrupt:  # the streams of its messages are not known
        return False


def _any_wanted(subscribers: Subscribers, stream: Stream, offsets: Int64s) -> bool:
    return bool(subscribers.unacknowledged(stream.topic, stream.queue_id, offsets).any())


def _copies_wanted(delays: Delays, topic: DelayedTopic, at: Int64s, sizes: Int64s) -> Iterator[_WantedMessages]:
    """The wanted messages whose copies lie at these offsets of the stream of copies."""
    with topic.lock:
        rows = np.flatnonzero(np.isin(topic.copies.at, at))
        of_queues = topic.copies.of_queues() if len(rows) else []
        copied_at = topic.copies.at
    size_at = dict(zip(at.tolist(), sizes.tolist(), strict=True))
    for queue_id, mine, offsets in of_queues:
        here = np.isin(mine, rows)
        kept = here & delays.wanted(topic, queue_id, offsets)
        if kept.any():
            size = sum(size_at[offset] for offset in copied_at[mine[kept]].tolist())
            yield _WantedMessages(topic, queue_id, offsets[kept], size)
