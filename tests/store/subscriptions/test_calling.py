"""News wakes one of the consumers that wait, and none is left asleep."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Self
from unittest import mock

import numpy as np
import pytest

from stratalog.store import Delivery, MessageStore, Subscription, SubscriptionClosed
from stratalog.store.subscriptions.ack_row import AckRow
from stratalog.store.subscriptions.calling import Sleeper
from stratalog.store.subscriptions.receiving import Looking

from ...seeds import draw_seed
from ..helpers import tiny, until
from ..interrupts import interrupt_at, places
from .helpers import TOPIC

WAIT_MS = 120_000  # nobody looks by himself before a test has failed
WAITING = 8
MOMENTS = 10  # of 5 ms, for which nothing happens
CALLING = ("calling.py", "receiving.py")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "s", tiny()) as opened:
        yield opened


@contextmanager
def waiting(sub: Subscription, count: int, take: Callable[[], list[Delivery]]) -> Iterator[list[list[Delivery]]]:
    """So many threads that wait in one receive each, and what they got."""
    got: list[list[Delivery]] = []
    threads = [threading.Thread(target=lambda: got.append(take())) for _ in range(count)]
    for thread in threads:
        thread.start()
    until(lambda: len(sub._state.parts.waiting) + len(got) >= count)  # a slow machine lets a time-out pass before
    try:
        yield got
    finally:
        sub.close()
        for thread in threads:
            thread.join()


def one(sub: Subscription) -> Callable[[], list[Delivery]]:
    def take() -> list[Delivery]:
        try:
            return sub.receive(1, wait_ms=WAIT_MS)
        except Exception:
            return []

    return take


def at_rest(figure: Callable[[], int]) -> None:
    """Wait until a figure stays the same: nobody looks any more."""
    seen = [figure()]
    while len(seen) < MOMENTS or seen[-MOMENTS:] != seen[-1:] * MOMENTS:
        time.sleep(0.005)
        seen.append(figure())


@pytest.mark.parametrize("count", [WAITING, 4 * WAITING])
def test_a_message_is_looked_for_once_however_many_wait(store: MessageStore, count: int) -> None:
    sub, looks = store.subscribe(TOPIC, "a"), list[int]()
    with (
        mock.patch.object(sub._dispatcher, "take", wraps=sub._dispatcher.take) as take,
        waiting(sub, count, one(sub)) as got,
    ):
        for sent in range(1, 6):
            at_rest(lambda: take.call_count)
            take.reset_mock()
            store.append(TOPIC, 0, b"x")
            until(lambda sent=sent: len(got) == sent)  # type: ignore[misc]
            at_rest(lambda: take.call_count)  # others that were woken would look meanwhile
            looks.append(take.call_count)
    assert median(looks) <= 2, "on a busy machine some come to rest later than it seems"


@pytest.mark.parametrize("count", [WAITING, 4 * WAITING])
def test_one_of_those_who_wait_is_asked_whether_a_message_is_news(store: MessageStore, count: int) -> None:
    sub, asked, each = store.subscribe(TOPIC, "a"), [0], list[int]()
    real = Looking.has_changed

    def has_changed(looks: Looking, sleeper: Sleeper) -> bool:
        asked[0] += 1
        return real(looks, sleeper)

    with mock.patch.object(Looking, "has_changed", has_changed), waiting(sub, count, one(sub)) as got:
        for sent in range(1, 6):
            at_rest(lambda: asked[0])  # all have looked, and wait
            asked[0] = 0
            store.append(TOPIC, 0, b"x")
            until(lambda sent=sent: len(got) == sent)  # type: ignore[misc]
            each.append(asked[0])
    assert median(each) <= 3, each


def test_a_wait_that_ends_without_news_looks_at_nothing(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a")
    assert sub.receive(1) == []
    with mock.patch.object(sub._dispatcher, "take", wraps=sub._dispatcher.take) as take:
        for wait_ms in [1] * 20:
            assert sub.receive(1, wait_ms=wait_ms) == []
            assert sub.receive(1) == []
        assert take.call_count == 0
        store.append("other", 0, b"x")
        assert sub.receive(1, wait_ms=1) == []
        assert take.call_count == 0, "another topic's message is no news"
        store.append(TOPIC, 0, b"x")
        assert len(sub.receive(1, wait_ms=1)) == 1
        assert take.call_count == 1


def test_consumers_that_wait_again_look_for_each_message_once(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.store.subscriptions.calling.PATIENCE_MS", WAIT_MS)
    sub, got, messages = store.subscribe(TOPIC, "a"), list[int](), 10

    def consume() -> None:
        with suppress(SubscriptionClosed):
            while True:
                for delivery in sub.receive(1, wait_ms=WAIT_MS):
                    sub.ack(delivery)
                    got.append(delivery.message.offset)

    with ThreadPoolExecutor(WAITING) as threads:
        for _ in range(WAITING):
            threads.submit(consume)
        try:
            until(lambda: len(sub._state.parts.waiting) >= WAITING)
            with mock.patch.object(sub._dispatcher, "take", wraps=sub._dispatcher.take) as take:
                for sent in range(1, messages + 1):
                    store.append(TOPIC, 0, b"x")
                    until(lambda sent=sent: len(got) == sent and len(sub._state.parts.waiting) >= WAITING)  # type: ignore[misc]
                assert take.call_count <= messages + messages // 2
        finally:
            sub.close()


def test_many_messages_of_one_append_wake_as_many_as_they_need(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a")
    with waiting(sub, WAITING, one(sub)) as got:
        store.append_batch([(TOPIC, at % 3, b"x") for at in range(WAITING)])
        until(lambda: len(got) == WAITING)
        assert all(len(batch) == 1 for batch in got)


def test_what_one_leaves_by_its_size_goes_to_the_next(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a")
    with waiting(sub, 2, lambda: sub.receive_batch(10, wait_ms=WAIT_MS, max_bytes=3).deliveries()) as got:
        store.append_batch([(TOPIC, 0, b"xx"), (TOPIC, 0, b"yy")])
        until(lambda: len(got) == 2)


def test_what_times_out_or_is_given_back_wakes_one(store: MessageStore) -> None:
    sub, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a")
    with waiting(sub, 3, one(sub)) as got:
        store.append_batch([(TOPIC, 0, b"x")] * 3)
        until(lambda: len(got) == 3)
    first = other.receive(3)
    assert len(first) == 3
    other.nack_batch([first[1]], delay_ms=50)
    with waiting(store.subscribe(TOPIC, "a"), 3, lambda: other.receive(1, WAIT_MS)) as got:
        other.nack(first[0])
        other.extend(first[2], ms=100)
        until(lambda: len(got) == 3)
    assert {batch[0].attempt for batch in got} == {3}


def test_a_deadline_that_comes_while_all_sleep_wakes_one(store: MessageStore) -> None:
    sub, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a")
    with waiting(sub, 2, one(sub)) as got:
        with mock.patch("stratalog.store.subscriptions.receiving.Looking.has_changed", return_value=False):
            store.append(TOPIC, 0, b"x")  # whoever comes is quicker than those who wait
            assert len(other.receive(1, visibility_timeout_ms=100)) == 1
        until(lambda: len(got) == 1)


def test_a_message_that_is_kept_for_less_time_wakes_one_when_that_is_over(store: MessageStore) -> None:
    sub, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a")
    store.append(TOPIC, 0, b"x")
    (first,) = other.receive(1, visibility_timeout_ms=WAIT_MS)
    with waiting(sub, 1, one(sub)) as got:
        other.extend(first, ms=50)
        until(lambda: len(got) == 1)


def test_a_deadline_that_comes_just_before_a_consumer_sleeps_is_not_missed(store: MessageStore) -> None:
    sub, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a")
    real = Looking.may_sleep

    def may_sleep(looks: Looking) -> bool:
        found = real(looks)
        time.sleep(0.1)  # a busy machine
        return found

    store.append(TOPIC, 0, b"x")
    assert len(other.receive(1, visibility_timeout_ms=50)) == 1
    begin_s = time.monotonic()
    with mock.patch.object(Looking, "may_sleep", may_sleep):
        assert len(sub.receive(1, wait_ms=60_000)) == 1
    assert time.monotonic() - begin_s < 30


def test_what_is_given_out_just_before_a_consumer_sleeps_wakes_it_when_it_times_out(store: MessageStore) -> None:
    sub, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a")
    real = Looking._next_ms

    def next_ms(looks: Looking) -> int:
        found = real(looks)
        if store.queue_bounds(TOPIC, 0) == (0, 0):
            store.append(TOPIC, 0, b"x")
            while other.receive(1, visibility_timeout_ms=50):
                pass  # the second look finds nothing; the message comes again if the machine stalls between the two
        return found

    with mock.patch.object(Looking, "_next_ms", next_ms), waiting(sub, 1, one(sub)) as got:
        until(lambda: len(got) == 1)


def test_a_consumer_that_is_interrupted_leaves_the_next_one_its_timer(store: MessageStore) -> None:
    store.append(TOPIC, 0, b"x")
    for place in places():
        sub = store.subscribe(TOPIC, f"{place}")
        assert len(sub.receive(1, visibility_timeout_ms=30)) == 1
        was, _ = interrupt_at(place, CALLING, lambda: sub.receive(1, 10, 30))  # noqa: B023  # called at once
        with waiting(sub, 1, one(sub)) as got:
            until(lambda: len(got) == 1)
        if not was:
            break


def test_a_receive_that_is_interrupted_leaves_no_sleeper_without_a_timer(store: MessageStore) -> None:
    for place in places():
        sub, other = store.subscribe(TOPIC, f"{place}", "latest"), store.subscribe(TOPIC, f"{place}")
        with waiting(sub, 1, one(sub)) as got:
            with mock.patch.object(Looking, "has_changed", return_value=False):
                store.append(TOPIC, 0, b"x")
            was, _ = interrupt_at(place, CALLING, lambda: other.receive_batch(1, 0, 30))  # noqa: B023  # as above
            if not len(sub._state.table):  # it has not come so far: the news is still to be told
                sub._state.notify()
            until(lambda: len(got) == 1)
        if not was:
            break


def test_a_delayed_message_wakes_one_when_it_is_due(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a")
    with waiting(sub, 4, one(sub)) as got:
        now_ms = time.time_ns() // 1_000_000
        for after_ms in (150, 100):
            store.append(TOPIC, 0, b"x", deliver_at_ms=now_ms + after_ms)
        until(lambda: len(got) == 2)


def test_the_next_one_of_a_line_wakes_one(store: MessageStore) -> None:
    sub, other = store.subscribe(TOPIC, "a", mode="ordered"), store.subscribe(TOPIC, "a", mode="ordered")
    store.append_batch([(TOPIC, 0, b"x")] * 2)
    (first,) = other.receive(1)
    with waiting(sub, 3, one(sub)) as got:
        other.ack(first)
        until(lambda: len(got) == 1)


def test_an_acknowledgement_that_others_meet_before_it_settles_wakes_one_of_its_line(store: MessageStore) -> None:
    sub, other = [store.subscribe(TOPIC, "a", mode="ordered", order_by="key") for _ in range(2)]
    for key in (b"a", b"b", b"a"):
        store.append(TOPIC, 0, b"x", key=key)
    (first,), _ = [other.receive(1, visibility_timeout_ms=WAIT_MS) for _ in range(2)]

    class Stored(list[AckRow]):
        def __iadd__(self, rows: Iterable[AckRow], /) -> Self:  # type: ignore[override,misc]  # no sum of such lists is made
            super().__iadd__(rows)
            with sub._state.lock:  # before the answer takes it
                sub._state.take_in()
            return self

    with waiting(sub, 1, one(sub)) as got, mock.patch.object(sub._state, "stored", Stored()):
        other.ack(first)
        until(lambda: len(got) == 1)
    assert got[0][0].message.offset == 2


def test_one_who_was_called_and_goes_calls_the_next(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a")
    gone = threading.Event()
    real = sub._dispatcher.take

    def take(*given: object) -> object:
        if not gone.is_set() and sub._state.calling._looker is not None:
            gone.set()
            raise KeyboardInterrupt
        return real(*given)  # type: ignore[arg-type]

    def quietly() -> list[Delivery]:
        try:
            return sub.receive(1, wait_ms=WAIT_MS)
        except (KeyboardInterrupt, Exception):
            return []

    with mock.patch.object(sub._dispatcher, "take", take), waiting(sub, 3, quietly) as got:
        store.append(TOPIC, 0, b"x")
        until(lambda: sorted(map(len, got)) == [0, 1])


def test_what_is_told_during_a_look_is_looked_at_after_it(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a")
    calling, called, next_one = sub._state.calling, Sleeper(), Sleeper()
    assert calling.may_look(called)
    calling.begins()
    assert not calling.may_look(next_one), "one at a time"
    with mock.patch.object(calling, "call", wraps=calling.call) as call:
        calling.ended(called, has_more=False)
    assert call.call_count == 1
    assert calling.may_look(next_one)


def test_a_coroutine_that_is_cancelled_passes_its_call_on(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a")

    async def run() -> None:
        tasks = [asyncio.create_task(sub.receive_async(1, wait_ms=WAIT_MS)) for _ in range(4)]
        while len(sub._state.parts.waiting) < 4:
            await asyncio.sleep(0.001)  # until all of them are watched
        await asyncio.to_thread(store.append, TOPIC, 0, b"x")
        tasks[0].cancel()
        while not any(got := [task.result() for task in tasks if task.done() and not task.cancelled()]):
            await asyncio.sleep(0.001)  # the cancelled one may have got it; the limit is the test's
        assert sum(map(len, got)) == 1
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(3))
def test_no_call_is_lost_where_consumers_come_and_go(store: MessageStore, seed: int) -> None:
    """Some wait until they are called, others for a moment: what any of them is told is looked at by somebody."""
    chance = np.random.default_rng([draw_seed(), seed])
    sub, got, sent = store.subscribe(TOPIC, "a"), set[int](), 0
    over = threading.Event()

    def take(consumer: Subscription, moments_ms: list[int]) -> None:
        with suppress(SubscriptionClosed):
            for wait_ms in itertools.cycle(moments_ms):
                for delivery in consumer.receive(2, wait_ms=wait_ms):
                    if delivery.attempt == 1 and delivery.message.offset % 7 == 0:
                        consumer.nack(delivery, delay_ms=delivery.message.offset % 3)
                    else:
                        consumer.ack(delivery)
                        got.add(delivery.message.offset)
                if over.is_set():
                    return

    def passing() -> None:
        while not over.is_set():
            with store.subscribe(TOPIC, "a") as other:
                other.receive(1, wait_ms=3)  # and leaves what it has got

    moments = [[WAIT_MS]] * 3 + [chance.integers(0, 6, 20).tolist() for _ in range(3)]
    with ThreadPoolExecutor(7) as threads:
        tasks = [threads.submit(take, sub, each) for each in moments] + [threads.submit(passing)]
        try:
            for _ in range(40):
                count = int(chance.integers(1, 6))
                store.append_batch([(TOPIC, 0, b"x")] * count)
                sent += count
                if chance.random() < 0.5:
                    until(lambda sent=sent: len(got) == sent)  # type: ignore[misc]
            until(lambda: len(got) == sent)
        finally:
            over.set()
            sub.close()
    assert [task.exception() for task in tasks] == [None] * 7
