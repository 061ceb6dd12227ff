"""Attempts: how often messages were given out, over restarts too where too many of them have a consequence."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap64

from ..errors import StoreError
from ..format.arrays import Int64s
from ..format.cursors import Group, bitmap_of, pack_attempts
from ..log.request import Request
from ..read.message import MessageBatch
from .delivery import queue_ids_of, taken
from .in_flight import NEVER, Places

if TYPE_CHECKING:
    from .cursor import AckedOffsets
    from .state import State

MOST = 1 << 63  # larger than any offset


class Attempts:
    """How often the messages of one queue were given out. One thread at a time.

    Most were given out once: a bitmap has those. Only the others have a number each.

    Attributes:
        era: of the queue, see `AckedOffsets`.
    """

    __slots__ = ("_more", "_once", "era")

    def __init__(self, era: int) -> None:
        self.era = era
        self._once = BitMap64()
        self._more: dict[int, int] = {}

    def copy(self) -> Attempts:
        """A copy with the same attempts."""
        twin = Attempts(self.era)
        twin._once, twin._more = self._once.copy(), dict(self._more)
        return twin

    @property
    def end(self) -> int:
        """The end: no offset from here on was given out."""
        return max(self._once.max() + 1 if self._once else 0, max(self._more, default=-1) + 1)

    def of(self, offsets: Int64s) -> Int64s:
        """(n,) how often messages were given out. Their offsets ascend."""
        counts = np.zeros(len(offsets), np.int64)
        if self._once and len(offsets):
            there = np.frombuffer((bitmap_of(offsets) & self._once).to_array(), np.int64)
            counts[offsets.searchsorted(there)] = 1
        if self._more:
            more = self._more
            numbers = [more.get(offset, 0) for offset in offsets.tolist()]
            counts = np.maximum(counts, np.array(numbers, np.int64))
        return counts

    def note(self, offsets: Int64s, counts: Int64s) -> None:
        """Note that messages were given out: `counts` has the number of attempts of each, the newest included."""
        first = counts == 1
        self._once.update(array("Q", offsets[first].tobytes()))
        for offset, count in zip(offsets[~first].tolist(), counts[~first].tolist(), strict=True):
            if count > self._more.get(offset, 1):
                self._more[offset] = count
                self._once.discard(offset)

    def undo(self, offset: int, count: int) -> None:
        """Undo the newest attempt of a message, which was number `count`."""
        self._once.discard(offset)
        self._more.pop(offset, None)
        if count > 1:
            self.note(np.array([offset]), np.array([count - 1]))

    def add(self, group: Group) -> None:
        """Add the attempts that a record has."""
        if group.bitmap is not None:
            self._once |= group.bitmap
        for begin, end in group.ranges.tolist() if group.ranges is not None else ():
            self._once.add_range(begin, end)
        if group.counts is not None:
            self.note(group.counts[:, 0], group.counts[:, 1])
        for offset in self._more:
            self._once.discard(offset)

    def forget(self, acked: AckedOffsets) -> None:
        """Forget the attempts of acknowledged messages."""
        self._once.remove_range(0, acked.mark)
        self._once -= acked.above
        self._more = {offset: count for offset, count in self._more.items() if offset not in acked}

    def cut(self, end: int) -> None:
        """Forget the attempts of messages from `end` on."""
        self._once.remove_range(end, MOST)
        self._more = {offset: count for offset, count in self._more.items() if offset < end}

    def rows(self) -> tuple[Int64s, Int64s]:
        """All offsets (n,), ascending, and how often each was given out."""
        once = np.frombuffer(self._once.to_array(), np.int64)
        more = np.array(list(dict(self._more).items()), np.int64).reshape(-1, 2)
        offsets, counts = np.concatenate([once, more[:, 0]]), np.concatenate([np.ones(len(once), np.int64), more[:, 1]])
        order = offsets.argsort(kind="stable")
        return offsets[order], counts[order]


class AttemptCounts:
    """Counts how often messages of one subscription are given out. Any number of threads may use it.

    Invariant: where attempts are counted, the log has the attempt of a message before a consumer gets the message.

    Attributes:
        ends: by queue id: messages below this offset may have been given out before.
    """

    def __init__(self, state: State) -> None:
        self.ends: dict[int, int] = {}
        self._state = state

    @property
    def are_counted(self) -> bool:
        """Whether attempts are counted over restarts: only if too many have a consequence."""
        settings = self._state.cursor.settings
        return settings is not None and settings.max_attempts is not None

    def of(self, queues: Int64s, offsets: Int64s) -> Int64s:
        """(n,) how often messages were given out, by the log's records. Under the state's lock."""
        counts, cursor = np.zeros(len(offsets), np.int64), self._state.cursor
        for queue_id in np.unique(queues).tolist() if cursor.attempts else ():
            mine = np.flatnonzero(queues == queue_id)
            mine = mine[offsets[mine].argsort(kind="stable")]
            counts[mine] = cursor.tried(queue_id).of(offsets[mine])
        return counts

    def note(self, places: Places) -> Sequence[Request]:
        """Note the attempts of messages that are given out. Returns the requests that record them in the log.

        Raises as an append does; then nothing was noted.
        """
        groups, state = [], self._state
        try:
            with state.lock:
                life = state.cursor.life
                for queue_id in np.unique(places.queues).tolist():
                    mine = np.flatnonzero(places.queues == queue_id)
                    mine = mine[places.offsets[mine].argsort(kind="stable")]
                    tried = state.cursor.tried(queue_id)
                    tried.note(places.offsets[mine], places.attempts[mine])
                    groups.append((queue_id, tried.era, places.offsets[mine], places.attempts[mine]))
            requests = state.journal.submit(pack_attempts(life, groups, state.limit_bytes))
        except BaseException:  # passed on; an interrupt, too, leaves no attempt without a record
            with state.lock:
                self.undo(places)
            raise
        return requests

    def may_be_met(self, is_past: Callable[[int, int], bool]) -> bool:
        """Whether messages that are read next may have been given out before; `is_past(queue id, offset)` says whether
        a queue is read up to the offset.
        """
        for queue_id in [queue_id for queue_id, end in self.ends.items() if is_past(queue_id, end)]:
            del self.ends[queue_id]
        return bool(self.ends)

    def wait_for(self, noted: Sequence[Request], receipts: Int64s) -> None:
        """Return when the attempts of messages are durable. Raises StoreError: then the messages come again, and this
        attempt does not count.
        """
        try:
            for request in noted:
                request.result()
        except StoreError:
            self._state.undo_receive(receipts)
            raise
        self._state.compact_in_time()

    def undo(self, places: Places) -> None:
        """Undo the newest attempts: no consumer has had the messages. Under the state's lock."""
        if self.are_counted:
            self._state.cursor.undo_attempts(zip(*[column.tolist() for column in places], strict=True))

    def expect(self) -> None:
        """All messages are read again: some of them were given out before."""
        if self.are_counted:
            cursor = self._state.cursor
            cursor.forget_tried()
            self.ends = {queue_id: one.end for queue_id, one in cursor.attempts.items() if one.end}

    def without_dead(self, batch: MessageBatch, counts: Int64s, first: int) -> tuple[MessageBatch, Int64s, bool]:
        """(messages that were not given out too often before, their attempts, whether there were others). The table
        knows the first `first` messages already.
        """
        state = self._state
        settings = state.cursor.settings
        assert settings is not None and settings.max_attempts is not None, "attempts are counted"
        queues = queue_ids_of(batch)
        with state.lock:
            counts[first:] += self.of(queues[first:], batch.offsets[first:])
            is_dead = counts > settings.max_attempts
            is_dead[:first] = False  # these were checked before, maybe by other settings
            dead = np.flatnonzero(is_dead)
            if not len(dead):
                return batch, counts, False
            # The next look finds them in the table, and moves them to the dead letters.
            receipts = state.enter(Places(queues[dead], batch.offsets[dead], counts[dead] - 1), NEVER)
            state.table.hold(state.table.find(receipts), state.now_ms())
        kept = np.flatnonzero(~is_dead)
        return taken(batch, kept), counts[kept], True
