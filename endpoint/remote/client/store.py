"""The store of another process, with the calls of `MessageStore`."""

from __future__ import annotations

import asyncio
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self, overload

from .appending import Appending
from .changing import Changing
from .link import Link
from .reading import Reading
from .subscription import RemoteSubscription
from .topics_subscription import RemoteTopicsSubscription
from .transaction import RemoteTransaction

if TYPE_CHECKING:
    from stratalog.store.filters.given import Filter
    from stratalog.store.subscriptions.backoff import Backoff
    from stratalog.store.subscriptions.settings import Mode, OrderBy, Start
    from stratalog.store.subscriptions.topics_start import Topics, TopicsStart


class RemoteStore(Appending, Reading, Changing):
    """The store that another process serves, by its own names: what `stratalog.connect` gives.

    Its calls have the arguments, results and errors of `MessageStore`. Any number of threads and event loops may use
    it; all share one connection. If that is lost, calls under way raise `ConnectionLost`, and the next call connects
    again. It cannot be used after a fork: connect in each process.
    """

    def __init__(self, link: Link) -> None:
        """Use `stratalog.connect`."""
        self._link = link
        self._finalizer = weakref.finalize(self, link.drop)
        self._finalizer.atexit = False

    @property
    def address(self) -> str:
        """`host:port` of the server."""
        return self._link.address

    @property
    def closed(self) -> bool:
        """True after `close`, and in a forked child."""
        return self._link.closed

    @overload
    def subscribe(
        self, topic: str, name: str, start: Start = "earliest", *, mode: Mode = "shared",
        precision_ms: int | None = None, order_by: OrderBy = "queue", filter: Filter | None = None,
        max_attempts: int | None = None, dead_letter_topic: str | None = None, backoff_ms: Backoff | None = None,
        pattern: None = None,
    ) -> RemoteSubscription: ...  # fmt: skip

    @overload
    def subscribe(
        self, topic: Topics, name: str, start: TopicsStart = "earliest", *, mode: Mode = "shared",
        precision_ms: int | None = None, order_by: OrderBy = "queue", filter: Filter | None = None,
        max_attempts: int | None = None, dead_letter_topic: str | None = None, backoff_ms: Backoff | None = None,
        pattern: None = None,
    ) -> RemoteTopicsSubscription: ...  # fmt: skip

    @overload
    def subscribe(
        self, topic: None = None, *, name: str, start: TopicsStart = "earliest", mode: Mode = "shared",
        precision_ms: int | None = None, order_by: OrderBy = "queue", filter: Filter | None = None,
        max_attempts: int | None = None, dead_letter_topic: str | None = None, backoff_ms: Backoff | None = None,
        pattern: str,
    ) -> RemoteTopicsSubscription: ...  # fmt: skip

    def subscribe(
        self, topic: str | Topics | None = None, name: str | None = None, start: Start | TopicsStart = "earliest", *,
        mode: Mode = "shared", precision_ms: int | None = None, order_by: OrderBy = "queue",
        filter: Filter | None = None, max_attempts: int | None = None, dead_letter_topic: str | None = None,
        backoff_ms: Backoff | None = None, pattern: str | None = None,
    ) -> RemoteSubscription:  # fmt: skip
        """Open a subscription of a topic, of several, or of all that match a pattern; it is made if there is none.

        Args and errors: as for `MessageStore.subscribe`. Its consumers compete with those of all processes.
        """
        arguments = {
            "topic": topic, "name": name, "start": start, "mode": mode, "precision_ms": precision_ms,
            "order_by": order_by, "filter": filter, "max_attempts": max_attempts,
            "dead_letter_topic": dead_letter_topic, "backoff_ms": backoff_ms, "pattern": pattern,
        }  # fmt: skip
        is_single = pattern is None and (topic is None or isinstance(topic, str))
        return (RemoteSubscription if is_single else RemoteTopicsSubscription)(self._link, arguments, self)

    def transaction(self) -> RemoteTransaction:
        """Messages and acknowledgements that are durable and visible all at once, or not at all.

        Use it with `with` or `async with`, see `RemoteTransaction`. Raises StoreClosed.
        """
        return RemoteTransaction(self._link)

    # -- closing --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Wait for the answers of appends that are under way, and end the connection. A second call does nothing.

        Waiting calls of other threads raise StoreClosed. The server's store stays open.
        """
        self._link.close()
        self._finalizer.detach()  # not before: if the wait is interrupted, the object still ends its connection

    async def aclose(self) -> None:
        """`close` for coroutines."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        self._link.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._link.check()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __reduce__(self) -> NoReturn:
        """Raise TypeError: give another process the address, and connect there."""
        raise TypeError(f"{self!r} cannot be copied or pickled; call stratalog.connect({self.address!r}) there")

    def __repr__(self) -> str:
        return f"<RemoteStore at {self.address}, {'closed' if self.closed else 'open'}>"
