"""The changed delays of a topic, in memory: the messages cancelled or with a new time, and changes on their way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import numpy as np
from pyroaring import BitMap64

from ...index.trackers.places import bitmap_of, memory_bytes
from ..errors import StoreCorrupt
from ..format.arrays import Bools, Int64s
from ..format.delays import CANCELLED, WHOLE, Changes
from ..log.request import Barrier, RowGroup
from .parts import StoreParts, are_among, places_of

MOVED_BYTES = 120  # of a moved message in a dict
LONG_AGO_MS = 0  # in place of the time of a message that was moved, and has come


@dataclass(slots=True)
class Decision:
    """A change on its way to the log.

    Attributes:
        own_ms: the time of the message before the change.
        request: of the change's record.
        barrier: sent if nobody knows whether the log has accepted the record. It is answered after the record.
        is_refused: the log has no record of the change: the thread that settles gives the message back.
    """

    queue_id: int
    offset: int
    time_ms: int
    own_ms: int
    request: RowGroup
    barrier: Barrier | None = None
    is_refused: bool = False


class ChangeRecords:
    """How far a topic is in the stream of its change records. Used under the topic's lock.

    Attributes:
        open: by place, the decisions that are open, see `Decisions`.
        next_offset: of the stream: all records before it are applied.
        changed: places of the changes since the last checkpoint, which the tracker's files do not have.
    """

    def __init__(self, next_offset: int, changed: set[int]) -> None:
        self.open: dict[int, Decision] = {}
        self.next_offset = next_offset
        self.changed = changed

    def are_open(self, places: Int64s) -> Bools:
        """(n,) which places have an open decision."""
        if not self.open:
            return np.zeros(len(places), np.bool_)
        return np.isin(places, np.array(list(self.open), np.int64))


class ChangedDelays:
    """The content of a topic's change records, by place. Not safe for threads.

    A message is in at most one of the three. A moved message is a number in a dict until it has come, and one bit
    from then on: it came by its new time, and a caller that knows only its own time must not see it as pending again.

    Attributes:
        cancelled: places.
        moved: the new time of each place that was moved and has not come.
        come: places that were moved, and have come.
    """

    def __init__(self) -> None:
        self.cancelled = BitMap64()
        self.moved: dict[int, int] = {}
        self.come = BitMap64()

    def __len__(self) -> int:
        return len(self.cancelled) + len(self.moved) + len(self.come)

    @property
    def memory_bytes(self) -> int:
        """The memory that they take, about."""
        sets = sum(memory_bytes(places) for places in (self.cancelled, self.come) if places)
        return sets + MOVED_BYTES * len(self.moved)

    def note(self, place: int, time_ms: int) -> None:
        """Note the newest change of a message; CANCELLED as the time cancels it."""
        into = self.cancelled if time_ms == CANCELLED else self.come if time_ms == LONG_AGO_MS else None
        if into is not None:
            into.add(place)
            self.moved.pop(place, None)
        else:
            self.moved[place] = time_ms
        for other in (self.cancelled, self.come):
            if other is not into:
                other.discard(place)

    def came(self, places: Int64s) -> None:
        """The time of these messages has come: moved ones take one bit from now on."""
        if not self.moved:
            return
        mine = list(filter(self.moved.__contains__, places.tolist()))
        self.come.update(mine)
        for place in mine:
            del self.moved[place]

    def came_until(self, now_ms: int) -> None:
        """The time of all messages that were moved to `now_ms` or earlier has come."""
        self.came(np.array([place for place, time_ms in self.moved.items() if time_ms <= now_ms], np.int64))

    def are_cancelled(self, places: Int64s) -> Bools:
        """(n,) which places are cancelled."""
        return are_among(places, self.cancelled)

    def times_of(self, places: Int64s, given_ms: Int64s) -> Int64s:
        """(n,) when messages with these own times are due; CANCELLED for never."""
        if not len(self):
            return given_ms
        moved = self.moved
        pairs = zip(places.tolist(), given_ms.tolist(), strict=True)
        times = np.fromiter((moved.get(place, given) for place, given in pairs), np.int64, len(places))
        times[are_among(places, self.come)] = LONG_AGO_MS
        times[are_among(places, self.cancelled)] = CANCELLED
        return times

    def places(self) -> Int64s:
        """(n,) the places of all changes, ascending."""
        return np.sort(np.fromiter(chain(self.cancelled, self.come, list(self.moved)), np.int64, len(self)))

    def forget(self, places: Int64s) -> None:
        """Drop the changes of these messages."""
        gone = bitmap_of(places)
        self.cancelled -= gone
        self.come -= gone
        for place in places.tolist():
            self.moved.pop(place, None)

    def rows(self, topic: str, parts: StoreParts) -> tuple[Int64s, Int64s, Int64s]:
        """(queue ids, offsets, times) of all changes of a topic, in order of the place."""
        places = self.places()
        queues, offsets = np.empty_like(places), np.empty_like(places)
        for queue_id, rows, found in parts.by_queue(topic, places):
            queues[rows], offsets[rows] = queue_id, found
        return queues, offsets, self.times_of(places, np.full(len(places), CANCELLED))


class ChangesReader:
    """Builds the changes from the records of a stream, in their order.

    Invariant: a WHOLE counts once all of its parts were read. Changes that lie between its parts are newer than the
    WHOLE.

    Attributes:
        is_cut: some changes were of lost messages, and left out.
    """

    def __init__(self, end_of: Callable[[int], int] | None = None) -> None:
        """`end_of(queue id)`: the messages from there on are lost, and others get their offsets."""
        self.state = ChangedDelays()
        self.is_cut = False
        self._end_of = end_of
        self._parts: list[Changes] = []  # of a WHOLE that is not complete
        self._between: list[Changes] = []  # changes read since its first part

    def add(self, data: bytes | memoryview) -> Int64s:
        """Apply a record. Returns (n,) the places that it may have changed. Raises StoreCorrupt."""
        changes = Changes.unpack(data)
        if changes is None:
            raise StoreCorrupt("a record of changed delays makes no sense", "", 0)
        if changes.kind != WHOLE:
            if self._parts:
                self._between.append(changes)
            return self._apply(changes)
        if not self._parts or not changes.follows(self._parts[-1]):  # the writer of the parts before died
            self._parts, self._between = [], []
        self._parts.append(changes)
        if changes.left:
            return np.empty(0, np.int64)
        rows, self._parts, self._between = self._parts + self._between, [], []
        self.state = ChangedDelays()
        return np.concatenate([self._apply(one) for one in rows])

    def _apply(self, changes: Changes) -> Int64s:
        there = self._are_there(changes)
        places, times_ms = places_of(changes.queue_ids, changes.offsets)[there], changes.times_ms[there]
        for place, time_ms in zip(places.tolist(), times_ms.tolist(), strict=True):
            self.state.note(place, time_ms)
        return places

    def _are_there(self, changes: Changes) -> Bools:
        if self._end_of is None:
            return np.ones(len(changes.offsets), np.bool_)
        queues, which = np.unique(changes.queue_ids, return_inverse=True)
        there: Bools = changes.offsets < np.array(list(map(self._end_of, queues.tolist())), np.int64)[which]
        self.is_cut |= not there.all()
        return there
