"""A clock that a test moves, and consumers: they wait for a day, and what is due in a day comes."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import Delivery, MessageStore, PublishBufferFull, Subscription
from stratalog.store.testing import VirtualClock

from ...clocks import SteppedClock
from ...seeds import draw_seed
from ..disks import GatedDisk
from ..helpers import KIB, PATIENCE_S, Worker, start, tiny, until
from .helpers import TOPIC, fill, fill_buffer

DAY_MS = 86_400_000
Receive = Callable[..., list[Delivery]]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(tmp_path: Path, clock: VirtualClock) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as opened:
        yield opened


def in_a_loop(sub: Subscription, **given: Any) -> list[Delivery]:
    """`receive_async` in a loop of its own."""
    call: Coroutine[Any, Any, list[Delivery]] = sub.receive_async(**given)
    return asyncio.run(asyncio.wait_for(call, PATIENCE_S))


def as_columns(sub: Subscription, **given: Any) -> list[Delivery]:
    """`receive_batch`."""
    return sub.receive_batch(**given).deliveries()


def iterated(sub: Subscription, wait_ms: int, **given: Any) -> list[Delivery]:
    """The first one that the iterator yields."""
    return [next(iter(sub))]


KINDS: list[Receive] = [Subscription.receive, in_a_loop, as_columns]
kinds = pytest.mark.parametrize("receive", KINDS, ids=lambda kind: kind.__name__)


def wait_for_a_day(receive: Receive, sub: Subscription, **given: Any) -> tuple[Worker, list[list[Delivery]]]:
    """A consumer that waits for a day; it sleeps when this returns."""
    found: list[list[Delivery]] = []
    waiting = sub._state.parts.waiting
    before = len(waiting)
    worker = start(lambda: found.append(receive(sub, wait_ms=DAY_MS, **given)))
    until(lambda: len(waiting) > before)
    return worker, found


def data_of(found: list[list[Delivery]]) -> list[bytes]:
    """What they got."""
    return [delivery.message.data for deliveries in found for delivery in deliveries]


@kinds
def test_a_receive_that_waits_for_a_day_ends_after_a_day_of_the_clock(
    store: MessageStore, clock: VirtualClock, receive: Receive
) -> None:
    sub = store.subscribe(TOPIC, "a")
    worker, found = wait_for_a_day(receive, sub)
    clock.advance(ms=DAY_MS - 1)
    time.sleep(0.02)
    assert not found
    clock.advance(ms=1)
    worker.join()
    assert found == [[]]


@kinds
def test_a_message_that_is_due_in_a_day_comes_to_one_who_waits(
    store: MessageStore, clock: VirtualClock, receive: Receive
) -> None:
    sub = store.subscribe(TOPIC, "a")
    store.append(TOPIC, 0, b"late", deliver_at_ms=clock.wall_ms() + DAY_MS - 5)
    worker, found = wait_for_a_day(receive, sub)
    clock.advance(ms=DAY_MS - 6)
    time.sleep(0.02)
    assert not found
    clock.advance(ms=1)
    worker.join()
    assert data_of(found) == [b"late"]


@pytest.mark.parametrize("receive", [Subscription.receive, in_a_loop, as_columns], ids=lambda kind: kind.__name__)
def test_a_receive_that_does_not_wait_sleeps_for_no_part_of_a_ms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receive: Receive
) -> None:
    clock = SteppedClock()
    clock.now = 1000.0005  # it stands still between two ms
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        sub = store.subscribe(TOPIC, "a")
        assert receive(sub) == []
        assert asyncio.run(store.read_async(TOPIC, 0)) == store.read(TOPIC, 0) == []
        assert store._waiting._purgatory is None, "nobody has waited"
        clock.now = 1001.0


def test_a_message_that_is_due_in_a_day_comes_to_a_loop_over_the_subscription(
    store: MessageStore, clock: VirtualClock
) -> None:
    sub = store.subscribe(TOPIC, "a")
    store.append(TOPIC, 0, b"late", deliver_at_ms=clock.wall_ms() + DAY_MS)
    worker, found = wait_for_a_day(iterated, sub)
    clock.advance(ms=DAY_MS)
    worker.join()
    assert data_of(found) == [b"late"]


@pytest.mark.parametrize("precision_ms", [0, 1_000])
def test_one_who_does_not_wait_finds_what_is_due_as_soon_as_the_clock_was_moved(
    store: MessageStore, clock: VirtualClock, precision_ms: int
) -> None:
    sub = store.subscribe(TOPIC, "a", precision_ms=precision_ms)
    for at in range(20):
        store.append(TOPIC, 0, b"%d" % at, deliver_at_ms=clock.wall_ms() + DAY_MS)
        assert sub.receive() == []
        clock.advance(ms=DAY_MS + precision_ms)
        (delivery,) = sub.receive()
        assert delivery.message.data == b"%d" % at
        sub.ack(delivery)


@pytest.mark.parametrize("precision_ms", [0, 1_000])
def test_a_jump_of_the_time_of_day_alone_delivers_what_is_due_then(
    store: MessageStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, precision_ms: int
) -> None:
    monkeypatch.setattr("stratalog.store.delayed.delays.LONGEST_S", 1e6)  # else the store would look by itself
    sub = store.subscribe(TOPIC, "a", precision_ms=precision_ms)
    store.append(TOPIC, 0, b"late", deliver_at_ms=clock.wall_ms() + DAY_MS)
    worker, found = wait_for_a_day(Subscription.receive, sub)
    time.sleep(0.1)  # the store's thread has come to rest
    clock.jump_wall(ms=DAY_MS + precision_ms)
    worker.join()
    assert data_of(found) == [b"late"]


def test_a_clock_that_is_set_back_delivers_nothing_early(store: MessageStore, clock: VirtualClock) -> None:
    sub = store.subscribe(TOPIC, "a")
    store.append(TOPIC, 0, b"late", deliver_at_ms=clock.wall_ms() + 1_000)
    clock.jump_wall(ms=-DAY_MS)
    worker, found = wait_for_a_day(Subscription.receive, sub)
    clock.advance(ms=1_000)
    time.sleep(0.05)
    assert not found
    clock.jump_wall(ms=DAY_MS)
    worker.join()
    assert data_of(found) == [b"late"]


@kinds
@pytest.mark.parametrize("timeout_ms", [1, 1001, 30_000, DAY_MS - 1])
def test_a_message_comes_again_when_its_time_out_is_over_by_the_clock(
    store: MessageStore, clock: VirtualClock, receive: Receive, timeout_ms: int
) -> None:
    fill(store, 1)
    sub = store.subscribe(TOPIC, "a")
    assert len(sub.receive(visibility_timeout_ms=timeout_ms)) == 1
    worker, found = wait_for_a_day(receive, sub)
    clock.advance(ms=timeout_ms - 1)
    time.sleep(0.02)
    assert not found
    clock.advance(ms=1)
    worker.join()
    assert [delivery.attempt for delivery in found[0]] == [2]


@kinds
def test_a_message_that_was_given_back_comes_after_its_delay_by_the_clock(
    store: MessageStore, clock: VirtualClock, receive: Receive
) -> None:
    fill(store, 1)
    sub = store.subscribe(TOPIC, "a")
    sub.nack(sub.receive()[0], delay_ms=3_600_000)
    worker, found = wait_for_a_day(receive, sub)
    clock.advance(ms=3_600_000)
    worker.join()
    assert len(found[0]) == 1


@kinds
@pytest.mark.parametrize("is_delayed", [False, True], ids=["in flight", "delayed"])
def test_one_who_is_about_to_sleep_when_the_clock_moves_does_not_sleep_for_another_day(
    store: MessageStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, receive: Receive, is_delayed: bool
) -> None:
    """The clock moves between the two times that a consumer reads."""
    sub = store.subscribe(TOPIC, "a")
    if is_delayed:
        store.append(TOPIC, 0, b"late", deliver_at_ms=clock.wall_ms() + DAY_MS - 10)
        sub.receive()
        delays, due_in_s = sub._dispatcher.delays, sub._dispatcher.delays.due_in_s

        def due_late() -> float:
            due_s = due_in_s()
            move()
            return due_s

        monkeypatch.setattr(delays, "due_in_s", due_late)
    else:
        fill(store, 1)
        sub.receive(visibility_timeout_ms=DAY_MS - 10)
        calling, now_ms = sub._state.calling, sub._state.calling._now_ms

        def old_ms() -> int:
            time_ms = now_ms()
            move()
            return time_ms

        monkeypatch.setattr(calling, "_now_ms", old_ms)
    moves: list[None] = []

    def move() -> None:
        if not moves:
            moves.append(None)
            clock.advance(ms=DAY_MS - 10)

    found: list[list[Delivery]] = []
    worker = start(lambda: found.append(receive(sub, wait_ms=DAY_MS)))
    worker.join()
    assert moves and len(found[0]) == 1


def test_extended_messages_stay_until_then_by_the_clock(store: MessageStore, clock: VirtualClock) -> None:
    fill(store, 1)
    sub = store.subscribe(TOPIC, "a")
    (delivery,) = sub.receive(visibility_timeout_ms=1_000)
    clock.advance(ms=999)
    sub.extend(delivery, DAY_MS)
    clock.advance(ms=DAY_MS - 1)
    assert sub.receive() == []
    clock.advance(ms=1)
    assert len(sub.receive()) == 1


@pytest.mark.parametrize("in_loop", [False, True], ids=["thread", "coroutine"])
def test_an_acknowledgement_at_the_cap_gives_up_by_the_clock(
    tmp_path: Path, clock: VirtualClock, in_loop: bool
) -> None:
    with MessageStore.open(tmp_path / "store", tiny(append_timeout_ms=1_001), clock=clock) as store:
        fill(store, 1)
        sub = store.subscribe(TOPIC, "a")
        (delivery,) = sub.receive()
        queue, errors = fill_buffer(sub), list[BaseException]()

        def ack() -> None:
            with pytest.raises(PublishBufferFull) as refused:
                asyncio.run(sub.ack_async(delivery)) if in_loop else sub.ack(delivery)
            errors.append(refused.value)

        worker = start(ack)
        until(lambda: len(queue._line) == 1)
        clock.advance(ms=1_000)
        time.sleep(0.02)
        assert not errors
        clock.advance(ms=1)
        worker.join()
        queue.release(queue.cap_bytes, 0)
        sub.ack(delivery)


def test_many_consumers_and_a_week_of_delays_end_in_no_time(store: MessageStore, clock: VirtualClock) -> None:
    """Threads and coroutines wait with long time-outs, while the clock moves by random steps: each message comes once,
    none before its time."""
    chance, count = random.Random(draw_seed()), 60
    begin_ms = clock.wall_ms()
    due = {b"%d" % at: begin_ms + chance.randrange(7 * DAY_MS) for at in range(count)}
    sub = store.subscribe(TOPIC, "a")
    for at, (data, due_ms) in enumerate(due.items()):
        store.append(TOPIC, at % 3, data, deliver_at_ms=due_ms)
    came: list[tuple[bytes, int]] = []
    is_over = threading.Event()

    def note(found: list[Delivery]) -> None:
        came.extend((delivery.message.data, clock.wall_ms()) for delivery in found)

    def consume() -> None:
        while not is_over.is_set():
            note(found := sub.receive(4, wait_ms=DAY_MS, visibility_timeout_ms=30 * DAY_MS))
            sub.ack_batch([delivery.receipt for delivery in found])

    async def consume_async() -> None:
        while not is_over.is_set():
            note(found := await sub.receive_async(4, wait_ms=DAY_MS, visibility_timeout_ms=30 * DAY_MS))
            for delivery in found:
                await sub.ack_async(delivery)

    async def loop() -> None:
        await asyncio.gather(*(consume_async() for _ in range(5)))

    workers = [*(start(consume) for _ in range(3)), start(lambda: asyncio.run(loop()))]
    while clock.wall_ms() < begin_ms + 7 * DAY_MS:
        now_ms = clock.advance(ms=chance.randrange(1, DAY_MS))
        until(lambda now_ms=now_ms: len(came) >= sum(due_ms <= now_ms for due_ms in due.values()))  # type: ignore[misc]
    is_over.set()
    until(lambda: clock.advance(ms=DAY_MS) > 0 and not any(worker.thread.is_alive() for worker in workers))
    for worker in workers:
        worker.join()
    assert sorted(data for data, _ in came) == sorted(due)
    assert all(at_ms >= due[data] for data, at_ms in came)
    assert sub.backlog().total == 0


def test_a_store_closes_while_its_clock_stands_still_and_consumers_wait(tmp_path: Path, clock: VirtualClock) -> None:
    disk = GatedDisk()
    store = MessageStore.open(tmp_path / "store", tiny(publish_buffer_bytes=64 * KIB), disk=disk, clock=clock)
    clock.advance(ms=1_001)
    sub = store.subscribe(TOPIC, "a")
    worker, _ = wait_for_a_day(lambda sub, **given: _until_closed(partial(sub.receive, **given)), sub)
    other, _ = wait_for_a_day(lambda sub, **given: _until_closed(partial(in_a_loop, sub, **given)), sub)
    store.close()
    worker.join()
    other.join()


def _until_closed(receive: Callable[[], list[Delivery]]) -> list[Delivery]:
    with pytest.raises(Exception, match="closed"):
        receive()
    return []
