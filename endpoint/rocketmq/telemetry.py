"""Telemetry, Heartbeat and NotifyClientTermination: a client comes, stays and goes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

from ..server.calls import Refusal
from ..wire import CLASSES, Code
from ..wire.codes import Language
from .settings import answer_to
from .statuses import OK, Refused, status_of

if TYPE_CHECKING:
    from .clients import Client, Clients
    from .options import RocketMQOptions

ROUTES_S: Final = 3.0
SOON_S: Final = 0.02
MOST_WAITING: Final = 16  # commands of a stream that its client has not read: with more, it is not read on
MOST_SETTINGS_BYTES: Final = 64 << 10

_COMMAND: Final = CLASSES["TelemetryCommand"]
_HEARD: Final = CLASSES["HeartbeatResponse"]
_ENDED: Final = CLASSES["NotifyClientTerminationResponse"]
_log = logging.getLogger("stratalog.endpoint")


class Telemetry:
    """Answers settings, and passes on what the server wants to tell its clients."""

    def __init__(self, clients: Clients, options: RocketMQOptions, came: Callable[[Client], None]) -> None:
        """`came` is called with a client whose settings came."""
        self._clients = clients
        self._options = options
        self._came = came

    async def telemetry(self, requests: AsyncIterator[Any], context: Any) -> None:
        """One stream: commands of both sides, until one of them ends it."""
        client = self._clients.of(context)
        outgoing: asyncio.Queue[Any] = asyncio.Queue(MOST_WAITING)
        client.streams.append(outgoing)
        client.opened = number = client.opened + 1
        reader = asyncio.ensure_future(self._read(requests, client, outgoing))
        try:
            while (command := await outgoing.get()) is not None:
                if isinstance(command, Refusal):
                    raise command
                await context.write(command)
        finally:
            reader.cancel()
            client.streams.remove(outgoing)
            self._clients.ended_stream(client, number)

    async def _read(self, requests: AsyncIterator[Any], client: Client, outgoing: asyncio.Queue[Any]) -> None:
        end: Refusal | None = None
        try:
            async for command in requests:
                self._clients.heard(client)
                if command.WhichOneof("command") == "settings":
                    await outgoing.put(await self._answer(client, command.settings))
        except Refusal as error:  # what came is no command: the client hears so
            end = error
        except Exception as error:
            _log.debug("a telemetry stream has ended: %r", error)
        await outgoing.put(end)

    async def _answer(self, client: Client, given: Any) -> Any:
        try:
            if given.ByteSize() > MOST_SETTINGS_BYTES:
                raise Refused(Code.BAD_REQUEST, f"settings have at most {MOST_SETTINGS_BYTES} bytes")
            if given.user_agent.language == Language.NODE_JS:
                await _routes_of(client, given)
            answer = _COMMAND(status=OK, settings=answer_to(given, self._options))
        except Exception as error:
            return _COMMAND(status=status_of(error))
        client.settings = given
        self._came(client)
        return answer

    async def heartbeat(self, request: Any, context: Any) -> Any:
        """The client is alive. One without settings is, too."""
        self._clients.of(context)
        return _HEARD(status=OK)

    async def terminate(self, request: Any, context: Any) -> Any:
        """The client ends: what it holds goes to others at once."""
        self._clients.leaves(self._clients.of(context, makes=False))
        return _ENDED(status=OK)


async def _routes_of(client: Client, settings: Any) -> None:
    """Wait until the client has asked for the routes of all its topics, for at most 3 s.

    Node's client asks for them one after the other, and sends its settings after the first one. It hears the answer
    only after the last one: if it comes sooner, the client waits for it for ever.
    """
    topics = {one.name for one in settings.publishing.topics}
    topics |= {one.topic.name for one in settings.subscription.subscriptions}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ROUTES_S), client.routes:
            await client.routes.wait_for(lambda: topics <= client.routed)
    await asyncio.sleep(SOON_S)  # the client takes up the last answer
