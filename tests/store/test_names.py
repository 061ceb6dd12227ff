"""What a store holds by name: topics, queues, whether it is closed; and leaving an `async with` block."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stratalog.store import InvalidTopic, Message, MessageStore, StoreClosed

from .disks import GatedDisk
from .helpers import handed_over, run_child, tiny, until


@pytest.mark.parametrize("lanes", [1, 3])
def test_topics_and_queues_are_sorted_and_outlive_the_store(tmp_path: Path, lanes: int) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        assert (store.topics(), store.queues("orders")) == ([], [])
        store.append_batch([("orders", queue, b"x") for queue in (10, 9, 2, 2**31 - 1)])
        store.append("événements", 0, b"x")
        store.append("a/b", 7, b"x")
        names = store.topics(), store.queues("orders"), store.queues("a/b"), store.queues("never")
    with MessageStore.open(tmp_path) as store:
        again = store.topics(), store.queues("orders"), store.queues("a/b"), store.queues("never")
    assert names == again == (["a/b", "orders", "événements"], [2, 9, 10, 2**31 - 1], [7], [])


def test_queue_of_which_nothing_is_durable_yet_is_not_named(tmp_path: Path) -> None:
    disk = GatedDisk()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        store.append("orders", 1, b"durable")
        disk.gate.clear()
        try:
            store.submit("orders", 2, b"on its way")
            ticket = store.submit("invoices", 0, b"on its way")
            until(lambda: handed_over(store) == 3)
            assert (store.topics(), store.queues("orders"), store.queues("invoices")) == (["orders"], [1], [])
        finally:
            disk.gate.set()
        ticket.result()
        assert (store.topics(), store.queues("orders")) == (["invoices", "orders"], [1, 2])


def test_queue_that_retention_has_emptied_is_still_named(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=64 << 10)) as store:
        store.append("old", 5, b"x")
        while store.queue_bounds("old", 5) != (1, 1):
            store.append("new", 0, bytes(3000))
        assert (store.topics(), store.queues("old")) == (["new", "old"], [5])


def test_names_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        for topic in ("", "a\nb", "x" * 256, 3, None):
            with pytest.raises(InvalidTopic):
                store.queues(topic)  # type: ignore[arg-type]


def test_closed_says_whether_the_store_is(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path)
    assert not store.closed
    store.close()
    assert store.closed
    for call in (store.topics, lambda: store.queues("t"), lambda: store.offset_at("t", 0, 0)):
        with pytest.raises(StoreClosed):
            call()


def test_store_is_closed_in_a_forked_child(tmp_path: Path) -> None:
    code = """
import os, sys
from stratalog import MessageStore
with MessageStore.open(sys.argv[1]) as store:
    child = os.fork()
    if not child:
        os._exit(10 + store.closed)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), store.closed)
"""
    done = run_child(code, str(tmp_path))
    assert done.stdout == "11 False\n", done.stderr


def test_async_with_closes_and_lets_the_loop_go_on_meanwhile(tmp_path: Path) -> None:
    disk = GatedDisk()
    turns: list[int] = []

    async def main() -> MessageStore:
        async with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
            disk.gate.clear()
            future = store.append_async("t", 0, b"x")
            asyncio.get_running_loop().call_later(0.05, turns.append, 1)  # while `close` waits for the device
            threading.Timer(0.2, disk.gate.set).start()
        assert turns, "the loop stood still while the store was closed"
        assert await future == 0
        return store

    assert asyncio.run(main()).closed
    with MessageStore.open(tmp_path) as store:
        assert store.queue_bounds("t", 0) == (0, 1)


def test_async_with_ends_though_all_threads_of_the_loop_wait_for_messages(tmp_path: Path) -> None:
    async def main() -> list[BaseException | list[Message]]:
        pool = ThreadPoolExecutor(2)
        loop = asyncio.get_running_loop()
        loop.set_default_executor(pool)
        async with MessageStore.open(tmp_path) as store:
            waiting = [asyncio.to_thread(store.read, "t", 0, wait_ms=3_600_000) for _ in range(4)]
            reading = asyncio.gather(*waiting, return_exceptions=True)
            while len(store._waiting) < 2:
                await asyncio.sleep(0.01)
        return list(await reading)

    assert [type(error) for error in asyncio.run(main())] == [StoreClosed] * 4


def test_cancelled_async_with_closes_all_the_same(tmp_path: Path) -> None:
    disk = GatedDisk()
    opened: list[MessageStore] = []

    async def use() -> None:
        async with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
            opened.append(store)
            disk.gate.clear()
            store.submit("t", 0, b"x")

    async def main() -> None:
        task = asyncio.ensure_future(use())
        while not opened or not opened[0].closed:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        disk.gate.set()

    asyncio.run(main())
    opened[0].close()  # returns when the other one is through
    with MessageStore.open(tmp_path) as store:
        assert store.queue_bounds("t", 0) == (0, 1)


def test_error_in_an_async_with_block_comes_out_and_the_store_is_closed(tmp_path: Path) -> None:
    opened: list[MessageStore] = []

    async def main() -> None:
        async with MessageStore.open(tmp_path) as store:
            opened.append(store)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())
    assert opened[0].closed
