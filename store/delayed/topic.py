"""The delayed messages of one topic: one index for all its subscriptions (R35)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from ...index import TrackerDamaged
from ..errors import StoreCorrupt
from ..format.delays import BEGIN, Mark, Place
from .copies import Copies
from .decisions import Decisions
from .disk_files import DiskFiles
from .due_list import Due, DueList, due_of
from .opening import new_tracker, open_index
from .parts import StoreParts
from .pointer import Pointer
from .positions import MOST_ENTRY, offsets_of, places_of
from .told import Told
from .walk import Walk, reached

DUE_ROWS = 1 << 20  # that wait for the slowest pointer: 17 MB
DRAINED_ROWS = 1 << 16  # at a time
MEASURED_ROWS = 1 << 12  # memory is looked at once for so many changes
STALE_S = 10.0  # a pointer that took nothing for so long, and holds up others, misses rows

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class DelayedTopic:
    """The index of a topic, and what becomes due of it. Any number of threads may use it.

    A message is *pending* from its append until its time has come or it is cancelled. `waiting` says which of the
    messages that a subscription finds in the log are pending; it leaves these out. What becomes due comes through a
    `Pointer` of its own to each subscription, in the order of (time, queue, offset).

    Invariants, under `lock`:
        * a message that `waiting` called pending is in the tracker, or will be added to it, or is being decided about;
          it leaves the tracker into the due list, or because it was cancelled, and never otherwise;
        * a time is compared with the clock only where a message leaves the tracker, or never gets into it: so a clock
          that jumps makes nothing early by itself, and loses nothing;
        * the tracker's files say no more than the log does: a mark counts what is in the log and in the tracker.

    Attributes:
        walks: of a topic that is behind its store, a walk a lane, on the way to the others; None if it is not.
        last_error: of the background, or None.
    """

    def __init__(
        self, name: str, parts: StoreParts, catch_up: Callable[[], None], wake: Callable[[], None],
        memory_limit_bytes: int,
    ) -> None:  # fmt: skip
        """`catch_up` adds to all topics what is durable now; not called with the lock. `wake`: there is work to do."""
        self.name = name
        self.parts = parts
        self.lock = threading.RLock()
        self.settled = threading.Condition(self.lock)
        self.last_error: str | None = None
        self.catch_up = catch_up
        self._wake = wake
        self._memory_limit_bytes = memory_limit_bytes
        opened = open_index(name, parts)
        self.tracker = opened.tracker
        self.changes = opened.changes
        self.copies = Copies(name, parts)
        self.walks: list[Walk] | None = None
        self.told = Told()
        self._drained_ms = parts.clock.wall_ms()  # all that was due then has left the tracker: nobody was there before
        self._behind(opened.places)
        self.decisions = Decisions(self, opened.stream, opened.changes_next)
        self._due = DueList()
        self._pointers: set[Pointer] = set()
        self._checkpointed = self._count = 0  # additions and departures, all and up to the last checkpoint
        self._measured = -MEASURED_ROWS  # the count at the last look at the memory
        self._is_full = False
        self._add_copies()
        self.rebuilds = 0 if opened.rebuilt is None else 1
        self.last_rebuild = opened.rebuilt

    # -- what the log says ----------------------------------------------------------------------------

    def _behind(self, places: list[Place]) -> None:
        """The messages from these places on are not in the tracker."""
        self.walks = [Walk(lane, place) for lane, place in zip(self.parts.lanes, places, strict=True)]
        self.skipped_ms = self._drained_ms  # no message whose time was over then is added

    @property
    def should_pause_all_deliveries(self) -> bool:
        """Whether the index is at its limit of memory. It adds no more then until some are due; the log has them."""
        with self.lock:
            if abs(self._count - self._measured) >= MEASURED_ROWS:
                self._measured = self._count
                used = self.tracker.buffer_memory_usage + self.changes.memory_bytes
                self._is_full = used >= self._memory_limit_bytes
            return self._is_full

    def add(self, queue_ids: Int64s, offsets: Int64s, times_ms: Int64s) -> None:
        """Messages of the log. Those that are pending already, or about which is being decided, stay as they are.

        Raises OSError, when some may have been added.
        """
        with self.lock:
            places = places_of(queue_ids, offsets)
            times = self.changes.times_of(places, times_ms)
            now_ms = self.parts.clock.wall_ms()
            kept = times > (now_ms if self.walks is None else min(now_ms, self.skipped_ms))
            if self.decisions.open:
                kept &= ~np.isin(places, np.fromiter(self.decisions.open, np.int64))
            told = kept & self.told.are_due(places)
            if told.any():  # of some subscriptions, but others may have left them out before
                self.add_due(Due(queue_ids[told], offsets[told], np.zeros(int(told.sum()), np.bool_)))
                kept &= ~told
            if not kept.any():
                return
            try:
                self._count += self.tracker.add_messages(queue_ids[kept], offsets[kept] & MOST_ENTRY, times[kept])
            except TrackerDamaged as error:
                self._rebuild(str(error))

    def _add_copies(self) -> None:
        """Messages whose segments are gone may be known by their copies alone."""
        for queue_id, rows, offsets in self.copies.of_queues():
            self.add(np.full(len(rows), queue_id), offsets, self.copies.times_ms[rows])

    def fall_behind(self, places: list[Place]) -> None:
        """The index takes no more for now: go on from these places later."""
        with self.lock:
            self._behind(places)

    def catch_up_with_all(self) -> None:
        """All that is durable was added: go on with the store's other topics."""
        with self.lock:
            self.walks = None
            self.told.clear()

    @property
    def is_behind(self) -> bool:
        """Whether messages of the log are still to be added: after a crash, or at the limit of memory."""
        return self.walks is not None

    def waiting(self, queue_id: int, offsets: Int64s, times_ms: Int64s) -> tuple[Bools, Bools]:
        """For messages found in the log, with these times of delivery: (n,) which are pending, which are cancelled.

        Pending ones are to be left out: they come through a pointer. What is neither is delivered as any message. What
        retention has removed since it was read counts as cancelled: nobody may know any more that it was.
        """
        self.catch_up()
        with self.lock:
            self.decisions.settle()
            places = places_of(np.full(len(offsets), queue_id), offsets)
            pending = self.are_pending(queue_id, offsets)
            cancelled = self.changes.are_cancelled(places)
            if self.walks is not None:
                now_ms = self.parts.clock.wall_ms()
                self.skipped_ms = min(self.skipped_ms, now_ms)
                due_ms = self.changes.times_of(places, times_ms)
                pending |= self.told.are_later(places, offsets >= self.read_up_to(queue_id), due_ms, now_ms)
            return pending, (cancelled | self._are_gone(queue_id, offsets)) & ~pending

    def read_up_to(self, queue_id: int) -> int:
        """The first offset of a queue that was not added yet, while the topic is behind."""
        stream = self.parts.stream(self.name, queue_id)
        if stream is None or self.walks is None:
            return 1 << 62
        try:
            return reached(stream.lane, self.walks[stream.lane.index].place, stream.number)
        except StoreCorrupt:  # nor can the walk tell its messages: it passes them over
            return 1 << 62

    # -- what becomes due -----------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Messages that are delayed."""
        with self.lock:
            return self.tracker.number_of_delayed_messages

    @property
    def ready(self) -> int:
        """Rows that are due and that some pointer has not taken."""
        return len(self._due)

    @property
    def pointers(self) -> int:
        """Open ones."""
        return len(self._pointers)

    def open_pointer(self, on_due: Callable[[], object] | None = None) -> Pointer:
        """A place in what becomes due from now on.

        Whoever waits sleeps until the next time that `Pointer.due_in_s` says. `on_due` is called, and must be short,
        when something is due that could not be known then: a message was moved, or the clock has jumped.
        """
        self.catch_up()
        with self.lock:
            self.advance()
            pointer = Pointer(self, self._due.end, on_due)
            self._pointers.add(pointer)
            return pointer

    def advance(self) -> bool:
        """Have what is due by now leave the tracker; whether that was something. Under the lock.

        Raises OSError; then nothing is lost.
        """
        self.decisions.settle()
        now_ms, moved = self.parts.clock.wall_ms(), False
        while True:
            room = DRAINED_ROWS
            if self._pointers:
                room = min(room, DUE_ROWS - len(self._due))
                if room <= 0 and not self._drop_slowest():
                    return moved  # it stays pending until there is room
                room = max(room, 1)
            try:
                queue_ids, entries = self.tracker.get_scheduled_messages(now_ms, room)
            except TrackerDamaged as error:
                self._rebuild(str(error))
                return moved
            self._count += len(entries)
            if self._pointers and len(entries):
                moved = True
                self._due.add(due_of(self.parts, self.name, queue_ids, entries))
            if len(entries) < room:
                self._drained_ms = now_ms
                return moved

    def _drop_slowest(self) -> bool:
        """Have the pointers that hold the list up, and seem to be left alone, miss it; whether there is room now."""
        now_s = self.parts.clock.monotonic_s()
        for pointer in self._pointers:
            if pointer.at == self._due.begin and now_s - pointer.taken_s >= STALE_S:
                pointer.miss(self._due.end)
        self.drop_passed()
        return len(self._due) < DUE_ROWS

    def drop_passed(self) -> None:
        """Drop the rows that all pointers have passed. Under the lock."""
        self._due.drop_before(min((pointer.at for pointer in self._pointers), default=self._due.end))

    def add_due(self, due: Due) -> None:
        """Rows that come without their time having come: cancellations. Under the lock."""
        if self._pointers:
            self._due.add(due)

    def take(self, pointer: Pointer, most: int) -> Due:
        """What a pointer has not taken yet, up to `most` rows."""
        self.catch_up()
        with self.lock:
            is_new = self.advance()
            found = self._due.read(pointer.at, most)
            pointer.at += len(found.offsets)
            pointer.taken_s = self.parts.clock.monotonic_s()
            missed, pointer.missed = pointer.missed, False
            self.drop_passed()
            others = [other for other in self._pointers if other is not pointer] if is_new else []
        for other in others:
            other.on_due()
        return found._replace(missed=missed)

    def forget(self, pointer: Pointer) -> None:
        """A pointer that is used no more."""
        with self.lock:
            self._pointers.discard(pointer)
            self.drop_passed()

    def look(self) -> None:
        """Tell those who wait of what is due now, if it is. Called by a thread of the store, every now and then."""
        with self.lock:
            self.advance()
            told = [pointer for pointer in self._pointers if pointer.at < self._due.end]
        for pointer in told:
            pointer.on_due()

    def moved(self) -> None:
        """A message has another time: those who wait may have to wake earlier. Not under the lock."""
        with self.lock:
            told = list(self._pointers)
        for pointer in told:
            pointer.on_due()

    # -- what a message is ----------------------------------------------------------------------------

    def are_pending(self, queue_id: int, offsets: Int64s) -> Bools:
        """(n,) which messages are in the tracker, or being decided about. Under the lock."""
        pending = self.tracker.are_pending(queue_id, offsets & MOST_ENTRY)
        if self.decisions.open:
            places = places_of(np.full(len(offsets), queue_id), offsets)
            pending |= np.isin(places, np.fromiter(self.decisions.open, np.int64))
        return pending

    def forget_gone(self) -> None:
        """Forget the changes of messages that were removed. Under the lock."""

        def are_gone(queue_id: int, entries: Int64s) -> Bools:
            return self._are_gone(queue_id, offsets_of(entries, self.parts.next_offset(self.name, queue_id)))

        self.changes.forget(are_gone)

    def _are_gone(self, queue_id: int, offsets: Int64s) -> Bools:
        """(n,) which messages were removed, and have no copy. Under the lock."""
        stream = self.parts.stream(self.name, queue_id)
        first = 0 if stream is None else self.parts.reader.finder.bounds(stream)[0]
        return (offsets < first) & ~self.copies.may_have(queue_id, offsets)

    # -- the index on disk ----------------------------------------------------------------------------

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """With the lock, and no decision on its way."""
        with self.lock, self.decisions.paused():
            yield

    def checkpoint(self, places: list[Place]) -> None:
        """Have the files say what the tracker does. `places`: all before them was added, unless the topic is behind.

        Raises OSError; then the files are as they were, and the log says the rest.
        """
        with self.quiet():
            at = places if self.walks is None else [walk.place for walk in self.walks]
            try:
                self.tracker.checkpoint(Mark(self.name, self.decisions.next_offset, at).pack())
                self._checkpointed = self._count
            except TrackerDamaged as error:
                self._rebuild(str(error))

    @property
    def unsaved(self) -> int:
        """Additions and departures since the last checkpoint."""
        return self._count - self._checkpointed

    def _rebuild(self, why: str) -> None:
        """The files are damaged: begin anew from the log. What was given out before is due, and so not added."""
        self.rebuilds, self._count = self.rebuilds + 1, self._count + 1
        self.last_rebuild = why
        self.tracker.close()
        files = DiskFiles(self.parts.disk, self.parts.folder_of(self.name))
        self.tracker = new_tracker(files)
        self._behind([BEGIN] * len(self.parts.lanes))
        self._add_copies()
        self._wake()

    def count(self, by: int) -> None:
        """Note departures. Under the lock."""
        self._count += by

    def close(self) -> None:
        """Let go of the files. Again is fine."""
        with self.lock:
            self.tracker.close()

    def after_fork(self) -> None:
        """In a child process: its copy is used no more, and no lock of it is waited for."""
        self.lock = threading.RLock()
        self.settled = threading.Condition(self.lock)
