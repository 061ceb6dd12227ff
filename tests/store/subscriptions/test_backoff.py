"""The back-off of a subscription: what failed rests before it comes again."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path

import numpy as np
import pytest

from stratalog.store import InvalidMessage, MessageStore, Subscription
from stratalog.store.subscriptions.backoff import check_backoff, rests_ms
from stratalog.store.testing import SimulatedDisk
from stratalog.testing import VirtualClock

from ...clocks import SteppedClock
from ...seeds import draw_seed
from ..helpers import PATIENCE_S, tiny
from .helpers import TOPIC, BothClocks, fill, places

DELAYS = [1000, 5000, 30_000]


@pytest.fixture
def clock() -> BothClocks:
    return BothClocks()


def comes_after_ms(sub: Subscription, clock: BothClocks, visibility_ms: int = 30_000) -> int:
    """How much time passes until the next message comes."""
    for ms in range(0, 100_000, 500):
        if found := sub.receive(1, visibility_timeout_ms=visibility_ms):
            assert len(found) == 1
            return ms
        clock.go(500)
    raise AssertionError("it does not come")


def test_a_message_that_is_given_back_rests_by_its_attempt_and_the_last_delay_repeats(
    store: MessageStore, clock: BothClocks
) -> None:
    fill(store, 1)
    sub = store.subscribe(TOPIC, "a", backoff_ms=DELAYS)
    (one,) = sub.receive()
    seen = list[int]()
    for _ in range(5):
        sub.nack_batch([one])
        assert sub.backlog() == (0, 0, 1), "delayed"
        seen.append(comes_after_ms(sub, clock))
        (row,) = sub.in_flight()
        one = row.receipt  # type: ignore[assignment]
    assert seen == [1000, 5000, 30_000, 30_000, 30_000]


def test_a_message_that_times_out_rests_after_its_time_and_a_late_consumer_may_acknowledge_it(
    store: MessageStore, clock: BothClocks
) -> None:
    fill(store, 2)
    sub = store.subscribe(TOPIC, "a", backoff_ms=DELAYS)
    late, other = sub.receive(visibility_timeout_ms=2000)
    clock.go(2000)
    assert sub.receive() == [] and sub.in_flight() == []
    assert sub.backlog() == (0, 0, 2)
    clock.go(500)
    sub.ack(late)
    clock.go(499)
    assert sub.receive() == []
    clock.go(1)
    (again,) = sub.receive(visibility_timeout_ms=2000)
    assert (again.message.data, again.attempt) == (other.message.data, 2)
    clock.go(2000 + 4999)
    assert sub.receive() == []
    clock.go(1)
    assert [one.attempt for one in sub.receive()] == [3]


def test_nobody_looks_until_long_after_and_the_rest_is_over_as_well(store: MessageStore, clock: BothClocks) -> None:
    fill(store, 1)
    sub = store.subscribe(TOPIC, "a", backoff_ms=DELAYS)
    sub.receive(visibility_timeout_ms=2000)
    clock.go(3000)
    assert len(sub.receive()) == 1


def test_a_resting_message_may_be_given_back_kept_longer_or_met_by_a_seek(
    store: MessageStore, clock: BothClocks
) -> None:
    fill(store, 3)
    sub = store.subscribe(TOPIC, "a", backoff_ms=[10_000])
    first, second, third = sub.receive(visibility_timeout_ms=1000)
    clock.go(1000)
    assert sub.receive() == []
    sub.nack(first, 100)
    sub.extend(second, 300)
    clock.go(100)
    assert places(sub.receive()) == [(0, 0)]
    sub.ack(second)
    sub.seek("earliest")
    assert places(sub.receive()) == [(0, 0), (0, 1), (0, 2)]
    del third


def test_a_delay_that_is_given_counts_and_a_closed_consumers_messages_come_at_once(
    store: MessageStore, clock: BothClocks
) -> None:
    fill(store, 2)
    sub, stays = store.subscribe(TOPIC, "a", backoff_ms=DELAYS), store.subscribe(TOPIC, "a")
    one, _ = sub.receive()
    sub.nack(one, 7)
    clock.go(7)
    assert places(sub.receive()) == [(0, 0)]
    sub.close()
    assert sorted(places(stays.receive())) == [(0, 0), (0, 1)]


@pytest.mark.parametrize("is_seen", [True, False])
def test_what_had_failed_before_its_consumer_was_closed_rests_on(
    store: MessageStore, clock: BothClocks, is_seen: bool
) -> None:
    fill(store, 3)
    sub, stays = store.subscribe(TOPIC, "a", backoff_ms=DELAYS), store.subscribe(TOPIC, "a")
    one, _ = sub.receive(2, visibility_timeout_ms=10)
    sub.receive(1, visibility_timeout_ms=5000)
    sub.nack(one)
    clock.go(10)
    if is_seen:
        assert stays.receive() == []
    assert stays.backlog() == (0, 1, 2), "it rests, whether a look has met it or not"
    sub.close()
    assert stays.backlog() == (1, 0, 2)
    assert places(stays.receive()) == [(0, 2)], "the others have failed, and this one has not"
    clock.go(990)
    assert places(stays.receive()) == [(0, 0)]
    clock.go(10)
    assert places(stays.receive()) == [(0, 1)]


def test_no_rest_outlives_the_last_object(store: MessageStore) -> None:
    fill(store, 1)
    sub = store.subscribe(TOPIC, "a", backoff_ms=DELAYS)
    sub.nack(sub.receive()[0])
    sub.close()
    assert len(store.subscribe(TOPIC, "a").receive()) == 1


def test_what_has_no_attempt_left_goes_to_the_dead_letters_without_a_rest(
    store: MessageStore, clock: BothClocks
) -> None:
    fill(store, 2)
    sub = store.subscribe(TOPIC, "a", max_attempts=2, dead_letter_topic="dead", backoff_ms=[1000])
    sub.nack_batch(sub.receive())
    assert sub.receive() == []
    clock.go(1000)
    one, _ = sub.receive(visibility_timeout_ms=5000)
    sub.nack(one)
    assert sub.receive() == []
    assert store.queue_bounds("dead", 0) == (0, 1)
    clock.go(5000)
    assert sub.receive() == []
    assert store.queue_bounds("dead", 0) == (0, 2)


@pytest.mark.parametrize("order_by", ["queue", "key"])
def test_an_ordered_line_waits_for_what_rests_and_keeps_its_order(
    store: MessageStore, clock: BothClocks, order_by: str
) -> None:
    for at in range(4):
        store.append(TOPIC, 0, b"%d" % at, key=b"k")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by=order_by, backoff_ms=[1000, 9000])  # type: ignore[call-overload]
    seed = draw_seed()
    chance, done = random.Random(seed), list[bytes]()
    for _ in range(2000):
        got = sub.receive(chance.randint(1, 3), visibility_timeout_ms=500)
        if not got:
            clock.go(250)
        for at, one in enumerate(got):
            assert one.message.data == b"%d" % (len(done) + at), f"seed {seed}"
        good = chance.randint(0, len(got))
        for one in got[:good]:
            sub.ack(one)
            done.append(one.message.data)
        if got[good:] and chance.random() < 0.7:
            sub.nack_batch(got[good:])
        elif got[good:]:
            clock.go(500)
        if len(done) == 4:
            break
    assert done == [b"0", b"1", b"2", b"3"]


def test_many_messages_rest_each_by_its_own_attempt(store: MessageStore, clock: BothClocks) -> None:
    """A model: when each of 200 messages may come again."""
    chance, delays = random.Random(draw_seed()), [750, 1250, 4000]
    fill(store, 100, 100)
    sub = store.subscribe(TOPIC, "a", backoff_ms=delays)
    attempts, free_ms, now = dict[tuple[int, int], int](), dict[tuple[int, int], int](), 0
    for _ in range(60):
        batch = sub.receive_batch(1000, visibility_timeout_ms=1000)
        came = {(one.message.queue_id, one.message.offset): one for one in batch.deliveries()}
        due = {(queue, at) for queue in (0, 1) for at in range(100) if free_ms.get((queue, at), 0) <= now}
        assert set(came) == due
        for place, one in came.items():
            attempts[place] = attempts.get(place, 0) + 1
            assert one.attempt == attempts[place]
            rest = delays[min(attempts[place], 3) - 1]
            if chance.random() < 0.5:
                sub.nack(one)
                free_ms[place] = now + rest
            else:
                free_ms[place] = now + 1000 + rest
        clock.go(125)
        now += 125


def test_a_waiting_consumer_is_woken_when_the_rest_is_over(tmp_path: Path) -> None:
    clock, got = VirtualClock(), list[int]()
    with MessageStore.open(tmp_path, disk=SimulatedDisk(), clock=clock) as store:
        store.append(TOPIC, 0, b"x")
        sub = store.subscribe(TOPIC, "a", backoff_ms=[10_000])
        sub.nack(sub.receive()[0])

        def wait() -> None:
            got.extend(one.attempt for one in sub.receive(wait_ms=10_000_000))

        thread = threading.Thread(target=wait)
        thread.start()
        clock.advance(ms=9_999)
        assert got == []
        clock.advance(ms=2)  # before the visibility time-out, which would wake it, too
        thread.join(PATIENCE_S / 2)
        assert got == [2]


def test_it_is_durable_and_changed_for_all_and_ended(tmp_path: Path, clock: BothClocks) -> None:
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        store.subscribe(TOPIC, "a", backoff_ms={"first_ms": 100, "factor": 2, "most_ms": 500})
        store.subscribe(TOPIC, "b")
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        a, b = (one.settings for one in store.subscriptions(TOPIC))
        assert (a.backoff_ms, b.backoff_ms) == ((100, 200, 400, 500), None)
        sub, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a", backoff_ms=[100, 200, 400, 500])
        with pytest.raises(InvalidMessage, match="backoff_ms"):
            store.subscribe(TOPIC, "a", backoff_ms=[1])
        other.change(backoff_ms=[50])
        other.change(precision_ms=3)
        fill(store, 1)
        sub.nack(sub.receive()[0])
        assert sub.receive() == []
        clock.go(50)
        (one,) = sub.receive()
        asyncio.run(sub.change_async(backoff_ms=[]))
        other.nack(one)
        assert len(sub.receive()) == 1
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        assert store.subscriptions(TOPIC)[0].settings.backoff_ms is None
        store.subscribe(TOPIC, "a", backoff_ms=[])


def test_delays_that_grow_are_a_list() -> None:
    assert check_backoff({"first_ms": 1000, "factor": 3, "most_ms": 10_000}) == (1000, 3000, 9000, 10_000)
    assert check_backoff({"first_ms": 7, "factor": 1.5, "most_ms": 7}) == (7,)
    grown = check_backoff({"first_ms": np.int64(1), "factor": np.float64(1e9), "most_ms": 1 << 40})
    assert grown == (1, 10**9, 1 << 40)
    assert check_backoff(np.array([1, 2])) == check_backoff((1, 2)) == (1, 2)
    assert check_backoff([]) is None
    assert rests_ms((5, 6), 4, np.arange(6)).tolist() == [5, 5, 6, 6, 0, 0]


@pytest.mark.parametrize(
    "given",
    [
        5, "1000", b"ab", [-1], [1.5], [True], ["5"], [None], [1 << 41], [1] * 1001, [[1]], {1, 2}, {},
        {"first_ms": 1000}, {"first_ms": 0, "factor": 2, "most_ms": 5}, {"first_ms": 9, "factor": 2, "most_ms": 5},
        {"first_ms": 1, "factor": 1, "most_ms": 5}, {"first_ms": 1, "factor": float("nan"), "most_ms": 5},
        {"first_ms": 1, "factor": float("inf"), "most_ms": 5}, {"first_ms": 1, "factor": "2", "most_ms": 5},
        {"first_ms": 1, "factor": 1.001, "most_ms": 1 << 40}, {"first_ms": 1, "factor": 2, "most_ms": 5, "x": 1},
        {"first_ms": 1, "factor": 10**400, "most_ms": 5}, {"first_ms": 1, "factor": True, "most_ms": 5},
        np.zeros((2, 2), np.int64),
    ],
    ids=str,
)  # fmt: skip
def test_a_policy_that_is_none_is_refused(store: MessageStore, clock: SteppedClock, given: object) -> None:
    with pytest.raises(InvalidMessage):
        store.subscribe(TOPIC, "a", backoff_ms=given)  # type: ignore[call-overload]
    assert store.subscriptions() == []
    sub = store.subscribe(TOPIC, "b", backoff_ms=[1])
    with pytest.raises(InvalidMessage):
        sub.change(backoff_ms=given)  # type: ignore[arg-type]
    assert store.subscriptions()[0].settings.backoff_ms == (1,)
