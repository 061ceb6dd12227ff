"""The calls for coroutines, and the end of a store object."""

from __future__ import annotations

import asyncio
import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

from stratalog import InvalidMessage, InvalidTopic, OffsetOutOfRange, StoreClosed

from .served import opened


def test_many_appends_at_once(store: Any) -> None:
    async def program() -> None:
        futures = [store.append_async("t", 0, b"%d" % number) for number in range(200)]
        assert all(isinstance(one, asyncio.Future) for one in futures)
        assert await asyncio.gather(*futures) == list(range(200))
        assert await store.append_async("t", 0, b"x", message_id="1") == 200
        assert await store.append_async("t", 0, b"x", message_id="1") == 200
        assert (await store.append_batch_async([("t", 0, b"a"), ("u", 0, b"b")])).tolist() == [201, 0]
        assert (await store.append_columns_async([("u", 0)], [0], [1], b"x")).tolist() == [1]
        assert await store.submit("u", 0, b"x") == 2
        assert (await store.submit_columns([("u", 0)], [0], [1], b"x")).tolist() == [3]

    asyncio.run(program())


def test_errors_come_out_of_futures_or_calls(store: Any) -> None:
    async def program() -> None:
        with pytest.raises(InvalidTopic):
            await store.append_async("", 0, b"x")
        with pytest.raises(InvalidMessage):
            await store.append_async("t", 0, 7)
        with pytest.raises(InvalidTopic) as caught:
            await store.append_batch_async([("t", 0, b"x"), ("t", -1, b"x")])
        assert caught.value.row == 1
        with pytest.raises(OffsetOutOfRange):
            await store.read_async("t", 0, 5)
        with pytest.raises(InvalidMessage):
            await store.append_columns_async([("t", 0)], [0.5], [1], b"x")

    asyncio.run(program())
    with pytest.raises(RuntimeError):
        store.append_async("t", 0, b"x")
    assert store.topics() == []


def test_reads_wait_without_a_thread(store: Any) -> None:
    async def program() -> None:
        waiting = [asyncio.ensure_future(store.read_async("t", queue, wait_ms=60_000)) for queue in range(40)]
        batch = asyncio.ensure_future(store.read_batch_async("t", 0, wait_ms=60_000))
        await asyncio.sleep(0)
        for queue in range(40):
            await store.append_async("t", queue, b"%d" % queue)
        assert [(await one)[0].data for one in waiting] == [b"%d" % queue for queue in range(40)]
        assert len(await batch) == 1

    asyncio.run(asyncio.wait_for(program(), 60))


def test_consumers_share_a_subscription(store: Any) -> None:
    store.append_batch([("t", number % 3, b"%d" % number) for number in range(300)])
    seen: list[bytes] = []

    async def consume(sub: Any) -> None:
        while found := await sub.receive_async(max_messages=5):
            for one in found:
                seen.append(one.message.data)
                await sub.ack_async(one)

    async def program() -> None:
        with store.subscribe("t", "s") as sub:
            await asyncio.gather(*(consume(sub) for _ in range(20)))
            assert sub.backlog().total == 0

    asyncio.run(asyncio.wait_for(program(), 60))
    assert sorted(seen) == sorted(b"%d" % number for number in range(300))


def test_the_calls_of_a_subscription(store: Any) -> None:
    store.append_batch([("t", 0, b"%d" % number) for number in range(5)])

    async def program() -> None:
        sub = store.subscribe("t", "s")
        batch = await sub.receive_batch_async()
        found = batch.deliveries()
        await sub.extend_async(found[0], 60_000)
        await sub.nack_async(found[4])
        assert await sub.ack_up_to_async(found[1]) == 2
        await sub.ack_async(found[2])
        await sub.seek_async("latest")
        await sub.change_async(filter={"tag": {"x"}})
        await sub.submit_ack((await _again(sub))[0])

    async def _again(sub: Any) -> Any:
        await sub.change_async(filter=None)
        await sub.seek_async({0: 4})
        return await sub.receive_async(wait_ms=10_000)

    asyncio.run(asyncio.wait_for(program(), 60))


def test_a_cancelled_receive_leaves_its_messages_to_others(store: Any) -> None:
    async def program() -> None:
        sub, other = store.subscribe("t", "s"), store.subscribe("t", "s")
        for round_ in range(20):
            waiting = asyncio.ensure_future(sub.receive_async(wait_ms=60_000))
            await asyncio.sleep(0)
            if round_ % 2:
                appended = store.append_async("t", 0, b"%d" % round_)
                await asyncio.sleep(0.001 * (round_ % 5))
                waiting.cancel()
                await appended
            else:
                waiting.cancel()
                await store.append_async("t", 0, b"%d" % round_)
            for one in (await asyncio.gather(waiting, return_exceptions=True))[0:1]:
                if isinstance(one, list):
                    await sub.ack_async(one[0])
                    continue
                (found,) = await other.receive_async(max_messages=1, wait_ms=10_000)
                assert found.message.data == b"%d" % round_
                await other.ack_async(found)

    asyncio.run(asyncio.wait_for(program(), 100))


def test_an_iterator_for_coroutines(store: Any) -> None:
    store.append_batch([("t", 0, b"%d" % number) for number in range(3)])

    async def program() -> list[bytes]:
        seen = []
        with store.subscribe("t", "s") as sub:
            async for one in sub:
                seen.append(one.message.data)
                await sub.ack_async(one)
                if len(seen) == 3:
                    break
        return seen

    assert asyncio.run(asyncio.wait_for(program(), 60)) == [b"0", b"1", b"2"]


def test_calls_that_wait_have_twins(store: Any) -> None:
    async def program() -> None:
        late = await store.append_async("t", 0, b"late", deliver_at_ms=4_000_000_000_000)
        assert await store.reschedule_delayed_async("t", 0, late, 4_100_000_000_000)
        assert await store.cancel_delayed_async("t", 0, late)
        await store.flush_async()
        assert (await store.configure_topic_async("u", queues=2)).queues == 2
        assert await store.trim_async("t", 0, 1) == 1
        assert await store.delete_topic_async("t")
        assert await store.redrive_async("failed") == 0

    asyncio.run(asyncio.wait_for(program(), 60))


def test_after_close_all_calls_are_refused(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path / "store") as store:
        sub = store.subscribe("t", "s")
        ticket = store.submit("t", 0, b"x")
        assert repr(store).endswith(", open>") and repr(sub).endswith(", open>")
        store.close()
        assert ticket.result(0) == 0
        assert store.closed
        store.close()
        calls = [
            lambda: store.append("t", 0, b"x"), lambda: store.submit("t", 0, b"x"), lambda: store.read("t", 0),
            lambda: store.append_batch([("t", 0, b"x")]), lambda: store.append_columns([("t", 0)], [0], [1], b"x"),
            lambda: store.subscribe("t", "s"), store.topics, store.flush, sub.receive,
            lambda: list(store.scan()), lambda: store.configure_topic("t"), lambda: store.transaction().commit(),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(StoreClosed):
                call()
        assert repr(store).endswith(", closed>")
        sub.close()


def test_close_in_a_loop(kind: str, tmp_path: Path) -> None:
    async def program(store: Any) -> None:
        async with store:
            waiting = asyncio.ensure_future(store.read_async("t", 0, wait_ms=60_000))
            assert await store.append_async("u", 0, b"x") == 0
        assert store.closed
        with pytest.raises(StoreClosed):
            await waiting

    with opened(kind, tmp_path / "store") as store:
        asyncio.run(asyncio.wait_for(program(store), 60))


def test_no_copies(store: Any) -> None:
    for one in (store, store.subscribe("t", "s")):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            copy.copy(one)
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            pickle.dumps(one)
