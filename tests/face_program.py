"""A program of a user, with types, over all modules of the face."""

from __future__ import annotations

from stratalog import (
    Message,
    MessageBatch,
    MessageStore,
    Stats,
    StoreConfig,
    StoreReader,
    Subscription,
    Ticket,
    connect,
)
from stratalog.bulk import ShardWriter, commit_shards
from stratalog.plans import ScanFilter, plan_scan, read_part
from stratalog.telemetry import observe
from stratalog.testing import SimulatedDisk, VirtualClock
from stratalog.tools import VerifyReport, verify_folder


def write(path: str) -> int:
    """Some messages; a number of bytes and offsets."""
    with MessageStore.open(path, StoreConfig(lanes=2)) as store:
        offset: int = store.append("orders", 3, b"one", key=b"k", properties={"a": "b"})
        ticket = store.submit("orders", 3, b"two", message_id="o-17")
        assert not ticket.is_repeat
        assert store.append_batch([("orders", 3, b"again")], message_ids=["o-17"]).tolist() == [ticket.result()]
        sub: Subscription = store.subscribe("orders", "billing")
        delivery = next(iter(sub))
        message: Message = delivery.message
        sub.nack(delivery, reason="late")
        sub.ack_batch(sub.receive())
        sub.change(filter="tag = 'paid'")
        sub.change(filter={"tag": {"paid"}}, precision_ms=5)
        sub.change(filter=None, backoff_ms=[1000, 5000])
        both = store.subscribe(["orders", "bills"], "office", filter="price > 5")
        both.ack_batch(both.receive(topic="orders", queue_id=3))
        ends: dict[tuple[str, int], int] = {place: at.next_offset for place, at in both.positions().items()}
        assert ends["orders", 3] == 2 and sub.receive(queue_id=99) == []
        sent: int = store.redrive("failed", max_messages=3)
        settings = store.configure_topic("orders", queues=8, keep="unacknowledged", retention_bytes=1 << 30)
        assert settings.keep == "unacknowledged" and settings.retention_bytes == 1 << 30
        settings = store.configure_topic("failed", retention_ms=settings.queues, ttl_ms=60_000)
        expired: int = store.subscriptions("orders")[0].expired
        assert settings.ttl_ms == 60_000 and not expired
        store.configure_topic("bills", id_window_ms=60_000, id_window_count=1000)
        types: tuple[str, ...] | None = store.configure_topic("lines", types=["fifo", "delay"]).types
        assert types == ("fifo", "delay")
        lost: int = store.subscriptions("orders")[0].removed_unacknowledged
        assert not lost
        figures: Stats = store.stats()
        text: str = store.metrics()
        assert text.startswith("# HELP stratalog_")
        observe(store)
        written: int = figures["log"]["written_bytes"]
        return offset + ticket.result() + written + len(message.data) + sent


def look(path: str) -> list[bytes]:
    """What a reader sees, however it is opened."""
    with MessageStore.open(path, read_only=True) as reader, StoreReader.open(path) as other:
        both: tuple[StoreReader, StoreReader] = reader, other
        batch: MessageBatch = both[0].read_batch("orders", 3, wait_ms=10)
        assert all(len(found) for found in other.scan(ScanFilter(topics=("orders",)), filter="price > 5"))
        is_current: bool = other.stats()["live"]["current"]
        report: VerifyReport = verify_folder(path)
        assert is_current or report.ok
        return [bytes(data) for data in batch.payloads()]


def far(address: str) -> int:
    """The number of messages of a store that another process serves, after some."""
    with connect(address) as remote:
        ticket: Ticket = remote.submit("orders", 3, b"one", message_id="o-17")
        offset: int = ticket.result()
        batch: MessageBatch = remote.read_batch("orders", 3, offset)
        with remote.subscribe("orders", "billing", filter="price > 5") as sub, remote.transaction() as tx:
            for delivery in sub.receive():
                message: Message = delivery.message
                tx.append("bills", 0, message.data)
                tx.ack(delivery)
        both = remote.subscribe(["orders", "bills"], "office")
        both.ack_batch(both.receive_batch(topic="bills").receipts)
        figures: Stats = remote.stats()
        assert not figures["poisoned"]
        return len(batch)


async def work(path: str) -> int:
    """The offset of the first message of a store in memory."""
    clock = VirtualClock(start_ms=1_000)
    now_ms: int = clock.advance(ms=5) + clock.jump_wall(ms=-5)
    assert now_ms == 2_005 and clock.wall_ms() == 1_000
    async with MessageStore.open(path, disk=SimulatedDisk(), clock=clock) as store:
        await store.append_async("orders", 3, b"x")
        await store.flush_async()
        other = store.subscribe("orders", "other", filter="key IS NULL")
        await other.change_async(filter="key = 'k' OR TRUE")
        await other.change_async(backoff_ms={"first_ms": 10, "factor": 1.5, "most_ms": 99})
        assert await store.redrive_async("failed", queue_id=0) == 0
        found = store.subscribe(pattern="ord*", name="found")
        assert [one.message.topic for one in await found.receive_async(wait_ms=1)] == ["orders"]
        async for delivery in other:
            async with store.transaction() as tx:
                tx.append("bills", 0, b"bill", key=b"k")
                tx.ack(delivery)
            with store.transaction() as second:
                second.append_batch([("bills", 0, b"bill")])
            bills: int = len(tx.offsets) + len(second.offsets)
            return delivery.message.offset + bills - 2
    raise AssertionError("the loop ends with the store")


def plan(path: str) -> int:
    """How many messages a plan of the topic gives."""
    with ShardWriter(path) as writer:
        commit_shards(path, writer.finish(), name="load")
    parts = plan_scan(path, ScanFilter(topics=("orders",))).parts
    return sum(len(batch) for part in parts for batch in read_part(part))


def mistake(path: str) -> None:
    """A reader appends nothing, and its type says so: without the remark the line would be an error."""
    with MessageStore.open(path, read_only=True) as reader:
        reader.append("t", 0, b"x")  # type: ignore[attr-defined]
