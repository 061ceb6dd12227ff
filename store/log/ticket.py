"""What `submit` gives its caller."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from ..errors import StoreError


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
