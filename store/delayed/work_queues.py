"""Work queues: topics whose messages go once all of their subscriptions have acknowledged them.

They go by whole segments, a lane's oldest first. A segment can go early if it holds nothing but messages of work queues
and what can be written again at the log's end: records, copies. A segment with a message of another topic stops those
after it, as retention alone decides about that one.

A segment that can go does not go at once. What of it is still wanted has to be written again, so that is worth it only
while the segments hold much else: more than as much as is wanted, and a segment. So, however long a message waits, for
each of its bytes that is written again a byte of the log goes. Padding counts as waste: jobs that are appended one at a
time and fill more than half a block stay where they are until others are acknowledged.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..config import StoreConfig
from ..errors import StoreCorrupt
from ..format.delays import COPIES
from ..format.dues import NO_DUES
from ..format.hidden import hidden_parts, is_hidden, is_said_again
from ..format.layout import BLOCK_BYTES, align_up
from ..format.topic_settings import UNKNOWN, WORK_QUEUE
from ..log.lane import Lane
from ..log.retention import size_of
from ..log.streams import Stream
from ..segment.sealed import SealedSegment
from .wanted import MESSAGE_COST_BYTES, KeepingSettings, delayed_in, has_expired, lengths_of, unacknowledged_in

if TYPE_CHECKING:
    from .delays import Delays

MOST_BYTES = 2  # bytes on disk for each wanted one: so a message is moved for at least as many bytes that go
LOOK_S = 1.0  # between two looks for the sake of acknowledgements ..
LOOK_TIMES = 20  # .. and so many times as long as a look takes of a processor's time
LOOKED_AT = 32  # segments of a lane, by one look: the oldest, as many in turn, and as many new ones
MOVED_BYTES = 2 * BLOCK_BYTES  # a stream's records that are written again, and the record that trims the old ones


class Share(NamedTuple):
    """What is wanted of a segment.

    Attributes:
        size_bytes: of the segment.
        queues: of each stream of a work queue in it: what each subscription has acknowledged, and the wanted bytes.
        topics: wanted bytes by topic, without copies.
        moved_bytes: what would be written if the segment went.
        expires_ms: from this time on less is wanted, as messages are too old then.
    """

    size_bytes: int
    queues: Mapping[int, tuple[Sequence[float], int]]
    topics: Counter[str]
    moved_bytes: int
    expires_ms: float


class _QueuesOfLane:
    """The oldest segments of a lane, as far as each can go early.

    Invariants:
        * `shares` has consecutive segments, the first of them the lane's oldest when they were looked at;
        * the sums are those of the shares. A share may be older than the newest acknowledgements: then too much is
          wanted of it, or messages were brought back by a seek. A segment is looked at once more before it goes.

    Attributes:
        is_unfinished: more segments follow that were not looked at.
        blocked: the segment after these that cannot go early, and what it depends on.
    """

    def __init__(self) -> None:
        self.shares: dict[int, Share] = {}  # by sequence
        self.first = 0  # sequence of them
        self.all_bytes = self.moved_bytes = 0
        self.topics: Counter[str] = Counter()
        self.turn = 0  # the sequence whose turn it is
        self.expiring: list[tuple[float, int]] = []  # a heap: `expires_ms` and sequence; also of earlier shares
        self.is_unfinished = True
        self.blocked: tuple[int, int] | None = None  # sequence, `Lows.shown`
        self.is_changed = True
        self.looked_s, self.rest_s = -LOOK_S, 0.0
        self.newest = 0
        self.going = 0  # the sequence of the segment that was said to go
        self.left = 0, 0  # the sums without the segments that are about to go

    def put(self, sequence: int, share: Share) -> None:
        """Add a segment, or what is wanted of it now."""
        before = self.shares.get(sequence)
        if share.expires_ms < math.inf and (before is None or before.expires_ms != share.expires_ms):
            heappush(self.expiring, (share.expires_ms, sequence))
        self.drop(sequence)
        self.first = sequence if not self.shares else self.first
        self.shares[sequence] = share
        self.all_bytes += share.size_bytes
        self.moved_bytes += share.moved_bytes
        self.topics.update(share.topics)

    def drop(self, sequence: int) -> None:
        """Take a segment out of the sums."""
        share = self.shares.get(sequence)
        if share is not None:
            self.all_bytes -= share.size_bytes
            self.moved_bytes -= share.moved_bytes
            self.topics.subtract(share.topics)

    def has_expired(self, now_ms: int) -> bool:
        """Whether less is wanted of a segment, as messages have become too old."""
        return bool(self.expiring) and self.expiring[0][0] < now_ms

    def take_expired(self, now_ms: int, end: int) -> Iterator[int]:
        """Take the sequences of such segments below `end`, not too many."""
        for _ in range(LOOKED_AT):
            if not self.has_expired(now_ms) or self.expiring[0][1] >= end:
                break
            _, sequence = heappop(self.expiring)
            if sequence in self.shares:
                yield sequence

    def look_further(self) -> None:
        """Look again at the segment that could not go early: it may be one of a topic that is a work queue by now."""
        self.is_unfinished, self.blocked = True, None

    def forget_before(self, sequence: int) -> None:
        """Forget the segments before this one, which have left the log."""
        while self.shares and self.first < sequence:
            self.drop(self.first)
            del self.shares[self.first]
            self.first += 1


class WorkQueues:
    """Says which segments of a store go because of what was acknowledged. One thread at a time.

    While nothing has changed it looks at no segment, and by one look at a bounded number of them.
    """

    def __init__(
        self, delays: Delays, keeping: Callable[[], Mapping[str, KeepingSettings]], config: StoreConfig
    ) -> None:
        """`keeping` gives the topics that keep what is not acknowledged."""
        self._delays = delays
        self._keeping = keeping
        self._least_bytes = config.segment_bytes
        self._settings: Mapping[str, KeepingSettings] = {}
        self._queues: dict[str, int | None] = {}  # the work queues, each with its `ttl_ms`
        self._lanes: dict[int, _QueuesOfLane] = {}  # by index

    def has(self, topic: str) -> bool:
        """Whether a topic is a work queue, or may be one, so that it keeps all also without a subscription.

        Raises StoreUnreadable.
        """
        settings = self._keeping().get(topic)
        return settings is not None and settings.keep in (WORK_QUEUE, UNKNOWN)

    def wanted_bytes(self, lane: int, topic: str) -> int:
        """What is wanted of a work queue in a lane's segments that can go early, in bytes, without copies."""
        known = self._lanes.get(lane)
        return 0 if known is None else known.topics[topic]

    def goes(self, lane: Lane, sealed: SealedSegment) -> bool:
        """Whether `is_done` has said so of a segment, just now."""
        known = self._lanes.get(lane.index)
        return known is not None and known.going == sealed.segment.sequence

    def is_done(self, lane: Lane, segments: Sequence[SealedSegment], at: int) -> tuple[bool, bool]:
        """Whether a lane's segment goes early, with those before it; and whether this call has looked for the answer.

        Raises StoreUnreadable, OSError.
        """
        has_looked = at == 0 and self._follow() and self._look_in_time(lane, segments)
        known, sequence = self._lanes.get(lane.index), segments[at].segment.sequence
        if known is None:
            return False, has_looked
        if at == 0:
            known.forget_before(sequence)
            known.going, known.left = 0, (known.all_bytes, known.moved_bytes)
        share, (all_bytes, moved_bytes) = known.shares.get(sequence), known.left
        if share is None or all_bytes <= MOST_BYTES * moved_bytes + self._least_bytes:
            return False, has_looked
        known.left = all_bytes - share.size_bytes, moved_bytes - share.moved_bytes
        known.going = sequence
        return True, has_looked

    def look_at_all(self, lane: Lane) -> None:
        """Look at all segments of a lane that can go early. Raises StoreUnreadable, OSError."""
        segments = lane.view.sealed
        if self._follow() and segments:
            known = self._lanes.setdefault(lane.index, _QueuesOfLane())
            self._look(lane, known, segments)
            while known.is_unfinished:
                self._look(lane, known, segments)

    def _follow(self) -> bool:
        """Follow the settings and the changes; whether there is a work queue."""
        settings = self._keeping()
        if settings is not self._settings:
            queues = {topic: one.ttl_ms for topic, one in settings.items() if one.keep == WORK_QUEUE}
            if not queues.items() >= self._queues.items():  # of their segments something else is wanted now
                self._lanes.clear()
            if queues != self._queues:
                self._queues = queues
                for known in list(self._lanes.values()):
                    known.look_further()
                self._delays.changed.is_followed = bool(queues)
            self._settings = settings
        if any(topic in self._queues or is_hidden(topic) for topic in self._delays.changed.take()):
            for known in list(self._lanes.values()):
                known.is_changed = True
        return bool(self._queues)

    def _look_in_time(self, lane: Lane, segments: Sequence[SealedSegment]) -> bool:
        """Look at a lane's segments if something has changed; not too often. Whether it has."""
        known = self._lanes.setdefault(lane.index, _QueuesOfLane())
        now_s = self._delays.parts.clock.monotonic_s()
        first, newest = segments[0].segment.sequence, segments[-1].segment.sequence
        is_blocked = known.blocked is not None and known.blocked[0] >= first
        if now_s < known.rest_s or not (
            known.is_unfinished
            or (newest != known.newest and not is_blocked)
            or (
                now_s >= known.looked_s + LOOK_S
                and (known.is_changed or self._has_expired(known) or (is_blocked and self._may_go_on(lane, known)))
            )
        ):
            return False
        began_s = time.thread_time()  # of this thread's work: where it waits for others, it costs them nothing
        self._look(lane, known, segments)
        known.looked_s, known.rest_s = now_s, now_s + LOOK_TIMES * (time.thread_time() - began_s)
        return True

    def _has_expired(self, known: _QueuesOfLane) -> bool:
        return known.has_expired(self._delays.parts.clock.wall_ms())

    def _may_go_on(self, lane: Lane, known: _QueuesOfLane) -> bool:
        """Whether a trim may have freed the segment that cannot go early."""
        return known.blocked is not None and known.blocked[1] != lane.lows.shown

    def _look(self, lane: Lane, known: _QueuesOfLane, segments: Sequence[SealedSegment]) -> None:
        """Look at the oldest segments, at as many others in their turn, as many in which messages have become too old,
        and as many new ones.
        """
        first, known.is_changed = segments[0].segment.sequence, False
        known.forget_before(first)
        end = first + min(len(known.shares), len(segments))  # a look of another thread may have seen newer ones
        turn = known.turn if first <= known.turn < end else first
        known.turn = min(end, turn + LOOKED_AT)
        expired = known.take_expired(self._delays.parts.clock.wall_ms(), end)
        for sequence in {*range(first, min(end, first + LOOKED_AT)), *range(turn, known.turn), *expired}:
            share = self._share(lane, segments[sequence - first], known.shares[sequence])
            if share is not None:
                known.put(sequence, share)
        known.blocked, known.newest = None, segments[-1].segment.sequence
        for sealed in segments[len(known.shares) :][:LOOKED_AT]:
            sequence, shown = sealed.segment.sequence, lane.lows.shown
            share = self._share(lane, sealed, None)
            if share is None:
                known.blocked = sequence, shown
                break
            known.put(sequence, share)
        known.is_unfinished = known.blocked is None and len(known.shares) < len(segments)

    # -- what is wanted of a segment --------------------------------------------------------------------

    def _share(self, lane: Lane, sealed: SealedSegment, before: Share | None) -> Share | None:
        """What is wanted of a segment, by what was before; None if it cannot go early. Raises StoreError, OSError."""
        queues: dict[int, tuple[Sequence[float], int]] = {}
        topics, moved_bytes, aging, halved_ms = Counter[str](), 0, set[str](), math.inf
        try:
            footer = sealed.footer
            there = footer.counts > 0
            for number, end in zip(footer.numbers[there].tolist(), footer.next_offsets[there].tolist(), strict=True):
                stream = lane.streams[number]
                if end <= stream.low or stream is lane.lows.records:
                    continue
                known = None if before is None else before.queues.get(number)
                if stream.topic in self._queues:
                    if self._has_only_delayed(stream, sealed):
                        queues[number], half_ms = self._of_delayed(lane, stream, sealed, known)
                        halved_ms = min(halved_ms, half_ms)
                    else:
                        queues[number] = self._of_queue(stream, sealed, known)
                        aging.update([stream.topic] if queues[number][1] else [])
                    topics[stream.topic] += queues[number][1]
                elif is_said_again(stream.topic):
                    queues[number] = _of_records(stream, sealed, known)
                    moved_bytes += queues[number][1]
                else:
                    copied_bytes = self._of_copies(stream, sealed, aging)
                    if copied_bytes is None:
                        return None
                    moved_bytes += align_up(copied_bytes)
        except StoreCorrupt:  # nobody knows what is in it
            return None
        moved_bytes += sum([align_up(size) for size in topics.values()])
        ttls_ms = [ttl_ms for topic in aging if (ttl_ms := self._queues.get(topic)) is not None]
        expires_ms = min(halved_ms, sealed.record.newest_ms + min(ttls_ms, default=math.inf))
        return Share(size_of(sealed), queues, topics, moved_bytes, expires_ms)

    def _has_only_delayed(self, stream: Stream, sealed: SealedSegment) -> bool:
        """Whether of a queue's messages in a segment only delayed ones are not too old, by the segment's time."""
        return sealed.footer.dues != NO_DUES and has_expired(self._delays, self._settings[stream.topic], sealed)

    def _of_delayed(
        self, lane: Lane, stream: Stream, sealed: SealedSegment, known: tuple[Sequence[float], int] | None
    ) -> tuple[tuple[Sequence[float], int], float]:
        """`_of_queue` for a segment of which only delayed messages are wanted, and when half of them are too old."""
        first, count = sealed.first_of(stream.number)
        begin, end, subscribers = max(first, stream.low), first + count, self._delays.subscribers
        assert subscribers is not None, "a store that removes segments has them"
        found = [begin, *subscribers.acknowledged(stream.topic, stream.queue_id, begin, end)]
        if known is not None and known[0][1:] == found and self._delays.parts.clock.wall_ms() <= known[0][0]:
            return known, known[0][0]
        size_bytes, half_ms = delayed_in(self._delays, self._settings, lane, sealed, stream.number)
        return ([half_ms, *found], size_bytes), half_ms

    def _of_queue(
        self, stream: Stream, sealed: SealedSegment, known: tuple[Sequence[float], int] | None
    ) -> tuple[Sequence[float], int]:
        """What each subscription has acknowledged of a queue's messages in a segment, and the bytes that are wanted."""
        first, count = sealed.first_of(stream.number)
        begin, end, subscribers = max(first, stream.low), first + count, self._delays.subscribers
        if has_expired(self._delays, self._settings[stream.topic], sealed):
            return [], 0  # too old for each subscription
        assert subscribers is not None, "a store that removes segments has them"
        acknowledged = subscribers.acknowledged(stream.topic, stream.queue_id, begin, end)
        found = [begin, *acknowledged]
        if known is not None and known[0] == found:
            return known
        if acknowledged and min(acknowledged) == end - begin:
            return found, 0
        return found, sum([one.size_bytes for one in unacknowledged_in(self._delays, stream, sealed)])

    def _of_copies(self, stream: Stream, sealed: SealedSegment, aging: set[str]) -> int | None:
        """The bytes of a topic's wanted copies in a segment; None if these are no copies, or they are not known.

        If some of them become too old, the topic is added to `aging`.
        """
        parts = hidden_parts(stream.topic)
        topic = None if parts is None or parts.kind != COPIES else self._delays.find(parts.names[0])
        if topic is None:
            return None
        begin, count = sealed.first_of(stream.number)
        settings = self._settings.get(topic.name)
        has_over = settings is not None and has_expired(self._delays, settings, sealed)
        with topic.lock:
            mine = (topic.copies.at >= begin) & (topic.copies.at < begin + count)
            if has_over:
                mine &= topic.copies.times_ms > 0  # a delayed message is too old by its own time
            elif mine.any():
                aging.add(topic.name)
            return int(topic.copies.sizes[mine].sum())


def _of_records(
    stream: Stream, sealed: SealedSegment, known: tuple[Sequence[float], int] | None
) -> tuple[Sequence[float], int]:
    """Where a hidden stream begins in a segment, and the bytes that are written if its records are written again."""
    first, count = sealed.first_of(stream.number)
    begin = max(first, stream.low)
    if known is not None and known[0] == [begin]:
        return known
    lengths = lengths_of(sealed, stream.number, begin, first + count)
    size_bytes = int(np.maximum(lengths, 0).sum()) + MESSAGE_COST_BYTES * len(lengths)
    return [begin], size_bytes + (MOVED_BYTES if stream.low >= first else 0)
