"""Steps of the clock, back and forth, while messages are delivered through subscriptions."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stratalog.store import MessageStore, Subscription
from stratalog.store.delayed.delays import Delays
from tests.seeds import draw_seed

from ..helpers import tiny, until
from .consumer import START_MS, Hand, catch_up, topic_of

HOUR_MS = 3_600_000


def taken(sub: Subscription) -> list[int]:
    found: list[int] = []
    while len(batch := sub.receive_batch(7)):
        found += batch.offsets.tolist()
        sub.ack_batch(batch.receipts)
    return found


@pytest.mark.parametrize("precision_ms", [0, 100])
def test_steps_of_an_hour_lose_nothing_give_nothing_twice_and_nothing_early(
    tmp_path: Path, hand: Hand, precision_ms: int
) -> None:
    seed = draw_seed()
    chance = random.Random(seed)
    store = hand.open(tmp_path / "s", tiny(lanes=1))
    sub = store.subscribe("t", "a", precision_ms=precision_ms)
    due: dict[int, int] = {}
    latest = hand.now_ms
    got: list[int] = []
    for step in range(200):
        hand.now_ms += chance.choice([0, 1, 20, 300])
        if step % 20 == 7:
            hand.now_ms += chance.choice([-HOUR_MS, HOUR_MS])
        if step % 50 == 33:
            store.close()
            store = hand.open(tmp_path / "s")
            sub = store.subscribe("t", "a", precision_ms=precision_ms)
        latest = max(latest, hand.now_ms)
        for _ in range(3):
            at_ms = hand.now_ms + chance.choice([1, 50, 1_000, HOUR_MS // 2, 2 * HOUR_MS])
            due[store.append("t", 0, b"x", deliver_at_ms=at_ms)] = at_ms
        found = taken(sub)
        assert all(due[offset] <= latest for offset in found), f"seed {seed}"
        got += found
    until(lambda: not topic_of(store).is_lagging)
    hand.now_ms = latest + 3 * HOUR_MS
    got += taken(sub)
    assert sorted(got) == sorted(due), f"seed {seed}"
    assert sub.backlog().total == 0
    store.close()


def test_waiting_consumer_gets_what_a_step_forth_makes_due(store: MessageStore, hand: Hand) -> None:
    sub = store.subscribe("t", "a")
    store.append("t", 0, b"x", deliver_at_ms=START_MS + HOUR_MS)
    assert sub.receive() == []
    hand.now_ms += HOUR_MS  # nobody is told of it: clocks are looked at every half second
    assert [one.message.offset for one in sub.receive(wait_ms=60_000)] == [0]


def test_message_appended_after_a_step_back_comes_by_the_new_time(store: MessageStore, hand: Hand) -> None:
    sub = store.subscribe("t", "a")
    store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
    assert taken(sub) == []
    hand.now_ms -= HOUR_MS
    store.append("t", 0, b"x", deliver_at_ms=hand.now_ms + 10)
    hand.now_ms += 10
    assert taken(sub) == [1]
    assert store.cancel_delayed("t", 0, 0), "it is pending again for an hour"
    hand.now_ms += 2 * HOUR_MS
    assert taken(sub) == []


def test_message_that_an_index_behind_has_called_due_stays_due_when_the_clock_is_set_back(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hand.open(tmp_path / "s") as store:
        for offset in range(3):
            store.append("t", 0, b"x", deliver_at_ms=START_MS + 10 + offset)
    monkeypatch.setattr(Delays, "_catch_up_topic", lambda delays, topic: False)  # it never gets on
    with hand.open(tmp_path / "s") as store:
        early, late = store.subscribe("t", "early"), store.subscribe("t", "late")
        assert taken(early) == []
        hand.now_ms += 10
        (given,) = late.receive(visibility_timeout_ms=1)
        hand.now_ms -= 10
        assert topic_of(store).is_lagging
        assert not store.cancel_delayed("t", 0, 0), "one has it already"
        assert not store.reschedule_delayed("t", 0, 0, START_MS + 100)
        assert store.cancel_delayed("t", 0, 1), "nobody has this one"
        monkeypatch.undo()
        catch_up(store)
        assert not store.cancel_delayed("t", 0, 0)
        assert taken(early) == [0], "it was left out before"
        until(lambda: taken(late) == [given.message.offset])
        hand.now_ms += 12
        assert taken(early) == taken(late) == [2]


def test_message_told_to_come_later_after_a_step_back_is_in_an_index_that_is_made_anew_meanwhile(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hand.open(tmp_path / "s") as store:
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
    monkeypatch.setattr(Delays, "_catch_up_topic", lambda delays, topic: False)  # it never gets on
    with hand.open(tmp_path / "s") as store:
        sub = store.subscribe("t", "a")
        hand.now_ms += HOUR_MS
        assert taken(sub) == [0]
        hand.now_ms -= HOUR_MS
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 100)
        assert taken(sub) == []
        topic_of(store).why_anew = "the test says so"
        monkeypatch.undo()
        hand.now_ms += 2 * HOUR_MS  # by then it is due, and nobody has had it
        catch_up(store)
        assert topic_of(store).last_rebuild == "the test says so"
        assert taken(sub) == [1]


def test_message_that_is_due_before_a_lagging_index_has_read_it_is_in_an_index_that_is_made_anew(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hand.open(tmp_path / "s") as store:
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
    monkeypatch.setattr(Delays, "_catch_up_topic", lambda delays, topic: False)  # it never gets on
    with hand.open(tmp_path / "s") as store:
        sub = store.subscribe("t", "a")
        assert taken(sub) == [], "it is left out, and comes later"
        hand.now_ms += 20
        topic_of(store).look()  # nothing that the index has is due
        topic_of(store).why_anew = "the test says so"
        monkeypatch.undo()
        catch_up(store)
        assert topic_of(store).last_rebuild == "the test says so"
        assert taken(sub) == [0]


def test_change_comes_too_late_for_what_was_told_to_be_due_before_a_step_back_and_an_index_made_anew(
    store: MessageStore, hand: Hand
) -> None:
    for _ in range(3):
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
    hand.now_ms += 10
    sub = store.subscribe("t", "a", start="earliest")
    (first,) = sub.receive(1)
    assert first.message.offset == 0  # the others are read by now, and wait for the next call
    hand.now_ms -= HOUR_MS
    topic_of(store).why_anew = "the test says so"
    assert not store.reschedule_delayed("t", 0, 1, hand.now_ms + 2 * HOUR_MS)
    assert not store.cancel_delayed("t", 0, 2)
    assert topic_of(store).last_rebuild == "the test says so"
    assert taken(sub) == [1, 2]
    later = store.append("t", 0, b"x", deliver_at_ms=START_MS + 11)
    assert store.cancel_delayed("t", 0, later)
