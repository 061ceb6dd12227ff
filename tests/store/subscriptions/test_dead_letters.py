"""Dead letters beside consumers that are late, and beside failures."""

from __future__ import annotations

import dataclasses

import pytest

from stratalog.store import Delivery, MessageStore, StaleReceipt, StoreFull, Subscription

from ...clocks import SteppedClock
from .helpers import TOPIC, fill, places

DEAD = "orders/dead"


def acks_in_the_first_append(sub: Subscription, late: Delivery) -> list[bool]:
    """Have a consumer acknowledge while the first dead letter is appended; what came of it, once that was."""
    state, outcome = sub._state, list[bool]()
    real = state.parts.append

    def append(*args: object) -> int:
        if not outcome:
            try:
                sub.ack(late)
                outcome.append(True)
            except StaleReceipt:
                outcome.append(False)
        return real(*args)  # type: ignore[arg-type]  # passed on

    state.parts = dataclasses.replace(state.parts, append=append)  # type: ignore[arg-type]  # takes anything
    return outcome


def test_a_consumer_cannot_acknowledge_what_is_on_its_way_to_the_dead_letters(
    store: MessageStore, clock: SteppedClock
) -> None:
    fill(store, 64)  # as many rows as a table has at first
    sub = store.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic=DEAD)
    got = sub.receive(64)
    clock.now += 31
    outcome = acks_in_the_first_append(sub, got[0])
    assert sub.receive(64) == []
    assert outcome == [False]
    clock.now += 31
    assert sub.receive(64) == []
    assert [one.data for one in store.read(DEAD, 0, 0, 100)] == [b"0/%d" % at for at in range(64)], "each once"
    assert sub.backlog() == (0, 0, 0)


def test_what_was_acknowledged_late_is_no_dead_letter(store: MessageStore, clock: SteppedClock) -> None:
    fill(store, 3)
    sub = store.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic=DEAD)
    got = sub.receive()
    clock.now += 31
    sub.ack(got[1])
    assert sub.receive() == []
    assert [one.data for one in store.read(DEAD, 0, 0)] == [b"0/0", b"0/2"]


def test_a_dead_letter_that_cannot_be_stored_is_tried_again(store: MessageStore, clock: SteppedClock) -> None:
    fill(store, 2)
    sub = store.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic=DEAD)
    sub.nack_batch(sub.receive())
    state = sub._state
    whole = state.parts

    def append(*_: object) -> int:
        raise StoreFull("the disk is full")

    state.parts = dataclasses.replace(whole, append=append)  # type: ignore[arg-type]  # takes anything
    with pytest.raises(StoreFull):
        sub.receive()
    fill(store, 1)
    assert places(sub.receive()) == [(0, 2)], "others are not held up"
    state.parts = whole
    clock.now += 2
    assert sub.receive() == []
    assert [one.data for one in store.read(DEAD, 0, 0)] == [b"0/0", b"0/1"]
