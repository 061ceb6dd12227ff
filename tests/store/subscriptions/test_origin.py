"""What a dead letter says of where it comes from, and the reasons of nacks."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import numpy as np
import pytest

from stratalog.store import InvalidMessage, MessageStore, StaleReceipt
from stratalog.store.subscriptions import stories
from stratalog.store.subscriptions.origin import Origin, place_of, without_origin
from stratalog.store.testing import SimulatedDisk

from ...seeds import draw_seed
from ..helpers import tiny
from .helpers import START_MS, TOPIC, BothClocks, fill, own_properties, story

DEAD = "orders/dead"


@pytest.fixture
def clock() -> BothClocks:
    return BothClocks()


def test_a_dead_letter_says_where_it_comes_from_when_it_was_given_out_and_why_it_failed(
    store: MessageStore, clock: BothClocks
) -> None:
    fill(store, 1, 0, 3)
    store.append(TOPIC, 2, b"bad", key=b"k", properties={"kind": "card"})
    sub = store.subscribe(TOPIC, "billing", max_attempts=3, dead_letter_topic=DEAD)
    for reason in ("first", "second", "no such customer"):
        batch = sub.receive_batch()
        sub.ack_batch(batch.receipts[batch.lengths != 3]) if reason == "first" else None
        (bad,) = [one for one in batch.deliveries() if one.message.data == b"bad"]
        clock.go(5)
        sub.nack(bad, 100, reason=reason)
        clock.go(100)
    assert sub.receive() == []
    (letter,) = store.read(DEAD, 2)
    assert letter.key == b"k" and own_properties(letter) == {"kind": "card"}
    assert story(letter) == {
        "topic": TOPIC, "queue_id": "2", "offset": "3", "subscription": "billing", "attempts": "3",
        "first_ms": str(START_MS), "last_ms": str(START_MS + 210), "reason": "no such customer",
    }  # fmt: skip


@pytest.mark.parametrize("count", [1, 9])
def test_messages_of_few_and_of_many_know_when_they_were_given_out(
    store: MessageStore, clock: BothClocks, count: int
) -> None:
    fill(store, 3 * count)
    sub = store.subscribe(TOPIC, "a", max_attempts=2, dead_letter_topic=DEAD)
    assert len(sub.receive(count)) == count  # the first receive takes the long way
    for _ in range(2):
        clock.go(7)
        assert len(sub.receive(count, visibility_timeout_ms=1000)) == count
    clock.go(40_000)
    assert len(sub.receive_batch(1000)) == 3 * count
    clock.go(40_000)
    assert sub.receive() == []
    firsts = [story(one)["first_ms"] for one in store.read(DEAD, 0, 0)]
    assert firsts == [str(START_MS + 7 * turn) for turn in range(3) for _ in range(count)]
    assert {story(one)["last_ms"] for one in store.read(DEAD, 0, 0)} == {str(START_MS + 40_014)}
    assert all("reason" not in story(one) for one in store.read(DEAD, 0, 0)), "they timed out"


def test_the_reason_of_the_newest_nack_counts_and_a_time_out_has_none_of_its_own(
    store: MessageStore, clock: BothClocks
) -> None:
    fill(store, 4)
    sub = store.subscribe(TOPIC, "a", max_attempts=2, dead_letter_topic=DEAD)
    zero, one, two, three = sub.receive()
    sub.nack(zero, reason="old")
    sub.nack_batch([one, two], reason="both")
    sub.nack(three)
    zero, one, two, three = sub.receive()
    sub.nack(zero)
    sub.nack(one, reason="new")
    sub.nack(three, reason="")
    clock.go(31_000)
    assert sub.receive() == []
    assert [story(letter).get("reason") for letter in sorted(store.read(DEAD, 0), key=lambda one: one.data)] == [
        None, "new", "both", "",
    ]  # fmt: skip


def test_reserved_names_of_a_user_are_overwritten_and_an_older_story_ends(
    store: MessageStore, clock: BothClocks
) -> None:
    given = {"dead_letter.reason": "mine", "dead_letter.topic": "elsewhere", "dead_letter.of": "kept", "\ud800": "é"}
    store.append("a", 7, b"x", properties=given)
    for topic, to, reason in (("a", "b", "from a"), ("b", "c", None)):
        sub = store.subscribe(topic, "s", max_attempts=1, dead_letter_topic=to)
        sub.nack_batch(sub.receive(), reason=reason)
        assert sub.receive() == []
    (letter,) = store.read("b", 7)
    assert letter.properties is not None and letter.properties["dead_letter.reason"] == "from a"
    (letter,) = store.read("c", 7)
    told = letter.properties or {}
    assert (told["dead_letter.topic"], told["dead_letter.of"], told["\ud800"]) == ("b", "kept", "é")
    assert "dead_letter.reason" not in told


def test_after_a_restart_the_attempts_are_known_and_the_times_are_those_of_this_opening(
    tmp_path: Path, clock: BothClocks
) -> None:
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        fill(store, 2)
        sub = store.subscribe(TOPIC, "a", max_attempts=2, dead_letter_topic=DEAD)
        sub.nack_batch(sub.receive(), reason="forgotten")
        sub.nack_batch(sub.receive(1), reason="forgotten")
    clock.go(1000)
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        sub = store.subscribe(TOPIC, "a")
        (left,) = sub.receive()
        assert (left.message.data, left.attempt) == (b"0/1", 2)
        sub.nack(left)
        assert sub.receive() == sub.receive() == []
        told = {one.data: story(one) for one in store.read(DEAD, 0)}
        assert "first_ms" not in told[b"0/0"] and "last_ms" not in told[b"0/0"]
        assert told[b"0/1"]["first_ms"] == told[b"0/1"]["last_ms"] == str(START_MS + 1000)
        assert [(one["attempts"], "reason" in one) for one in told.values()] == [("2", False)] * 2


def test_a_message_that_is_acknowledged_and_met_again_has_no_reason_of_before(store: MessageStore) -> None:
    fill(store, 1)
    sub = store.subscribe(TOPIC, "a", max_attempts=2, dead_letter_topic=DEAD)
    sub.nack_batch(sub.receive(), reason="before")
    sub.ack_batch(sub.receive())
    sub.seek("earliest")
    for _ in range(2):
        sub.nack_batch(sub.receive())
    assert sub.receive() == []
    (letter,) = store.read(DEAD, 0)
    assert "reason" not in story(letter)


def test_a_moved_clock_of_the_day_does_not_change_how_long_ago_it_was(store: MessageStore, clock: BothClocks) -> None:
    fill(store, 1)
    sub = store.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic=DEAD)
    (one,) = sub.receive()
    clock.go(500)
    clock.wall += 3_600_000
    sub.nack(one)
    assert sub.receive() == []
    (letter,) = store.read(DEAD, 0)
    assert story(letter)["first_ms"] == str(START_MS + 3_600_000), "half a second before now, by the clock of now"


@pytest.mark.parametrize("reason", [5, b"bytes", "\ud800", "x" * 1025, "é" * 513, ["a"]])
def test_a_reason_that_is_no_short_text_is_refused_and_nothing_is_given_back(
    store: MessageStore, reason: object
) -> None:
    fill(store, 1)
    sub = store.subscribe(TOPIC, "a")
    (one,) = sub.receive()
    with pytest.raises(InvalidMessage, match="reason"):
        sub.nack(one, reason=reason)  # type: ignore[arg-type]
    with pytest.raises(InvalidMessage, match="reason"):
        sub.nack_batch([], reason=reason)  # type: ignore[arg-type]
    sub.ack(one)


def test_reasons_of_any_text_go_with_their_messages_also_from_coroutines(store: MessageStore) -> None:
    fill(store, 3)
    sub = store.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic=DEAD)
    texts = ["é" * 512, '\x00\n"', "日本"]
    given = sub.receive()
    assert len(given) == len(texts)

    async def give_back() -> None:
        for one, text in zip(given, texts, strict=True):
            await sub.nack_async(one, reason=text)

    asyncio.run(give_back())
    assert sub.receive() == []
    assert [story(one)["reason"] for one in store.read(DEAD, 0)] == texts


@pytest.mark.parametrize("stored", [b"\xff", b"{", b"[1]", b'{"a": 1}', b"[" * 100_000, b"null"])
def test_properties_that_no_call_has_stored_hold_no_dead_letter_up(stored: bytes) -> None:
    assert without_origin(stored) == {} and place_of(stored) is None
    told = Origin("t", 1, 2, "s", 3, None, None, None).told(stored)
    assert place_of(told) == ("t", 1)


def test_a_late_nack_with_a_reason_changes_nothing(store: MessageStore, clock: BothClocks) -> None:
    fill(store, 2)
    sub = store.subscribe(TOPIC, "a", max_attempts=2, dead_letter_topic=DEAD)
    first, second = sub.receive()
    sub.nack_batch([first, second], reason="good")
    sub.receive()
    with pytest.raises(StaleReceipt):
        sub.nack_batch([first, second], reason="late")
    clock.go(31_000)
    assert sub.receive() == []
    assert [story(one)["reason"] for one in store.read(DEAD, 0)] == ["good"] * 2


def test_only_the_reasons_of_messages_in_flight_are_kept(
    store: MessageStore, clock: BothClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message times out again and again after its nack; the others get another reason each time."""
    monkeypatch.setattr(stories, "KEPT_REASONS", 8)
    fill(store, 4)
    sub = store.subscribe(TOPIC, "a", max_attempts=50, dead_letter_topic=DEAD)
    sub._state.reasons._limit = 8
    chance = random.Random(draw_seed())
    newest = dict[int, str]()
    for turn in range(50):
        for one in sub.receive(visibility_timeout_ms=1000):
            offset = one.message.offset
            if turn == 0 or offset:
                newest[offset] = f"{turn} {offset} {chance.random()}"
                sub.nack(one, reason=newest[offset])
        clock.go(1000)
    assert len(sub._state.reasons) <= 12
    assert sub.receive() == []
    assert {int(story(one)["offset"]): story(one)["reason"] for one in store.read(DEAD, 0)} == newest


def test_ten_thousand_dead_letters_of_several_lanes_have_their_origin(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=4), disk=SimulatedDisk()) as store:
        for queue_id in range(4):
            store.append_batch([(TOPIC, queue_id, b"%d" % at) for at in range(2500)])
        sub = store.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic=DEAD)
        for _ in range(3):
            sub.nack_batch(sub.receive_batch(10_000).receipts, reason="all")
        assert sub.receive() == []
        for queue_id in range(4):
            told = [story(one) for one in store.read(DEAD, queue_id, 0, max_messages=5000)]
            assert {(one["queue_id"], one["reason"]) for one in told} == {(str(queue_id), "all")}
            assert np.unique([int(one["offset"]) for one in told]).tolist() == list(range(2500))
