"""Retention and delayed messages: a segment's time has come, and some of its messages are still wanted.

Kept or copied? As long as the segments beyond retention hold little but wanted messages, they are kept: to copy them
would free nothing. Once more than a third of them is waste, the wanted messages of the oldest one are copied to the
log's end, under the names that they have, and the segment goes. So what lies on the disk beyond retention is at most
1.5 times what is wanted of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ..config import StoreConfig
from ..errors import StoreCorrupt
from ..format.delays import COPIES, DELAYS, Place
from ..format.hidden import hidden_parts, hidden_topic
from ..format.layout import NO_DUES
from ..log.lane import Lane
from ..log.retention import expired_segments, size_of
from ..log.streams import Stream
from ..read.message import Message
from ..segment.sealed import SealedSegment
from .messages import fetch
from .topic import DelayedTopic
from .walk import DueRows, Walk

if TYPE_CHECKING:
    from .delays import Delays, Subscribers

MOST_WASTE = 1.5  # bytes on disk for each wanted one
LOOK_S = 1.0  # between two looks at what is kept ..
LOOK_TIMES = 20  # .. and so many times as long as a look takes
COPIED_BYTES = 4 << 20  # at a time

Int64s = npt.NDArray[np.int64]


class _Wanted(NamedTuple):
    """Wanted messages of one segment, of one queue: which topic's, and how many bytes they take on disk."""

    topic: DelayedTopic
    queue_id: int
    offsets: Int64s
    size_bytes: int


class Keeping:
    """Says whether a segment may go, and sees to what is wanted in it. Called by the store's upkeep alone.

    Attributes:
        copied_messages: since the opening.
        kept: by topic, bytes of segments that are kept for it.
    """

    def __init__(self, delays: Delays, config: StoreConfig, lanes: Sequence[Lane]) -> None:
        self._delays = delays
        self._config = config
        self._lanes = lanes
        self._look_again_s: dict[int, tuple[int, float]] = {}  # by lane: its expired segments then, and when to look
        self._kept_bytes: dict[int, int] = {}  # by lane
        self.copied_messages = 0
        self.kept: dict[str, int] = {}

    @property
    def extra_bytes(self) -> int:
        """What is held beside what retention leaves. A segment that is to be looked at again is not counted."""
        now_s = self._delays.parts.clock.monotonic_s()
        kept = [lane for lane, (_, look_s) in self._look_again_s.items() if now_s < look_s]
        return self._copies_bytes() + sum(self._kept_bytes.get(lane, 0) for lane in kept)

    def _copies_bytes(self) -> int:
        return sum(topic.copies.size_bytes for topic in list(self._delays.topics.values()))

    def may_go(self, lane: Lane, oldest: SealedSegment) -> bool:
        """Whether a lane's oldest segment may be removed now. Raises StoreError, OSError: then it may not."""
        delays = self._delays
        if not delays.is_open or self._is_held_by_damage(lane, oldest):
            return False
        now_s = delays.parts.clock.monotonic_s()
        expired = self._expired(lane, oldest)
        if any(map(_has_dues, expired)):
            delays.cover_subscribed_topics()
        if not delays.topics:
            return True
        count, look_s = self._look_again_s.get(lane.index, (0, 0.0))
        if count == len(expired) and now_s < look_s:
            return False
        delays.catch_up()  # an index that meets a message behind its copy takes the copy for one that is due
        wanted = [list(self._wanted(lane, sealed)) for sealed in expired]
        wanted_bytes = sum(one.size_bytes for of_segment in wanted for one in of_segment)
        all_bytes = sum(map(size_of, expired))
        if wanted_bytes and all_bytes <= MOST_WASTE * wanted_bytes:
            took_s = delays.parts.clock.monotonic_s() - now_s
            self._look_again_s[lane.index] = len(expired), now_s + max(LOOK_S, LOOK_TIMES * took_s)
            self._note_kept(lane, all_bytes, [one for of_segment in wanted for one in of_segment])
            return False
        self._copy(wanted[0])
        self._move_records(lane, oldest)
        self._look_again_s.pop(lane.index, None)
        self._note_kept(lane, 0, [])
        return True

    def _expired(self, lane: Lane, oldest: SealedSegment) -> list[SealedSegment]:
        """The segments of a lane whose time has come; the oldest one is asked about, and so among them."""
        now_ms = self._delays.parts.clock.wall_ms()
        found = {id(one) for one in expired_segments(self._lanes, self._config, now_ms, self._copies_bytes())}
        mine = [sealed for sealed in lane.view.sealed if id(sealed) in found and sealed is not oldest]
        return [oldest, *mine]

    def _note_kept(self, lane: Lane, size_bytes: int, wanted: Sequence[_Wanted]) -> None:
        self._kept_bytes[lane.index] = size_bytes
        self.kept = {}
        for one in wanted:
            self.kept[one.topic.name] = self.kept.get(one.topic.name, 0) + one.size_bytes

    # -- damage ---------------------------------------------------------------------------------------

    def _is_held_by_damage(self, lane: Lane, oldest: SealedSegment) -> bool:
        """Whether a segment has something of a topic whose changes cannot be read, and that somebody may want."""
        if not self._delays.damaged:
            return False
        for name in self._delays.damaged:
            for kind in (DELAYS, COPIES):
                stream = self._delays.parts.hidden.find(hidden_topic(kind, name))
                if stream is not None and stream.lane is lane and stream.number >= 0:
                    begin, count = oldest.first_of(stream.number)
                    if count and begin + count > stream.low:
                        return True
        return any(self._of_damaged_topic(lane, rows) for rows in _rows_of(lane, oldest))

    def _of_damaged_topic(self, lane: Lane, rows: DueRows) -> bool:
        """Whether some of these messages are delayed ones of such a topic, and not acknowledged by all."""
        subscribers = self._delays.subscribers
        for number in np.unique(rows.numbers).tolist():
            stream: Stream = lane.streams[number]
            if stream.topic in self._delays.damaged:
                mine = rows.offsets[(rows.numbers == number) & (rows.times_ms > rows.written_ms)]
                mine = np.sort(mine[mine >= stream.low])
                if len(mine) and (subscribers is None or _any_wanted(subscribers, stream, mine)):
                    return True
        return False

    # -- what is wanted -------------------------------------------------------------------------------

    def _wanted(self, lane: Lane, sealed: SealedSegment) -> Iterator[_Wanted]:
        for rows in _rows_of(lane, sealed):
            for number in np.unique(rows.numbers).tolist():
                yield from self._wanted_of(lane, number, rows)

    def _wanted_of(self, lane: Lane, number: int, rows: DueRows) -> Iterator[_Wanted]:
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
            yield _Wanted(topic, stream.queue_id, offsets[kept], int(rows.sizes[mine][kept].sum()))

    # -- copying --------------------------------------------------------------------------------------

    def _copy(self, wanted: Sequence[_Wanted]) -> None:
        """Write copies of messages, durably, and note them."""
        for one in wanted:
            messages: list[Message] = []
            size = 0
            for offset in one.offsets.tolist():
                try:
                    message = fetch(one.topic, one.queue_id, offset)
                except StoreCorrupt:  # there is nothing to be copied
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
                if topic.is_behind:  # its walk comes too late for them; if this fails, they are copied once more
                    topic.add(*np.array([(one.queue_id, one.offset, one.deliver_at_ms) for one in messages]).T)
                topic.copies.take_in(rows)
            self.copied_messages += len(messages)

    def _move_records(self, lane: Lane, oldest: SealedSegment) -> None:
        """Write the changes of delays anew where the segment has the records of some."""
        for topic in list(self._delays.topics.values()):
            stream = topic.decisions.stream
            if stream.lane is lane and stream.number >= 0:
                begin, count = oldest.first_of(stream.number)
                if count and begin + count > stream.low:
                    topic.decisions.compact()


def _rows_of(lane: Lane, sealed: SealedSegment) -> Iterator[DueRows]:
    """The messages of a segment that have a delivery time."""
    walk = Walk(lane, Place(sealed.segment.sequence, 0))
    while walk.place.sequence == sealed.segment.sequence:
        rows = walk.step(-1)
        if rows is None:
            break
        yield rows


def _has_dues(sealed: SealedSegment) -> bool:
    try:
        return sealed.footer.dues != NO_DUES
    except StoreCorrupt:  # nor can its messages be told
        return False


def _any_wanted(subscribers: Subscribers, stream: Stream, offsets: Int64s) -> bool:
    return bool(subscribers.unacknowledged(stream.topic, stream.queue_id, offsets).any())


def _copies_wanted(delays: Delays, topic: DelayedTopic, at: Int64s, sizes: Int64s) -> Iterator[_Wanted]:
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
            yield _Wanted(topic, queue_id, offsets[kept], size)
