"""Which messages of a topic are delayed, cancelled or copied, as sets of offsets: what a subscription counts by."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..format.delays import COPIES, DELAYS
from ..format.hidden import hidden_topic
from .delays import Delays
from .parts import StoreParts
from .positions import ENTRY_BITS
from .reckoning import Pending, pending_by_log
from .topic import DelayedTopic
from .walk import Walk

Int64s = npt.NDArray[np.int64]
END = 1 << 63


class OfQueue(NamedTuple):
    """Offsets of one queue.

    Attributes:
        pending: their time has not come.
        cancelled: nobody gets them.
        copies: they live on as copies, whether they are in the queue still or not.
    """

    pending: BitMap64
    cancelled: BitMap64
    copies: BitMap64


DelayedSets = Mapping[int, OfQueue]  # by queue id; a queue that is missing has none


def sets_by_log(found: Pending, topic: str) -> DelayedSets:
    """The sets of a topic by what was read in the log."""
    columns = [of_topics.get(topic, {}) for of_topics in (found.offsets, found.cancelled, found.copies)]
    queues = {queue_id for column in columns for queue_id in column}
    return {queue_id: OfQueue(*[_set(column.get(queue_id)) for column in columns]) for queue_id in queues}


def _set(offsets: Int64s | None) -> BitMap64:
    return BitMap64() if offsets is None else BitMap64(array("Q", np.sort(offsets).tobytes()))


def sets_by_index(topic: DelayedTopic) -> DelayedSets | None:
    """The sets of a topic by its index; None if the index has not read all of the log yet. Raises OSError."""
    topic.catch_up()
    with topic.lock:
        topic.advance()
        if topic.is_behind:
            return None
        pending = topic.tracker.pending_places()
        for place in topic.decisions.open:
            pending.add(place)
        cancelled = topic.changes.cancelled.copy()
        copies = _set(topic.copies.places)
    sets = {}
    for queue_id in topic.parts.streams.topics.get(topic.name, {}):
        end = topic.parts.next_offset(topic.name, queue_id)
        of_queue = OfQueue(*[_offsets(places, queue_id, end) for places in (pending, cancelled, copies)])
        if any(of_queue):
            sets[queue_id] = of_queue
    return sets


def _offsets(places: BitMap64, queue_id: int, next_offset: int) -> BitMap64:
    """The offsets of a queue's places, see `positions`."""
    begin, end = queue_id << ENTRY_BITS, (queue_id + 1) << ENTRY_BITS
    if not places.range_cardinality(begin, end):
        return BitMap64()
    last = max(next_offset - 1, 0)
    round_begin = last >> ENTRY_BITS << ENTRY_BITS  # the offset whose entry is 0
    cut = begin + (last - round_begin) + 1  # places from here on are of the round before
    found = _part(places, begin, cut).shift(round_begin - begin)
    if round_begin and cut < end:
        found |= _part(places, cut, end).shift(round_begin - (1 << ENTRY_BITS) - begin)
    return found


def _part(places: BitMap64, begin: int, end: int) -> BitMap64:
    part = places.copy()
    part.remove_range(0, begin)
    part.remove_range(end, END)
    return part


class Counting:
    """Finds the sets of any topic. Any number of threads may use it."""

    def __init__(self, parts: StoreParts, delays: Delays | None) -> None:
        """`delays`: None in a store that is only read."""
        self._parts = parts
        self._delays = delays
        self._lock = threading.Lock()
        self._walks: list[Walk] = []
        self._delayed: list[set[int]] = []  # by lane: the streams that ever had a delivery time

    def by_log(self, topics: Collection[str] | None = None) -> Pending:
        """What the log alone says, of some topics or of all. Raises as `pending_by_log` does."""
        return pending_by_log(self._parts, topics)

    def sets(self, topics: Collection[str]) -> dict[str, DelayedSets]:
        """The sets of some topics, exactly as they are now: by the index where it has read all of the log.

        Raises StoreCorrupt, OffsetOutOfRange, OSError.
        """
        found: dict[str, DelayedSets] = {}
        left: list[str] = []
        for topic in topics:
            index = None if self._delays is None else self._delays.find(topic)
            by_index = None if index is None else sets_by_index(index)
            if by_index is not None:
                found[topic] = by_index
            elif index is not None or self._had_times(topic):
                left.append(topic)
            else:
                found[topic] = {}
        if left:
            by_log = self.by_log(left)
            found |= {topic: sets_by_log(by_log, topic) for topic in left}
        return found

    def _had_times(self, topic: str) -> bool:
        """Whether a message of a topic may be delayed. The log is walked on from where the newest call has got to."""
        if any(self._parts.hidden.find(hidden_topic(kind, topic)) is not None for kind in (DELAYS, COPIES)):
            return True  # by a segment that is gone
        streams = list(self._parts.streams.topics.get(topic, {}).values())
        with self._lock:
            if not self._walks:
                self._walks = [Walk(lane) for lane in self._parts.lanes]
                self._delayed = [set() for _ in self._parts.lanes]
            for walk, numbers in zip(self._walks, self._delayed, strict=True):
                while (rows := walk.step(-1)) is not None:
                    numbers.update(np.unique(rows.numbers).tolist())
            return any(stream.number in self._delayed[stream.lane.index] for stream in streams)
