"""What `submit` gives its caller, and the request behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from ..errors import StoreError, again
from .listeners import report
from .request import Request, call_in_loop


class Ticket:
    """The receipt of a submitted message: its offset is to come. Tickets are made by `submit` alone.

    It is used as a `concurrent.futures.Future` is, and can be awaited, in any event loop and more than once. It cannot
    be cancelled: the message is on its way.
    """

    __slots__ = ()

    def done(self) -> bool:
        """True once the message is durable or has failed."""
        raise NotImplementedError

    def result(self, timeout: float | None = None) -> int:
        """The message's offset, when it is durable.

        Args:
            timeout: seconds to wait; None waits without end, 0 and less only look.

        Raises:
            TimeoutError: the time is up; the message may still become durable, call again.
            InvalidMessage: the timeout is no number.
            StoreError: the message was not stored, or (`StorePoisoned`) may not have been.
        """
        raise NotImplementedError

    def exception(self, timeout: float | None = None) -> StoreError | None:
        """The error that `result` would raise, or None, when the message is durable.

        Args and errors: as for `result`, but that the store's error is returned.
        """
        raise NotImplementedError

    def add_done_callback(self, callback: Callable[[Ticket], Any]) -> None:
        """Call `callback(ticket)` once the message is durable or has failed; at once if it is already.

        Callbacks are called one after the other in a thread that the store has for them. So one that is slow, or that
        appends and waits, holds up the other callbacks and nothing else. If the ticket is done already, the callback is
        called here. An exception that it raises is logged (by the logger "stratalog") and has no other effect. `close`
        returns when all of them were called.
        """
        raise NotImplementedError

    def __await__(self) -> Generator[Any, None, int]:
        """The offset, for `await ticket`; raises what `result` raises. Needs no thread."""
        raise NotImplementedError


class SubmitRequest(Request, Ticket):
    """One message of `submit`. Its owner sees a `Ticket`, and no more than that."""

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
