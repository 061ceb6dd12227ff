"""Tickets: what `submit` and `submit_columns` return, and the request that is the ticket of one message."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from ..device.background import report
from ..errors import StoreError, copy_of
from .listeners import Listeners
from .request import Request, call_in_loop
from .streams import Stream

OutcomeT_co = TypeVar("OutcomeT_co", covariant=True)
RowT = TypeVar("RowT")


class Promise(ABC, Generic[OutcomeT_co]):
    """The promise of a call that does not wait: its outcome comes later. The store alone makes these.

    It has the methods of a `concurrent.futures.Future`, except that it cannot be cancelled. It can be awaited in any
    event loop, more than once.
    """

    __slots__ = ()

    @abstractmethod
    def done(self) -> bool:
        """True once each message is durable or has failed."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> OutcomeT_co:
        """Wait until all is durable; return the offset, or the offsets.

        Args:
            timeout: seconds to wait. None waits without a limit; 0 or less does not wait.

        Raises:
            TimeoutError: the time is up. The message may still become durable: call again.
            InvalidMessage: the timeout is not a number.
            StoreError: the message was not stored. `StorePoisoned`: it may or may not be durable.
        """

    @abstractmethod
    def exception(self, timeout: float | None = None) -> StoreError | None:
        """Wait as `result` does; return the error that `result` would raise, or None if all is durable.

        Args: as for `result`.

        Raises:
            TimeoutError, InvalidMessage: as for `result`.
        """

    @abstractmethod
    def add_done_callback(self, callback: Callable[[Self], Any]) -> None:
        """Call `callback(ticket)` once, when each message is durable or has failed.

        The store calls callbacks one after the other, in a thread of their own. So a callback may be slow, or append
        and wait: it delays other callbacks and nothing else. If the ticket is done already, the caller's thread calls
        the callback at once. The logger "stratalog" logs an exception of a callback; it has no other effect. `close`
        returns when all callbacks were called.
        """

    @abstractmethod
    def __await__(self) -> Generator[Any, None, OutcomeT_co]:
        """`await ticket` gives the result, or raises the error that `result` raises. It needs no thread."""


class Ticket(Promise[int]):
    """The promise of a submitted message's offset. Only `submit` makes tickets."""

    __slots__ = ()

    @property
    def is_repeat(self) -> bool:
        """Whether the topic had the `message_id` already, so that nothing was stored. It counts once it is `done`."""
        return False


class BatchTicket(Promise[npt.NDArray[np.int64]]):
    """The promise of the offsets of many messages, int64 (n). Only `submit_columns` makes them.

    It is done when each of the messages is durable or has failed; `result` raises the first error.
    """

    __slots__ = ()


class SubmitRequest(Request, Ticket):
    """One message of `submit`. Its caller sees a `Ticket` and nothing else."""

    __slots__ = ()

    def add_done_callback(self, callback: Callable[[Self], Any]) -> None:
        if self._done:
            try:
                callback(self)
            except Exception as error:  # what a caller's own code raises harms no other callback
                report(f"a callback of {self!r} has raised", error)
        else:
            listeners = self._listeners
            self.then(lambda: listeners.call(lambda: callback(self)))

    def __await__(self) -> Generator[Any, None, int]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()

        def resolve() -> None:
            if future.done():  # its task was cancelled
                return
            if self._error is not None:
                future.set_exception(copy_of(self._error))
            else:
                future.set_result(self.offset)

        if self._done:
            resolve()
        else:
            self.then(lambda: call_in_loop(loop, resolve))
        return future.__await__()

    @property
    def _listeners(self) -> Listeners:
        return self.stream.lane.queue.listeners

    def __dir__(self) -> list[str]:
        return dir(Ticket)

    def __repr__(self) -> str:
        name, error = f"{self.stream.topic!r}/{self.stream.queue_id}", self._error
        outcome = "failed" if error is not None else f"offset {self.offset}" if self._done else "not durable yet"
        return f"<Ticket of {name}: {outcome}>"


class RecordTicket(SubmitRequest, Generic[RowT]):
    """One record of the store's own, and the ticket of the call that wants it durable.

    Attributes:
        rows: what the record is about. Without any, it is about nothing that counts.
    """

    __slots__ = ("_settle", "rows")

    def __init__(self, stream: Stream, settle: Callable[[list[RowT], StoreError | None], object]) -> None:
        """`settle` gets the rows and the outcome, before the caller does."""
        # Written out, as each acknowledgement of `submit_ack` comes here: a call saved shows.
        self.stream = stream
        self.data, self.size_bytes, self.extras = b"", 0, None
        self.offset = -1
        self._done, self._error, self._waiters = False, None, None
        self.rows: list[RowT] = []
        self._settle = settle

    def answer(self, error: StoreError | None = None) -> None:
        try:
            self._settle(self.rows, error)
        finally:  # whatever becomes of that: the caller waits for this
            Request.answer(self, error)  # through `super` it takes a call more
