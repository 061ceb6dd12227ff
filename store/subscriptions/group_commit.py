"""Group commit: the acknowledgements of many threads and coroutines in one record.

A thread that acknowledges a message sleeps until that is durable. With a record for each, 40 threads keep the log busy
with many small frames. So one record at a time is on its way, and the next one has the acknowledgements that came
meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from math import ceil
from typing import TypeAlias

from ..errors import StoreError, copy_of
from ..format.cursors import pack_ones
from ..log.request import Request, call_in_loop, pass_on
from ..log.streams import Stream
from .ack_row import AckRow
from .journal import Journal
from .parts import Parts

GATHER_S = 0.002  # a record waits for more acknowledgements at most so long
LOOK_S = 0.02
FEWEST_THREADS = 8
LONGEST_GAP_S = 0.00025  # from one acknowledgement to the next, on average
LOST_S = 0.5  # a callback that has not run by then was lost to an interrupt: asyncio will not call it again
MOST_AWAITED = 16_384  # of a record, which has to fit into the smallest ring of a lane: 384 KiB

Settle: TypeAlias = Callable[[Sequence[AckRow], "StoreError | None"], None]


class AckTicket:
    """One acknowledgement: of a thread that sleeps, or a coroutine that awaits. It shares a record with others.

    Attributes:
        rows: the acknowledged message; empty until it is acknowledged in memory.
        is_handed_over: it will be written, whatever becomes of its thread.
        thread_id: of the thread that sleeps on `lock`, and is woken along the `chain` of its record, see
            `BlockingRequest`; 0 if none does.
        error: the outcome, for a thread.
        future: a coroutine awaits it, and `tell_loops` answers it.
    """

    __slots__ = ("abandoned", "chain", "error", "future", "is_handed_over", "lock", "rows", "thread_id")
    lock: threading.Lock

    def __init__(self) -> None:
        self.rows: list[AckRow] = []
        self.is_handed_over = self.abandoned = False
        self.thread_id = 0
        self.error: StoreError | None = None
        self.future: asyncio.Future[None] | None = None
        self.chain: list[AckTicket] | None = None

    def of_thread(self) -> AckTicket:
        """Make it this thread's, which sleeps until the answer."""
        self.lock = threading.Lock()
        self.lock.acquire()
        self.thread_id = threading.get_ident()
        return self

    def of_coroutine(self) -> asyncio.Future[None]:
        """Make it a coroutine's in this loop. Returns the future to await."""
        self.future = future = asyncio.get_running_loop().create_future()
        return future


class AckRate:
    """Measures how many threads acknowledge, and how fast: if many do, most of them share a record.

    The processor is the limit then, and a frame costs as much of it as four acknowledgements. A record waits for seven
    of eight threads, so that a slow one delays nobody; for fewer if they don't come in `GATHER_S`, and at least for
    half of them. One thread at a time.

    Attributes:
        wanted: acknowledgements that the next record waits for, if they come in time.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._since_s = monotonic_s()
        self._count = 0
        self._threads: set[int] = set()
        self.wanted = 1

    def note(self, thread_ids: Collection[int]) -> None:
        """Note the threads of a record's acknowledgements."""
        self._count += len(thread_ids)
        self._threads.update(thread_ids)
        now_s = self._monotonic_s()
        past_s = now_s - self._since_s
        if past_s >= LOOK_S:
            self.wanted = self._next_wanted(past_s)
            self._since_s, self._count = now_s, 0
            self._threads.clear()

    def _next_wanted(self, past_s: float) -> int:
        threads, count = len(self._threads), self._count
        if threads < FEWEST_THREADS or past_s > count * LONGEST_GAP_S:
            return 1
        return max(threads // 2, min(threads - threads // 8, int(count * GATHER_S / past_s)))


class AckRecord(Request):
    """One record of some acknowledgements.

    Attributes:
        tickets: the acknowledgements in it.
        is_settled, has_turn, are_loops_told, chain: how far its answer has come. An interrupt may cut the answer short;
            then it is made again.
    """

    __slots__ = ("_answered", "are_loops_told", "chain", "has_turn", "is_settled", "rows", "tickets")

    def __init__(
        self,
        tickets: Sequence[AckTicket],
        stream: Stream,
        answered: Callable[[AckRecord, StoreError | None], None],
    ) -> None:
        self.rows = [row for each in tickets for row in each.rows]
        life = max([row.life for row in self.rows])  # of an earlier life: that subscription was deleted
        record = pack_ones(life, [(row.queue_id, row.era, row.offset) for row in self.rows if row.life == life])
        super().__init__(stream, record, len(record))
        self.tickets = tickets
        self.is_settled = False
        self.has_turn = True
        self.are_loops_told = tickets[-1].future is None  # those of coroutines are the last
        self.chain: list[AckTicket] | None = None
        self._answered = answered

    def answer(self, error: StoreError | None = None) -> None:
        """Note the outcome; the first one holds, as after an interrupt the record may be answered or handed over twice.

        `done` is set last: a `close` that was interrupted answers again each record that is not done. The record keeps
        its bytes for a second frame that it may get into.
        """
        self._answered(self, error)
        self._done = True


class GroupCommit:
    """Any number of threads may `write`, and any number of coroutines `begin`.

    Invariants:
        * one record at a time is on its way: `_turn` has one element; the caller that takes it out forms a record, and
          it is put back when that record was answered;
        * an acknowledgement is in `_waiting` (a thread that sleeps) or `_awaited`, or in the record on its way, or
          was answered; an interrupt loses none;
        * no thread waits forever: each record takes every waiting thread, so the next to come is the first. After
          `GATHER_S` the first one sends a record; or it sets `_is_due`, and reads `_turn` after that. The answer to
          the record on its way gives `_turn` back, and reads `_is_due` after that. So one of the two sends it;
        * a record takes at most `MOST_AWAITED` acknowledgements of coroutines; the next record, with the others, is due
          then;
        * no thread relies on a loop, which may stand still: the first one of `_waiting` is a thread. A loop looks by
          itself after all its coroutines that can run; `_looking` has the loops that will look, and those in `_watched`
          look for a callback that was lost.

    Interrupts come only at calls, see `RequestQueue`: statements without a call between them are not interrupted.
    """

    def __init__(self, journal: Journal, parts: Parts, settle: Settle) -> None:
        """`settle` gets the outcome of acknowledgements before their threads do."""
        self._journal = journal
        self._monotonic_s = parts.clock.monotonic_s
        self._timeout_s = parts.append_timeout_s
        self._at = parts.waiting.at
        self._settle = settle
        self._gathering = AckRate(self._monotonic_s)
        self._waiting: deque[AckTicket] = deque()
        self._awaited: deque[AckTicket] = deque()
        self._looking: set[asyncio.AbstractEventLoop] = set()
        self._watched: set[asyncio.AbstractEventLoop] = set()
        self._turn = [True]
        self._is_due = False  # the next record goes as soon as it can, with the acknowledgements that are there
        self._in_time: tuple[AckRecord, float] | None = None  # the newest record; it stands in line until so many ms

    def write(self, ticket: AckTicket) -> None:
        """Return when a thread's acknowledgement is durable; `settle` is called before. Raises as an append does."""
        try:
            ticket.is_handed_over = True
            self._waiting.append(ticket)
            if len(self._waiting) >= self._gathering.wanted:
                self._send(self._gathering.wanted)
            self._wait(ticket)
            if ticket.chain:
                pass_on(ticket.chain)
        except BaseException:  # an interrupt: others may rely on this thread
            self._is_due = True
            self._send()
            ticket.abandoned = True
            if ticket.chain is not None:
                pass_on(ticket.chain)
            raise
        if ticket.error is not None:
            raise copy_of(ticket.error)

    def begin(self, ticket: AckTicket) -> None:
        """Begin an acknowledgement for a coroutine, which awaits `ticket.future` then. Called in its loop."""
        loop = asyncio.get_running_loop()
        ticket.is_handed_over = True
        self._awaited.append(ticket)
        if loop not in self._looking:
            for known in [known for known in list(self._looking | self._watched) if known.is_closed()]:
                self._looking.discard(known)
                self._watched.discard(known)
            if loop not in self._watched:
                loop.call_later(LOST_S, self._look_again, loop)
                self._watched.add(loop)
            loop.call_soon(self._look, loop)
            self._looking.add(loop)  # last: after an interrupt there is one look too many, and not one too few

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called by a loop after its coroutines that could go on: their acknowledgements share a record."""
        try:
            self._looking.discard(loop)
            self._is_due = True
            self._send()
        except BaseException:  # an interrupt: others rely on this look
            self._is_due = True
            self._send()
            raise

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        """The callback that a loop has by now may be a lost one; one look too many does no harm."""
        self._watched.discard(loop)
        if loop in self._looking:
            self._look(loop)

    def _wait(self, ticket: AckTicket) -> None:
        """Sleep until the answer. The first thread of a record makes sure that the record is sent."""
        try:
            is_first = self._waiting[0] is ticket
        except IndexError:  # they are all on their way
            is_first = False
        later_s = max(self._timeout_s, GATHER_S)  # the setting may be 0
        patience_s = GATHER_S if is_first else later_s
        while not ticket.lock.acquire(timeout=patience_s):  # until the answer
            self._is_due = True
            self._send()
            self._look_at_line()
            patience_s = min(later_s, self._left_s() or later_s)

    def _left_s(self) -> float:
        """The time for which the record on its way may still stand in line; 0 if none is, or its time is over."""
        in_time = self._in_time
        return 0.0 if in_time is None else max(0.0, in_time[1] / 1000 - self._monotonic_s())

    def _send(self, wanted: int = 1) -> None:
        """Send a record, if `wanted` acknowledgements wait and no record is on its way."""
        tickets: list[AckTicket] = []
        record, has_turn = None, False
        try:
            while len(self._waiting) + len(self._awaited) >= wanted:
                try:
                    del self._turn[0]
                except IndexError:  # one is on its way
                    return
                has_turn, self._is_due = True, False
                self._take(tickets)
                if tickets:
                    record = self._record_of(tickets)
                    self._put(record)
                    return
                has_turn = False
                self._turn.append(True)
                if self._is_due:  # set by one that came meanwhile and found no turn
                    wanted = 1
        except BaseException:  # an interrupt
            if record is not None:
                self._put(record)  # it may have been accepted before: then it is in the log twice, and counts once
            elif has_turn:
                self._put_back(tickets)
                self._turn[:] = [True]
            raise

    def _take(self, tickets: list[AckTicket]) -> None:
        """Take all waiting threads, to the last: one that stays might take itself for the second and never send."""
        while self._waiting:
            tickets += [self._waiting[0]]
            del self._waiting[0]
        for _ in range(MOST_AWAITED):
            if not self._awaited:
                return
            tickets += [self._awaited[0]]
            del self._awaited[0]
        self._is_due = True  # the remaining acknowledgements go with the next record

    def _put_back(self, tickets: Sequence[AckTicket]) -> None:
        """Put acknowledgements back, in front. An interrupt may have left the last one where it was."""
        for each in reversed(tickets):
            mine = self._waiting if each.thread_id else self._awaited
            if each not in mine:
                mine.appendleft(each)

    def _record_of(self, tickets: Sequence[AckTicket]) -> AckRecord:
        stream = self._journal.stream
        assert stream is not None, "its subscription is durable"
        self._gathering.note([each.thread_id for each in tickets if each.thread_id])
        record = AckRecord(tickets, stream, self._answered)
        self._journal.count([record.data])
        return record

    def _put(self, record: AckRecord) -> None:
        try:
            until_ms = self._monotonic_s() * 1000 + round(self._timeout_s * 1000)
            self._in_time = record, until_ms  # before others may see the record
            if not self._journal.put(record):
                with suppress(RuntimeError):  # there are no timers while the program ends
                    self._at(ceil(until_ms), self._look_at_line)
        except StoreError as error:
            try:
                record.answer(error)
            except BaseException:  # an interrupt: no other thread answers the record
                record.answer(error)
                raise

    def _look_at_line(self) -> None:
        """Give up a record that has stood in line at the publish buffer's cap for too long."""
        in_time = self._in_time
        if in_time is None or self._monotonic_s() * 1000 < in_time[1]:
            return
        record, error = in_time[0], None
        try:
            error = record.stream.lane.queue.withdraw(record)
            if error is not None:
                record.answer(error)
        except BaseException:  # an interrupt: the record may be out of the line, and no other thread answers it
            if error is None:
                self._put(record)
            else:
                record.answer(error)
            raise

    def _answered(self, record: AckRecord, error: StoreError | None) -> None:
        """A record has its outcome; called by the thread that made it durable, or gave it up.

        The next record goes before anybody is woken. Each step can be made again after an interrupt.
        """
        if not record.is_settled:
            self._settle(record.rows, error)
            record.is_settled = True
        if record.has_turn:
            record.has_turn = False
            if self._in_time is not None and self._in_time[0] is record:
                self._in_time = None
            self._turn.append(True)
        self._send(1 if self._is_due else self._gathering.wanted)
        if not record.are_loops_told:
            tell_loops(record.tickets, error)
            record.are_loops_told = True
        if record.chain is None:
            chain = [each for each in reversed(record.tickets) if each.thread_id]
            for each in chain[:]:
                each.chain = chain
                each.error = error
            record.chain = chain
        pass_on(record.chain)


def tell_loops(tickets: Sequence[AckTicket], error: StoreError | None) -> None:
    """Answer the coroutines of a record: one call for each loop, however many of them it has."""
    futures = [each.future for each in tickets if each.future is not None]
    for loop in {future.get_loop() for future in futures}:
        call_in_loop(loop, partial(_resolve, [future for future in futures if future.get_loop() is loop], error))


def _resolve(futures: Sequence[asyncio.Future[None]], error: StoreError | None) -> None:
    """Answer futures; called in their loop."""
    for future in futures:
        if future.done():  # its task was cancelled
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(copy_of(error))
