"""Cancels and moves delayed messages: either the change or the delivery is first, and both are durable."""

from __future__ import annotations

import threading

import numpy as np

from ..errors import StoreError
from ..format.delays import CANCELLED, CHANGES, Changes, whole
from ..log.request import Barrier
from ..log.streams import Stream
from .changes import Decision
from .due_list import DueMessages
from .messages import fetch, forget_gone, read_up_to
from .parts import MOST_ENTRY, places_of
from .topic_index import TopicIndex

LOOK_S = 0.01  # between two checks of open decisions whose threads were interrupted
COMPACT_BYTES = 1 << 20
ROW_BYTES = 20


class Decisions:
    """The changes of one topic.

    A change takes the message out of the tracker first, under the topic's lock; from then on the message is neither
    due nor pending, but *open*. Then its record is made durable, without the lock. Then the change is applied; if the
    record could not be written, the message is given back. So either the change or the delivery is first, and no record
    tells of a change that was too late.

    Nobody waits for the log with the topic's lock: the threads that write the log may wait for its holder.

    Invariants, under the topic's lock:
        * a message has at most one open decision;
        * the tracker's files are not checkpointed while a decision is open: they would forget the message before the
          log has the change.

    Attributes:
        settled: a decision was settled; with the topic's lock.
        pause: while a thread holds it, no decision begins. Taken before the topic's lock.
    """

    def __init__(self, topic: TopicIndex, stream: Stream) -> None:
        self.stream = stream
        self._topic = topic
        self._open = topic.records.open
        self.settled = threading.Condition(topic.lock)
        self.pause = threading.Lock()
        self._bytes = 0  # of records since the last compaction

    def decide(self, queue_id: int, offset: int, time_ms: int) -> bool:
        """Move a message to this time; CANCELLED cancels it. True if it was pending. It is so also after a crash."""
        topic, place, queue = self._topic, int(places_of(queue_id, offset)), self.stream.lane.queue
        topic.delays.catch_up()
        own_ms = self._own_ms(queue_id, offset, place)
        if own_ms is None:
            return False
        record = Changes(CHANGES, 0, *[np.array([value], np.int64) for value in (queue_id, offset, time_ms)])
        [request] = topic.parts.hidden.requests(self.stream, [record.pack()])
        decision, is_on_way, is_accepted = Decision(queue_id, offset, time_ms, own_ms, request), False, False
        try:
            if not self._begin(decision, place):
                return False
            is_on_way = True
            queue.put(request)
            is_accepted = True  # from here on its answer decides
            request.result()
        except StoreError:  # the log does not have it
            decision.is_refused = True  # no call: after an interrupt others settle it
            raise
        except BaseException:  # passed on; an interrupt, and another one may come at the next call
            if is_on_way and not is_accepted:
                try:  # nobody may know whether it was accepted. A barrier needs no room, and tells by its answer
                    decision.barrier = Barrier()
                    queue.put(decision.barrier)
                except BaseException:  # a log that takes no more, or a second interrupt: the next opening knows
                    decision.is_refused = True
                    raise
            else:
                decision.is_refused = not is_accepted
            raise
        finally:
            with topic.lock:
                self.settle()
        if time_ms != CANCELLED:
            topic.moved()
        return True

    def _begin(self, decision: Decision, place: int) -> bool:
        """Open the decision, once no other one of its message is open; False if the message is not pending."""
        topic, queue_id, offset = self._topic, decision.queue_id, decision.offset
        with topic.lock:
            self.settle()
            while place in self._open or self.pause.locked():
                self.settled.wait(LOOK_S)
                self.settle()
            due_ms = self._due_ms(queue_id, offset, place, decision.own_ms)
            if due_ms is None:
                return False
            decision.own_ms = due_ms
            topic.ask_for_visit()  # before it is open: after an interrupt the thread settles it
            self._open[place] = decision  # before it leaves the tracker: after an interrupt it is given back
            topic.ask(lambda tracker: tracker.cancel(queue_id, offset & MOST_ENTRY))
            topic.count(1)
        return True

    def _own_ms(self, queue_id: int, offset: int, place: int) -> int | None:
        """The own time of a message, which only a change replaces; None if it is surely not pending.

        Without the lock: it may read the device. Raises StoreCorrupt, OSError.
        """
        topic = self._topic
        with topic.lock:
            if not self._may_be_pending(queue_id, offset, place):
                return None
            moved = topic.changes.moved.get(place)
        if moved is not None:
            return moved  # the time before that does not matter any more
        message = fetch(topic, queue_id, offset)
        return None if message is None else message.deliver_at_ms

    def _may_be_pending(self, queue_id: int, offset: int, place: int) -> bool:
        """Whether a message exists, and is neither cancelled nor known to have come. Under the lock."""
        topic = self._topic
        stream = topic.parts.stream(topic.name, queue_id)
        if stream is None or offset < stream.low or offset >= topic.parts.next_offset(topic.name, queue_id):
            return False
        return place not in topic.changes.cancelled and place not in topic.changes.come

    def _due_ms(self, queue_id: int, offset: int, place: int, own_ms: int) -> int | None:
        """When a message is due; None if it is not pending. Under the lock.

        Its time decides, even if the tracker still has it: then it has not been taken out yet, but it is too late.
        """
        topic = self._topic
        # The question may make the index again: then the topic has not read all of the log.
        is_known = topic.ask(lambda tracker: bool(tracker.are_pending(queue_id, [offset & MOST_ENTRY])[0]))
        due_ms, now_ms = topic.changes.moved.get(place, own_ms), topic.given.now_ms()
        if due_ms <= max(now_ms, topic.given.told_ms) or not self._may_be_pending(queue_id, offset, place):
            return None
        if topic.is_lagging and offset >= read_up_to(topic, queue_id):
            return None if place in topic.reported else due_ms
        return due_ms if is_known or due_ms > topic.given.latest_ms else None  # else it has come, by another clock

    def settle(self) -> None:
        """Apply or undo the decisions that have their answer. Under the lock."""
        for place, decision in dict(self._open).items():
            request, last = decision.request, decision.barrier or decision.request
            if decision.is_refused or last.done():
                if not decision.is_refused and request.done() and request.exception() is None:
                    self._apply(place, decision)
                else:
                    self._give_back(place, decision)
        if not self._open:
            self.settled.notify_all()

    def settle_all(self) -> None:
        """Wait until no decision is open. Under the lock, which it releases to wait; `pause` is held."""
        self.settle()
        while self._open:
            self.settled.wait(LOOK_S)
            self.settle()

    def _apply(self, place: int, decision: Decision) -> None:
        topic, entry = self._topic, decision.offset & MOST_ENTRY
        topic.records.changed.add(place)
        due_ms = CANCELLED if decision.time_ms == CANCELLED else max(decision.time_ms, topic.given.now_ms())
        topic.changes.note(place, due_ms)
        topic.records.next_offset = max(topic.records.next_offset, int(decision.request.offsets[-1]) + 1)
        self._bytes += ROW_BYTES
        topic.ask(lambda tracker: tracker.cancel(decision.queue_id, entry))  # a scan may have added it meanwhile
        if decision.time_ms == CANCELLED:
            row = np.array([decision.queue_id], np.int64), np.array([decision.offset], np.int64)
            topic.due.add(DueMessages(*row, np.ones(1, np.bool_)))
        elif not self._is_trimmed(decision):
            topic.given.owes(due_ms)
            topic.tracker.put_back(decision.queue_id, entry, decision.time_ms)
        topic.count(1)
        del self._open[place]

    def _is_trimmed(self, decision: Decision) -> bool:
        return decision.offset < self._topic.parts.low(self._topic.name, decision.queue_id)

    def _give_back(self, place: int, decision: Decision) -> None:
        """Undo a change whose record was not written, or may not be: the message is as before. Under the lock."""
        topic = self._topic
        if not self._is_trimmed(decision):
            topic.given.owes(decision.own_ms)
            topic.tracker.put_back(decision.queue_id, decision.offset & MOST_ENTRY, decision.own_ms)
        topic.count(1)
        del self._open[place]  # last: after an interrupt it is given back again

    # -- the stream of records ------------------------------------------------------------------------

    def compact(self) -> None:
        """Write all changes that still matter again, and remove the older records.

        Raises StoreError; then the older records are still there.
        """
        topic = self._topic
        with self.pause:
            with topic.lock:
                self.settle_all()
                forget_gone(topic)
                rows = topic.changes.rows(topic.name, topic.parts)
            offsets = topic.parts.hidden.append(self.stream, whole(*rows))  # all changes: none begins meanwhile
            with topic.lock:
                topic.records.next_offset = int(offsets[-1]) + 1
                self._bytes = 0
            topic.parts.hidden.trim(self.stream, int(offsets[0]))

    @property
    def wants_compaction(self) -> bool:
        """Whether most of the records are of messages that have changed again, or are gone."""
        return self._bytes > COMPACT_BYTES and self._bytes > 2 * ROW_BYTES * len(self._topic.changes)
