"""`read_async`: the answers of `read`, a loop that is never stopped, and coroutines that wait without a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import (
    InvalidMessage,
    InvalidTopic,
    MessageStore,
    OffsetOutOfRange,
    StoreClosed,
    StorePoisoned,
    StoreUnreadable,
)
from stratalog.store.read.async_reads import LOOP_BYTES, Where, where
from stratalog.store.testing import Kind

from .disks import FailingDisk, WatchedDisk
from .helpers import PATIENCE_S, handed_over, run_child, start, tiny, until

AN_HOUR_MS = 3_600_000  # longer than a test may take: a reader is woken, or the test fails
Threads = Callable[[], list[threading.Thread]]


class SlowToRead(WatchedDisk):
    """The system's disk; reads wait while the gate is shut, and are refused if `error` is set."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.error: OSError | None = None

    def meet(self, kind: Kind, path: Path, position: int = 0, size: int = 0) -> None:
        if kind == "read":
            self.gate.wait()
            if self.error is not None:
                raise self.error


@pytest.fixture
def disk() -> SlowToRead:
    return SlowToRead()


@pytest.fixture
def store(tmp_path: Path, disk: SlowToRead) -> Iterator[MessageStore]:
    opened = MessageStore.open(tmp_path, tiny(lanes=2), disk=disk)
    yield opened
    disk.gate.set()
    opened.close()


@pytest.fixture
def read_threads() -> Threads:
    """The threads that read for coroutines, but for those that other tests have left."""
    earlier = set(threading.enumerate())
    return lambda: [one for one in {*threading.enumerate()} - earlier if one.name.startswith("stratalog-read")]


async def turns_until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something has happened in it, or in a thread."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


def make_cold(store: MessageStore) -> int:
    """Append to ("t", 0) until its first message is out of the ring; how many it has."""
    store.append("t", 0, b"")
    stream = store._streams.get("t", 0)
    assert stream is not None
    lane = store._lanes[stream.lane.index]
    end = lane.tail + 2 * lane.ring.size_bytes
    while lane.tail < end:
        store.append_batch([("t", 0, bytes(10_000))] * 20)
    assert where(stream, 0) is Where.ELSEWHERE
    return store.queue_bounds("t", 0)[1]


def test_it_gives_what_read_gives(store: MessageStore) -> None:
    store.append("t", 0, b"one", key=b"k", properties={"a": "b"}, deliver_at_ms=5)
    count = make_cold(store)

    async def main() -> None:
        for offset in (0, 1, count // 2, count - 5, count):
            for most in (0, 1, 7):
                found = await store.read_async("t", 0, offset, max_messages=most)
                assert found == store.read("t", 0, offset, max_messages=most)
        assert await store.read_async("t", 0, max_messages=10**6, max_bytes=1 << 40) == store.read(
            "t", 0, max_messages=10**6, max_bytes=1 << 40
        )
        assert await store.read_async("never", 0) == []

    asyncio.run(main())


def test_it_raises_what_read_raises(store: MessageStore, disk: SlowToRead) -> None:
    count = make_cold(store)
    calls: list[tuple[tuple[Any, ...], type[Exception]]] = [
        (("t", 0, count + 1), OffsetOutOfRange), (("never", 0, 1), OffsetOutOfRange), (("t", -1), InvalidTopic),
        ((b"t", 0), InvalidTopic), (("t", 0, -1), InvalidMessage), (("t", 0, 0.5), InvalidMessage),
    ]  # fmt: skip

    read: Any = store.read_async

    async def main() -> None:
        for given, kind in calls:
            for wait_ms in (0, AN_HOUR_MS):
                with pytest.raises(kind):
                    await read(*given, wait_ms=wait_ms)
        with pytest.raises(InvalidMessage):
            await store.read_async("t", 0, wait_ms=-1)
        disk.error = OSError(5, "the test's disk is broken")
        with pytest.raises(StoreUnreadable):
            await store.read_async("t", 0)
        disk.error = None
        store.close()
        for offset in (0, count - 1, count):
            with pytest.raises(StoreClosed):
                await store.read_async("t", 0, offset)

    asyncio.run(main())


def test_cold_read_does_not_stop_the_loop(store: MessageStore, disk: SlowToRead, read_threads: Threads) -> None:
    count = make_cold(store)

    async def main() -> None:
        disk.gate.clear()
        reading = asyncio.create_task(store.read_async("t", 0, 0, max_messages=1))
        hot = await store.read_async("t", 0, count - 1, max_messages=1)  # while the other waits for the device
        assert [message.offset for message in hot] == [count - 1]
        assert not reading.done()
        disk.gate.set()
        assert [message.offset for message in await reading] == [0]

    asyncio.run(main())
    assert read_threads()
    store.close()
    assert not read_threads()


def test_recent_messages_are_read_without_a_thread(store: MessageStore, read_threads: Threads) -> None:
    count = 50

    async def main() -> None:
        for turn in range(count):
            reading = asyncio.create_task(
                store.read_async("t", turn % 3, turn // 3, max_messages=1, wait_ms=AN_HOUR_MS)
            )
            await asyncio.sleep(0)
            await store.append_async("t", turn % 3, b"%d" % turn)
            assert (await reading)[0].data == b"%d" % turn
        assert not read_threads()
        assert len(await store.read_async("t", 0, max_bytes=LOOP_BYTES + 1)) == 17
        assert read_threads()  # as it might be long

    asyncio.run(main())


def test_ten_thousand_coroutines_wait_without_a_thread(tmp_path: Path, read_threads: Threads) -> None:
    with MessageStore.open(tmp_path) as store:  # its ring keeps all of these messages, however many frames they take
        ten_thousand_wait(store)
        assert not read_threads()


def ten_thousand_wait(store: MessageStore) -> None:
    readers, queues = 10_000, 100
    for queue in range(queues):
        store.append("t", queue, b"first")
    threads = threading.active_count()

    async def main() -> None:
        waiting = [
            asyncio.create_task(store.read_async("t", number % queues, 1, wait_ms=AN_HOUR_MS))
            for number in range(readers)
        ]
        await turns_until(lambda: len(store._waiting) == readers)
        assert threading.active_count() < threads + 10  # the one for all time-outs, and what a store starts at times
        await asyncio.gather(*(store.append_async("t", queue, b"%d" % queue) for queue in range(queues)))
        found = await asyncio.gather(*waiting)
        assert [messages[0].data for messages in found] == [b"%d" % (number % queues) for number in range(readers)]

    asyncio.run(main())
    assert len(store._waiting) == 0


def test_batch_calls_a_loop_once_for_readers_that_it_has_not_turned_to_yet(store: MessageStore) -> None:
    """The loop stands still while the flusher tells all of them."""
    queues = [queue for queue in range(200) if store._appender._stream("t", queue).lane is store._lanes[0]][:50]

    async def main() -> None:
        waiting = [asyncio.create_task(store.read_async("t", queue, wait_ms=AN_HOUR_MS)) for queue in queues]
        await turns_until(lambda: len(store._waiting) == len(queues))
        loop, calls = asyncio.get_running_loop(), list[object]()
        call = loop.call_soon_threadsafe

        def counted(work: Callable[..., object], *given: Any, **how: Any) -> Any:
            if work == store._waiting.bells._ring_all:
                calls.append(work)
            return call(work, *given, **how)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign, assignment]  # to count
        store.append_batch([("t", queue, b"x") for queue in queues])
        until(lambda: len(store._waiting) == 0)
        await asyncio.gather(*waiting)
        assert len(calls) == 1

    asyncio.run(main())


@pytest.mark.parametrize("offset", [0, 1])
def test_wait_ends_when_its_time_is_up(store: MessageStore, offset: int) -> None:
    store.append("t", 1, b"x")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await store.read_async("t", offset, offset, wait_ms=30) == []
        assert loop.time() - began >= 0.03
        assert await store.read_async("t", offset, offset, max_messages=0, wait_ms=AN_HOUR_MS) == []

    asyncio.run(main())
    assert len(store._waiting) == 0


def test_coroutine_waits_until_there_are_enough_messages(store: MessageStore) -> None:
    async def main() -> None:
        many = asyncio.create_task(store.read_async("t", 0, wait_ms=AN_HOUR_MS, min_messages=5, min_bytes=100))
        for _ in range(5):
            await store.append_async("t", 0, bytes(19))
            await asyncio.sleep(0.01)
        assert not many.done()
        await store.append_async("t", 0, bytes(5))
        assert len(await many) == 6
        assert len(await store.read_async("t", 0, wait_ms=20, min_messages=7)) == 6
        assert await store.read_async("t", 0, 6, wait_ms=AN_HOUR_MS, min_messages=0) == []

    asyncio.run(main())


def test_wait_is_not_longer_than_its_time(store: MessageStore) -> None:
    """A timer that the loop has for later than the wait's end comes later than it."""

    async def main() -> None:
        reading = asyncio.create_task(store.read_async("t", 0, wait_ms=50))
        await asyncio.sleep(0)
        (waits,) = store._waiting._coroutines
        later = asyncio.get_running_loop().call_later(AN_HOUR_MS / 1000, waits.rung.done)
        await reading
        assert not later.cancelled()
        later.cancel()

    asyncio.run(main())


def test_cancelled_readers_wait_no_longer(store: MessageStore) -> None:
    async def main() -> None:
        waiting = [asyncio.create_task(store.read_async("t", queue % 7, wait_ms=AN_HOUR_MS)) for queue in range(300)]
        await turns_until(lambda: len(store._waiting) == 300)
        for task in waiting[::2]:
            task.cancel()
        await asyncio.gather(*waiting[::2], return_exceptions=True)
        assert len(store._waiting) == 150
        store.append_batch([("t", queue, b"x") for queue in range(7)])
        assert all(messages[0].data == b"x" for messages in await asyncio.gather(*waiting[1::2]))

    asyncio.run(main())
    assert len(store._waiting) == 0


def test_cancelled_cold_read_harms_nobody(store: MessageStore, disk: SlowToRead, read_threads: Threads) -> None:
    make_cold(store)

    async def main() -> None:
        disk.gate.clear()
        reading = [asyncio.create_task(store.read_async("t", 0, 0, max_messages=1)) for _ in range(20)]
        await turns_until(lambda: bool(read_threads()))
        for task in reading[1:]:
            task.cancel()
        disk.gate.set()
        assert (await reading[0])[0].offset == 0
        assert (await store.read_async("t", 0, 1, max_messages=1))[0].offset == 1

    asyncio.run(main())


def test_close_wakes_every_coroutine(store: MessageStore) -> None:
    store.append("t", 0, b"x")

    async def main() -> None:
        given = [("t", 0, 1), ("t", 0, 1), ("unknown", 0, 0)]
        waiting = [asyncio.create_task(store.read_async(*each, wait_ms=AN_HOUR_MS)) for each in given]
        await turns_until(lambda: len(store._waiting) == 3)
        closing = start(store.close)
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreClosed] * 3
        await asyncio.to_thread(closing.join)

    asyncio.run(main())


def test_failed_write_leaves_coroutines_waiting_and_reads_go_on(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = MessageStore.open(tmp_path, tiny(), disk=disk)

    async def main() -> None:
        await store.append_async("t", 0, b"first")
        waiting = asyncio.create_task(store.read_async("t", 1, wait_ms=AN_HOUR_MS))
        await turns_until(lambda: len(store._waiting) == 1)
        disk.fail = "write"
        with pytest.raises(StorePoisoned):
            await store.append_async("t", 2, b"lost")
        assert (await store.read_async("t", 0, wait_ms=AN_HOUR_MS))[0].data == b"first"
        store.close()
        with pytest.raises(StoreClosed):
            await waiting

    asyncio.run(main())


def test_loop_that_ends_with_readers_waiting_harms_nobody(store: MessageStore) -> None:
    loop = asyncio.new_event_loop()
    task = loop.create_task(store.read_async("t", 0, wait_ms=AN_HOUR_MS))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    reader = start(lambda: store.read("t", 0, wait_ms=AN_HOUR_MS))
    until(lambda: len(store._waiting) == 2)
    store.append("t", 0, b"came")
    reader.join()
    assert len(store._waiting) == 0
    assert not store._waiting._coroutines  # or its frame would hold the store
    assert not task.done()


def test_no_message_is_slept_through(tmp_path: Path) -> None:
    """Readers of one loop and producers of threads: each message is awaited, some before and some after it came."""
    count, queues = 300, 8

    with MessageStore.open(tmp_path, tiny(lanes=2)) as store:

        def produce() -> None:
            for offset in range(count):
                store.append_batch([("t", queue, b"%d" % offset * 30) for queue in range(queues)])

        async def follow(queue: int) -> None:
            for offset in range(count):
                (message,) = await store.read_async("t", queue, offset, max_messages=1, wait_ms=AN_HOUR_MS)
                assert message.data == b"%d" % offset * 30

        async def main() -> None:
            producer = start(produce)
            await asyncio.gather(*map(follow, range(queues)))
            await asyncio.to_thread(producer.join)

        asyncio.run(main())
        assert handed_over(store) == count * queues


FORKED = """
import asyncio, os, signal, sys
from stratalog import MessageStore, StoreClosed
store = MessageStore.open(sys.argv[1])
async def main():
    waiting = asyncio.create_task(store.read_async("t", 0, wait_ms=3_600_000))
    while not len(store._waiting):
        await asyncio.sleep(0)
    pid = os.fork()
    if pid == 0:  # the child's copy of the loop goes on
        signal.alarm(30)
        try:
            await waiting
        except StoreClosed as error:
            os._exit(7 if "fork" in str(error) else 1)
        os._exit(2)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    await store.append_async("t", 0, b"came")
    print((await waiting)[0].data.decode())
asyncio.run(main())
store.close()
"""


def test_fork_wakes_the_coroutines_of_the_child(tmp_path: Path) -> None:
    done = run_child(FORKED, str(tmp_path))
    assert done.stdout.split() == ["7", "came"], done.stderr
