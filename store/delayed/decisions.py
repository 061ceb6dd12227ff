"""Cancelling and moving delayed messages: either the change or the delivery comes first, and both are durable."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..errors import StoreError
from ..format.arrays import Bools, Int64s
from ..format.delays import CANCELLED, CHANGES, Changes, whole
from ..log.request import Barrier, RowGroup
from ..log.streams import Stream
from .due_list import DueMessages
from .messages import fetch, forget_gone, read_up_to
from .parts import MOST_ENTRY, places_of

if TYPE_CHECKING:
    from .topic import DelayedTopic

LOOK_S = 0.01  # between two looks at decisions of others whose threads were interrupted
COMPACT_BYTES = 1 << 20
ROW_BYTES = 20


@dataclass(slots=True)
class Decision:
    """A change on its way to the log.

    Attributes:
        own_ms: the time of the message before.
        requests: one, once it is sent.
        barriers: one, where nobody knows whether the log has accepted that. It is answered after it.
        is_refused: the log has no record of it: whoever settles gives the message back.
    """

    queue_id: int
    offset: int
    time_ms: int
    own_ms: int
    requests: list[RowGroup] = field(default_factory=list)
    barriers: list[Barrier] = field(default_factory=list)
    is_refused: bool = False


class Decisions:
    """The changes of one topic.

    A change takes the message out of the tracker first, under the topic's lock; from then on the message is neither
    due nor pending, but *open*. Then its record is made durable, without the lock. Then the change is applied, or, if
    the record could not be written, taken back. So of a change and a delivery exactly one is first, and there is no
    record of a change that was too late.

    Nobody waits for the log with the topic's lock: the threads that write the log may wait for those who hold it.

    Invariants, under the topic's lock:
        * a message has at most one open decision;
        * the tracker's files are not checkpointed while one is open, as they would forget the message before the log
          has the change.

    Attributes:
        open: by place.
        next_offset: of the stream of changes: all records before it are applied.
        changed: places of the changes that the tracker's files do not know: those since the last checkpoint.
    """

    def __init__(self, topic: DelayedTopic, stream: Stream, next_offset: int, changed: set[int]) -> None:
        self.changed = changed
        self.open: dict[int, Decision] = {}
        self.stream = stream
        self.next_offset = next_offset
        self._topic = topic
        self._pausing = 0
        self._compacting = threading.Lock()  # the records of two compactions would be mixed
        self._bytes = 0  # of records since the last compaction

    def are_open(self, places: Int64s) -> Bools:
        """(n,) which places are being decided about."""
        if not self.open:
            return np.zeros(len(places), np.bool_)
        return np.isin(places, np.array(list(self.open), np.int64))

    def cancel(self, queue_id: int, offset: int) -> bool:
        """Whether it was pending. It is never delivered then, also after a crash."""
        return self._decide(queue_id, offset, CANCELLED)

    def move(self, queue_id: int, offset: int, deliver_at_ms: int) -> bool:
        """Whether it was pending. It is delivered at the new time then, also after a crash."""
        return self._decide(queue_id, offset, deliver_at_ms)

    def _decide(self, queue_id: int, offset: int, time_ms: int) -> bool:
        topic, place = self._topic, int(places_of(queue_id, offset))
        topic.catch_up()
        own_ms = self._own_ms(queue_id, offset, place)
        if own_ms is None:
            return False
        columns = [np.array([value], np.int64) for value in (queue_id, offset, time_ms)]
        decision = None
        try:
            with topic.lock:
                while place in self.open or self._pausing:
                    self.settle()
                    if place in self.open or self._pausing:
                        topic.settled.wait(LOOK_S)
                due_ms = self._due_ms(queue_id, offset, place, own_ms)
                if due_ms is None:
                    return False
                decision = Decision(queue_id, offset, time_ms, due_ms)
                topic.ask_for_visit()  # before it is open: an interrupt leaves it to the thread
                self.open[place] = decision  # before it leaves the tracker: an interrupt gives it back
                topic.ask(lambda tracker: tracker.cancel(queue_id, offset & MOST_ENTRY))
                topic.count(1)
            self._hand_over(decision, Changes(CHANGES, 0, *columns).pack())
            decision.requests[0].result()
        except BaseException:  # also an interrupt: where the record went out, its answer is looked at by all others
            if decision is not None and not decision.requests:
                decision.is_refused = True  # no call: behind another interrupt others settle it
            raise
        finally:
            with topic.lock:
                self.settle()
        if time_ms != CANCELLED:
            topic.moved()
        return True

    def _hand_over(self, decision: Decision, record: bytes) -> None:
        """Hand a change's record to the log. Raises StoreError: it has none.

        Behind an interrupt nobody may know whether the record was accepted. So a barrier goes out: it has its answer
        when all that was accepted before has, and the decision is open until then. It needs no room.
        """
        requests, queue = decision.requests, self.stream.lane.queue
        try:
            requests.extend(self._topic.parts.hidden.requests(self.stream, [record]))
            queue.put(requests[0])
        except StoreError:
            del requests[:]
            raise
        except BaseException:  # passed on; an interrupt
            if requests:
                try:
                    decision.barriers.append(Barrier())
                    queue.put(decision.barriers[0])
                except BaseException:  # of a log that takes no more, or a second interrupt: the next opening knows
                    del requests[:]
                    raise
            raise

    def _own_ms(self, queue_id: int, offset: int, place: int) -> int | None:
        """A message's own time, which never changes; None if it is surely not pending. Raises StoreCorrupt, OSError.

        Not under the lock: it may read the device.
        """
        topic = self._topic
        with topic.lock:
            if not self._may_be_pending(queue_id, offset, place):
                return None
            moved = topic.changes.moved.get(place)
        if moved is not None:
            return moved  # what it was before asks nobody any more
        message = fetch(topic, queue_id, offset)
        return None if message is None else message.deliver_at_ms

    def _may_be_pending(self, queue_id: int, offset: int, place: int) -> bool:
        """Whether a message is there, and neither cancelled nor known to have come. Under the lock."""
        topic = self._topic
        stream = topic.parts.stream(topic.name, queue_id)
        if stream is None or offset < stream.low or offset >= topic.parts.next_offset(topic.name, queue_id):
            return False
        return place not in topic.changes.cancelled and place not in topic.changes.come

    def _due_ms(self, queue_id: int, offset: int, place: int, own_ms: int) -> int | None:
        """When a message is due; None if it is not pending. Under the lock.

        Its time decides, also where the tracker has it still: it was not taken out yet, but it is too late.
        """
        topic = self._topic
        # Made anew, the topic may be behind.
        is_known = topic.ask(lambda tracker: bool(tracker.are_pending(queue_id, [offset & MOST_ENTRY])[0]))
        due_ms, now_ms = topic.changes.moved.get(place, own_ms), topic.now_ms()
        if due_ms <= max(now_ms, topic.given.told_ms) or not self._may_be_pending(queue_id, offset, place):
            return None
        if topic.is_behind and offset >= read_up_to(topic, queue_id):
            return None if place in topic.reported else due_ms
        return due_ms if is_known or due_ms > topic.given.latest_ms else None  # else it came by another clock

    def settle(self) -> None:
        """Apply the decisions that have their answer. Under the lock."""
        for place, decision in dict(self.open).items():
            if decision.is_refused:
                self._give_back(place, decision)
            elif decision.requests and (decision.barriers or decision.requests)[0].done():
                request = decision.requests[0]
                if request.done() and request.exception() is None:
                    self._apply(place, decision)
                else:
                    self._give_back(place, decision)
        if not self.open:
            self._topic.settled.notify_all()

    def _apply(self, place: int, decision: Decision) -> None:
        topic, entry = self._topic, decision.offset & MOST_ENTRY
        self.changed.add(place)
        due_ms = CANCELLED if decision.time_ms == CANCELLED else max(decision.time_ms, topic.now_ms())
        topic.changes.note(place, due_ms)
        self.next_offset = max(self.next_offset, int(decision.requests[0].offsets[-1]) + 1)
        self._bytes += ROW_BYTES
        topic.ask(lambda tracker: tracker.cancel(decision.queue_id, entry))  # a scan may have added it meanwhile
        if decision.time_ms == CANCELLED:
            row = np.array([decision.queue_id], np.int64), np.array([decision.offset], np.int64)
            topic.add_due(DueMessages(*row, np.ones(1, np.bool_)))
        elif not self._is_trimmed(decision):
            topic.given.owes(due_ms)
            topic.tracker.put_back(decision.queue_id, entry, decision.time_ms)
        topic.count(1)
        del self.open[place]

    def _is_trimmed(self, decision: Decision) -> bool:
        stream = self._topic.parts.stream(self._topic.name, decision.queue_id)
        return stream is not None and decision.offset < stream.low

    def _give_back(self, place: int, decision: Decision) -> None:
        """The record was not written, or nobody knows: the message is as it was. Under the lock."""
        if not self._is_trimmed(decision):
            self._topic.given.owes(decision.own_ms)
            self._topic.tracker.put_back(decision.queue_id, decision.offset & MOST_ENTRY, decision.own_ms)
        self._topic.count(1)
        del self.open[place]  # last: behind an interrupt it is given back again

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No decision is open, and none begins. Under the topic's lock, which is let go of while that is waited for."""
        topic = self._topic
        self._pausing += 1
        try:
            while self.open:
                self.settle()
                if self.open:
                    topic.settled.wait(LOOK_S)
            yield
        finally:
            self._pausing -= 1
            topic.settled.notify_all()

    # -- the stream of records ------------------------------------------------------------------------

    def compact(self) -> None:
        """Write all changes that still matter anew, and let go of the older records.

        Raises StoreError; then the older records are there still.
        """
        topic = self._topic
        is_pausing = False
        with self._compacting:
            try:
                with topic.quiet():
                    forget_gone(topic)
                    rows = topic.changes.rows(lambda queue_id: topic.parts.next_offset(topic.name, queue_id))
                    self._pausing += 1  # until the records are durable: so they say all that there is
                    is_pausing = True  # no call in between: an interrupt finds both or none
                offsets = topic.parts.hidden.append(self.stream, whole(*rows))
                with topic.lock:
                    self.next_offset = int(offsets[-1]) + 1
                    self._bytes = 0
            finally:
                self._pausing -= is_pausing  # first, and without the lock: an interrupt may come where it is waited for
                with topic.lock:
                    topic.settled.notify_all()
            topic.parts.hidden.trim(self.stream, int(offsets[0]))

    @property
    def wants_compaction(self) -> bool:
        """Whether most of the records are about what has changed again, or is gone."""
        return self._bytes > COMPACT_BYTES and self._bytes > 2 * ROW_BYTES * len(self._topic.changes)
