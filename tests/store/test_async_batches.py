"""`append_batch_async`: the offsets of `append_batch`, in order, without a thread; at the cap, cancelled, failed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import (
    InvalidMessage,
    MessageStore,
    MessageTooLarge,
    PublishBufferFull,
    StoreClosed,
    StorePoisoned,
)
from stratalog.store.api.batches import AsyncBatch
from stratalog.store.api.id_batch import answer_of
from stratalog.store.log.request import Barrier

from .disks import FailingDisk, GatedDisk
from .helpers import KIB, PATIENCE_S, contents, tiny
from .interrupts import Interrupted, interrupt_at, places

CAP = 5000
Rows = list[tuple[str, int, bytes]]


@pytest.fixture
def store(tmp_path: Path, disk: GatedDisk) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, tiny(lanes=3), disk=disk) as opened:
        yield opened
        disk.gate.set()


def rows(count: int, size: int = 20, queues: int = 5) -> Rows:
    return [("t", number % queues, b"%d" % number + bytes(size)) for number in range(count)]


@pytest.mark.parametrize("size", [0, 3000])
@pytest.mark.parametrize("lanes", [1, 3])
def test_it_gives_what_append_batch_gives(tmp_path: Path, lanes: int, size: int) -> None:
    batch = rows(200, size)  # with the larger ones, of several groups a lane
    stores = [MessageStore.open(tmp_path / name, tiny(lanes=lanes)) for name in ("a", "b")]

    async def main() -> list[np.ndarray]:
        return [await stores[0].append_batch_async(batch), await stores[0].append_batch_async(iter(batch))]

    queues = [("t", queue) for queue in range(5)]
    found, expected = asyncio.run(main()), [stores[1].append_batch(batch) for _ in range(2)]
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == np.int64 and one.tolist() == other.tolist()
    assert contents(stores[0], queues) == contents(stores[1], queues)
    for store in stores:
        store.close()


def test_call_hands_over_in_the_order_of_all_appends(store: MessageStore, disk: GatedDisk) -> None:
    async def main() -> None:
        disk.gate.clear()
        futures: list[Any] = [
            store.append_batch_async([("t", 0, b"0"), ("t", 0, b"1")]),
            store.append_async("t", 0, b"2"),
            store.append_batch_async([("t", 0, b"3")]),
        ]
        ticket = store.submit("t", 0, b"4")
        assert not any(future.done() for future in futures)
        disk.gate.set()
        found = [np.atleast_1d(offsets).tolist() for offsets in await asyncio.gather(*futures)]
        assert found == [[0, 1], [2], [3]]
        assert await ticket == 4

    asyncio.run(main())
    assert [message.data for message in store.read("t", 0)] == [b"0", b"1", b"2", b"3", b"4"]


def test_empty_batch_is_nothing(store: MessageStore) -> None:
    async def main() -> np.ndarray:
        return await store.append_batch_async([])

    found = asyncio.run(main())
    assert found.dtype == np.int64 and found.tolist() == []
    store.close()
    with pytest.raises(StoreClosed):
        asyncio.run(main())


def test_wrong_row_is_raised_by_the_call_and_nothing_is_stored(store: MessageStore) -> None:
    async def main() -> None:
        with pytest.raises(MessageTooLarge, match=r"^row 1: ") as refused:
            store.append_batch_async([("t", 0, b"x"), ("t", 0, bytes(1 << 20))])
        assert refused.value.row == 1
        with pytest.raises(InvalidMessage):
            store.append_batch_async(b"rows")  # type: ignore[arg-type]  # wrong on purpose

    asyncio.run(main())
    assert store.topics() == []


def test_outside_a_loop_it_is_refused_and_nothing_is_stored(store: MessageStore) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        store.append_batch_async(rows(3))
    store.flush()
    assert store.topics() == []


def full_store(path: Path, disk: GatedDisk, timeout_ms: int) -> MessageStore:
    """A store at its cap: nothing passes the gate."""
    store = MessageStore.open(path, tiny(publish_buffer_bytes=CAP, append_timeout_ms=timeout_ms), disk=disk)
    store.append("t", 0, b"first")
    disk.gate.clear()
    for _ in range(CAP // 1000):
        store.submit("t", 0, bytes(1000))
    return store


def test_at_the_cap_it_waits_and_the_loop_turns(tmp_path: Path, disk: GatedDisk) -> None:
    store = full_store(tmp_path, disk, 30_000)

    async def main() -> list[int]:
        future = store.append_batch_async([("t", 0, bytes(1000))] * 3)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not future.done()
        disk.gate.set()
        return list((await future).tolist())

    assert asyncio.run(main()) == [6, 7, 8]
    store.close()


def test_at_the_cap_it_gives_up_when_its_time_is_up(tmp_path: Path, disk: GatedDisk) -> None:
    store = full_store(tmp_path, disk, 50)

    async def main() -> None:
        with pytest.raises(PublishBufferFull):
            await store.append_batch_async([("t", 0, bytes(1000))])

    asyncio.run(main())
    assert not store._queues[0]._line
    disk.gate.set()
    store.close()


def test_cancelled_batch_leaves_the_line(tmp_path: Path, disk: GatedDisk) -> None:
    store = full_store(tmp_path, disk, 30_000)

    async def main() -> None:
        future = store.append_batch_async([("t", 0, bytes(1000))])
        assert len(store._queues[0]._line) == 1
        future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        await asyncio.sleep(0)
        assert not store._queues[0]._line

    asyncio.run(main())
    disk.gate.set()
    store.close()


@pytest.mark.parametrize("cancelled", [False, True])
def test_batch_that_leaves_the_line_lets_none_of_its_own_messages_in(
    tmp_path: Path, disk: GatedDisk, cancelled: bool
) -> None:
    """There is room for its last group, once the one in front of it is gone."""
    config = tiny(publish_buffer_bytes=64 * KIB, append_timeout_ms=30_000 if cancelled else 50)
    store = MessageStore.open(tmp_path, config, disk=disk)

    async def main() -> None:
        disk.gate.clear()
        store.submit("t", 0, bytes(40 * KIB))
        future = store.append_batch_async([("t", 0, bytes(60 * KIB)), ("t", 0, bytes(10 * KIB))])
        if cancelled:
            future.cancel()
        with pytest.raises(asyncio.CancelledError if cancelled else PublishBufferFull):
            await future
        await asyncio.sleep(0)
        assert not store._queues[0]._line

    try:
        asyncio.run(main())
    finally:
        disk.gate.set()
    store.flush()
    assert store.queue_bounds("t", 0) == (0, 1)
    store.close()


def test_batch_gives_up_only_if_none_of_it_came_in_since_the_last_look(tmp_path: Path, disk: GatedDisk) -> None:
    """Each group has the time of an append at the cap, as in `append_batch`; all of them together have no limit."""
    store = MessageStore.open(tmp_path, tiny(publish_buffer_bytes=64 * KIB), disk=disk)
    line = store._queues[0]._line

    async def main() -> None:
        disk.gate.clear()
        loop = asyncio.get_running_loop()
        batch = AsyncBatch(loop, store._appender._cut([("t", 0, bytes(60 * KIB))] * 5))
        later = partial(store._shared.sleepers.call_later, loop, 3_600_000)
        batch.put(later)
        assert len(line) == 4
        while len(line) == 4:  # one write after the other: at most one more group comes in behind the next
            await asyncio.to_thread(disk.waiting.acquire)
            disk.passes.release()
        batch._look_at_line(later)
        assert line
        while line:
            await asyncio.sleep(0.01)
            batch._look_at_line(later)
        assert not batch.future.done(), "what came in is on its way"
        disk.gate.set()
        with pytest.raises(PublishBufferFull):
            await batch.future
        assert 1 <= store.queue_bounds("t", 0)[1] <= 3

    try:
        asyncio.run(asyncio.wait_for(main(), 60))
    finally:
        disk.gate.set()
        store.close()


@pytest.mark.parametrize("cancelled", [False, True])
def test_loop_that_ends_with_a_batch_under_way_harms_nobody(
    store: MessageStore, disk: GatedDisk, cancelled: bool
) -> None:
    async def main() -> None:
        disk.gate.clear()
        future = store.append_batch_async(rows(10))
        if cancelled:
            future.cancel()

    asyncio.run(main())
    disk.gate.set()
    store.flush()
    assert store.queue_bounds("t", 0) == (0, 2)
    assert store.append("t", 0, b"next") == 2


def test_failed_write_is_the_error_of_the_batch(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = MessageStore.open(tmp_path, tiny(lanes=2), disk=disk)
    store.append_batch(rows(10))

    async def main() -> None:
        disk.fail = "write"
        with pytest.raises(StorePoisoned):
            await store.append_batch_async(rows(10))
        with pytest.raises(StorePoisoned):
            store.append_batch_async(rows(10))

    asyncio.run(main())
    store.close()


# -- interrupts: asyncio swallows one that comes in a callback, and does not make the call again ----------


@pytest.fixture
def looks_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("batches", "id_batch"):
        monkeypatch.setattr(f"stratalog.store.api.{module}.LOST_S", 0.01)


@pytest.mark.usefixtures("looks_soon")
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_coroutine_hears_of_its_batch_wherever_an_interrupt_comes(tmp_path: Path, lanes: int) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:

        async def append() -> np.ndarray:
            return await asyncio.wait_for(store.append_batch_async(rows(20)), PATIENCE_S)

        for place in places():
            came, result = interrupt_at(place, ("api/batches.py", "log/request.py"), lambda: asyncio.run(append()))
            assert isinstance(result, Interrupted | np.ndarray), (place, result)
            if not came:
                break
        assert place > 20


@pytest.mark.usefixtures("looks_soon")
def test_a_loop_that_has_lost_its_look_gets_another_one(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        await store.append_batch_async(rows(1))
        (watch,) = store._shared.batches._watches.values()
        assert watch.timer is not None
        watch.timer.cancel()
        await asyncio.sleep(0.05)
        monkeypatch.setattr(AsyncBatch, "_one_answered", lambda batch: None)
        for _ in range(2):
            await asyncio.wait_for(store.append_batch_async(rows(1)), PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):  # no timer goes on where nothing is on its way
            while store._shared.batches._watches:
                await asyncio.sleep(0.01)

    asyncio.run(main())


@pytest.mark.usefixtures("looks_soon")
def test_a_coroutine_that_waits_for_another_append_of_its_id_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratalog.store.api.id_batch._tell", lambda told: None)

    async def main() -> None:
        promise = Barrier()
        waits = asyncio.create_task(answer_of(promise))
        await asyncio.sleep(0.02)
        assert not waits.done()
        promise.answer()
        await asyncio.wait_for(waits, PATIENCE_S)

    asyncio.run(main())
