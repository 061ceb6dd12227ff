"""Group commit: the acknowledgements of many threads and coroutines in one record.

A thread that acknowledges a message sleeps until that is durable. With a record each, 40 of them keep the log busy with
many small frames. So one record at a time is on its way, and the acknowledgements that come meanwhile are in the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from math import ceil

from ..errors import StoreError, copy_of
from ..log.request import pass_on
from .journal import Journal
from .parts import Parts
from .pending_acks import AckRecord, AckTicket, Settle, tell_loops

GATHER_S = 0.002  # a record waits for others, at most: then it goes with those that are there
LOOK_S = 0.02
FEWEST_THREADS = 8
LONGEST_GAP_S = 0.00025  # from one acknowledgement to the next, on average
LATE_MS = 2  # after the time at which a record in line is given up
LOST_S = 0.5  # a callback that has not run by then was lost to an interrupt: asyncio will not call it again
MOST_AWAITED = 16_384  # of a record, which has to fit into the smallest ring of a lane: 384 KiB


class AckRate:
    """Follows how many threads acknowledge, and how fast: where many do, most of them share a record.

    The processor is the limit then, and a frame costs as much of it as four acknowledgements. A record waits for seven
    of eight threads, so that one that is slow holds nobody up; for fewer if they don't come in `GATHER_S`, and at least
    for half of them. One thread at a time.

    Attributes:
        wanted: acknowledgements of the next record, if they come in time.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._since_s = monotonic_s()
        self._count = 0
        self._threads: set[int] = set()
        self.wanted = 1

    def note(self, thread_ids: Collection[int]) -> None:
        """A record has acknowledgements of these threads."""
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


class GroupCommit:
    """Any number of threads may `write`, and any number of coroutines `begin`.

    Invariants:
        * whoever has taken the one element out of `_turn` forms a record; it is back when that was answered. So one
          record at a time is on its way;
        * an acknowledgement is in `_waiting` (a thread that sleeps) or `_awaited`, or in the record on its way, or
          was answered; an interrupt loses none;
        * no thread waits for ever: each record takes every waiting thread, so the next to come is the first. After
          `GATHER_S` the first one sends a record; or it sets `_is_due`, and looks at `_turn` after that. The answer to
          the record on its way gives `_turn` back, and looks at `_is_due` after that. So one of the two sends it;
        * of coroutines, a record takes `MOST_AWAITED` at the most; the next one, with the others, is due then;
        * no thread relies on a loop, which may stand still: the first one of `_waiting` is a thread. A loop looks by
          itself when all have run that can; `_looking` has those that will, and those in `_watched` look for one
          that was lost.

    Of the interrupts `RequestQueue` tells: statements without a call between them are not interrupted.
    """

    def __init__(self, journal: Journal, parts: Parts, settle: Settle) -> None:
        """`settle` is told what became of acknowledgements, before their threads are."""
        self._journal = journal
        self._monotonic_s = parts.clock.monotonic_s
        self._timeout_s = parts.append_timeout_s
        self._after = parts.waiting.after
        self._settle = settle
        self._gathering = AckRate(self._monotonic_s)
        self._waiting: deque[AckTicket] = deque()
        self._awaited: deque[AckTicket] = deque()
        self._looking: set[asyncio.AbstractEventLoop] = set()
        self._watched: set[asyncio.AbstractEventLoop] = set()
        self._turn = [True]
        self._is_due = False  # the next record goes as soon as it can, with those that are there
        self._in_time: tuple[AckRecord, float] | None = None  # the newest, and until when it may stand in line

    def write(self, ticket: AckTicket) -> None:
        """Return when a thread's acknowledgement is durable; `settle` hears of it before. Raises as an append does."""
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
        if ticket._error is not None:
            raise copy_of(ticket._error)

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
            self._looking.add(loop)  # last: behind an interrupt, one look too many comes, and not one too few

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

    def _wait(self, ticket: AckTicket) -> None:
        """Sleep until the answer. The first one of a record sees to it that it goes."""
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
        """Until the record on its way has stood in line for too long; 0 if none does, or it has by now."""
        in_time = self._in_time
        return 0.0 if in_time is None else max(0.0, in_time[1] - self._monotonic_s())

    def _send(self, wanted: int = 1) -> None:
        """Send a record, if so many wait and none is on its way."""
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
                if self._is_due:  # of one that came meanwhile, and found no turn
                    wanted = 1
        except BaseException:  # an interrupt
            if record is not None:
                self._put(record)  # it may have been accepted before: then it comes twice, and counts once
            elif has_turn:
                self._put_back(tickets)
                self._turn[:] = [True]
            raise

    def _take(self, tickets: list[AckTicket]) -> None:
        """Take all threads, to the last: another one that comes meanwhile may take itself for the second."""
        while self._waiting:
            tickets += [self._waiting[0]]
            del self._waiting[0]
        for _ in range(MOST_AWAITED):
            if not self._awaited:
                return
            tickets += [self._awaited[0]]
            del self._awaited[0]
        self._is_due = True  # for the others

    def _put_back(self, tickets: Sequence[AckTicket]) -> None:
        """They wait again, in front. An interrupt may have left the last one where it was."""
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
            self._in_time = record, self._monotonic_s() + self._timeout_s  # before others may know of it
            if not self._journal.put(record):
                with suppress(RuntimeError):  # there are no timers, as the program ends
                    self._after(ceil(self._timeout_s * 1000) + LATE_MS, self._look_at_line)
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

    def _answered(self, record: AckRecord, error: StoreError | None) -> None:
        """What became of a record; in the thread that made it durable, or that had to give it up.

        The next one goes before anybody is woken. Each step can be made again after an interrupt.
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
                each._error = error
            record.chain = chain
        pass_on(record.chain)
