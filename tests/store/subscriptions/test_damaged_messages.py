"""A message that cannot be read holds up no other: what else is found goes out, and the next call raises the error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from stratalog.store import Delivery, MessageStore, StoreCorrupt, StoreUnreadable, Subscription
from stratalog.store.subscriptions.delivery import MOST_BAD
from stratalog.store.subscriptions.in_flight import Places

from ...clocks import SteppedClock
from ..helpers import tiny
from .helpers import TOPIC, places
from .test_damage import flip

COUNT, BAD = 40, 20


@pytest.fixture
def damaged(tmp_path: Path, clock: SteppedClock) -> Iterator[MessageStore]:
    """A store of which one message is damaged."""
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        for number in range(COUNT):
            store.append(TOPIC, 0, b"MARKER%04d" % number + bytes(3000), key=b"k%d" % number)
    flip(tmp_path / "store", b"MARKER%04d" % BAD)
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        yield store


def raises(sub: Subscription) -> None:
    with pytest.raises(StoreCorrupt):
        sub.receive(COUNT)


def test_a_damaged_new_message_holds_up_none_that_was_given_back(damaged: MessageStore) -> None:
    sub = damaged.subscribe(TOPIC, "a")
    got = sub.receive(BAD)
    sub.ack_batch(got[:3] + got[4:])
    for attempt in (2, 3, 4):
        sub.nack(got[3])
        got[3] = sub.receive(10)[0]
        assert (got[3].message.offset, got[3].attempt) == (3, attempt)
        raises(sub)
    sub.ack(got[3])
    raises(sub)
    sub.seek({0: BAD + 1})
    assert places(sub.receive(COUNT)) == [(0, at) for at in range(BAD + 1, COUNT)]


@pytest.mark.parametrize("batch", [False, True])
def test_a_damaged_message_holds_up_none_of_those_that_timed_out_with_it(
    damaged: MessageStore, clock: SteppedClock, batch: bool
) -> None:
    sub = damaged.subscribe(TOPIC, "a")
    given_out_all(sub)
    for _ in range(3):
        clock.now += 31
        got = sub.receive_batch(COUNT).deliveries() if batch else sub.receive(COUNT)
        assert sorted(places(got)) == [(0, at) for at in range(COUNT) if at != BAD]
        raises(sub)
        assert sub.receive() == []
        assert sub.backlog().total == COUNT


@pytest.mark.parametrize("count", [1, 2, 7])
def test_those_that_timed_out_come_whole_also_a_few_at_a_time(
    damaged: MessageStore, clock: SteppedClock, count: int
) -> None:
    sub = damaged.subscribe(TOPIC, "a")
    given_out_all(sub)
    clock.now += 31
    came: list[Delivery] = []
    errors = 0
    for _ in range(3 * COUNT):
        try:
            came += sub.receive(count)
        except StoreCorrupt:
            errors += 1
    assert sorted(places(came)) == [(0, at) for at in range(COUNT) if at != BAD]
    assert errors == 1, "it is held back for a second then"


def test_a_damaged_message_holds_up_no_dead_letter_that_goes_with_it(
    damaged: MessageStore, clock: SteppedClock
) -> None:
    sub = damaged.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic="dead")
    given_out_all(sub)
    clock.now += 31
    raises(sub)
    assert [one.data[:10] for one in damaged.read("dead", 0, 0, max_messages=100)] == [
        b"MARKER%04d" % at for at in range(COUNT) if at != BAD
    ]
    assert sub.backlog().total == 1
    assert sub.receive() == []
    clock.now += 2
    raises(sub)
    assert len(damaged.read("dead", 0, 0, max_messages=100)) == COUNT - 1


def test_what_a_consumer_gave_back_comes_beside_a_dead_letter_that_cannot_be_moved(
    damaged: MessageStore, clock: SteppedClock
) -> None:
    sub = damaged.subscribe(TOPIC, "a", max_attempts=2, dead_letter_topic="dead")
    given_out_all(sub)
    clock.now += 31
    (last,) = [one for one in sub.receive(COUNT) if one.message.offset == COUNT - 1]
    raises(sub)
    sub.change(max_attempts=3)
    sub.nack(last)
    assert [(one.message.offset, one.attempt) for one in sub.receive()] == [(COUNT - 1, 3)]


def test_a_seek_past_the_damage_takes_back_the_error_that_was_to_come(damaged: MessageStore) -> None:
    sub = damaged.subscribe(TOPIC, "a")
    sub.nack(sub.receive(COUNT)[0])
    assert len(sub.receive(COUNT)) == 1  # the next call would raise
    sub.seek({0: BAD + 1})
    assert places(sub.receive(COUNT)) == [(0, at) for at in range(BAD + 1, COUNT)]


def test_an_error_of_a_deleted_subscription_is_none_of_the_next_one(damaged: MessageStore) -> None:
    sub = damaged.subscribe(TOPIC, "a")
    sub.nack(sub.receive(COUNT)[0])
    assert len(sub.receive(COUNT)) == 1  # the next call would raise
    damaged.delete_subscription(TOPIC, "a")
    assert damaged.subscribe(TOPIC, "a", start="latest").receive() == []


def test_a_device_that_gives_nothing_is_asked_a_few_times_only(damaged: MessageStore, clock: SteppedClock) -> None:
    sub = damaged.subscribe(TOPIC, "a")
    given_out_all(sub)
    clock.now += 31
    reads = sub._state.parts.reads
    with patch.object(type(reads), "read_at", side_effect=StoreUnreadable("refused")) as asked:
        with pytest.raises(StoreUnreadable):
            sub.receive(COUNT)
        assert asked.call_count <= 4 * MOST_BAD
    assert len(sub.receive(COUNT)) == COUNT - MOST_BAD - 1, "those that it was not asked for"
    clock.now += 2
    raises(sub)
    assert len(sub.receive(COUNT)) == MOST_BAD


def test_more_damaged_messages_than_a_call_looks_for_hold_up_no_other(tmp_path: Path, clock: SteppedClock) -> None:
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        for number in range(COUNT):
            store.append(TOPIC, 0, b"MARKER%04d" % number + bytes(3000))
    for number in range(2 * MOST_BAD + 1):
        flip(tmp_path / "store", b"MARKER%04d" % number)
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        sub = store.subscribe(TOPIC, "a")
        given_out_all(sub)
        clock.now += 31
        came: list[Delivery] = []
        for _ in range(10):
            with suppress(StoreCorrupt):
                came += sub.receive(COUNT)
        assert sorted(places(came)) == [(0, at) for at in range(2 * MOST_BAD + 1, COUNT)]


def given_out_all(sub: Subscription) -> None:
    """As if all messages had been read before one was damaged, and given out."""
    state = sub._state
    zeros = np.zeros(COUNT, np.int64)
    with state.lock:
        state.table.add(Places(zeros, np.arange(COUNT), zeros + 1), state.now_ms() + 30_000)
    sub._dispatcher._scanner._move(0, COUNT)
