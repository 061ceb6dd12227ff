"""Acknowledgements on their way to the log: their rows, and the tickets of their callers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import StoreError, copy_of
from ..format.arrays import Int64s
from ..format.cursors import pack_ones
from ..log.request import Request, call_in_loop
from ..log.streams import Stream
from ..log.ticket import SubmitRequest
from .in_flight import Places


class AckRow(NamedTuple):
    """A message that is being acknowledged. Many of them are columns: int64 (7, n), in this order.

    Attributes:
        life, era: of the subscription, and of the queue, when it was acknowledged.
        start: a lower bound of its record's offset in the journal.
    """

    life: int
    era: int
    start: int
    receipt: int
    queue_id: int
    offset: int
    attempt: int


Settle: TypeAlias = Callable[[Sequence[AckRow], StoreError | None], None]


class AckColumns(NamedTuple):
    """n messages that are being acknowledged, see `AckRow`."""

    lives: Int64s
    eras: Int64s
    starts: Int64s
    receipts: Int64s
    places: Places

    @classmethod
    def of(cls, rows: Iterable[AckRow | Int64s]) -> AckColumns:
        """Columns of single rows and of columns, one after another."""
        known = list(rows)
        single = np.array([row for row in known if isinstance(row, AckRow)], np.int64).reshape(-1, len(AckRow._fields))
        lives, eras, starts, receipts, *places = np.concatenate(
            [single.T, *[row for row in known if not isinstance(row, AckRow)]], axis=1
        )
        return cls(lives, eras, starts, receipts, Places(*places))

    def take(self, kept: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> AckColumns:
        """Some of the messages."""
        places = self.places.take(kept)
        return AckColumns(self.lives[kept], self.eras[kept], self.starts[kept], self.receipts[kept], places)


class AckTicket(SubmitRequest):
    """One acknowledgement: of a thread that sleeps, a coroutine that awaits, or a caller that asks the ticket later.

    The first two share a record with others; the ticket of the third is the request of its own record.

    Attributes:
        rows: the acknowledged message; empty until it is acknowledged in memory.
        is_handed_over: it will be written, whatever becomes of its thread.
        thread_id: of the thread that sleeps on `lock`, and is woken along the `chain` of its record, see
            `BlockingRequest`; 0 if none does.
        future: a coroutine awaits it, and `tell_loops` answers it.
        settle: gets the outcome of the ticket's own record before the caller does.
    """

    __slots__ = ("abandoned", "chain", "future", "is_handed_over", "lock", "rows", "settle", "thread_id")
    lock: threading.Lock

    def __init__(self, stream: Stream | None) -> None:
        assert stream is not None, "its subscription is durable"
        super().__init__(stream, b"", 0)
        self.rows: list[AckRow] = []
        self.is_handed_over = self.abandoned = False
        self.thread_id = 0
        self.future: asyncio.Future[None] | None = None
        self.chain: list[AckTicket] | None = None
        self.settle: Settle | None = None

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

    def answer(self, error: StoreError | None = None) -> None:
        if self.settle is not None:
            self.settle(self.rows, error)
        super().answer(error)


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
        self.are_loops_told = False
        self.chain: list[AckTicket] | None = None
        self._answered = answered

    def answer(self, error: StoreError | None = None) -> None:
        """Note the outcome; the first one holds, as after an interrupt the record may be answered or handed over twice.

        `done` is set last: a `close` that was interrupted answers again each record that is not done. The record keeps
        its bytes for a second frame that it may get into.
        """
        self._answered(self, error)
        self._done = True


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
