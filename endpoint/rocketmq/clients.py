"""The clients that are known: their settings, their streams, and the messages that their push consumers hold."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from ..wire import Code
from ..wire.codes import ClientType
from .statuses import Refused

if TYPE_CHECKING:
    from stratalog import Delivery

    from .groups import Group

GONE_S: Final = 1.0  # after its last stream has ended, a client without an open call is gone
QUIET_S: Final = 40.0  # a client that has said nothing for so long is gone: heartbeats come each 10 s

MOST_CLIENTS: Final = 10_000  # that are known at a time

_log = logging.getLogger("stratalog.endpoint")


class Client:
    """One client, by the id that it gives itself.

    Attributes:
        settings: its newest ones; None before they came.
        streams: for each of its telemetry streams the commands that wait to be sent.
        calls: how many receiving calls of it are open.
        heard_s: when it called last, by the loop's clock.
        held: by receipt what its push consumers have, with the group.
        routed: the topics whose routes it has asked for; `routes` tells of each.
    """

    def __init__(self, name: str, now_s: float) -> None:
        self.name = name
        self.settings: Any = None
        self.streams: list[asyncio.Queue[Any]] = []
        self.calls = 0
        self.heard_s = now_s
        self.held: dict[tuple[Group, int], Delivery] = {}
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
        self._gone: list[Callable[[Client], None]] = []
        self._checks: set[asyncio.TimerHandle] = set()

    def of(self, context: Any, *, makes: bool = True) -> Client:
        """The client that makes a call. One that is not known yet is known from now on, unless `makes` is False.

        Raises Refused, if it does not say which one it is, or there are too many.
        """
        for key, value in context.invocation_metadata() or ():
            if key == "x-mq-client-id" and value:
                client = self._known.get(value)
                if client is None and not makes:
                    return Client(value, asyncio.get_running_loop().time())
                if client is None:
                    if len(self._known) >= MOST_CLIENTS:
                        raise Refused(Code.TOO_MANY_REQUESTS, f"{MOST_CLIENTS} clients are known: call later")
                    client = self._known[value] = Client(value, asyncio.get_running_loop().time())
                    self._watch(client, QUIET_S)
                self.heard(client)
                return client
        raise Refused(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")

    def all(self) -> list[Client]:
        """All that are known."""
        return list(self._known.values())

    def heard(self, client: Client) -> None:
        """It is alive."""
        client.heard_s = asyncio.get_running_loop().time()

    def producers(self, topic: str) -> Iterable[Client]:
        """The producers that can be asked, those of the topic first."""
        asked = [client for client in self._known.values() if client.is_producer and client.streams]
        return sorted(asked, key=lambda client: not client.publishes(topic))

    def when_gone(self, call: Callable[[Client], None]) -> None:
        """Call this with each client that has gone."""
        self._gone.append(call)

    def ended_stream(self, client: Client) -> None:
        """One of its streams has ended: if nothing else is open, it is gone soon."""
        if not client.streams:
            self._watch(client, GONE_S)

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
        """A client has gone, or says that it ends: what it holds goes to others."""
        if self._known.get(client.name) is client:
            del self._known[client.name]
        for call in self._gone:
            call(client)

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
