"""The delayed messages of a store: its topics with an index, the way of new messages into it, and its thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from ...cache import MemoryPlan
from ..device.steps import take_all
from ..errors import StoreCorrupt
from ..format.arrays import Int64s
from ..format.delays import DELAYS
from ..format.layout import NO_TIME
from ..log.lane import Lane
from ..log.streams import Change, Stream
from ..log.write import VisibleEntries
from .changed_topics import ChangedTopics
from .due_scan import DueRows, DueScan
from .messages import figures_of
from .opening import end_of, forget_deleted
from .parts import StoreParts, Subscribers, topic_of
from .topic import DelayedTopic
from .wanted import Kept, copies_to_keep
from .worker import Visits, Worker

MEMORY_LIMIT_BYTES = 256 << 20  # of all indexes together, the most if no setting says more
LEAST_LIMIT_BYTES = 8 << 20  # of one topic: the next segments of 50 buckets
LONGEST_S = 0.5  # between two looks at a clock that may jump
CHECKPOINT_ROWS = 500_000
CHECKPOINT_S = 60.0
DROP_S = 1.0  # between two checks for copies that nobody wants any more ..
DROP_TIMES = 20  # .. and so many times as long as a check takes
STEPS = 4  # of a lagging topic, between two visits of all others

_QueueOf = tuple[DelayedTopic, int] | None  # a stream's topic and queue id


def memory_of(plan: MemoryPlan | None) -> int:
    """The memory of all indexes together: the plan's part, up to a bound."""
    return MEMORY_LIMIT_BYTES if plan is None else min(MEMORY_LIMIT_BYTES, plan.delayed_index_bytes)


class Delays:
    """The topics of one store that have an index.

    A topic gets one when a receive meets a delayed message or a count finds one, or with the first change of a delay,
    and keeps it. All follow the log together, with one scan for each lane. A topic lags after an opening or at its
    memory limit; it has its own scans until it has caught up. A store without an index has no thread.

    Attributes:
        is_open: all indexes are open; until then nothing may be removed from the log, as they have to read it.
        damaged: topics whose changes cannot be read, and why. Nobody knows which of their messages are wanted, so
            retention keeps their segments with delayed messages until the store is opened with `repair=True`.
        with_copies: the topics that may have copies of messages whose segments are gone.
        subscribers: set by the subscriptions; without it, pending messages count as not acknowledged.
        is_work_queue: whether a topic keeps its messages until all of its subscriptions have acknowledged them.
        kept: the topics that keep what is not acknowledged.
        changed: topics of which less is wanted.

    Invariant: messages that are durable before `catch_up` is called are in the trackers when it returns, or in a part
    of the log that a lagging topic knows it has not read.
    """

    def __init__(self, parts: StoreParts, poisoned: Callable[[], bool], memory_bytes: int) -> None:
        self.topics: dict[str, DelayedTopic] = {}
        self.damaged: dict[str, str] = {}
        self.with_copies: set[DelayedTopic] = set()
        self.last_error: str | None = None
        self.is_open = False
        self.subscribers: Subscribers | None = None
        self.is_work_queue: Callable[[str], bool] = lambda topic: False
        self.kept: Callable[[], Kept] = dict
        self.changed = ChangedTopics()
        self.parts = parts
        self._poisoned = poisoned
        self._memory_bytes = memory_bytes
        self._accepted: dict[str, dict[str, int]] = {}  # by topic and subscription: precision_ms
        self._scans: list[DueScan] = []
        self._queue_of: list[dict[int, _QueueOf]] = []  # by lane: the streams whose topic was looked up ..
        self._queues_of = -1  # .. when there were so many topics
        self._feeding = threading.RLock()
        self.worker = Worker(self.work, partial(setattr, self, "last_error"))
        self._checkpointed_s = parts.clock.monotonic_s()
        self._drop_copies_s = 0.0  # when copies are checked next
        self.visits = Visits[DelayedTopic]()
        self._unsaved: set[DelayedTopic] = set()  # changed since their checkpoints, as the thread has seen

    # -- topics ---------------------------------------------------------------------------------------

    def open(self) -> bool:
        """Open the indexes that exist; called once, when the store can append. Raises OSError.

        True if it dropped changes of lost messages: the caller has the log forced before others get their offsets.

        A topic with a damaged record of changes has no index: its calls raise StoreCorrupt, all others work.
        """
        for lane in self.parts.lanes:
            lane.lows.on_shown = self._trimmed
        forgotten = forget_deleted(self.parts)
        for stream in self.parts.hidden.of_kind(DELAYS):
            name = topic_of(stream)
            if name and name not in forgotten:
                try:
                    self.topic(name)
                except StoreCorrupt as error:
                    self.damaged[name] = self.last_error = str(error)
        self.is_open = True
        return any(topic.is_cut for topic in list(self.topics.values()))

    @property
    def share_bytes(self) -> int:
        """The memory of one topic's index: all have equal shares."""
        return max(self._memory_bytes // max(len(self.topics), 1), min(self._memory_bytes, LEAST_LIMIT_BYTES))

    def find(self, name: str) -> DelayedTopic | None:
        """A topic's index, if it has one."""
        return self.topics.get(name)

    def topic(self, name: str) -> DelayedTopic:
        """The index of a topic. The first call makes it, which costs a durable append. Raises StoreError, OSError."""
        if (found := self.topics.get(name)) is not None and found.is_ready and self.worker.is_started:
            return found
        with self._feeding:
            if (found := self.topics.get(name)) is not None:
                self._begin(found)  # after an interrupt
            else:
                if not self._scans:
                    self._scans = [DueScan(lane, end_of(lane)) for lane in self.parts.lanes]
                found = DelayedTopic(name, self.parts, self)
                found.set_precision(self._precision_ms(name))
                self.topics[name] = found  # it is fed from here on; earlier messages it reads by scans of its own
                self._begin(found)
                self._catch_up_steps(found)
        self.worker.ring()
        return found

    def _begin(self, topic: DelayedTopic) -> None:
        if len(topic.copies):
            self.with_copies.add(topic)
        self.visits.begin(topic)
        self.worker.start()

    def accepts(self, name: str, subscription: str, precision_ms: int | None) -> None:
        """A subscription of a topic takes messages so much later than their times; None: it is gone."""
        self._accepted.setdefault(name, {})[subscription] = precision_ms or 0
        if precision_ms is None:
            del self._accepted[name][subscription]
        if (topic := self.topics.get(name)) is not None:
            topic.set_precision(self._precision_ms(name))

    def _precision_ms(self, name: str) -> int:
        """The precision that all subscriptions of a topic accept which were used since the opening."""
        return min(list(self._accepted.get(name, {}).values()), default=0)

    def cover_subscribed_topics(self) -> None:
        """Make the indexes of all topics that have a subscription: messages are about to be removed."""
        for name in sorted(self.subscribers.topics()) if self.subscribers is not None else ():
            if name not in self.damaged:
                self.topic(name)

    # -- retention ------------------------------------------------------------------------------------

    def drop_copies(self, topic: DelayedTopic) -> None:
        """Forget copies that nobody wants any more, or that are gone. Raises StoreError."""
        with topic.lock:
            before, times_ms, of_queues = topic.copies.places, topic.copies.times_ms, topic.copies.of_queues()
        kept = np.zeros(len(before), np.bool_)
        for queue_id, rows, offsets in of_queues:
            kept[rows] = copies_to_keep(self, topic, queue_id, offsets, times_ms[rows])
        with topic.lock:
            copies = topic.copies
            if copies.places is not before:
                return
            kept &= copies.are_in_log()  # else they would stay listed forever if a subscription seeks back
            if kept.all():
                return
            copies.keep(kept)
            self.changed.note(topic.name)
            stream = copies.stream
            assert stream is not None, "it has copies"
            low = copies.end_of_unwanted()
        if low > stream.low:
            self.parts.hidden.trim(stream, low)

    # -- following the log ----------------------------------------------------------------------------

    def arrived(self, shown: Sequence[VisibleEntries]) -> None:
        """Messages became durable. Called by appends: it looks only at one number of each frame."""
        for table, _, _ in shown:
            if table.dues.least != NO_TIME:
                self.worker.ring()
                return

    def _trimmed(self, changes: Sequence[Change]) -> None:
        """The lows of some streams have moved. Called by the thread of a lane."""
        for stream, _ in changes if self.topics or self.changed.is_followed else ():
            self.changed.note(stream.topic)
            if (topic := self.topics.get(stream.topic)) is not None:
                topic.see_trim()

    def attached(self) -> None:
        """Segments were attached; some of their messages may be delayed."""
        if self.topics:
            self.worker.ring()

    def catch_up(self) -> None:
        """Add all durable messages to all topics that do not lag. Raises OSError."""
        if all([scan.is_at_end() for scan in self._scans]):  # a scan reaches the end only after its messages were added
            return
        with self._feeding:
            for scan in self._scans:
                self._follow(scan)

    def _follow(self, scan: DueScan) -> None:
        now_ms = self.parts.clock.wall_ms()
        while (part := scan.look(now_ms)) is not None:
            if len(part.rows.numbers):
                self._hand_out(scan.lane, part.rows)
            for topic in list(self.topics.values()) if part.damaged else ():
                topic.damaged_frames += 0 if topic.is_lagging else part.damaged
            scan.move(part)  # last, see `DueScan`

    def _hand_out(self, lane: Lane, rows: DueRows) -> None:
        """Give each topic its messages. One that cannot take them lags from here on: the scans stand before them."""
        for topic, mine, queue_ids in self._by_topic(lane, rows):
            if topic.is_lagging:
                continue
            try:
                if not topic.is_full():
                    topic.add(queue_ids, rows.offsets[mine], rows.times_ms[mine])
                    continue
            except OSError as error:  # its mutable bucket could not be sealed
                topic.last_error = str(error)
            topic.lag_from([scan.place for scan in self._scans])

    def _by_topic(self, lane: Lane, rows: DueRows) -> list[tuple[DelayedTopic, npt.NDArray[np.intp], Int64s]]:
        """The topics that have some of the rows, with their rows and the rows' queue ids."""
        if self._queues_of != len(self.topics):
            self._queue_of = [{} for _ in self.parts.lanes]
            self._queues_of = len(self.topics)
        numbers, inverse = np.unique(rows.numbers, return_inverse=True)
        found = [self._topic_of(lane, number) for number in numbers.tolist()]
        topics = list(dict.fromkeys([one[0] for one in found if one is not None]))
        queue_of = np.array([0 if one is None else one[1] for one in found], np.int64)
        parts = []
        for topic in topics:
            mine = np.flatnonzero(np.array([one is not None and one[0] is topic for one in found])[inverse])
            parts.append((topic, mine, queue_of[inverse[mine]]))
        return parts

    def _topic_of(self, lane: Lane, number: int) -> _QueueOf:
        known = self._queue_of[lane.index]
        if number not in known:
            stream: Stream = lane.streams[number]
            topic = self.topics.get(stream.topic)
            known[number] = None if topic is None else (topic, stream.queue_id)
        return known[number]

    def _catch_up_steps(self, topic: DelayedTopic) -> bool:
        """Make some steps of a lagging topic. True if there may be more."""
        return all(self._catch_up_topic(topic) for _ in range(STEPS))

    def _catch_up_topic(self, topic: DelayedTopic) -> bool:
        """Make a step of a lagging topic; False if there is none, for now or for good."""
        with self._feeding:
            with topic.lock:
                scans = topic.scans
                if scans is None or topic.is_full():
                    return False
                for scan in scans:
                    if not scan.is_at_end():
                        return self._step_of(topic, scan)
            self.catch_up()
            # After the others have caught up: if this topic is at the end now, the others are at the same place.
            if topic.scans is scans and all([scan.is_at_end() for scan in scans]):
                topic.catch_up_with_all()
                return False
            return True

    def _step_of(self, topic: DelayedTopic, scan: DueScan) -> bool:
        part = scan.look(topic.given.skipped_ms)
        if part is None:
            return False
        rows = part.rows
        try:
            for mine, which, queue_ids in self._by_topic(scan.lane, rows):
                if mine is topic:
                    topic.add(queue_ids, rows.offsets[which], rows.times_ms[which])
        except OSError as error:
            topic.last_error = str(error)
            return False
        topic.damaged_frames += part.damaged
        scan.move(part)  # last, see `DueScan`
        return True

    # -- the thread -----------------------------------------------------------------------------------

    def work(self) -> float:
        """Do all work that there is, once. Returns how long to sleep then, in seconds."""
        self.catch_up()
        is_lagging, failed = False, None
        for topic in self.visits.take(self.parts.clock.wall_ms()):
            try:
                is_lagging |= self._visit(topic)
            except BaseException as error:
                self.visits.ask(topic)
                if not isinstance(error, Exception):
                    raise
                failed = failed or error  # the others have their turn
        self._drop_copies_in_time()
        self._checkpoint_in_time()
        if failed is not None:
            raise failed
        return 0.0 if is_lagging else LONGEST_S

    def _visit(self, topic: DelayedTopic) -> bool:
        """Do the work of one topic. True if it has still to catch up. Raises StoreError, OSError."""
        is_lagging = self._catch_up_steps(topic)
        topic.look()
        if topic.decisions.wants_compaction and not self._poisoned():
            topic.decisions.compact()
        if topic.unsaved:
            self._unsaved.add(topic)
            if topic.unsaved >= CHECKPOINT_ROWS:
                self.checkpoint(topic)
        due_ms, is_soon = topic.next_visit()
        self.visits.list_at(topic, due_ms)
        if is_soon:
            self.visits.ask(topic)
        return is_lagging

    def _drop_copies_in_time(self) -> None:
        began_s = self.parts.clock.monotonic_s()
        if self.with_copies and began_s >= self._drop_copies_s and not self._poisoned():
            for topic in list(self.with_copies):
                self.drop_copies(topic)
                with topic.lock:
                    if not len(topic.copies):
                        self.with_copies.discard(topic)
            now_s = self.parts.clock.monotonic_s()
            self._drop_copies_s = now_s + max(DROP_S, DROP_TIMES * (now_s - began_s))

    def _checkpoint_in_time(self) -> None:
        now_s = self.parts.clock.monotonic_s()
        if now_s - self._checkpointed_s >= CHECKPOINT_S:
            for topic in list(self._unsaved):
                if topic.unsaved:
                    self.checkpoint(topic)
                self._unsaved.discard(topic)
            self._checkpointed_s = now_s

    def checkpoint(self, topic: DelayedTopic) -> None:
        """Write a topic's index to its files: the next opening reads the log from here. Raises OSError."""
        with self._feeding:
            topic.checkpoint([scan.place for scan in self._scans])

    # -- the end --------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the thread. A second call does no harm."""
        self.worker.stop()

    def close(self, *, save: bool) -> None:
        """Close all files; with `save`, after a checkpoint of each. The lanes have ended. A second call does no harm.

        A topic that cannot be saved raises no error and does not hinder others: the next opening reads more of the log.
        """
        self.stop()
        take_all([partial(self._close_topic, topic, save=save) for topic in list(self.topics.values())])

    def _close_topic(self, topic: DelayedTopic, *, save: bool) -> None:
        try:
            if save and not topic.is_closed:
                self.catch_up()
                if topic.unsaved:
                    self.checkpoint(topic)
        except Exception as error:  # whatever it is, the next opening reads more of the log
            topic.last_error = str(error) or type(error).__name__
        finally:
            topic.close()

    def after_fork(self) -> None:
        """In a child process."""
        self._feeding = threading.RLock()
        self.worker.is_closing = True
        for topic in list(self.topics.values()):
            topic.after_fork()

    def stats(self, most: int | None = None) -> dict[str, Any]:
        """The figures of each topic, by name; of `most` at the most, those whose index was opened first."""
        damaged = list(islice(self.damaged, most))  # one step: it makes no other object
        names = list(islice(self.topics, None if most is None else most - len(damaged)))
        found: dict[str, Any] = {name: {"damaged": self.damaged.get(name)} for name in sorted(damaged)}
        return found | {name: figures_of(topic) for name in sorted(names) if (topic := self.topics.get(name))}
