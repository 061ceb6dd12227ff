"""The calls of a connection on the store itself: reads, topics, delays, transactions and what else it has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sized
from typing import Any, TypeVar

import numpy as np

from stratalog import MessageStore, SubscriptionInfo, TopicSettings

from ..columns import Columns, batch_out, messages_out
from ..frames import BrokenFrame, Frame
from ..messages import properties_in
from ..values import delivery_of, from_json, to_json
from .appends import Aside, given_aside
from .gate import READ_BYTES, WAITING_BYTES, Gate, capped, waits
from .holdings import Holdings

S = TypeVar("S", bound=Sized)
PLACE = {"topic", "queue_id", "offset", "wait_ms"}
AT_ONCE = 1024  # messages of a transaction that are handed over in one step of the loop

COROUTINES = {
    "flush": "flush_async", "trim": "trim_async", "delete_topic": "delete_topic_async",
    "configure_topic": "configure_topic_async", "cancel_delayed": "cancel_delayed_async",
    "reschedule_delayed": "reschedule_delayed_async", "redrive": "redrive_async",
}  # fmt: skip
CALLS = {
    "queue_bounds", "offset_at", "topics", "queues", "topic_settings", "subscriptions", "delete_subscription", "stats",
    "metrics", "attach_pending",
}  # fmt: skip
SETTINGS = TopicSettings.__slots__


class StoreCalls:
    """Makes calls on the store, and answers with their results as frames."""

    def __init__(self, store: MessageStore, aside: Aside, holdings: Holdings, gate: Gate) -> None:
        self._gate = gate
        self._store = store
        self._aside = aside
        self._holdings = holdings

    async def call(self, frame: Frame) -> Columns:
        """A call whose arguments and result are plain values."""
        name, arguments = frame.header["name"], from_json(frame.header["arguments"])
        if name in COROUTINES:
            found = await getattr(self._store, COROUTINES[name])(**arguments)
        elif name in CALLS:
            found = await self._aside(lambda: getattr(self._store, name)(**arguments))
        else:
            raise BrokenFrame(f"a store has no call {name!r}")
        if isinstance(found, TopicSettings):
            found = {field: getattr(found, field) for field in SETTINGS}
        elif name == "subscriptions":
            found = [_info_out(one) for one in found]
        return Columns({"value": to_json(found)}, [])

    async def read(self, frame: Frame) -> Columns:
        """The messages of `read`."""
        messages = await self._read(self._store.read_async, from_json(frame.header["arguments"]))
        return messages_out(messages) if messages else Columns({}, [])

    async def read_batch(self, frame: Frame) -> Columns:
        """The messages of `read_batch`."""
        return batch_out(await self._read(self._store.read_batch_async, from_json(frame.header["arguments"])))

    async def _read(self, make: Callable[..., Awaitable[S]], given: Mapping[str, Any]) -> S:
        """Messages of a queue. While the call waits it has none of them, so it need not pass the gate."""
        arguments = capped(given, READ_BYTES)
        if not waits(arguments) or arguments.get("max_messages") == 0:
            return await self._gate.read(lambda: make(**arguments))
        if arguments.get("min_messages", 1) != 1 or arguments.get("min_bytes", 0) != 0:
            return await make(**capped(arguments, WAITING_BYTES))
        now = {**arguments, "wait_ms": 0}
        found = await self._gate.read(lambda: make(**now))
        if not len(found):
            where = {name: arguments[name] for name in PLACE & arguments.keys()}
            if await self._store.read_async(**where, max_messages=1, max_bytes=1):
                found = await self._gate.read(lambda: make(**now))
        return found

    async def get_range(self, frame: Frame) -> Columns:
        """The payloads of `get_range`."""
        arguments = from_json(frame.header["arguments"])
        found = await self._gate.read(lambda: self._aside(lambda: self._store.get_range(**arguments)))
        numbers = np.array(list(found), np.int64)
        lengths = np.array([len(data) for data in found.values()], np.int64)
        return Columns({}, [numbers, lengths, b"".join(found.values())])

    async def transaction(self, frame: Frame) -> Columns:
        """All of a transaction at once: its messages and its acknowledgements."""
        rows = await given_aside(self._aside, frame)
        async with self._store.transaction() as tx:
            for at, one in enumerate(rows):
                if not at % AT_ONCE:
                    await asyncio.sleep(0)  # other calls have their turn
                tx.append(
                    one.topic, one.queue_id, one.data, deliver_at_ms=one.deliver_at_ms, key=one.key,
                    properties=properties_in(one.properties), queues=one.queues, message_id=one.message_id,
                )  # fmt: skip
            for topic, name, receipt in from_json(frame.header["deliveries"]):
                tx.ack(delivery_of(topic, receipt, name))
            for number, receipt in from_json(frame.header["receipts"]):
                tx.ack(receipt, await self._holdings.opened(int(number)))
        return Columns({}, [tx.offsets])


def _info_out(info: SubscriptionInfo) -> dict[str, Any]:
    """A row of `subscriptions`, its settings as the JSON that the store itself keeps."""
    return {**info._asdict(), "settings": info.settings.pack().decode()}
