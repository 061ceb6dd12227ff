"""The ticket that `submit` returns, and the request that implements it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any

from ..errors import StoreError, again
from .listeners import report
from .request import Request, call_in_loop


class Ticket(ABC):
    """The promise of a submitted message's offset. Only `submit` makes tickets.

    It has the methods of a `concurrent.futures.Future`, except that it cannot be cancelled. It can be awaited in any
    event loop, more than once.
    """

    __slots__ = ()

    @abstractmethod
    def done(self) -> bool:
        """True once the message is durable or has failed."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> int:
        """Wait until the message is durable; return its offset.

        Args:
            timeout: seconds to wait. None waits without a limit; 0 or less does not wait.

        Raises:
            TimeoutError: the time is up. The message may still become durable: call again.
            InvalidMessage: the timeout is not a number.
            StoreError: the message was not stored. `StorePoisoned`: it may or may not be durable.
        """

    @abstractmethod
    def exception(self, timeout: float | None = None) -> StoreError | None:
        """Wait as `result` does; return the error that `result` would raise, or None if the message is durable.

        Args: as for `result`.

        Raises:
            TimeoutError, InvalidMessage: as for `result`.
        """

    @abstractmethod
    def add_done_callback(self, callback: Callable[[Ticket], Any]) -> None:
        """Call `callback(ticket)` once, when the message is durable or has failed.

        The store calls callbacks one after the other, in a thread of their own. So a callback may be slow, or append
        and wait: it delays other callbacks and nothing else. If the ticket is done already, the caller's thread calls
        the callback at once. The logger "stratalog" logs an exception of a callback; it has no other effect. `close`
        returns when all callbacks were called.
        """

    @abstractmethod
    def __await__(self) -> Generator[Any, None, int]:
        """`await ticket` gives the offset, or raises the error that `result` raises. It needs no thread."""


class SubmitRequest(Request, Ticket):
    """One message of `submit`. Its caller sees a `Ticket` and nothing else."""

    __slots__ = ()

    def add_done_callback(self, callback: Callable[[Ticket], Any]) -> None:
        if self._done:
            try:
                callback(self)
            except Exception as error:
                report(f"a callback of {self!r} has raised", error)
        else:
            listeners = self.stream.queue.listeners
            self.then(lambda: listeners.call(lambda: callback(self)))

    def __await__(self) -> Generator[Any, None, int]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()

        def resolve() -> None:
            if future.done():  # its task was cancelled
                return
            if self._error is not None:
                future.set_exception(again(self._error))
            else:
                future.set_result(self.offset)

        if self._done:
            resolve()
        else:
            self.then(lambda: call_in_loop(loop, resolve))
        return future.__await__()

    def __dir__(self) -> list[str]:
        return dir(Ticket)

    def __repr__(self) -> str:
        name, error = f"{self.stream.topic!r}/{self.stream.queue_id}", self._error
        outcome = "failed" if error is not None else f"offset {self.offset}" if self._done else "not durable yet"
        return f"<Ticket of {name}: {outcome}>"
