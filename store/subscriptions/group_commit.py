"""Group commit: the acknowledgements of many threads and coroutines in one record.

A thread that acknowledges a message sleeps until that is durable. With a record each, 40 of them keep the log busy with
many small frames. So one record at a time is on its way, and the acknowledgements that come meanwhile are in the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from ..errors import StoreError, again
from ..format.cursors import pack_ones
from ..log.request import Request, pass_on
from ..log.streams import Stream
from .acking import Acking, AwaitedAcking, call_later, tell_loops
from .gathering import GATHER_S, Gathering
from .journal import Journal
from .on_way import Settle

LATE_S = 0.001  # behind the time at which a record in line is given up
LOST_S = 0.5  # a look that has not begun by then was interrupted at its first step: asyncio makes it no more
MOST_AWAITED = 16_384  # of a record, which has to fit into the smallest ring of a lane: 384 KiB


class _Record(Request):
    """One record of some acknowledgements.

    Attributes:
        ackings: what it acknowledges.
        is_settled, has_turn, are_loops_told, chain: how far its answer has come: an interrupt may cut it short, and it
            is made again.
    """

    __slots__ = ("_answered", "ackings", "are_loops_told", "chain", "has_turn", "is_settled")

    def __init__(
        self,
        ackings: Sequence[Acking | AwaitedAcking],
        stream: Stream,
        answered: Callable[[_Record, StoreError | None], None],
    ) -> None:
        life = max([each.one.life for each in ackings])  # those of an earlier one count for nothing: it was deleted
        acked = [one for each in ackings if (one := each.one).life == life]
        record = pack_ones(life, [(one.queue_id, one.era, one.offset) for one in acked])
        super().__init__(stream, record, len(record))
        self.ackings = ackings
        self.is_settled = False
        self.has_turn = True
        self.are_loops_told = False
        self.chain: list[Acking] | None = None
        self._answered = answered

    def answer(self, error: StoreError | None = None) -> None:
        """The first outcome holds: after an interrupt it may be answered again, or be handed over twice.

        It is done last: a `close` that was interrupted answers again what is not done. And its bytes stay, for the
        frame that it may be in once more.
        """
        self._answered(self, error)
        self._done = True


class GroupCommit:
    """Any number of threads may `write`, and any number of coroutines `begin`.

    Invariants:
        * whoever has taken the one element out of `_turn` forms a record; it is back when that was answered. So one
          record at a time is on its way;
        * an acknowledgement is in `_waiting` or `_awaited`, or in the record on its way, or was answered; an interrupt
          loses none;
        * none waits for ever: a record takes all threads that wait, to the last: the next to come is the first. After
          `GATHER_S` the first one sends a record; or it sets `_is_due`, and looks at `_turn` after that. The answer to
          the record on its way gives `_turn` back, and looks at `_is_due` after that. So one of the two sends it;
        * of coroutines, a record takes `MOST_AWAITED` at the most; the next one, with the others, is due then;
        * no thread relies on a loop, which may stand still: the first one of `_waiting` is a thread. A loop looks by
          itself when all have run that can; `_looking` has those that will, and those in `_watched` look for one
          that was lost.

    Of the interrupts `RequestQueue` tells: statements without a call between them are not interrupted.
    """

    def __init__(self, journal: Journal, monotonic_s: Callable[[], float], timeout_s: float, settle: Settle) -> None:
        """`settle` is told what became of acknowledgements, before their threads are."""
        self._journal = journal
        self._monotonic_s = monotonic_s
        self._timeout_s = timeout_s
        self._settle = settle
        self._gathering = Gathering(monotonic_s)
        self._waiting: deque[Acking] = deque()
        self._awaited: deque[AwaitedAcking] = deque()
        self._looking: set[asyncio.AbstractEventLoop] = set()
        self._watched: set[asyncio.AbstractEventLoop] = set()
        self._turn = [True]
        self._is_due = False  # the next record goes as soon as it can, with those that are there
        self._in_time: tuple[_Record, float] | None = None  # the newest, and until when it may stand in line

    def write(self, acking: Acking) -> None:
        """Return when an acknowledgement is durable. Raises as an append does; `settle` has heard of it before."""
        try:
            acking.is_handed_over = True
            self._waiting.append(acking)
            if len(self._waiting) >= self._gathering.wanted:
                self._send(self._gathering.wanted)
            self._wait(acking)
            if acking.chain:
                pass_on(acking.chain)
        except BaseException:  # an interrupt: others may rely on this thread
            self._is_due = True
            self._send()
            acking.abandoned = True
            if acking.chain is not None:
                pass_on(acking.chain)
            raise
        if acking.failure is not None:
            raise again(acking.failure)

    def begin(self, acking: AwaitedAcking) -> None:
        """Begin an acknowledgement for a coroutine, which awaits `acking.future` then. Called in its loop."""
        acking.is_handed_over = True
        self._awaited.append(acking)
        if acking.loop not in self._looking:
            for loop in [loop for loop in list(self._looking | self._watched) if loop.is_closed()]:
                self._looking.discard(loop)
                self._watched.discard(loop)
            if acking.loop not in self._watched:
                acking.loop.call_later(LOST_S, self._look_again, acking.loop)
                self._watched.add(acking.loop)
            acking.loop.call_soon(self._look, acking.loop)
            self._looking.add(acking.loop)  # last: behind an interrupt, one look too many comes, and not one too few

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a loop, when its coroutines that could go on have done so: now they share a record."""
        try:
            self._looking.discard(loop)
            self._is_due = True
            self._send()
        except BaseException:  # an interrupt: others rely on this look
            self._is_due = True
            self._send()
            raise

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        """The look that a loop has in hand by now may be one that was lost; one too many does no harm."""
        self._watched.discard(loop)
        if loop in self._looking:
            self._look(loop)

    def _wait(self, acking: Acking) -> None:
        """Sleep until the answer. The first one of a record sees to it that it goes."""
        try:
            is_first = self._waiting[0] is acking
        except IndexError:  # they are all on their way
            is_first = False
        later_s = max(self._timeout_s, GATHER_S)  # the setting may be 0
        patience_s = GATHER_S if is_first else later_s
        while not acking.lock.acquire(timeout=patience_s):  # until the answer
            self._is_due = True
            self._send()
            self._look_at_line()
            patience_s = min(later_s, self._left_s() or later_s)

    def _left_s(self) -> float:
        """Until the record on its way has stood in line for too long; 0 if none does, or it has by now."""
        in_time = self._in_time
        return 0.0 if in_time is None else max(0.0, in_time[1] - self._monotonic_s())

    def _send(self, wanted: int = 1) -> None:
        """Send a record, if so many wait and none is on its way."""
        ackings: list[Acking | AwaitedAcking] = []
        record, has_turn = None, False
        try:
            while len(self._waiting) + len(self._awaited) >= wanted:
                try:
                    del self._turn[0]
                except IndexError:  # one is on its way
                    return
                has_turn, self._is_due = True, False
                self._take(ackings)
                if ackings:
                    record = self._record_of(ackings)
                    self._put(record)
                    return
                has_turn = False
                self._turn.append(True)
                if self._is_due:  # of one that came meanwhile, and found no turn
                    wanted = 1
        except BaseException:  # an interrupt
            if record is not None:
                self._put(record)  # it may have been accepted before: then it comes twice, and counts once
            elif has_turn:
                self._put_back(ackings)
                self._turn[:] = [True]
            raise

    def _take(self, ackings: list[Acking | AwaitedAcking]) -> None:
        """Take all threads, to the last: another one that comes meanwhile may take itself for the second."""
        while self._waiting:
            ackings += [self._waiting[0]]
            del self._waiting[0]
        for _ in range(MOST_AWAITED):
            if not self._awaited:
                return
            ackings += [self._awaited[0]]
            del self._awaited[0]
        self._is_due = True  # for the others

    def _put_back(self, ackings: Sequence[Acking | AwaitedAcking]) -> None:
        """They wait again, in front. An interrupt may have left the last one where it was."""
        for each in reversed(ackings):
            if isinstance(each, Acking):
                if each not in self._waiting:
                    self._waiting.appendleft(each)
            elif each not in self._awaited:
                self._awaited.appendleft(each)

    def _record_of(self, ackings: Sequence[Acking | AwaitedAcking]) -> _Record:
        stream = self._journal.stream
        assert stream is not None, "its subscription is durable"
        self._gathering.note([each.thread_id for each in ackings if isinstance(each, Acking)])
        record = _Record(ackings, stream, self._answered)
        self._journal.count([record.data])
        return record

    def _put(self, record: _Record) -> None:
        try:
            self._in_time = record, self._monotonic_s() + self._timeout_s  # before others may know of it
            if not self._journal.put(record):
                call_later(record.ackings, self._timeout_s + LATE_S, self._look_at_line)
        except StoreError as error:
            try:
                record.answer(error)
            except BaseException:  # an interrupt: nobody else answers it
                record.answer(error)
                raise

    def _look_at_line(self) -> None:
        """Give up a record that has stood in line at the publish buffer's cap for too long."""
        in_time = self._in_time
        if in_time is None or self._monotonic_s() < in_time[1]:
            return
        record = in_time[0]
        try:
            error = record.stream.lane.queue.withdraw(record)
        except BaseException:  # an interrupt: it may be out of the line
            self._put(record)
            raise
        if error is not None:
            try:
                record.answer(error)
            except BaseException:  # an interrupt: nobody else answers it
                record.answer(error)
                raise

    def _answered(self, record: _Record, error: StoreError | None) -> None:
        """What became of a record; in the thread that made it durable, or that had to give it up.

        The next one goes before anybody is woken. Each step can be made again after an interrupt.
        """
        if not record.is_settled:
            self._settle([each.one for each in record.ackings], error)
            record.is_settled = True
        if record.has_turn:
            record.has_turn = False
            if self._in_time is not None and self._in_time[0] is record:
                self._in_time = None
            self._turn.append(True)
        self._send(1 if self._is_due else self._gathering.wanted)
        if not record.are_loops_told:
            tell_loops([each for each in record.ackings if isinstance(each, AwaitedAcking)], error)
            record.are_loops_told = True
        if record.chain is None:
            chain = [each for each in reversed(record.ackings) if isinstance(each, Acking)]
            for each in chain[:]:
                each.chain = chain
                each.failure = error
            record.chain = chain
        pass_on(record.chain)
