"""What comes again of the lines of an ordered subscription: in order, and by short looks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest

from stratalog.store import MessageStore, PublishBufferFull, StoreFull
from stratalog.store.subscriptions import redelivery, state
from stratalog.store.subscriptions.committing import PendingMessages
from stratalog.store.subscriptions.delivery import Fetches, Room
from stratalog.store.subscriptions.in_flight import Places

from ...clocks import SteppedClock
from ..helpers import PATIENCE_S, tiny, until
from .helpers import TOPIC, fill
from .test_failed_acks import begin_to_ack
from .test_order import ORDERS, OrderBy, keyed, offsets


@pytest.mark.parametrize("order_by", ORDERS)
def test_behind_a_dead_letter_that_cannot_be_moved_nothing_of_its_line_comes_again(
    store: MessageStore, clock: SteppedClock, order_by: OrderBy
) -> None:
    keyed(store, b"xxx")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by=order_by, max_attempts=2, dead_letter_topic="dead")
    got = sub.receive()
    sub.nack_batch(got)
    (again_0,) = sub.receive(1)
    sub.nack(again_0)
    with patch.object(PendingMessages, "add", side_effect=StoreFull("full")), pytest.raises(StoreFull):
        sub.receive()
    assert sub.receive() == [], "the first one waits for its next try"
    clock.now += 2
    assert offsets(sub.receive()) == [1, 2]
    assert len(store.read("dead", 0, 0)) == 1


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("order_by", ORDERS)
def test_what_is_acknowledged_while_it_is_fetched_holds_up_its_line(
    store: MessageStore, clock: SteppedClock, order_by: OrderBy, is_stored: bool
) -> None:
    keyed(store, b"xxx")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by=order_by)
    (first, *_), answers = sub.receive(), list[Callable[[bool], None]]()
    clock.now += 31
    again, fetch = sub._dispatcher._redelivery, sub._dispatcher.delays.fetch_into

    def acknowledged_meanwhile(room: Room, places: Places) -> Fetches:
        found = fetch(room, places)
        if not answers:
            answers.append(begin_to_ack(sub, first))
        return found

    with patch.object(again, "_fetch", acknowledged_meanwhile):
        assert sub.receive() == []
    answers[0](is_stored)
    clock.now += 1
    assert offsets(sub.receive()) == ([1, 2] if is_stored else [0, 1, 2])


def test_a_call_looks_at_no_more_lines_than_it_gives_messages(store: MessageStore) -> None:
    keyed(store, bytes(range(ord("a"), ord("z"))) * 2)
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by="key")
    sub.nack_batch(sub.receive(64))
    lines = sub._dispatcher._lines
    with patch.object(lines, "_of_line", wraps=lines._of_line) as looked:
        assert offsets(sub.receive(1)) == [0]
        assert looked.call_count == 1
        assert offsets(sub.receive(2)) == [1, 26]


def test_what_comes_again_one_by_one_of_a_long_line_is_listed_once(store: MessageStore) -> None:
    fill(store, 64)
    sub = store.subscribe(TOPIC, "a", mode="ordered")
    with patch.object(redelivery, "MOVED_MESSAGES", 4), patch.object(state, "LISTED_TOGETHER", 8):
        sub.nack_batch(sub.receive(64))
        for _ in range(50):
            (first,) = sub.receive(1)
            assert first.message.offset == 0
            sub.nack(first)
        assert sum(map(len, sub._state.to_redeliver)) < 2 * 64
        got = sub.receive(64)
    assert offsets(got) == list(range(64))


@pytest.mark.parametrize("order_by", ORDERS)
def test_lines_that_one_call_had_no_room_for_come_by_the_next_ones(store: MessageStore, order_by: OrderBy) -> None:
    keyed(store, b"xyzxyzxyz")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by=order_by)
    got = sub.receive()
    sub.nack_batch(got[3:])
    assert sub.receive() == []
    sub.ack_batch(got[:3])  # all lines are stirred
    seen = []
    while some := sub.receive(1):
        seen += offsets(some)
        sub.ack_batch(some)
    assert sorted(seen) == [3, 4, 5, 6, 7, 8]
    assert sub.backlog().total == 0


@pytest.mark.parametrize("mode", ["shared", "ordered"])
def test_a_consumer_that_waits_is_told_of_an_acknowledgement_that_failed(tmp_path: Path, mode: str) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store, ThreadPoolExecutor(1) as pool:
        fill(store, 1)
        sub = store.subscribe(TOPIC, "a", mode=mode)  # type: ignore[call-overload]  # one of the two
        got = sub.receive()
        waiting = pool.submit(sub.receive, 1, int(PATIENCE_S * 1000))
        until(lambda: sub._state.calling.is_waited_for)
        with (
            patch.object(sub._state.journal, "append", side_effect=PublishBufferFull("full")),
            pytest.raises(PublishBufferFull),
        ):
            sub.ack_batch(got)
        assert offsets(waiting.result(PATIENCE_S / 4)) == [0]
