"""Messages that a trim or retention removes while consumers have them: they count as acknowledged at once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest

from stratalog.store import Delivery, MessageStore, StaleReceipt, Subscription
from stratalog.store.subscriptions.removed_receipts import RemovedReceipts

from ...clocks import SteppedClock
from ..delayed.test_retention import retire
from ..helpers import PATIENCE_S, tiny, until
from .helpers import TOPIC, BothClocks, fill, places

LONG_MS = 1 << 30
HOUR_MS = 3_600_000
Place = tuple[int, int]  # (queue id, offset)


@pytest.mark.parametrize("order_by", ["queue", "key"])
def test_a_line_goes_on_at_once_when_its_first_message_is_trimmed(store: MessageStore, order_by: str) -> None:
    for _ in range(4):
        store.append(TOPIC, 0, b"-", key=b"k")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by=order_by)  # type: ignore[call-overload]  # one of the two
    (first,) = sub.receive(1, visibility_timeout_ms=LONG_MS)
    store.trim(TOPIC, 0, 2)
    (next_one,) = sub.receive(1)
    assert places([next_one]) == [(0, 2)]
    assert sub.receive(1) == []
    sub.ack(first)
    assert sub.receive(1) == [], "its line has gone on already"
    sub.ack(next_one)
    assert places(sub.receive(1)) == [(0, 3)]


def test_a_consumer_that_waits_for_a_line_is_woken_by_a_trim(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 2)
        sub = store.subscribe(TOPIC, "a", mode="ordered")
        sub.receive(1, visibility_timeout_ms=LONG_MS)
        came: list[Delivery] = []
        thread = threading.Thread(target=lambda: came.extend(sub.receive(wait_ms=int(PATIENCE_S * 1000))))
        thread.start()
        until(lambda: len(store._fetcher.waiting) > 0)
        store.trim(TOPIC, 0, 1)
        thread.join(PATIENCE_S / 4)
        assert places(came) == [(0, 1)]


def remove(store: MessageStore, clock: BothClocks) -> None:
    """Have retention take all that is in sealed segments."""
    for _ in range(100):
        clock.go(100)
        store.append("other", 0, bytes(3000))
    clock.go(10_000)
    retire(store)


@pytest.mark.parametrize("mode", ["shared", "ordered"])
def test_what_retention_removes_takes_no_memory_and_frees_its_line(tmp_path: Path, mode: str) -> None:
    clock = BothClocks()
    with MessageStore.open(tmp_path / "store", tiny(retention_ms=1_000), clock=clock) as store:
        fill(store, 1, 1, 1)
        sub = store.subscribe(TOPIC, "a", mode=mode)  # type: ignore[call-overload]  # one of the two
        got = sub.receive(visibility_timeout_ms=LONG_MS)
        remove(store, clock)
        fill(store, 1, 1, 1)
        assert sorted(places(sub.receive())) == [(0, 1), (1, 1), (2, 1)]
        assert len(sub._state.table) == 3
        sub.ack_batch(got)
        assert sub.backlog() == (0, 3, 0)


def test_a_message_that_lives_on_as_a_copy_stays_with_its_consumer(tmp_path: Path) -> None:
    clock = BothClocks()
    with MessageStore.open(tmp_path / "store", tiny(retention_ms=1_000), clock=clock) as store:
        sub = store.subscribe(TOPIC, "a", mode="ordered")
        for _ in range(2):
            store.append(TOPIC, 0, b"later", deliver_at_ms=clock.wall + HOUR_MS)
        remove(store, clock)
        clock.go(HOUR_MS)
        (first,) = sub.receive(1, visibility_timeout_ms=LONG_MS)
        assert places([first]) == [(0, 0)]
        remove(store, clock)
        assert sub.receive() == [], "the first one is out still"
        sub.ack(first)
        assert places(sub.receive()) == [(0, 1)]


def test_a_trim_reaches_what_was_read_ahead_of_what_retention_has_removed(tmp_path: Path) -> None:
    clock = BothClocks()
    with MessageStore.open(tmp_path / "store", tiny(retention_ms=1_000), clock=clock) as store:
        fill(store, 5)
        sub = store.subscribe(TOPIC, "a", start="earliest")
        assert places(sub.receive(1)) == [(0, 0)]  # the others are read by now, and wait for the next calls
        remove(store, clock)
        first, end = store.queue_bounds(TOPIC, 0)
        assert first == end == 5
        assert store.trim(TOPIC, 0, 3) == 5
        assert places(sub.receive(10)) == [(0, 3), (0, 4)]
        store.trim(TOPIC, 0, 5)
        assert sub.receive(10) == []


# -- their receipts -----------------------------------------------------------------------------------


@pytest.fixture
def removed(store: MessageStore) -> tuple[Subscription, list[Delivery]]:
    """Six messages that a consumer has, of which the first three are trimmed."""
    fill(store, 6)
    sub = store.subscribe(TOPIC, "a")
    got = sub.receive(visibility_timeout_ms=1_000)
    store.trim(TOPIC, 0, 3)
    assert sub.receive() == []
    assert sub.backlog() == (0, 3, 0)
    return sub, got


def test_who_acknowledges_a_removed_message_is_right(removed: tuple[Subscription, list[Delivery]]) -> None:
    sub, got = removed
    sub.ack(got[0])
    asyncio.run(sub.ack_async(got[1]))
    ticket = sub.submit_ack(got[2])
    assert ticket.done()
    ticket.result()
    sub.ack_batch(got[:2])
    sub.nack_batch(got[:4])
    sub.extend(got[1], 500)
    assert places(sub.receive()) == [(0, 3)]
    sub.ack_batch(got[2:3] + got[4:])
    assert sub.backlog() == (0, 1, 0)


def test_receipts_of_removed_messages_are_stale_in_the_end_and_the_error_says_why(
    removed: tuple[Subscription, list[Delivery]], clock: SteppedClock, store: MessageStore
) -> None:
    sub, got = removed
    for low in (4, 5):
        clock.now += 2
        fill(store, 1)
        sub.receive(visibility_timeout_ms=1_000)
        store.trim(TOPIC, 0, low)
        sub.receive(visibility_timeout_ms=1_000)
    with pytest.raises(StaleReceipt, match="removed"):
        sub.ack(got[0])


def test_receipts_are_remembered_until_their_deadlines_and_let_go_then() -> None:
    removed = RemovedReceipts()
    assert not removed
    for at in range(100):
        removed.add(np.arange(at * 10, at * 10 + 5), until_ms=at + 20, now_ms=at)
        for begin in range(max(0, at - 19), at + 1):
            assert removed.are_in(np.arange(begin * 10, begin * 10 + 6)).tolist() == [True] * 5 + [False]
    assert 0 not in removed
