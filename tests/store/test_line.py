"""The line at the publish buffer's cap: first come, first served, for every kind of append; and interrupts in it."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, PublishBufferFull, StoreClosed, StoreError
from stratalog.store.log.queue import LineTurn, RequestQueue
from stratalog.store.log.request import NO_STREAM, Barrier, Request
from stratalog.store.log.sizer import Sizer
from tests.seeds import draw_seed

from .disks import GatedDisk
from .helpers import PATIENCE_S, start, tiny, until
from .interrupts import Interrupted, interrupt, interrupt_at, places

CAP = 4096
KILO = bytes(1000)
AN_HOUR_MS = 3_600_000  # longer than a test may take: a producer is woken, or the test fails
APPENDING = ("store/log/queue.py", "store/api/appender.py", "store/log/request.py", "/threading.py")


class Stage:
    """A store whose disk has a gate, with one durable message in queue ("t", 0)."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.disk = GatedDisk()
        given = {"publish_buffer_bytes": CAP, "append_timeout_ms": 60_000, "segment_bytes": 1 << 20, **settings}
        config = tiny(**given)
        self.store = MessageStore.open(path, config, disk=self.disk)
        self.store.append("t", 0, b"first")
        self.queue = self.store._queues[0]

    def fill(self) -> None:
        """Shut the gate, and hand messages over until one more of a thousand bytes would not fit."""
        until(lambda: self.queue.used_bytes == 0)
        self.disk.gate.clear()
        for _ in range(CAP // 1000):
            self.store.submit("t", 0, KILO)

    def open_when(self, lined_up: int) -> threading.Event:
        """Open the gate when so many stand in line, or the event is set."""
        over = threading.Event()

        def watch() -> None:
            until(lambda: len(self.queue._line) >= lined_up or over.is_set())
            self.disk.gate.set()

        start(watch)
        return over

    def datas(self, offset: int = 1) -> list[bytes]:
        """The messages of ("t", 0) that are no filling."""
        self.store.flush()
        end = self.store.queue_bounds("t", 0)[1]
        found = []
        while offset < end:
            messages = self.store.read("t", 0, offset, max_messages=1000)
            found += [message.data for message in messages]
            offset = messages[-1].offset + 1
        return [data for data in found if data != KILO]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.disk.gate.set()
    made.store.close()


# -- first come, first served -------------------------------------------------------------------------


def test_small_message_does_not_pass_a_large_one_in_the_line(stage: Stage) -> None:
    stage.fill()
    large = start(stage.store.append, "t", 0, b"L" * 3000)
    until(lambda: len(stage.queue._line) == 1)
    small = start(stage.store.append, "t", 0, b"s")  # there is room for it
    until(lambda: len(stage.queue._line) == 2)
    stage.disk.gate.set()
    large.join()
    small.join()
    assert [data[:1] for data in stage.datas()] == [b"L", b"s"]


def test_large_message_gets_in_among_many_small_ones(tmp_path: Path) -> None:
    """Larger than the cap, so the buffer must be empty for it: without a line, one of the others is always in it."""
    stage = Stage(tmp_path)
    ended = threading.Event()

    def produce() -> None:
        while not ended.is_set():
            stage.store.submit("t", 1, bytes(500))

    workers = [start(produce) for _ in range(4)]
    try:
        assert [stage.store.append("t", 0, b"L" * 2 * CAP) for _ in range(20)] == list(range(1, 21))
    finally:
        ended.set()
        for worker in workers:
            worker.join()
        stage.store.close()


@pytest.mark.parametrize("way", ["submit", "append_batch", "append"])
def test_append_async_at_the_cap_is_not_overtaken_by_its_own_thread(stage: Stage, way: str) -> None:
    stage.fill()
    ways: dict[str, Callable[[], Any]] = {
        "submit": lambda: stage.store.submit("t", 0, b"second"),
        "append_batch": lambda: stage.store.append_batch([("t", 0, b"second")]),
        "append": lambda: stage.store.append("t", 0, b"second"),
    }

    async def produce() -> None:
        first = stage.store.append_async("t", 0, b"first" * 200)
        over = stage.open_when(2)
        await asyncio.sleep(0)
        ways[way]()
        over.set()
        await first

    asyncio.run(produce())
    assert [data[:6] for data in stage.datas()] == [b"firstf", b"second"]


def test_appends_of_one_thread_keep_their_order_whatever_their_kinds(tmp_path: Path) -> None:
    chance = random.Random(draw_seed())
    store = MessageStore.open(tmp_path, tiny(publish_buffer_bytes=CAP, segment_bytes=1 << 20))
    count = 0

    def message() -> bytes:
        nonlocal count
        count += 1
        return b"%d:" % (count - 1) + bytes(chance.choice((0, 10, 500, 1500, 5000)))

    async def produce() -> None:
        futures: list[asyncio.Future[int]] = []
        for turn in range(600):
            way = chance.choice(["append"] + 4 * ["submit"] + 6 * ["append_async"] + ["append_batch", "flush"])
            if way == "flush":
                store.flush()
            elif way == "append_batch":
                store.append_batch([("t", 0, message()) for _ in range(chance.randrange(1, 20))])
            elif way == "append_async":
                futures.append(store.append_async("t", 0, message()))
            else:
                getattr(store, way)("t", 0, message())
            if turn % 100 == 50:
                await asyncio.sleep(0)
        await asyncio.gather(*futures)

    asyncio.run(produce())
    store.flush()
    found: list[bytes] = []
    while len(found) < count:
        found += [row.data for row in store.read("t", 0, len(found), max_messages=1000)]
    assert [int(data.split(b":")[0]) for data in found] == list(range(count))
    store.close()


def test_message_behind_one_that_gives_up_gets_in_at_once(stage: Stage) -> None:
    stage.fill()

    async def produce() -> None:
        large = stage.store.append_async("t", 0, b"L" * 3000)
        small = stage.store.append_async("t", 0, b"s")
        assert len(stage.queue._line) == 2
        large.cancel()
        await asyncio.sleep(0)
        assert len(stage.queue._line) == 0  # though the gate is shut
        stage.disk.gate.set()
        await small

    asyncio.run(produce())
    assert stage.datas() == [b"s"]


class Compared(Request):
    """A request that counts how often it is compared with another."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return self is other

    __hash__ = object.__hash__


def test_leaving_the_line_costs_the_same_at_every_place() -> None:
    queue = bare_queue()
    requests = [Compared(NO_STREAM, b"", CAP) for _ in range(2000)]
    for request in requests:
        queue.put(request, wait=False)
    Compared.times = 0
    for request in reversed(requests[1:]):
        assert isinstance(queue.withdraw(request), PublishBufferFull)
    assert Compared.times <= len(requests)
    assert not queue._line


# -- interrupts ---------------------------------------------------------------------------------------


def bare_queue() -> RequestQueue[Request]:
    return RequestQueue(CAP, 1 << 20, AN_HOUR_MS, Sizer(1 << 20), 1)


def check_idle(queue: RequestQueue[Request]) -> None:
    """Nobody is in it, and nothing is counted that is not there. A mark, which costs nothing, may pass through."""
    until(lambda: not queue._items)
    assert queue._lock.acquire(blocking=False)
    queue._lock.release()
    assert (len(queue._line), len(queue._items), queue.used_bytes, queue._taken_bytes) == (0, 0, 0, 0)
    assert (queue._more, queue._barriers) == (0, 0)


WAYS: dict[str, Callable[[MessageStore, bytes], Any]] = {
    "append": lambda store, data: store.append("t", 0, data),
    "submit": lambda store, data: store.submit("t", 0, data),
    "append_batch": lambda store, data: store.append_batch([("t", 0, data)]),
}


@pytest.mark.parametrize("way", list(WAYS))
def test_interrupt_anywhere_in_an_append_at_the_cap(stage: Stage, way: str) -> None:
    """Nothing stays in line or counted, no message is stored twice, and none that was answered is missing."""
    answered, given = [], []
    for place in places():
        stage.fill()
        data = b"%d:" % place + bytes(1000)
        over = stage.open_when(1)
        came, result = interrupt_at(place, APPENDING, lambda data=data: WAYS[way](stage.store, data))  # type: ignore[misc]
        over.set()
        stage.disk.gate.wait(PATIENCE_S)
        stage.store.flush()
        until(lambda: stage.queue.used_bytes == 0)
        check_idle(stage.queue)
        given.append(data)
        assert came == isinstance(result, Interrupted), result
        if not came:
            answered.append(data)
            if place > 40:
                break
    found = stage.datas()
    assert len(found) == len(set(found))
    assert set(answered) <= set(found) <= set(given)
    assert WAYS["append"](stage.store, b"next") == stage.store.queue_bounds("t", 0)[1] - 1


def ticket(size: int) -> Request:
    return Request(NO_STREAM, bytes(size), size)


def drain(queue: RequestQueue[Request]) -> list[Request]:
    """What comes out of it, in order."""
    found: list[Request] = []
    while True:
        batch = queue.dequeue()
        if not batch.requests:
            return found
        found += batch.requests
        queue.release(batch.cost_bytes, len(batch.requests))


def test_interrupt_anywhere_while_a_request_is_withdrawn() -> None:
    for place in places():
        queue = bare_queue()
        first, large, small, barrier, last = ticket(CAP - 100), ticket(CAP), ticket(50), Barrier(), ticket(40)
        queue.put(first)
        queue.put(large, wait=False)
        producer = start(queue.put, small)
        until(lambda queue=queue: len(queue._line) == 2)  # type: ignore[misc]
        for request in (barrier, last):
            queue.put(request, wait=False)
        came, result = interrupt_at(place, APPENDING, lambda queue=queue, large=large: queue.withdraw(large))  # type: ignore[misc]
        expected = [first, small, barrier, last]
        if large in queue._line:
            expected.insert(1, large)
        assert drain(queue) == expected
        producer.join()
        check_idle(queue)
        if not came:
            assert isinstance(result, PublishBufferFull)
            assert place > 5
            return


def test_interrupt_anywhere_in_a_close_that_is_called_again() -> None:
    for place in places():
        queue, closed = bare_queue(), StoreClosed("closed")
        first, lined, barrier = ticket(CAP), ticket(CAP), Barrier()
        queue.put(first)
        producers = [start(queue.put, ticket(CAP)) for _ in range(2)]
        until(lambda queue=queue: len(queue._line) == 2)  # type: ignore[misc]
        for request in (lined, barrier):
            queue.put(request, wait=False)
        came, result = interrupt_at(place, APPENDING, lambda queue=queue, closed=closed: queue.close(closed))  # type: ignore[misc]
        queue.release(0, 0)  # as a flusher does: it must let nobody in any more
        assert queue.close(closed) == queue.close(closed) == [lined, barrier]
        for producer in producers:
            with pytest.raises(StoreClosed):
                producer.join()
        assert drain(queue) == [first]
        check_idle(queue)
        if not came:
            assert result == [lined, barrier]
            assert place > 5
            return


def test_interrupted_sleeper_leaves_the_line() -> None:
    queue = bare_queue()
    first, second = ticket(CAP), ticket(CAP)
    queue.put(first)
    producer = start(queue.put, second)
    until(lambda: len(queue._line) == 1)
    interrupt(producer.thread)
    with queue._lock:
        if second in queue._line:  # else it was not asleep yet, and has heard of it
            queue._line[second].ring()
    with pytest.raises(Interrupted):
        producer.join()
    assert not queue._line
    assert drain(queue) == [first]
    check_idle(queue)


def test_refused_line_is_told_once() -> None:
    queue, error = bare_queue(), StoreError("poisoned")
    first, lined = ticket(CAP), ticket(CAP)
    queue.put(first)
    producer = start(queue.put, ticket(CAP))
    until(lambda: len(queue._line) == 1)
    queue.put(lined, wait=False)
    assert queue.refuse(error) == [first, lined]
    with pytest.raises(StoreError, match="poisoned"):
        producer.join()
    assert queue.close(StoreClosed("closed")) == []
    check_idle(queue)


def test_bell_that_was_rung_for_nothing_is_rung_again() -> None:
    """As after an interrupt between the ringing and the acceptance."""
    queue = bare_queue()
    first, second = ticket(CAP), ticket(CAP)
    queue.put(first)
    producer = start(queue.put, second)
    until(lambda: len(queue._line) == 1)
    place: LineTurn = queue._line[second]
    with queue._lock:
        place.ring()
        place.ring()
    until(lambda: place.bell is not None and place.bell.locked())  # its thread has looked, and sleeps again
    assert len(queue._line) == 1
    assert drain(queue) == [first, second]
    producer.join()
