"""The clients that are known: their settings, their streams, and the messages that their push consumers hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ..server.calls import client_id_of
from ..wire import Code
from ..wire.codes import ClientType
from .statuses import Refused

if TYPE_CHECKING:
    from .groups import Group

GONE_S: Final = 1.0  # after its last stream has ended, a client without an open call is gone
QUIET_S: Final = 40.0  # a client that has said nothing for so long is gone: heartbeats come each 10 s

MOST_CLIENTS: Final = 10_000  # that are known at a time


class Client:
    """One client, by the id that it gives itself.

    Attributes:
        settings: its newest ones; None before they came.
        streams: for each of its telemetry streams the commands that wait to be sent.
        opened: how many telemetry streams it has opened.
        calls: how many receiving calls of it are open.
        waits: the time limits of those that wait.
        is_gone: it has left; one that comes again by this name is another one.
        heard_s: when it called last, by the loop's clock.
        held: what its push consumers have, by group and receipt: how many streams it had opened when it asked for it.
        routed: the topics whose routes it has asked for; `routes` tells of each.
    """

    def __init__(self, name: str, now_s: float) -> None:
        self.name = name
        self.settings: Any = None
        self.streams: list[asyncio.Queue[Any]] = []
        self.opened = 0
        self.calls = 0
        self.waits: set[asyncio.Timeout] = set()
        self.is_gone = False
        self.heard_s = now_s
        self.held: dict[tuple[Group, int], int] = {}
        self.routed: set[str] = set()
        self.routes = asyncio.Condition()

    @property
    def is_producer(self) -> bool:
        """Whether it sends messages."""
        return self.settings is not None and self.settings.client_type == ClientType.PRODUCER

    def publishes(self, topic: str) -> bool:
        """Whether its settings say that it sends to the topic."""
        return self.is_producer and any(one.name == topic for one in self.settings.publishing.topics)

    def tell(self, command: Any) -> bool:
        """Send a command on its newest telemetry stream; False if it has none open, or reads none."""
        if not self.streams or self.streams[-1].full():
            return False
        self.streams[-1].put_nowait(command)
        return True


class Clients:
    """All clients. Used on one event loop."""

    def __init__(self) -> None:
        self._known: dict[str, Client] = {}
        self._lost: list[Callable[[Client, int], None]] = []
        self._checks: set[asyncio.TimerHandle] = set()

    def of(self, context: Any, *, makes: bool = True) -> Client:
        """The client that makes a call. One that is not known yet is known from now on, unless `makes` is False.

        Raises Refused, if it does not say which one it is, or there are too many.
        """
        name = client_id_of(context)
        if not name:
            raise Refused(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
        client = self._known.get(name)
        if client is None and not makes:
            return Client(name, asyncio.get_running_loop().time())
        if client is None:
            if len(self._known) >= MOST_CLIENTS:
                raise Refused(Code.TOO_MANY_REQUESTS, f"{MOST_CLIENTS} clients are known: call later")
            client = self._known[name] = Client(name, asyncio.get_running_loop().time())
            self._watch(client, QUIET_S)
        self.heard(client)
        return client

    def all(self) -> list[Client]:
        """All that are known."""
        return list(self._known.values())

    def heard(self, client: Client) -> None:
        """It is alive."""
        client.heard_s = asyncio.get_running_loop().time()

    def producer(self, topic: str, turn: int) -> Client | None:
        """The producer to ask at this turn, so that one that hangs is not asked alone: of those of the topic, or else
        of all; None if nobody can be asked."""
        # All of at most `MOST_CLIENTS`: only messages without an end are asked about, each after seconds.
        asked = [client for client in self._known.values() if client.streams and client.is_producer]
        asked = [client for client in asked if client.publishes(topic)] or asked
        return asked[turn % len(asked)] if asked else None

    def when_lost(self, call: Callable[[Client, int], None]) -> None:
        """Call this with each client whose connection has ended, and with how many streams it had opened by then. What
        it was given up to then may never have come to it."""
        self._lost.append(call)

    def ended_stream(self, client: Client, opened: int) -> None:
        """Its stream of this number has ended: if nothing else is open, it is gone soon. It may be back already."""
        self._loses(client, opened)
        if not client.streams:
            self._watch(client, GONE_S)

    @contextmanager
    def receiving(self, client: Client) -> Iterator[None]:
        """A receiving call of it is open. Its end is a sign of life, but not if it is cut."""
        client.calls += 1
        is_cut = False
        try:
            yield
        except asyncio.CancelledError:
            is_cut = True
            raise
        finally:
            client.calls -= 1
            if not is_cut:
                self.heard(client)
            elif not client.streams:  # else the end of its stream tells
                self._loses(client, client.opened)
                self._watch(client, GONE_S)

    def _loses(self, client: Client, opened: int) -> None:
        for call in self._lost:
            call(client, opened)

    def _watch(self, client: Client, after_s: float) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()

        def look() -> None:
            self._checks.discard(timer)
            if self._known.get(client.name) is not client:
                return
            quiet_s = loop.time() - client.heard_s
            is_open = client.streams or client.calls
            if (after_s == GONE_S and not is_open and client.heard_s < began_s) or (not is_open and quiet_s >= QUIET_S):
                self.leaves(client)
            elif after_s == QUIET_S:
                self._watch(client, QUIET_S)

        timer = loop.call_later(after_s, look)
        self._checks.add(timer)

    def leaves(self, client: Client) -> None:
        """A client has gone, or says that it ends: what it holds goes to others, and its open calls end."""
        if self._known.get(client.name) is client:
            del self._known[client.name]
        client.is_gone = True
        for limit in client.waits:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())
        self._loses(client, client.opened)

    def forget_held(self) -> None:
        """Nobody has a message any more: all are removed."""
        for client in self._known.values():
            client.held.clear()

    def close(self) -> None:
        """End all watching, and the streams of all clients."""
        for timer in self._checks:
            timer.cancel()
        self._checks.clear()
        for client in self._known.values():
            for stream in client.streams:
                while stream.full():
                    stream.get_nowait()
                stream.put_nowait(None)
