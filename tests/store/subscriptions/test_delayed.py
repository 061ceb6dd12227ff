"""Delayed messages, as subscriptions get them."""

from __future__ import annotations

import json
from unittest.mock import patch

import numpy as np
import pytest

from stratalog.store import MessageStore
from stratalog.store.delayed import due_list
from stratalog.store.subscriptions import scanner

from .helpers import TOPIC, BothClocks, fill, places


@pytest.fixture
def clock() -> BothClocks:
    return BothClocks()


def append(store: MessageStore, queue_id: int, delay_ms: int, **more: object) -> int:
    """A message that is due so much later."""
    at_ms = store._clock.wall_ms() + delay_ms
    return store.append(TOPIC, queue_id, b"%d" % delay_ms, deliver_at_ms=at_ms, **more)  # type: ignore[arg-type]  # key or properties


def test_a_delayed_message_comes_at_its_time_and_holds_up_no_other(store: MessageStore, clock: BothClocks) -> None:
    sub = store.subscribe(TOPIC, "a")
    append(store, 0, 500)
    fill(store, 2)
    assert places(sub.receive()) == [(0, 1), (0, 2)]
    assert sub.backlog() == (0, 2, 1)
    clock.go(499)
    assert sub.receive() == []
    clock.go(1)
    assert places(sub.receive()) == [(0, 0)]
    assert sub.backlog() == (0, 3, 0)


def test_what_is_due_comes_by_time_and_place_before_new_messages(store: MessageStore, clock: BothClocks) -> None:
    sub = store.subscribe(TOPIC, "a")
    for queue_id, delay_ms in ((1, 30), (0, 20), (1, 10), (0, 30), (0, 10)):
        append(store, queue_id, delay_ms)
    assert sub.receive() == []
    clock.go(30)
    fill(store, 1)
    assert places(sub.receive(3)) == [(0, 2), (1, 1), (0, 0)]
    assert places(sub.receive()) == [(0, 1), (1, 0), (0, 3)]


def test_a_delayed_message_is_acknowledged_like_any_other(store: MessageStore, clock: BothClocks) -> None:
    sub = store.subscribe(TOPIC, "a")
    append(store, 0, 10)
    append(store, 0, 20)
    assert sub.receive() == []
    clock.go(20)
    first, second = sub.receive()
    sub.ack(first)
    sub.nack(second, delay_ms=5)
    assert sub.receive() == []
    clock.go(5)
    assert [(one.message.offset, one.attempt) for one in sub.receive()] == [(1, 2)]
    store.close()
    with MessageStore.open(store.path, clock=clock) as again:
        assert places(again.subscribe(TOPIC, "a").receive()) == [(0, 1)]


def test_cancelled_messages_never_come(store: MessageStore, clock: BothClocks) -> None:
    sub = store.subscribe(TOPIC, "a")
    early = append(store, 0, 10)
    late = append(store, 0, 20)
    unseen = append(store, 0, 30)
    assert store.cancel_delayed(TOPIC, 0, early)
    assert sub.receive() == []
    assert store.cancel_delayed(TOPIC, 0, late)
    clock.go(25)
    assert sub.receive() == []
    clock.go(5)
    assert places(sub.receive()) == [(0, unseen)]
    assert not store.cancel_delayed(TOPIC, 0, unseen)
    assert sub.backlog().total == 1


def test_moved_messages_come_at_their_new_time(store: MessageStore, clock: BothClocks) -> None:
    sub = store.subscribe(TOPIC, "a")
    append(store, 0, 10)
    append(store, 0, 1000)
    assert store.reschedule_delayed(TOPIC, 0, 0, clock.wall + 500)
    assert store.reschedule_delayed(TOPIC, 0, 1, clock.wall)
    assert places(sub.receive()) == [(0, 1)]
    clock.go(499)
    assert sub.receive() == []
    clock.go(1)
    assert places(sub.receive()) == [(0, 0)]


def test_a_seek_back_brings_what_was_delivered_again_and_nothing_early(store: MessageStore, clock: BothClocks) -> None:
    sub = store.subscribe(TOPIC, "a")
    for delay_ms in (10, 1000):
        append(store, 0, delay_ms)
    assert sub.receive() == []
    clock.go(10)
    sub.ack_batch(sub.receive())
    sub.seek("earliest")
    assert places(sub.receive()) == [(0, 0)]
    sub.skip_all()
    clock.go(1000)
    assert sub.receive() == []
    assert sub.backlog().total == 0


def test_filters_and_lines_hold_for_what_is_due(store: MessageStore, clock: BothClocks) -> None:
    wanted = store.subscribe(TOPIC, "filtered", filter={"tag": {"a"}})
    lines = store.subscribe(TOPIC, "lines", mode="ordered", order_by="key")
    for delay_ms, tag in ((10, "a"), (10, "b"), (5, "a")):
        append(store, 0, delay_ms, properties={"tag": tag}, key=b"k")
    assert wanted.receive() == lines.receive() == []
    assert wanted.backlog().total == 2
    clock.go(10)
    assert places(wanted.receive()) == [(0, 2), (0, 0)]
    order = []
    while got := lines.receive(1):
        order += places(got)
        assert lines.receive() == []
        lines.ack(got[0])
    assert order == [(0, 2), (0, 0), (0, 1)]


def test_one_that_missed_rows_scans_again(
    store: MessageStore, clock: BothClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_list, "DUE_ROWS", 8)
    monkeypatch.setattr(due_list, "STALE_S", 0.0)
    fast, slow = store.subscribe(TOPIC, "fast"), store.subscribe(TOPIC, "slow")
    for delay_ms in range(1, 61):
        append(store, 0, delay_ms)
    assert fast.receive() == slow.receive() == []
    clock.go(5)
    got = places(slow.receive(2))
    for _ in range(11):
        clock.go(5)
        fast.receive(100)
    while more := slow.receive(100):
        got += places(more)
    assert sorted(got) == [(0, at) for at in range(60)]


def test_a_turn_of_a_precision_takes_all_that_is_due_however_small_the_list_is(
    store: MessageStore, clock: BothClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_list, "DUE_ROWS", 3)
    sub = store.subscribe(TOPIC, "a", precision_ms=100)
    for delay_ms in range(1, 9):
        append(store, 0, delay_ms)
    assert sub.receive() == []
    sub.seek({0: 3})  # what is due first is acknowledged, and fills the list
    clock.go(200)
    got = places(sub.receive())
    while more := sub.receive():
        got += places(more)
    assert got == [(0, at) for at in range(3, 8)]
    append(store, 0, 1)
    assert sub.receive() == []
    clock.go(1)
    assert sub.receive() == [], "the turn is over"
    clock.go(99)
    assert places(sub.receive()) == [(0, 8)]


def test_a_turn_of_a_precision_goes_on_when_nobody_holds_it_up_any_more(
    store: MessageStore, clock: BothClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_list, "DUE_ROWS", 3)
    fast, slow = store.subscribe(TOPIC, "fast", precision_ms=100), store.subscribe(TOPIC, "slow")
    for delay_ms in range(1, 6):
        append(store, 0, delay_ms)
    assert fast.receive() == slow.receive() == []
    clock.go(200)
    assert places(fast.receive()) == [(0, 0), (0, 1), (0, 2)]
    assert fast.receive() == [], "there is no room for more"
    assert places(slow.receive()) == [(0, 0), (0, 1), (0, 2)]
    assert places(fast.receive()) == [(0, 3), (0, 4)]


@pytest.mark.parametrize("ahead", [1, 5, 256])
def test_random_delays_come_each_once_and_never_early(
    store: MessageStore, clock: BothClocks, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    monkeypatch.setattr(scanner, "AHEAD_MESSAGES", ahead)
    chance = np.random.default_rng(ahead)
    sub = store.subscribe(TOPIC, "a")
    due_ms: dict[tuple[int, int], int] = {}
    seen: set[tuple[int, int]] = set()
    left = 0
    for step in range(400):
        if step < 200:
            delay_ms = int(chance.integers(0, 300)) if chance.random() < 0.7 else 0
            queue_id = int(chance.integers(0, 3))
            offset = append(store, queue_id, delay_ms, properties={"n": json.dumps(step)})
            due_ms[queue_id, offset] = clock.wall + delay_ms
        clock.go(int(chance.integers(0, 4)))
        if chance.random() < 0.5 or step > 380:
            got = sub.receive(int(chance.integers(1, 8)) if step < 380 else 50)
            assert not seen & set(places(got))
            assert all(due_ms[place] <= clock.wall for place in places(got))
            seen |= set(places(got))
            sub.ack_batch([one for at, one in enumerate(got) if at % 5])
            left += (len(got) + 4) // 5
    clock.go(300)
    while got := sub.receive():
        assert not {one for one in places(got) if one not in due_ms}
        seen |= set(places(got))
        sub.ack_batch(got)
    assert seen == set(due_ms)
    assert sub.backlog() == (0, left, 0)


def test_receiving_one_at_a_time_is_quick_also_in_a_queue_with_delayed_messages(
    store: MessageStore, clock: BothClocks
) -> None:
    sub = store.subscribe(TOPIC, "a")
    append(store, 0, 500)
    append(store, 0, 800)
    fill(store, 100)
    with patch.object(sub._dispatcher, "take", wraps=sub._dispatcher.take) as take:
        assert [places(sub.receive(1)) for _ in range(40)] == [[(0, at)] for at in range(2, 42)]
        assert take.call_count <= 8, "a call in eight looks at all queues"
        clock.go(500)
        assert places(sub.receive(1)) == [(0, 0)], "what is due comes first"
        assert store.reschedule_delayed(TOPIC, 0, 1, clock.wall)
        assert places(sub.receive(1)) == [(0, 1)], "also what is due earlier than it was"
        slow = take.call_count
        assert [places(sub.receive(1)) for _ in range(40)] == [[(0, at)] for at in range(42, 82)]
        assert take.call_count - slow <= 8
