"""An acknowledgement on its way that the log refuses in the end: its message comes again, once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stratalog.store import Delivery, MessageStore, PublishBufferFull, StaleReceipt, Subscription

from ...clocks import SteppedClock
from .helpers import TOPIC, begin_ack, fill, places


def begin_to_ack(sub: Subscription, delivery: Delivery) -> Callable[[bool], None]:
    """An acknowledgement is on its way. The call that is returned answers it: is it stored?"""
    state = sub._state
    one = begin_ack(sub, delivery.receipt)
    return lambda is_stored: state.acks.settle([one], None if is_stored else PublishBufferFull("full"))


@pytest.mark.parametrize("looks_before", [False, True])
@pytest.mark.parametrize("count", [1, 32])
def test_a_message_that_comes_back_after_a_close_comes_once(
    store: MessageStore, clock: SteppedClock, looks_before: bool, count: int
) -> None:
    fill(store, 6)
    sub = store.subscribe(TOPIC, "a")
    answer = begin_to_ack(sub, sub.receive(6)[2])
    sub.close()
    sub = store.subscribe(TOPIC, "a")
    came = sub.receive(count) if looks_before else []
    answer(False)
    clock.now += 1
    for _ in range(12):
        came += sub.receive(count)
    assert sorted(places(came)) == [(0, at) for at in range(6)]


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("order_by", ["queue", "key"])
def test_a_line_waits_beyond_a_close_for_an_acknowledgement_on_its_way(
    store: MessageStore, clock: SteppedClock, order_by: str, is_stored: bool
) -> None:
    for _ in range(4):
        store.append(TOPIC, 0, b"-", key=b"k")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by=order_by)  # type: ignore[arg-type]  # one of the two
    answer = begin_to_ack(sub, sub.receive(1)[0])
    sub.close()
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by=order_by)  # type: ignore[arg-type]  # one of the two
    assert sub.receive(1) == []
    answer(is_stored)
    clock.now += 1
    came = []
    while got := sub.receive(1):
        assert len(got) == 1
        came += places(got)
        sub.ack(got[0])
    assert came == [(0, at) for at in range(is_stored, 4)]


def test_only_durable_acknowledgements_count_for_retention(store: MessageStore) -> None:
    fill(store, 6)
    sub = store.subscribe(TOPIC, "a")
    got = sub.receive(6)
    sub.ack_batch([got[1], got[4]])
    answers = [begin_to_ack(sub, got[at]) for at in (0, 2)]
    offsets, unacknowledged = np.arange(6), store._subscriptions().unacknowledged
    assert unacknowledged(TOPIC, 0, offsets).tolist() == [True, False, True, True, False, True]
    answers[0](True)
    answers[1](False)
    assert unacknowledged(TOPIC, 0, offsets).tolist() == [False, False, True, True, False, True]
    sub.ack(got[2])
    sub.seek({0: 5})
    assert unacknowledged(TOPIC, 0, offsets).tolist() == [False] * 5 + [True]


@pytest.mark.parametrize("is_stored", [False, True])
def test_what_is_being_acknowledged_comes_to_nobody_and_is_not_counted(
    store: MessageStore, clock: SteppedClock, is_stored: bool
) -> None:
    fill(store, 3)
    sub = store.subscribe(TOPIC, "a")
    got = sub.receive(3)
    answer = begin_to_ack(sub, got[1])
    assert sub.backlog() == (0, 2, 0)
    clock.now += 31
    assert places(sub.receive()) == [(0, 0), (0, 2)]
    for call in (sub.ack, sub.nack):
        with pytest.raises(StaleReceipt):
            call(got[1])
    answer(is_stored)
    assert sub.backlog() == (int(not is_stored), 2, 0)
    assert places(sub.receive()) == ([] if is_stored else [(0, 1)])
