"""Retention and wanted messages: an expired segment may have some that a subscription has still to get (`wanted`).

Kept or copied? While the expired segments hold little but wanted messages, they are kept: copying the messages would
free nothing. When more than a third of the bytes is waste, the wanted messages of the oldest segment are copied to the
log's end, under their old names, and the segment goes. So expired segments take at most 1.5 times the bytes of their
wanted messages. `work_queues` says which segments of work queues go before their time has come.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ...index import TrackerClosed
from ..config import StoreConfig
from ..errors import StoreCorrupt, StoreError
from ..format.arrays import Int64s
from ..format.delays import COPIES, DELAYS
from ..format.dues import NO_DUES
from ..format.hidden import hidden_topic
from ..log.lane import Lane
from ..log.retention import expired_segments, size_of
from ..log.streams import Stream
from ..read.message import Message
from ..segment.sealed import SealedSegment
from .due_scan import DueRows
from .messages import fetch_all
from .parts import Subscribers
from .topic import DelayedTopic
from .wanted import KeepingSettings, WantedMessages, content_of, rows_of, wanted_in
from .work_queues import WorkQueues

if TYPE_CHECKING:
    from .delays import Delays

MOST_WASTE = 1.5  # bytes on disk for each wanted one
LOOK_S = 1.0  # between two checks of the wanted messages ..
LOOK_TIMES = 20  # .. and so many times as long as a check takes
COPIED_BYTES = 4 << 20  # by one append
FORGOTTEN_S = 5.0  # after the time of the next check; retention has its turn twice a second
REFUSED_S = 0.1  # between two looks for the sake of refused appends


class FullTopics(Protocol):
    """The part of a store that refuses messages of topics that keep too much."""

    def __bool__(self) -> bool:
        """Whether there are some."""

    def note(self, kept: Mapping[str, int], most: Mapping[str, int]) -> None:
        """Note what each topic keeps, in bytes, and what it may keep at the most."""


class KeepingTopics(Protocol):
    """The part of a store that knows which topics keep what is not acknowledged."""

    @property
    def full(self) -> FullTopics:
        """Those of them that take no message for now."""

    def keeping(self) -> Mapping[str, KeepingSettings]:
        """Their names, each with its settings."""


class _WantedOfLane:
    """The wanted messages of a lane's expired segments.

    Invariant: the sums are those of the segments in it; each segment is added and dropped by itself.

    Attributes:
        until_s: at this time all segments are checked again.
        rest_s: until this time new expired segments are not looked for.
        all_bytes: of the segments.
        copied_bytes: of the wanted copies in them.
        topics: wanted bytes by topic, without copies.
    """

    def __init__(self) -> None:
        self.until_s = self.rest_s = 0.0
        self.all_bytes = self.copied_bytes = 0
        self.topics: Counter[str] = Counter()
        self._wanted: dict[int, tuple[int, Counter[str], int]] = {}  # by sequence: size, wanted by topic, copies

    @property
    def is_kept(self) -> bool:
        """Whether the segments hold little but wanted messages, so that they are kept."""
        wanted_bytes = self.topics.total() + self.copied_bytes
        return wanted_bytes > 0 and self.all_bytes <= MOST_WASTE * wanted_bytes

    def is_recent(self, now_s: float) -> bool:
        """Whether retention would have looked again by now, if it still wanted these segments to go."""
        return now_s < self.until_s + FORGOTTEN_S

    def has(self, sealed: SealedSegment) -> bool:
        """Whether a segment was checked."""
        return sealed.segment.sequence in self._wanted

    def add(self, sealed: SealedSegment, wanted: Sequence[WantedMessages]) -> None:
        """Add a segment that was checked."""
        topics: Counter[str] = Counter()
        for one in wanted:
            topics[one.topic] += 0 if one.are_copies else one.size_bytes
        copied_bytes = sum([one.size_bytes for one in wanted if one.are_copies])
        self._wanted[sealed.segment.sequence] = size_of(sealed), topics, copied_bytes
        self._count(size_of(sealed), topics, copied_bytes)

    def drop(self, sealed: SealedSegment) -> None:
        """Drop a segment that goes."""
        size_bytes, topics, copied_bytes = self._wanted.pop(sealed.segment.sequence, (0, Counter[str](), 0))
        self._count(-size_bytes, Counter({topic: -wanted for topic, wanted in topics.items()}), -copied_bytes)

    def _count(self, size_bytes: int, topics: Counter[str], copied_bytes: int) -> None:
        self.all_bytes += size_bytes
        self.copied_bytes += copied_bytes
        self.topics.update(topics)


class Keeping:
    """Says whether a segment may go, and copies its wanted messages if so.

    Invariant: whoever looks for wanted messages holds `_looking`: the store's upkeep, and `look_now`.

    Attributes:
        work_queues: the segments of work queues.
        copied_messages: since the opening.
        kept: by topic, the bytes of segments that are kept for it, without its copies.
    """

    def __init__(self, delays: Delays, topics: KeepingTopics, config: StoreConfig, lanes: Sequence[Lane]) -> None:
        self._delays = delays
        self._topics = topics
        self._config = config
        self._lanes = lanes
        self._looks: dict[int, _WantedOfLane] = {}  # by lane
        self._told_s = 0.0  # when it was told which topics are full
        self._looking = threading.RLock()  # a finalizer may append while its thread looks
        self._telling = threading.RLock()
        self.work_queues = WorkQueues(delays, topics.keeping, config)
        delays.is_work_queue, delays.kept = self.work_queues.has, topics.keeping
        self.copied_messages = 0
        self.kept: dict[str, int] = {}

    @property
    def extra_bytes(self) -> int:
        """Bytes kept beyond retention, without segments whose check is due."""
        now_s = self._delays.parts.clock.monotonic_s()
        looks = [look for look in list(self._looks.values()) if look.is_kept and now_s < look.until_s]
        return self._copies_bytes(looks) + sum([look.all_bytes for look in looks])

    def _copies_bytes(self, looks: Sequence[_WantedOfLane]) -> int:
        """The bytes of all copies but those in the segments of these looks."""
        found = sum([topic.copies.size_bytes for topic in list(self._delays.with_copies)])
        return max(0, found - sum([look.copied_bytes for look in looks]))

    def is_done(self, lane: Lane, segments: Sequence[SealedSegment], at: int) -> bool:
        """Whether a lane's segment goes before its time has come, with those before it: see `work_queues`."""
        with self._looking:
            if not self._delays.is_open:
                return False
            is_done, has_looked = self.work_queues.is_done(lane, segments, at)
            if has_looked and self._most_bytes():
                self.tell_full()
            return is_done

    def may_go(self, lane: Lane, oldest: SealedSegment) -> bool:
        """Whether a lane's oldest segment may be removed now. Raises StoreError, OSError: then it may not.

        For a segment in which nothing may be wanted it only looks at the segment's footer.
        """
        with self._looking:
            return self._may_go(lane, oldest)

    def _may_go(self, lane: Lane, oldest: SealedSegment) -> bool:
        delays = self._delays
        if not delays.is_open or self._is_held_by_damage(lane, oldest):
            return False
        if _has_dues(oldest):
            delays.cover_subscribed_topics()
        kept = self._topics.keeping()
        if not delays.topics and not kept:
            return True
        content = content_of(delays, kept, lane, oldest)
        if content and not self.work_queues.goes(lane, oldest):
            self._look(lane, oldest)
            if self._looks[lane.index].is_kept:
                return False
        delays.catch_up()  # an index that meets a message after its copy takes the copy for a due message
        if content:
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
                look.add(sealed, list(self._wanted(lane, sealed)))
        end_s = clock.monotonic_s()
        look.rest_s = now_s + LOOK_TIMES * (end_s - now_s)
        if is_new:
            look.until_s = max(now_s + LOOK_S, look.rest_s)
        self._looks[lane.index] = look
        self._tell_kept()

    def _expired(self, lane: Lane, oldest: SealedSegment) -> list[SealedSegment]:
        """The expired segments of a lane; the oldest one is always among them."""
        mine = [one for one in self._all_expired() if one.segment.header.lane == lane.index and one is not oldest]
        return [oldest, *mine]

    def _all_expired(self) -> list[SealedSegment]:
        """The expired segments of all lanes."""
        now_ms = self._delays.parts.clock.wall_ms()
        kept = [look for look in list(self._looks.values()) if look.is_kept]
        return expired_segments(self._lanes, self._config, now_ms, self._copies_bytes(kept))

    # -- what is kept -----------------------------------------------------------------------------------

    def look_now(self) -> None:
        """Find out which topics are full: the store was opened, or a topic has got other settings.

        It raises nothing. What it cannot find out now, retention's next look does.
        """
        with suppress(StoreError, OSError, TrackerClosed):
            if not self._most_bytes() and not self._topics.full:
                return
            with self._looking:
                expired = self._all_expired()
                if any(map(_has_dues, expired)):
                    self._delays.cover_subscribed_topics()
                for lane in self._lanes:
                    if any(one.segment.header.lane == lane.index for one in expired):
                        self._look(lane, lane.view.sealed[0])
                    self.work_queues.look_at_all(lane)
                self.tell_full()

    def _most_bytes(self) -> dict[str, int]:
        """The most that each topic may keep, of those that have such a limit."""
        kept = self._topics.keeping().items()
        return {topic: one.retention_bytes for topic, one in kept if one.retention_bytes is not None}

    def _tell_kept(self) -> None:
        """Set `kept` by the newest results."""
        kept: dict[str, int] = {}
        for look in list(self._looks.values()):
            for topic, size_bytes in look.topics.items() if look.is_kept else ():
                kept[topic] = kept.get(topic, 0) + size_bytes
        self.kept = kept
        self.tell_full()

    def tell_full(self) -> None:
        """Tell which topics keep how much: in segments, and as copies."""
        with self._telling:
            self._told_s = self._delays.parts.clock.monotonic_s()
            most = self._most_bytes()
            self._topics.full.note({topic: self._kept_of(topic, self._told_s) for topic in most}, most)

    def _kept_of(self, topic: str, now_s: float) -> int:
        """The bytes that a topic keeps: in segments whose time has come, of a work queue in all that can go early, and
        as copies.
        """
        found = 0
        for lane in self._lanes:
            look = self._looks.get(lane.index)
            expired = look.topics[topic] if look is not None and look.is_kept and look.is_recent(now_s) else 0
            found += max(expired, self.work_queues.wanted_bytes(lane.index, topic))
        index = self._delays.find(topic)
        return found + (0 if index is None else index.copies.size_bytes)

    def look_for_refused(self) -> None:
        """An append was refused, as its topic is full: tell what is kept now, but not for each such append."""
        if self._delays.parts.clock.monotonic_s() >= self._told_s + REFUSED_S:
            self.tell_full()

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
        return any(self._of_damaged_topic(lane, rows) for rows in rows_of(lane, oldest))

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

    def _wanted(self, lane: Lane, sealed: SealedSegment) -> Iterator[WantedMessages]:
        kept = self._topics.keeping()
        content = content_of(self._delays, kept, lane, sealed)
        return wanted_in(self._delays, kept, lane, sealed, content)

    # -- copying --------------------------------------------------------------------------------------

    def _copy(self, wanted: Sequence[WantedMessages]) -> None:
        """Write copies of messages, durably, and note them."""
        by_topic = attrgetter("topic")
        for name, of_topic in groupby(sorted(wanted, key=by_topic), by_topic):
            topic = self._delays.topic(name)  # made for the first copy, if need be
            messages = [fetch_all(topic, one.queue_id, one.offsets) for one in of_topic]
            for part in _parts_of(chain.from_iterable(messages)):
                self._write(topic, part)

    def _write(self, topic: DelayedTopic, messages: Sequence[Message]) -> None:
        if messages:
            rows = topic.copies.append(messages)
            with topic.lock:
                if topic.is_lagging:  # its scan comes too late for them; if this fails, they are copied once more
                    rows_later = [
                        (one.queue_id, one.offset, one.deliver_at_ms) for one in messages if one.deliver_at_ms
                    ]
                    topic.add(*np.array(rows_later, np.int64).reshape(-1, 3).T)
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


def _has_dues(sealed: SealedSegment) -> bool:
    try:
        return sealed.footer.dues != NO_DUES
    except StoreCorrupt:  # the streams of its messages are not known
        return False


def _any_wanted(subscribers: Subscribers, stream: Stream, offsets: Int64s) -> bool:
    return bool(subscribers.unacknowledged(stream.topic, stream.queue_id, offsets).any())


def _parts_of(messages: Iterator[Message]) -> Iterator[list[Message]]:
    """Messages in parts that one append takes."""
    part, size = list[Message](), 0
    for message in messages:
        part.append(message)
        size += len(message.data)
        if size >= COPIED_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
