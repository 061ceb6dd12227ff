"""The running parts of an open store, and their end: by `close`, by a failed opening, or with the last reference.

The threads of a store know this object and never the store itself, except by a weak reference. So a store that its
program lets go of without `close` is noticed at once, and so is one whose `open` was interrupted just before the
program had it. Its finalizer has this object end; should an interrupt hit the finalizer, the background does it at its
next look, or the next opening of the folder.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Protocol

from ..delayed.delays import Delays
from ..device.background import report
from ..device.folder import FolderLock
from ..device.steps import take_all
from ..errors import StoreClosed, StoreError
from ..format.layout import CLOSED, SealRecord
from ..live.calls import WriterCalls
from ..live.figures_teller import FiguresTeller
from ..log.flusher import Flusher
from ..log.lane import Lane
from ..log.listeners import Listeners
from ..log.queue import RequestQueue
from ..log.request import Barrier, NotedBarrier, Request, answer_all
from ..log.rounds import Rounds
from ..log.ticket import SubmitRequest
from ..log.upkeep import Upkeep, gone
from ..log.write import VisibleEntries
from ..log.written_lane import WrittenLane
from ..read.async_reads import AsyncReads
from ..read.caches import Caches
from ..read.feeder import Feeder
from ..read.waiting import ANY_QUEUE, WaitingReaders
from ..segment.sealing import FullSegment
from ..shards.attacher import Attacher
from ..topics.id_windows import IdWindows

RESUME_BELOW_BYTES = 16 << 20


class Live(Protocol):
    """A store's link with other processes: it publishes, or it follows."""

    def telling(self) -> AbstractContextManager[object]:
        """A context: what lanes tell inside it reaches other processes all at once, at its end."""

    def close(self) -> None:
        """End. It may be called again."""

    def after_fork(self) -> None:
        """In a child process."""


class OpenStore:
    """The lock, lanes, threads and caches of one store.

    Invariants:
        * whatever holds a lock, a descriptor, memory or a thread is here before it takes it, so `end` finds it;
        * `end` may be interrupted anywhere and called again, by any thread: the lock goes last;
        * whatever a part raises at its end, the others end and the lock goes: no folder stays locked;
        * once `ended` is set nothing of the folder is touched any more: it may be somebody else's.
    """

    def __init__(
        self,
        holder: object,
        path: Path,
        waiting: WaitingReaders,
        async_reads: AsyncReads,
        lanes: list[Lane],
        queues: list[RequestQueue[Request]],
    ) -> None:
        self.holder = weakref.ref(holder)
        self.path = path
        self.lock = FolderLock(path)
        self.lanes = lanes
        self.queues = queues
        self.flushers: list[Flusher] = []
        self.rounds: Rounds | None = None  # of a store with several lanes, or one that has had a large transaction
        self.listeners = Listeners()
        self.waiting = waiting
        self.async_reads = async_reads
        self.caches: Caches | None = None
        self.upkeep: Upkeep | None = None
        self.feeder: Feeder | None = None
        self.live: Live | None = None
        self.calls: WriterCalls | None = None
        self.teller: FiguresTeller | None = None
        self.delays: Delays | None = None
        self.attacher: Attacher | None = None
        self.ids: IdWindows | None = None
        self.poison: StoreError | None = None
        self.opened = False  # all of it: until then `end` leaves no notes
        self.ended = False
        self.why_closed = f"the store {path} was closed; open it again"
        self._ending = threading.RLock()
        self._noted = False
        self._dropped = False
        self._pid = os.getpid()
        _RUNNING.append(self)

    @property
    def is_over(self) -> bool:
        """True if there is nothing left to end, or it is another process's."""
        return (self.ended and not self.lock.held) or os.getpid() != self._pid

    # -- what the threads call ------------------------------------------------------------------------

    def arrived(self, lane: Lane, shown: Sequence[VisibleEntries]) -> None:
        """Messages became durable: tell waiting reads, delayed topics and the cache. One that raises stops no other."""
        try:
            self.waiting.tell(lane, shown)
        except Exception as error:  # the appends are durable, whatever their readers' side raises
            report("waiting readers could not be told of new messages", error)
        try:
            if self.delays is not None and self.delays.topics:
                self.delays.arrived(shown)
        except Exception as error:
            report("delayed topics could not be told of new messages", error)
        try:
            if self.feeder is not None:
                self.feeder.look()
        except Exception as error:
            report("the message cache could not be told of new messages", error)

    def attached(self, names: Sequence[tuple[str, int]]) -> None:
        """Tell of queues that got more messages by attached segments."""
        if self.delays is not None:
            self.delays.attached()
        self.waiting.listeners.tell({topic for topic, _ in names})
        self.waiting.look_at([*names, *{(topic, ANY_QUEUE) for topic, _ in names}])

    def telling(self) -> AbstractContextManager[object]:
        """See `Live.telling`."""
        return contextlib.nullcontext() if self.live is None else self.live.telling()

    def poisoned(self, error: StoreError) -> None:
        """Called when one lane has failed: no lane takes anything any more."""
        self.poison = error
        try:
            self.waiting.look_at_all()  # for what the step that failed has shown before
        finally:
            sound = [flusher.queue for flusher in self.flushers if flusher.lane.poison is None]
            sound += [] if self.rounds is None else [self.rounds.queue]
            answer_all([request for queue in sound for request in queue.refuse(error)], error)

    def lost(self, error: OSError) -> None:
        """The folder was taken from under the store: no lane may acknowledge anything any more."""
        for flusher in self.flushers:
            flusher.fail(error)

    def force_lazily(self) -> None:
        """Ask every lane to force what it has written since the last time; used by durability "os"."""
        for flusher in self.flushers:
            lane = flusher.lane
            if lane.segment is not None and lane.tail > lane.under_way.forced:
                with contextlib.suppress(StoreError):
                    flusher.queue.put(Barrier(), wait=False)

    def mark(self, lane: Lane) -> None:
        """Have a lane note on disk how far it is durable."""
        with contextlib.suppress(StoreError):
            self.queues[lane.index].put(NotedBarrier(), wait=False)

    # -- the end --------------------------------------------------------------------------------------

    def end(self) -> None:
        """Make everything durable that was handed over, end the threads, let go of files and memory, then the lock.

        An error of a part hinders no other part, and the lock goes; then it comes out. An interrupt comes out at once.
        """
        with self._ending:
            try:
                if not self.ended:
                    self._end()
            finally:
                if self.ended:
                    self.lock.release()
                    with contextlib.suppress(ValueError):
                        _RUNNING.remove(self)

    def _end(self) -> None:
        take_all(
            [self._end_appends_for_good, self.listeners.close, self.waiting.close, self.async_reads.close,
             self._end_calls, self._end_upkeep, self._note_and_let_go]
        )  # fmt: skip

    def _end_appends_for_good(self) -> None:
        try:
            self.end_appends()
        except Exception:
            self._noted = True  # nobody knows where the log ends: the next opening scans it
            raise

    def _end_calls(self) -> None:
        if self.calls is not None:
            self.calls.close()

    def _end_upkeep(self) -> None:
        if self.upkeep is not None:
            if self.opened and not self._noted:
                self.upkeep.close()
            else:
                self.upkeep.stop()

    def _note_and_let_go(self) -> None:
        try:
            if self.opened and not self._noted:
                self._note_ends()
        finally:
            self._noted = True
            try:
                self._let_go()
            finally:
                self.ended = True

    def end_appends(self) -> None:
        """Write what was handed over, save what follows the log, and append nothing more. It may be called again."""
        closed = StoreClosed(self.why_closed)
        steps: list[Callable[[], object]] = [] if self.attacher is None else [self.attacher.stop]
        if self.rounds is not None:  # before the lanes, which it needs
            steps += [partial(self._close_queue, self.rounds.queue, closed), partial(self._join, self.rounds, closed)]
        steps += [partial(self._close_queue, queue, closed) for queue in self.queues]
        steps += [partial(self._join, flusher, closed) for flusher in self.flushers]
        if self.delays is not None:
            steps.append(self._close_delays)
        take_all(steps)

    def _close_queue(self, queue: RequestQueue[Request], closed: StoreClosed) -> None:
        # When this comes again after an interrupt, some were told already.
        answer_all([one for one in queue.close(closed) if not one.done()], closed)

    def _join(self, flusher: Flusher | Rounds, closed: StoreClosed) -> None:
        if not flusher.queue.is_closed:  # `close` found no memory: its threads would never end
            self._close_queue(flusher.queue, closed)
        flusher.join()

    def _close_delays(self) -> None:
        if self.delays is not None:
            self.delays.close(save=self.opened and self.poison is None and self.lock.is_in_place())

    def _let_go(self) -> None:
        """Close what holds files and memory."""
        steps: list[Callable[[], object]] = [] if self.live is None else [self.live.close]
        if self.teller is not None:
            steps.append(self.teller.close)
        if self.feeder is not None:
            steps.append(self.feeder.close)
        steps += [lane.close for lane in self.lanes]
        if self.caches is not None:
            steps += [self.caches.close, self.caches.held.clear]
        take_all(steps)

    def _note_ends(self) -> None:
        """Note on disk where each lane's log ends. Without its note a lane is recovered by a scan: nothing is lost."""
        if not self.lock.is_in_place():
            return
        for flusher in self.flushers:
            if self.poison is None:
                with contextlib.suppress(OSError, StoreError):
                    self._finish_lane(flusher.lane)

    def _finish_lane(self, lane: WrittenLane) -> None:
        """A small open segment gets a note of where it ends; a large one is sealed."""
        segment = lane.segment
        if segment is None or segment.base is None or lane.view.open == ():
            return
        opened = lane.view.open[-1]
        data_end = lane.tail - segment.base
        if len(lane.view.open) > 1 or lane.durable < lane.tail:
            return  # earlier ones could not be sealed: recovery scans them, and this one with them
        if data_end < RESUME_BELOW_BYTES:
            entries, streams = opened.table.entries, len(lane.streams)
            segment.writer.write_seal(
                SealRecord(CLOSED, segment.sequence, data_end, lane.chain, entries, 0, 0, streams)
            )
        elif self.upkeep is not None:
            ended = segment, opened.table, data_end, lane.chain, lane.trims.lend(), lane.commits.packed
            self.upkeep.sealer.seal_now(lane, FullSegment(*ended))

    def after_fork(self) -> None:
        """In a forked child: this copy has no threads, and its files are its parent's. It counts as ended."""
        self.why_closed = f"the store {self.path} was opened before a fork; open it in the process that uses it"
        self.ended = True
        self.lock.release()
        self._ending = threading.RLock()  # a lost thread may hold it
        self.waiting.after_fork()
        if self.delays is not None:
            self.delays.after_fork()
        self.async_reads.after_fork()
        if self.live is not None:
            self.live.after_fork()
        if self.calls is not None:
            self.calls.after_fork()
        if self.attacher is not None:
            self.attacher.after_fork()
        error = StoreClosed(self.why_closed)
        for lane in self.lanes:
            for sealed in lane.view.sealed:
                sealed.after_fork()
        if self.ids is not None:
            self.ids.after_fork(error)  # first: the others' answers need its locks
        if self.rounds is not None:
            self.rounds.queue.after_fork(error)
        for flusher in self.flushers:
            left = [*flusher.queue.after_fork(error), *flusher.lane.under_way.after_fork()]
            waiting = {id(request): request for request in left}
            # The other requests belong to threads and loops that stayed with the parent.
            tickets = [one for one in waiting.values() if isinstance(one, SubmitRequest) and not one.done()]
            for ticket in tickets:
                ticket.forget_waiters()
            answer_all(tickets, error)
        self.listeners.after_fork()

    # -- a store that nobody holds --------------------------------------------------------------------

    @property
    def is_dropped(self) -> bool:
        """True if the store is no more, and has not ended all this."""
        return self.holder() is None and not self.is_over

    def goes_on(self) -> bool:
        """False if there is nothing left to look after; the background asks now and then."""
        if self.is_dropped:
            self.drop()
        elif not self.lock.is_in_place():
            self.lost(gone(self.path))
            return False
        return True

    def drop(self) -> None:
        """End soon, in a thread of its own: the caller may be inside any lock, since it is a finalizer."""
        if not self._dropped:
            self._dropped = True
            with contextlib.suppress(RuntimeError):  # no thread can be had; the next opening of the folder ends it
                _thread.start_new_thread(self.end, ())


_RUNNING: list[OpenStore] = []  # those that are not over


def end_dropped(path: Path | None = None) -> None:
    """Wait for the end of the stores in a folder (in any, if None) that nobody holds any more."""
    for running in list(_RUNNING):
        if running.is_dropped and (path is None or running.path == path):
            running.end()


os.register_at_fork(after_in_child=_RUNNING.clear)
atexit.register(end_dropped)
