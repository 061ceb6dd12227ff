"""Ordered subscriptions, filters and dead letters."""

from __future__ import annotations

import asyncio
import json
from unittest.mock import patch

import numpy as np
import pytest

from stratalog.store import MessageStore
from stratalog.store.filters.message_filter import MessageFilter
from stratalog.store.format.blobs import Blobs, ExtraColumns
from stratalog.store.subscriptions import ordering, scanner

from ...clocks import SteppedClock
from .helpers import TOPIC, fill, own_properties, places

DEAD = "orders/dead"


# -- order --------------------------------------------------------------------------------------------


def test_ordered_messages_come_in_order_after_any_acks(store: MessageStore) -> None:
    chance = np.random.default_rng(3)
    for at in range(120):
        store.append(TOPIC, at % 3, b"%d" % at, key=b"%d" % (at % 7))
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by="key")
    seen: dict[tuple[int, bytes | None], list[int]] = {}
    while got := sub.receive(int(chance.integers(1, 9))):
        for at in chance.permutation(len(got)).tolist():
            message = got[at].message
            seen.setdefault((message.queue_id, message.key), []).append(message.offset)
            sub.ack(got[at])
    assert sum(map(len, seen.values())) == 120
    assert all(offsets == sorted(offsets) for offsets in seen.values())


def test_so_many_may_wait_behind_a_key_and_no_more(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "MOST_PARKED", 5)
    for at in range(40):
        store.append(TOPIC, 0, b"-", key=b"x" if at else b"free")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by="key")
    (free,), got = sub.receive(1), sub.receive(1)
    assert places([free]) == [(0, 0)]
    order = sub._state.order
    for at in range(1, 40):
        assert places(got) == [(0, at)]
        assert order is not None
        assert order._parked <= 5
        sub.ack(got[0])
        got = sub.receive(1)
    assert got == []


def test_a_line_goes_on_behind_messages_that_were_trimmed(store: MessageStore) -> None:
    for _ in range(6):
        store.append(TOPIC, 0, b"-", key=b"k")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by="key")
    (first,) = sub.receive(1)
    store.trim(TOPIC, 0, 5)
    sub.ack(first)
    assert places(sub.receive()) == [(0, 5)]


def test_a_seek_in_an_ordered_subscription_begins_its_lines_anew(store: MessageStore) -> None:
    fill(store, 3, 3)
    sub = store.subscribe(TOPIC, "a", mode="ordered")
    sub.receive()
    sub.seek({0: 1})
    assert places(sub.receive()) == [(0, 1), (0, 2)]


# -- filters ------------------------------------------------------------------------------------------


def test_what_a_filter_leaves_out_counts_as_acknowledged(store: MessageStore) -> None:
    for at in range(30):
        store.append(TOPIC, 0, b"-", properties={"tag": "abc"[at % 3], "n": str(at % 2)} if at % 5 else None)
    sub = store.subscribe(TOPIC, "a", filter={"tag": {"a", "b"}, "n": {"0"}})
    wanted = [at for at in range(30) if at % 5 and at % 3 < 2 and not at % 2]
    got = sub.receive()
    assert [one.message.offset for one in got] == wanted
    assert sub.backlog() == (0, len(wanted), 0)
    sub.ack_batch(got)
    assert sub._state.cursor.queues[0].mark == 30


def test_a_long_way_to_the_next_wanted_message_is_gone_in_steps(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "AHEAD_MESSAGES", 1)
    monkeypatch.setattr(scanner, "MOST_CHUNKS", 3)
    for at in range(20):
        store.append(TOPIC, 0, b"-", properties={"tag": "b" if at == 19 else "a"})
    sub = store.subscribe(TOPIC, "a", filter={"tag": {"b"}})
    with patch.object(sub._dispatcher, "take", wraps=sub._dispatcher.take) as take:
        assert places(sub.receive(1)) == [(0, 19)]
    assert take.call_count == 7, "others may have a turn between"
    assert sub.receive(1) == []


def test_a_coroutine_finds_a_wanted_message_behind_many_that_are_left_out(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "AHEAD_MESSAGES", 1)
    monkeypatch.setattr(scanner, "MOST_CHUNKS", 3)
    fill(store, 19)
    store.append(TOPIC, 0, b"-", properties={"tag": "b"})
    sub = store.subscribe(TOPIC, "a", filter={"tag": {"b"}})
    assert places(asyncio.run(sub.receive_async(1))) == [(0, 19)]
    assert asyncio.run(sub.receive_async(1)) == []


def test_odd_properties_are_matched_as_json_says() -> None:
    wanted = MessageFilter({"tag": ("ä", "b")})
    rows = [
        b'{"tag":"\\u00e4"}', '{"tag": "ä"}'.encode(), b'{"tag":"b","tag":"c"}', b'{"tag":["b"]}', b'"tag"', b"", None,
        b'{"x":"\\"tag\\":\\"b\\""}', b'{"tag":"b"}', b"{", json.dumps({"tag": "b", "x": "y" * 400}).encode(),
    ]  # fmt: skip

    answers = wanted.mask(ExtraColumns(len(rows), None, None, Blobs.of(rows)), len(rows)).tolist()
    assert answers == [True, True, False, False, False, False, False, False, True, False, True]
    assert answers == [wanted.takes(row) for row in rows]
    assert not wanted.mask(None, 3).any()


# -- dead letters -------------------------------------------------------------------------------------


def test_what_was_given_out_too_often_goes_to_the_dead_letters(store: MessageStore, clock: SteppedClock) -> None:
    store.append(TOPIC, 2, b"poison", key=b"k", properties={"a": "b"})
    store.append(TOPIC, 2, b"good")
    sub = store.subscribe(TOPIC, "a", max_attempts=2, dead_letter_topic=DEAD)
    poison, good = sub.receive()
    sub.ack(good)
    sub.nack(poison)
    (poison,) = sub.receive()
    assert poison.attempt == 2
    clock.now += 31
    assert sub.receive() == []
    assert sub.backlog().total == 0
    (dead,) = store.read(DEAD, 2, 0)
    assert (dead.data, dead.key, own_properties(dead)) == (b"poison", b"k", {"a": "b"})


def test_a_dead_letter_of_a_line_lets_the_next_message_go(store: MessageStore) -> None:
    fill(store, 2)
    sub = store.subscribe(TOPIC, "a", mode="ordered", max_attempts=1, dead_letter_topic=DEAD)
    sub.nack(sub.receive(1)[0])
    assert places(sub.receive()) == [(0, 1)]
    assert [one.data for one in store.read(DEAD, 0, 0)] == [b"0/0"]
