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

from ...index.trackers.places import bitmap_of, places_in, those_between
from ..errors import StoreError
from ..format.arrays import Int64s
from ..format.delays import COPIES, DELAYS
from ..format.hidden import hidden_topic, is_hidden
from .changes import ChangedDelays, ChangesReader
from .copies import Copies
from .delays import Delays
from .due_scan import DueScan
from .opening import changes_of
from .parts import ENTRY_BITS, MOST_ENTRY, StoreParts, offsets_of, places_of, topic_of
from .topic import DelayedTopic

END = 1 << 63
FEW_PLACES = 1 << 16  # of at most so many places an array is made, which takes 8 bytes a place
NO_OFFSETS = BitMap64()  # never changed
TRY_AGAIN_S = 60.0  # after an index could not be made
_Queues = dict[int, list[Int64s]]


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


def sets_by_log(found: PendingDelays, topic: str) -> DelayedSets:
    """The sets of a topic from the delays that were read in the log."""
    columns = [of_topics.get(topic, {}) for of_topics in (found.offsets, found.cancelled, found.copies)]
    queues = {queue_id for column in columns for queue_id in column}
    return {queue_id: DelayedOffsets(*[_set(column.get(queue_id)) for column in columns]) for queue_id in queues}


def _set(offsets: Int64s | None) -> BitMap64:
    return BitMap64() if offsets is None else bitmap_of(offsets)


def sets_by_index(topic: DelayedTopic) -> DelayedSets | None:
    """The sets of a topic from its index; None if the index has not read all of the log yet. Raises OSError.

    `Delays.catch_up` was called before.
    """
    with topic.lock:
        topic.advance()
        pending = topic.ask(lambda tracker: tracker.pending_places())
        if topic.is_lagging:  # or the question has found a damaged file, and the index was made again
            return None
        for place in topic.decisions.open:
            pending.add(place)
        cancelled = topic.changes.cancelled.copy()
        copies = _set(topic.copies.places)
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
        """The delays of some topics or of all, by the log alone. Raises as `pending_by_log` does."""
        return pending_by_log(self._parts, topics)

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
            found |= {topic: sets_by_log(by_log, topic) for topic in left}
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


class PendingDelays(NamedTuple):
    """The messages whose time has not come, without cancelled ones.

    Attributes:
        offsets: by topic and queue id, (n,) ascending.
        cancelled: as `offsets`, of cancelled messages; some may have been removed.
        copies: as `offsets`, of messages that live on as copies, delayed or not.
        is_whole: False if damage hides some. The index of a store that opens leaves out the same ones.
    """

    offsets: dict[str, dict[int, Int64s]]
    cancelled: dict[str, dict[int, Int64s]]
    copies: dict[str, dict[int, Int64s]]
    is_whole: bool

    def counts(self) -> dict[str, int]:
        """The number of pending messages of each topic that has some, sorted."""
        return {topic: sum(map(len, queues.values())) for topic, queues in sorted(self.offsets.items())}


def pending_by_log(parts: StoreParts, topics: Collection[str] | None = None) -> PendingDelays:
    """Read the frames with delivery times and the records of changes. It reads nothing else, and changes nothing.

    `topics`: None reads all. It takes 8 bytes of memory for each pending message.

    Raises StoreCorrupt if a record of a change or a copy is damaged, OffsetOutOfRange or OSError if a writer
    removed some of them meanwhile.
    """
    now_ms = parts.clock.wall_ms()
    changes = _changes(parts, topics)
    found: dict[str, _Queues] = {}
    copied: dict[str, _Queues] = {}
    damaged = 0
    for lane in parts.lanes:
        scan = DueScan(lane)
        for rows in scan.parts(now_ms):
            later = rows.times_ms > now_ms
            for number in np.unique(rows.numbers[later]).tolist():
                stream = lane.streams[number]
                mine = later & (rows.numbers == number)
                if not is_hidden(stream.topic) and (topics is None or stream.topic in topics):
                    _note(found, stream.topic, stream.queue_id, rows.offsets[mine])
        damaged += scan.damaged
    for topic in _topics_with(COPIES, parts, topics):
        copies = Copies(topic, parts)
        for queue_id, at, offsets in copies.of_queues():
            _note(found, topic, queue_id, offsets[copies.times_ms[at] > now_ms])
            _note(copied, topic, queue_id, offsets)
    for topic, changed in changes.items():
        _apply(changed, found.setdefault(topic, {}), topic, parts, now_ms)
    cancelled = {topic: _cancelled(changed, topic, parts) for topic, changed in changes.items()}
    counted = [_all_counted(one, parts) for one in (found, cancelled, copied)]
    return PendingDelays(counted[0], counted[1], counted[2], not damaged)


def _note(found: dict[str, _Queues], topic: str, queue_id: int, offsets: Int64s) -> None:
    found.setdefault(topic, {}).setdefault(queue_id, []).append(offsets)


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


def _apply(changed: ChangedDelays, queues: _Queues, topic: str, parts: StoreParts, now_ms: int) -> None:
    """Remove messages that were cancelled or moved, and add those that were moved to a later time."""
    if not len(changed):
        return
    for queue_id, pieces in queues.items():
        offsets = np.concatenate(pieces)
        places = places_of(np.full(len(offsets), queue_id), offsets)
        queues[queue_id] = [offsets[changed.times_of(places, np.full(len(places), now_ms + 1)) > now_ms]]
    later = np.array([place for place, time_ms in changed.moved.items() if time_ms > now_ms], np.int64)
    copies = Copies(topic, parts)
    for queue_id, _, offsets in parts.by_queue(topic, later):
        stream = parts.stream(topic, queue_id)
        if stream is not None:
            first = parts.reader.finder.bounds(stream)[0]
            there = (offsets >= first) | copies.has(queue_id, offsets)  # else it was removed, and the change is ignored
            queues.setdefault(queue_id, []).append(offsets[there])


def _cancelled(changed: ChangedDelays, topic: str, parts: StoreParts) -> _Queues:
    places = places_in(changed.cancelled)
    return {queue_id: [offsets] for queue_id, _, offsets in parts.by_queue(topic, places)}


def _all_counted(found: dict[str, _Queues], parts: StoreParts) -> dict[str, dict[int, Int64s]]:
    named = {topic: _counted(topic, queues, parts) for topic, queues in found.items()}
    return {topic: queues for topic, queues in named.items() if queues}


def _counted(topic: str, queues: _Queues, parts: StoreParts) -> dict[int, Int64s]:
    """Each message once, without those that were trimmed."""
    found = {}
    for queue_id, pieces in queues.items():
        offsets = np.unique(np.concatenate(pieces))
        offsets = offsets[offsets >= parts.low(topic, queue_id)]
        if len(offsets):
            found[queue_id] = offsets
    return found
