"""ReceiveMessage: messages of a group, at once or as soon as there are some."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final

import grpc

from stratalog import SubscriptionClosed

from ..wire import CLASSES, Code
from .filters import filter_of
from .groups import Receipt
from .statuses import OK, Refused, Status
from .times import LONGEST_MS, ms_of, set_ms
from .translating import received

if TYPE_CHECKING:
    from stratalog import Delivery

    from .clients import Client, Clients
    from .groups import Group, Groups
    from .options import RocketMQOptions

_ANSWER: Final = CLASSES["ReceiveMessageResponse"]
_FOUND: Final = _ANSWER(status=OK)
_NOTHING: Final = _ANSWER(status=Status(code=Code.MESSAGE_NOT_FOUND, message="no new message"))

MOST_MESSAGES: Final = 1024
HELD_MS: Final = 3 * 3_600_000  # what a push consumer has is its own for so long, while it is there
LONGEST_WAIT_MS: Final = 3_600_000  # then the client asks again
EARLIER_S: Final = 0.2  # an answer is on its way so long before the client's deadline
LATER_S: Final = 0.05  # a wait by the store's clock, which a test may have stopped, ends so long after its time
BROKEN_MS: Final = 10_000  # a message that no client can be told is tried again so much later
LEAST_S: Final = 1.0  # a look that does not wait is not cut short, however busy the machine is

_log = logging.getLogger("stratalog.endpoint")


class Receiving:
    """Gives messages to consumers."""

    def __init__(self, groups: Groups, clients: Clients, options: RocketMQOptions) -> None:
        self._groups = groups
        self._clients = clients
        self._options = options
        self._returns: set[asyncio.Task[None]] = set()
        clients.when_lost(self._give_back_all)

    async def receive_message(self, request: Any, context: Any) -> None:
        """A status; then the messages, and the time at which they were given out."""
        client = self._clients.of(context)
        with self._clients.receiving(client):
            opened = client.opened
            group, got, invisible_ms = await self._receive(client, request, context)
            if client.is_gone:
                self._give_back(client, group, [delivery.receipt for delivery in got])
                got = []
            elif request.auto_renew:
                client.held.update(((group, delivery.receipt), opened) for delivery in got)
                context.add_done_callback(lambda *_: self._ended(client, group, got, context))
            await self._tell(client, group, got, invisible_ms, context)

    async def _tell(
        self, client: Client, group: Group, got: list[Delivery], invisible_ms: int, context: Any
    ) -> None:  # fmt: skip
        """Write the answer. What the client does not hear is given back."""
        settled, is_found = 0, False
        try:
            for delivery in got:
                answer = self._answer(client, group, delivery, invisible_ms)
                if answer is not None:
                    if not is_found:
                        is_found = True
                        await context.write(_FOUND)
                    await context.write(answer)
                settled += 1
            if not is_found:
                await context.write(_NOTHING)
                return
            now = _ANSWER()
            set_ms(now.delivery_timestamp, time.time_ns() // 1_000_000)
            await context.write(now)
        finally:
            if settled < len(got):  # the client has gone: it does not know of these
                self._give_back(client, group, [delivery.receipt for delivery in got[settled:]])

    def _ended(self, client: Client, group: Group, got: list[Delivery], context: Any) -> None:
        """The call of a push consumer has ended: what it was given comes again if the call could not give it."""
        if got and (context.cancelled() or context.code() not in (None, 0, grpc.StatusCode.OK)):
            self._give_back(client, group, [delivery.receipt for delivery in got])

    def _answer(self, client: Client, group: Group, delivery: Delivery, invisible_ms: int) -> Any:
        """What the client is told of a message; None for one that it cannot be told, which comes again later."""
        message = delivery.message
        try:
            return received(message, Receipt.of(delivery).pack(), delivery.attempt, invisible_ms)
        except Exception:
            place = f"{message.topic}/{message.queue_id}/{message.offset}"
            _log.exception("message %s cannot be given to clients, and is tried again later", place)
            self._give_back(client, group, [delivery.receipt], BROKEN_MS)
            return None

    async def _receive(self, client: Client, request: Any, context: Any) -> tuple[Group, list[Delivery], int]:
        invisible_ms = HELD_MS if request.auto_renew else ms_of(request.invisible_duration)
        if not 0 < invisible_ms <= LONGEST_MS:
            raise Refused(Code.ILLEGAL_INVISIBLE_TIME, f"the invisible time is 1 ms to {LONGEST_MS} ms")
        group = await self._groups.group(
            request.message_queue.topic.name, request.group.name, filter_of(request.filter_expression)
        )
        size = min(max(1, request.batch_size), MOST_MESSAGES)
        left_s = context.time_remaining()
        got = await self._wait(client, group, size, invisible_ms, self._wait_ms(request), left_s)
        return group, got, invisible_ms

    def _wait_ms(self, request: Any) -> int:
        if request.HasField("long_polling_timeout"):
            return min(max(0, ms_of(request.long_polling_timeout)), LONGEST_WAIT_MS)
        return self._options.long_polling_ms

    async def _wait(
        self, client: Client, group: Group, size: int, invisible_ms: int, wait_ms: int, left_s: float | None
    ) -> list[Delivery]:  # fmt: skip
        """Wait by the store's clock, as a test may move that, and by the machine's: the client waits by its own."""
        most_s = max(wait_ms / 1000 + LATER_S, LEAST_S)
        if left_s is not None:
            most_s = min(most_s, max(left_s - EARLIER_S, left_s / 2))
        if client.is_gone:
            return []
        try:
            async with asyncio.timeout(most_s) as limit:
                client.waits.add(limit)
                return await group.sub.receive_async(size, wait_ms, invisible_ms)
        except (TimeoutError, SubscriptionClosed):  # deleted, or closed: the client asks again, and it is made again
            return []
        finally:
            client.waits.discard(limit)

    # -- what a consumer that has gone had ----------------------------------------------------------------

    def _give_back_all(self, client: Client, opened: int) -> None:
        """What it asked for before it opened a later stream than this one."""
        receipts: dict[Group, list[int]] = {}
        for (group, receipt), began in client.held.items():
            if began <= opened:
                receipts.setdefault(group, []).append(receipt)
        for group, numbers in receipts.items():
            self._give_back(client, group, numbers)

    def _give_back(self, client: Client, group: Group, receipts: list[int], delay_ms: int = 0) -> None:
        """They come again, also for other consumers. In a thread: the call may wait for others."""
        for receipt in receipts:
            client.held.pop((group, receipt), None)
        task = asyncio.get_running_loop().create_task(asyncio.to_thread(_nack_each, group, receipts, delay_ms))
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)

    async def close(self) -> None:
        """Wait for what is given back."""
        if self._returns:
            await asyncio.wait(self._returns)


def _nack_each(group: Group, receipts: list[int], delay_ms: int) -> None:
    for receipt in receipts:  # one by one: those that are stale hold up no others
        try:
            group.sub.nack(receipt, delay_ms)
        except Exception:  # stale, or the end: it comes again, or it need not
            continue
