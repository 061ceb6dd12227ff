"""Transactions: half messages, their ends, and the question to the producer that has not ended one.

A half message lies in a topic of its own. The endpoint is its only consumer: it receives each at once, and keeps it
for as long as it waits for the end. So the visibility time-out of the store *is* the interval of the questions, a
message that comes again is asked about, and a restart begins by receiving what has no end yet. The commit appends the
message to its topic and acknowledges the half message by one transaction of the store: no crash does half of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, UserDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from stratalog import InvalidTopic, StaleReceipt, StoreClosed, StoreError, SubscriptionClosed

from ..wire import CLASSES, Code
from ..wire.codes import MessageType, Resolution
from .finishing import Finishing
from .naming import HALF_TOPIC, UNRESOLVED_TOPIC
from .statuses import OK, Refused
from .times import ms_of
from .translating import GROUP, HALF_OF, ID, RECOVERY_MS, TYPE, Stored, message_of

if TYPE_CHECKING:
    from stratalog import Delivery, MessageStore, Subscription

    from .clients import Client, Clients
    from .options import RocketMQOptions
    from .topics import Topics

CHECKER: Final = "RMQ_SYS_TRANS_CHECKER"
DAY_MS: Final = 86_400_000
FOUND_WITHIN_S: Final = 2.0  # a half message is received soon after it was stored, and after a start
MOST_HALVES: Final = 100_000  # without an end: with more, or more bytes, no transaction begins
MOST_HALF_BYTES: Final = 256 << 20
REMEMBERED: Final = 10_000  # ends of transactions, for clients that did not hear the answer
AGAIN_S: Final = 1.0  # after an error of the store
STARTED_S: Final = 1.0  # after its settings a producer has finished its start

_ENDED: Final = CLASSES["EndTransactionResponse"]
_COMMAND: Final = CLASSES["TelemetryCommand"]
_log = logging.getLogger("stratalog.endpoint")


@dataclass(slots=True)
class Half:
    """A half message that has no end yet.

    Attributes:
        delivery: its newest one.
        checks: how often a producer was asked since the start.
        is_overdue: nobody could be asked when it was time.
        ending: held by the call that ends it.
    """

    delivery: Delivery
    checks: int = 0
    is_overdue: bool = False
    ending: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def topic(self) -> str:
        """The topic of the message."""
        return (self.delivery.message.properties or {})[HALF_OF]


class Halves(UserDict[str, Half]):
    """The half messages that have no end yet, by id.

    Attributes:
        size_bytes: of their bodies, which are in memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.size_bytes = 0

    def __setitem__(self, name: str, half: Half) -> None:
        self.pop(name, None)
        self.size_bytes += len(half.delivery.message.data)
        super().__setitem__(name, half)

    def __delitem__(self, name: str) -> None:
        self.size_bytes -= len(self[name].delivery.message.data)
        super().__delitem__(name)


class Transactions:
    """All transactions of a store that have no end. Used on one event loop."""

    def __init__(self, store: MessageStore, options: RocketMQOptions, topics: Topics, clients: Clients) -> None:
        self._store = store
        self._options = options
        self._topics = topics
        self._clients = clients
        self._halves = Halves()
        self._ended: OrderedDict[str, int] = OrderedDict()
        self._came = asyncio.Condition()
        self._sub: Subscription | None = None
        self._checking: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._finishing = Finishing()

    async def start(self) -> None:
        """Take up what an earlier endpoint of the store has left. Without transactions nothing runs."""
        if self._store.queues(HALF_TOPIC):
            await self._open()

    async def _open(self) -> Subscription:
        async with self._opening:
            if self._sub is None or self._sub.closed:
                await self._store.configure_topic_async(HALF_TOPIC, queues=1, keep="unacknowledged")
                self._sub = await asyncio.to_thread(self._store.subscribe, HALF_TOPIC, CHECKER)
                self._halves.clear()  # it has receipts of its own, and receives all that have no end
                self._checking = asyncio.get_running_loop().create_task(self._check(self._sub))
            return self._sub

    async def close(self) -> None:
        """End the questions, after the ends that are under way. What has no end stays in the store."""
        await self._finishing.close()
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait([self._checking])
        if self._sub is not None:
            await asyncio.to_thread(self._sub.close)

    async def reset(self) -> None:
        """All transactions are removed, and nothing runs until the next one."""
        await self.close()
        self._sub = self._checking = None
        self._halves.clear()
        self._ended.clear()

    # -- calls --------------------------------------------------------------------------------------------

    async def begin(self, message: Any, stored: Stored) -> int:
        """Store a half message; its offset among the half messages, when it is durable. Raises Refused, if there are
        too many."""
        if len(self._halves) >= MOST_HALVES or self._halves.size_bytes > MOST_HALF_BYTES:
            raise Refused(Code.TOO_MANY_REQUESTS, "too many transactions have no end: end some, or call later")
        await self._open()
        properties = stored.properties | {HALF_OF: message.topic.name, TYPE: str(int(MessageType.TRANSACTION))}
        system = message.system_properties
        if system.HasField("orphaned_transaction_recovery_duration"):
            properties[RECOVERY_MS] = str(ms_of(system.orphaned_transaction_recovery_duration))
        return await self._store.append_async(
            HALF_TOPIC, 0, message.body, key=stored.key, properties=properties,
            message_id=stored.message_id if self._options.deduplicate else None,
        )  # fmt: skip

    async def end_transaction(self, request: Any, context: Any) -> Any:
        """Commit or roll back. Durable when it is answered; the same end again is no error."""
        if self._sub is not None and self._sub.closed:
            await self._open()
        name, resolution = request.transaction_id or request.message_id, request.resolution
        if not name:
            raise Refused(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        if resolution not in (Resolution.COMMIT, Resolution.ROLLBACK):
            raise Refused(Code.BAD_REQUEST, "transaction resolution is commit or rollback")
        half = await self._find(name)
        if half is not None:
            await self._finishing.run(self._end(name, half, resolution))
        if self._ended.get(name) != resolution:
            raise Refused(Code.INVALID_TRANSACTION_ID, f"there is no transaction {name} to end")
        return _ENDED(status=OK)

    async def _find(self, name: str) -> Half | None:
        """The half message of a transaction, which the endpoint may have to receive first."""
        if name not in self._halves and name not in self._ended and self._sub is not None:
            try:
                async with asyncio.timeout(FOUND_WITHIN_S), self._came:
                    await self._came.wait_for(lambda: name in self._halves or name in self._ended)
            except TimeoutError:
                return None
        return self._halves.get(name)

    async def _end(self, name: str, half: Half, resolution: int) -> None:
        """End a transaction that has no end yet. If it has none afterwards, there is no transaction of this name."""
        async with half.ending:
            while name not in self._ended:
                delivery = half.delivery
                try:
                    if resolution == Resolution.COMMIT:
                        await self._move(delivery, half.topic)
                    elif self._sub is not None:
                        await self._sub.ack_async(delivery)
                except StaleReceipt:  # it was time to ask, and it is on its way here again
                    if await self._comes_again(half, delivery):
                        continue
                    self._forget(name, half)  # somebody else has taken it out of the store
                    return
                self._forget(name, half)
                self._ended[name] = resolution
                if len(self._ended) > REMEMBERED:
                    self._ended.popitem(last=False)

    async def _comes_again(self, half: Half, delivery: Delivery) -> bool:
        try:
            async with asyncio.timeout(FOUND_WITHIN_S), self._came:
                await self._came.wait_for(lambda: half.delivery is not delivery)
        except TimeoutError:
            return False
        return True

    def _forget(self, name: str, half: Half) -> None:
        if self._halves.get(name) is half:
            del self._halves[name]

    async def _move(self, delivery: Delivery, topic: str) -> None:
        """Append the message of a half message, and acknowledge the half message, at once."""
        message = delivery.message
        properties = dict(message.properties or {})
        del properties[HALF_OF]
        properties.pop(RECOVERY_MS, None)
        queues = await self._topics.queues_of(topic)
        try:
            async with self._store.transaction() as tx:
                tx.append(
                    topic, self._topics.queue_for(queues, properties.get(GROUP, "")), message.data, key=message.key,
                    properties=properties, message_id=properties[ID] if self._options.deduplicate else None,
                )  # fmt: skip
                tx.ack(delivery)
        except InvalidTopic:  # the program has made the topic anew, with other queues
            self._topics.forget(topic)
            raise

    # -- questions ----------------------------------------------------------------------------------------

    async def _check(self, sub: Subscription) -> None:
        """Receive half messages, and ask about those that come again."""
        while True:
            try:
                got = await sub.receive_async(64, DAY_MS, self._options.check_first_ms)
                for delivery in got:
                    self._note(delivery)
                async with self._came:
                    self._came.notify_all()
                await asyncio.gather(*(self._keep_or_ask(sub, delivery) for delivery in got))
            except (SubscriptionClosed, StoreClosed):  # the end, or somebody has deleted it: the next one begins anew
                if self._sub is sub:
                    self._halves.clear()
                    self._sub = None
                return
            except StoreError:
                _log.exception("half messages could not be received, and are tried again")
                await asyncio.sleep(AGAIN_S)

    def _note(self, delivery: Delivery) -> None:
        properties = delivery.message.properties or {}
        name = properties.get(ID, "")
        if name in self._halves:
            self._halves[name].delivery = delivery
        elif name not in self._ended and HALF_OF in properties:
            self._halves[name] = Half(delivery)

    async def _keep_or_ask(self, sub: Subscription, delivery: Delivery) -> None:
        """Wait for its end, or ask for it if that was long enough. After an error it comes again by itself."""
        properties = delivery.message.properties or {}
        half = self._halves.get(properties.get(ID, ""))
        try:
            if half is None or half.delivery is not delivery:  # stored twice, or nothing of ours
                await sub.ack_async(delivery)
            elif delivery.attempt > 1:
                await self._ask(sub, properties[ID], half)
            elif RECOVERY_MS in properties:
                await sub.extend_async(delivery, max(1, int(properties[RECOVERY_MS])))
        except (StaleReceipt, SubscriptionClosed, StoreClosed):  # it was ended meanwhile, or all has ended
            pass
        except Exception:
            _log.exception("a half message could not be kept or moved, and is tried again")

    async def _ask(self, sub: Subscription, name: str, half: Half) -> None:
        if half.checks >= self._options.max_checks:
            _log.warning("transaction %s of %s has no end: its message is in %s", name, half.topic, UNRESOLVED_TOPIC)
            await self._move(half.delivery, UNRESOLVED_TOPIC)
            self._halves.pop(name, None)
            return
        await sub.extend_async(half.delivery, self._options.check_interval_ms)
        asked = self._clients.producer(half.topic, half.delivery.message.offset + half.checks)
        half.is_overdue = asked is None
        if asked is not None:
            self._tell(asked, name, half)

    def _tell(self, client: Client, name: str, half: Half) -> None:
        command = _COMMAND()
        question = command.recover_orphaned_transaction_command
        question.transaction_id = name
        question.message.CopyFrom(message_of(half.delivery.message))
        question.message.topic.name = half.topic
        if client.tell(command):
            half.checks += 1

    def producer_came(self, client: Client) -> None:
        """Ask a producer that has come about what nobody could be asked about before. Not at once: a client that has
        not finished its start refuses the question."""
        # All halves, of which there are at most `MOST_HALVES`: once for each settings of a client.
        if any(half.is_overdue and client.publishes(half.topic) for half in self._halves.values()):
            asyncio.get_running_loop().call_later(STARTED_S, self._ask_overdue, client)

    def _ask_overdue(self, client: Client) -> None:
        for name, half in self._halves.items():
            if half.is_overdue and client.publishes(half.topic):
                half.is_overdue = False
                self._tell(client, name, half)
