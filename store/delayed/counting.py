"""The delayed, cancelled and copied messages of a topic, as sets of offsets: a subscription counts with them.

They come from the topic's index if it has read all of the log, else from the log alone: a store that is only read has
no index.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import numpy as np
from pyroaring import BitMap64

from ...index.trackers.places import add_places, bitmap_of, places_in, those_between
from ..errors import StoreError
from ..format.delays import COPIES, DELAYS
from ..format.hidden import hidden_topic, is_hidden
from .changes import ChangedDelays, ChangesReader
from .copies import Copies
from .delays import Delays
from .due_scan import DueScan
from .opening import changes_of
from .parts import ENTRY_BITS, MOST_ENTRY, StoreParts, offsets_of, topic_of
from .topic import DelayedTopic

END = 1 << 63
FEW_PLACES = 1 << 16  # of at most so many places an array is made, which takes 8 bytes a place
NO_OFFSETS = BitMap64()  # never changed
TRY_AGAIN_S = 60.0  # after an index could not be made
_ByTopic = dict[str, dict[int, "DelayedOffsets"]]


class DelayedOffsets(NamedTuple):
    """Offsets of one queue.

    Attributes:
        pending: their time has not come.
        cancelled: no subscription gets them.
        copies: they have copies, whether the queue still has them or not.
    """

    pending: BitMap64
    cancelled: BitMap64
    copies: BitMap64


DelayedSets = Mapping[int, DelayedOffsets]  # by queue id; a queue that is missing has none


class PendingDelays(NamedTuple):
    """The sets of some topics, read in the log.

    Attributes:
        topics: by topic. Of the cancelled messages some may have been removed.
        is_whole: False if damage hides some. The index of a store that opens leaves out the same ones.
    """

    topics: dict[str, DelayedSets]
    is_whole: bool

    def sets_of(self, topic: str) -> DelayedSets:
        """The sets of a topic."""
        return self.topics.get(topic, {})

    def counts(self) -> dict[str, int]:
        """The number of pending messages of each topic that has some, sorted."""
        counts = {topic: sum(len(queue.pending) for queue in queues.values()) for topic, queues in self.topics.items()}
        return {topic: count for topic, count in sorted(counts.items()) if count}


def sets_by_index(topic: DelayedTopic) -> DelayedSets | None:
    """The sets of a topic from its index; None if the index has not read all of the log yet. Raises OSError.

    `Delays.catch_up` was called before.
    """
    with topic.lock:
        topic.advance()
        pending = topic.ask(lambda tracker: tracker.pending_places())
        if topic.is_lagging:  # or the question has found a damaged file, and the index was made again
            return None
        for place in topic.records.open:
            pending.add(place)
        cancelled = topic.changes.cancelled.copy()
        copies = bitmap_of(topic.copies.places)
    next_offset = partial(topic.parts.next_offset, topic.name)
    columns = [_by_queue(places, next_offset) for places in (pending, cancelled, copies)]
    queues = columns[0].keys() | columns[1].keys() | columns[2].keys()
    return {queue_id: DelayedOffsets(*[column.get(queue_id, NO_OFFSETS) for column in columns]) for queue_id in queues}


def _by_queue(places: BitMap64, next_offset: Callable[[int], int]) -> dict[int, BitMap64]:
    """The offsets of places by queue id, see `parts`. It empties `places`. `next_offset` gets each queue id."""
    found = {}
    for part in _parts(places):
        if _queue_of(part.min()) == _queue_of(part.max()):
            queue_id = _queue_of(part.min())
            found[queue_id] = _offsets(part, queue_id, next_offset(queue_id))
            continue
        some = places_in(part)
        queue_ids, begins = np.unique(some >> ENTRY_BITS, return_index=True)
        known, cuts = queue_ids.tolist(), [*begins.tolist(), len(some)]
        ends = np.fromiter(map(next_offset, known), np.int64, len(known))
        offsets = offsets_of(some & MOST_ENTRY, ends.repeat(np.diff(cuts)))
        for queue_id, begin, end in zip(known, cuts, cuts[1:], strict=False):
            found[queue_id] = bitmap_of(offsets[begin:end])
    return found


def _parts(places: BitMap64) -> Iterator[BitMap64]:
    """Split places into parts of a few places, or of one queue, by halves. Cutting each queue out of all places would
    cost the square of the queues."""
    left = [places] if places else []
    while left:
        part = left.pop()
        if len(part) <= FEW_PLACES or _queue_of(part.min()) == _queue_of(part.max()):
            yield part
            continue
        queue_id = _queue_of(part[len(part) // 2])
        middle = max(queue_id, _queue_of(part.min()) + 1) << ENTRY_BITS
        upper = part.copy()
        upper.remove_range(0, middle)
        part.remove_range(middle, END)
        left += [upper, part]


def _queue_of(place: int) -> int:
    return place >> ENTRY_BITS


def _offsets(places: BitMap64, queue_id: int, next_offset: int) -> BitMap64:
    """The offsets of one queue's places, of which there may be many, as a bitmap."""
    begin, end = queue_id << ENTRY_BITS, (queue_id + 1) << ENTRY_BITS
    last = max(next_offset - 1, 0)
    round_begin = last >> ENTRY_BITS << ENTRY_BITS  # the offset whose entry is 0
    cut = begin + (last - round_begin) + 1  # places from here on belong to the round before
    found = those_between(places, begin, cut).shift(round_begin - begin)
    if round_begin and cut < end:
        found |= those_between(places, cut, end).shift(round_begin - (1 << ENTRY_BITS) - begin)
    return found


class Counting:
    """Finds the sets of any topic. Any number of threads may use it.

    A topic with delayed messages gets an index when a consumer receives from it or counts it, as a count by the log
    scans all frames with delivery times. A store that is only read has no index, and scans each time.
    """

    def __init__(self, parts: StoreParts, delays: Delays | None) -> None:
        """`delays`: None in a store that is only read."""
        self._parts = parts
        self._delays = delays
        self._lock = threading.Lock()
        self._scans: list[tuple[DueScan, set[int]]] = []  # by lane: with the streams that ever had a delivery time
        self._may_make_s = 0.0  # no index is made before

    def by_log(self, topics: Collection[str] | None = None) -> PendingDelays:
        """The delays of some topics or of all, by the frames with delivery times and the records of changes alone.

        Raises StoreCorrupt if a record of a change or a copy is damaged, OffsetOutOfRange or OSError if a writer
        removed some of them meanwhile.
        """
        parts, now_ms = self._parts, self._parts.clock.wall_ms()
        found: _ByTopic = {}
        changes = _changes(parts, topics)
        damaged = 0
        for lane in parts.lanes:
            scan = DueScan(lane)
            for rows in scan.parts(now_ms):
                later = rows.times_ms > now_ms
                for number in np.unique(rows.numbers[later]).tolist():
                    stream = lane.streams[number]
                    if not is_hidden(stream.topic) and (topics is None or stream.topic in topics):
                        mine = rows.offsets[later & (rows.numbers == number)]
                        add_places(_queue(found, stream.topic, stream.queue_id).pending, np.sort(mine))
            damaged += scan.damaged
        for topic in dict.fromkeys([*_topics_with(COPIES, parts, topics), *changes]):
            copies = Copies(topic, parts)
            for queue_id, at, offsets in copies.of_queues():
                queue = _queue(found, topic, queue_id)
                add_places(queue.pending, np.sort(offsets[copies.times_ms[at] > now_ms]))
                add_places(queue.copies, np.sort(offsets))
            if topic in changes:
                _apply(changes[topic], found, topic, parts, copies, now_ms)
        return PendingDelays(
            {topic: _not_trimmed(queues, topic, parts) for topic, queues in found.items()}, not damaged
        )

    def sets(self, topics: Collection[str]) -> dict[str, DelayedSets]:
        """The current sets of some topics, exactly: from the index if it has read all of the log, else from the log.

        A call makes the index of at most one topic, the first that has none and had delayed messages.

        Raises StoreCorrupt, OffsetOutOfRange, OSError.
        """
        found: dict[str, DelayedSets] = {}
        left: list[str] = []
        if self._delays is not None:
            self._delays.catch_up()
        may_make = True
        for topic in topics:
            index = None if self._delays is None else self._delays.find(topic)
            if index is None and not self._had_times(topic):
                found[topic] = {}
                continue
            if index is None and may_make:
                index, may_make = self._made(topic), False
            by_index = None if index is None else sets_by_index(index)
            if by_index is not None:
                found[topic] = by_index
            else:
                left.append(topic)
        if left:
            by_log = self.by_log(left)
            found |= {topic: by_log.sets_of(topic) for topic in left}
        return found

    def _made(self, topic: str) -> DelayedTopic | None:
        """Make the index of a topic as a receive does. None if that fails: the log has the same answer."""
        delays, now_s = self._delays, self._parts.clock.monotonic_s()
        if delays is None or topic in delays.damaged or now_s < self._may_make_s:
            return None
        with suppress(StoreError, OSError):
            return delays.topic(topic)
        self._may_make_s = self._parts.clock.monotonic_s() + TRY_AGAIN_S
        return None

    def _had_times(self, topic: str) -> bool:
        """Whether a message of a topic may have been delayed. The log is scanned on from the newest call's end.

        The scan ends at the first such message.
        """
        if any(self._parts.hidden.find(hidden_topic(kind, topic)) is not None for kind in (DELAYS, COPIES)):
            return True  # by a segment that is gone
        with self._lock:
            if not self._scans:
                self._scans = [(DueScan(lane), set()) for lane in self._parts.lanes]
            return any(
                not known.isdisjoint(self._numbers(topic, lane))
                for lane, (scan, known) in enumerate(self._scans)
                for _ in _scanned_on(scan, known)
            )

    def _numbers(self, topic: str, lane: int) -> set[int]:
        """The numbers of the topic's streams in a lane."""
        streams = list(self._parts.streams.topics.get(topic, {}).values())
        return {stream.number for stream in streams if stream.lane.index == lane}


def _scanned_on(scan: DueScan, known: set[int]) -> Iterator[None]:
    """Add streams that have delivery times to the `known` ones; yield each time that there may be new ones."""
    if known:
        yield
    for rows in scan.parts(-1):
        if len(rows.numbers):
            known.update(np.unique(rows.numbers).tolist())
            yield


def _queue(found: _ByTopic, topic: str, queue_id: int) -> DelayedOffsets:
    """The sets of a queue; empty ones are made."""
    return found.setdefault(topic, {}).setdefault(queue_id, DelayedOffsets(BitMap64(), BitMap64(), BitMap64()))


def _topics_with(kind: str, parts: StoreParts, topics: Collection[str] | None) -> list[str]:
    """Those of some topics, or of all, that have a hidden stream of a kind."""
    named = map(topic_of, parts.hidden.of_kind(kind))
    return [name for name in named if name and (topics is None or name in topics)]


def _changes(parts: StoreParts, topics: Collection[str] | None) -> dict[str, ChangedDelays]:
    found = {}
    for topic in _topics_with(DELAYS, parts, topics):
        stream, reader = parts.hidden.find(hidden_topic(DELAYS, topic)), ChangesReader()
        assert stream is not None, "it was just listed"
        for record in changes_of(stream, parts.reader):
            reader.add(record.data)
        found[topic] = reader.state
    return found


def _apply(changed: ChangedDelays, found: _ByTopic, topic: str, parts: StoreParts, copies: Copies, now_ms: int) -> None:
    """Remove messages that were cancelled or moved, and add those that were moved to a later time."""
    for queue_id, _, offsets in parts.by_queue(topic, places_in(changed.cancelled)):
        add_places(_queue(found, topic, queue_id).cancelled, np.sort(offsets))
    for queue_id, _, offsets in parts.by_queue(topic, changed.places()):
        _queue(found, topic, queue_id).pending.difference_update(bitmap_of(offsets))
    later = np.array([place for place, time_ms in changed.moved.items() if time_ms > now_ms], np.int64)
    for queue_id, _, offsets in parts.by_queue(topic, later):
        stream = parts.stream(topic, queue_id)
        if stream is not None:
            first = parts.reader.finder.bounds(stream)[0]
            there = (offsets >= first) | copies.has(queue_id, offsets)  # else it was removed, and the change is ignored
            add_places(_queue(found, topic, queue_id).pending, np.sort(offsets[there]))


def _not_trimmed(queues: dict[int, DelayedOffsets], topic: str, parts: StoreParts) -> DelayedSets:
    """The sets without messages that were trimmed, of queues that have others."""
    for queue_id, sets in queues.items():
        for offsets in sets:
            offsets.remove_range(0, parts.low(topic, queue_id))
    return {queue_id: sets for queue_id, sets in queues.items() if any(sets)}
