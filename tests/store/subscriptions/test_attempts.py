"""Attempts: with `max_attempts` they are counted over restarts, crashes and consumers that go."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from stratalog.store import MessageStore, StoreFull, Subscription
from stratalog.store.format.arrays import Int64s
from stratalog.store.log.request import Request
from stratalog.store.subscriptions import journal
from stratalog.store.subscriptions.attempts import Attempts
from stratalog.store.subscriptions.cursor import AckedOffsets
from stratalog.store.subscriptions.expiring import Expiring
from stratalog.store.testing import VirtualClock
from tests.seeds import draw_seed

from ...clocks import SteppedClock
from ..helpers import crash_copy, tiny
from ..interrupts import interrupt_at
from ..interrupts import places as places_of_interrupts
from .helpers import TOPIC, begin_ack, fill, places

DEAD = "orders/dead"
UNDOING = ("state.py", "in_flight.py", "cursor.py", "attempts.py")


def crashed(store: MessageStore, clock: SteppedClock) -> MessageStore:
    """What an opening finds if the process dies now."""
    copy = store.path.with_name(f"{store.path.name}x")
    return MessageStore.open(crash_copy(store.path, copy), tiny(), clock=clock)


class Unwalked(dict[int, int]):
    """A dict that nobody may walk through."""

    def __iter__(self) -> Any:
        raise AssertionError

    items = values = keys = __iter__


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_look_at_a_few_messages_costs_by_these(most: int) -> None:
    chosen, attempts, known = random.Random(draw_seed()), Attempts(0), dict[int, int]()
    for offset in chosen.sample(range(400), 200):
        known[offset] = chosen.randrange(1, 8)
        attempts.note(np.array([offset]), np.array([known[offset]]))
    for _ in range(50):
        begin, end = sorted(chosen.sample(range(500), 2))
        expected = sorted(offset for offset, count in known.items() if begin <= offset < end and count >= most)
        assert attempts.used_up(begin, end, most).tolist() == expected
    attempts._more = Unwalked(attempts._more)
    expected = sorted(offset for offset, count in known.items() if 30 <= offset < 60 and count >= most)
    assert attempts.used_up(30, 60, most).tolist() == expected


def test_a_look_at_what_is_too_old_notes_nothing_and_walks_through_no_attempts(tmp_path: Path) -> None:
    clock = VirtualClock()
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        store.configure_topic(TOPIC, ttl_ms=10_000)
        sub = store.subscribe(TOPIC, "a", max_attempts=2, dead_letter_topic=DEAD)
        fill(store, 4, 2)
        for _ in range(2):
            got = sub.receive_batch(4, queue_id=0)
            sub.nack_batch(got.receipts)
        cursor = sub._state.cursor
        known = cursor.attempts[0]._more
        cursor.attempts[0]._more = Unwalked(known)
        looks = Expiring(sub._state, sub._dispatcher.delays)
        clock.advance(ms=20_000)
        for queue_id, expected in ((0, [False] * 4), (1, [True] * 2)):
            batch = store.read_batch(TOPIC, queue_id, 0)
            assert looks.are_over_in(queue_id, batch).tolist() == expected
        assert set(cursor.attempts) == {0}
        cursor.attempts[0]._more = known


POISON = """
import os, sys
from stratalog.store import MessageStore
store = MessageStore.open(sys.argv[1])
for delivery in store.subscribe("orders", "a", max_attempts=2, dead_letter_topic="orders/dead").receive():
    if delivery.message.data == b"poison":
        os._exit(9)  # as a crash of the consumer's library does: nothing is written any more
store.close()
"""


def test_a_message_that_kills_its_process_each_time_goes_to_the_dead_letters(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.append_batch([(TOPIC, 0, b"good"), (TOPIC, 0, b"poison"), (TOPIC, 0, b"good")])
    ends = [
        subprocess.run([sys.executable, "-c", POISON, str(tmp_path / "store")], check=False).returncode
        for _ in range(3)
    ]
    assert ends == [9, 9, 0]
    with MessageStore.open(tmp_path / "store") as store:
        assert [one.data for one in store.read(DEAD, 0, 0)] == [b"good", b"poison", b"good"], "all of the batch was out"
        assert store.subscriptions()[0].backlog.total == 0


@pytest.mark.parametrize("kill", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("batch", [1, 1000], ids=["one at a time", "batch"])
def test_attempts_go_on_behind_a_restart(store: MessageStore, clock: SteppedClock, batch: int, kill: bool) -> None:
    fill(store, 40, 30)
    opened = [store]
    for attempt in (1, 2, 3):
        sub = opened[-1].subscribe(TOPIC, "a", max_attempts=3, dead_letter_topic=DEAD)
        got = [one for _ in range(70 if batch == 1 else 1) for one in sub.receive(batch)]
        assert [one.attempt for one in got] == [attempt] * (70 - (attempt > 1))
        if attempt == 1:
            sub.ack(next(one for one in got if one.message.offset == 5))
        if not kill:
            opened[-1].close()
        opened.append(crashed(opened[-1], clock))
    last = opened[-1]
    sub = last.subscribe(TOPIC, "a")
    assert sub.receive(batch) == []
    assert len(last.read(DEAD, 0, 0, max_messages=100)) + len(last.read(DEAD, 1, 0, max_messages=100)) == 69
    assert sub.backlog().total == 0
    for one in opened:
        one.close()


def test_the_last_consumer_that_goes_takes_no_attempts_with_it(store: MessageStore) -> None:
    fill(store, 3)
    with store.subscribe(TOPIC, "a", max_attempts=2, dead_letter_topic=DEAD) as sub:
        assert [one.attempt for one in sub.receive(1)] == [1]
    with store.subscribe(TOPIC, "a") as sub:
        assert [one.attempt for one in sub.receive()] == [2, 1, 1]
    with store.subscribe(TOPIC, "a") as sub:
        assert [(one.message.offset, one.attempt) for one in sub.receive()] == [(1, 2), (2, 2)]


def test_attempts_are_in_the_snapshot_and_begin_anew_behind_a_seek(store: MessageStore, clock: SteppedClock) -> None:
    fill(store, 50)
    sub = store.subscribe(TOPIC, "a", max_attempts=9, dead_letter_topic=DEAD)
    for _ in range(3):
        sub.receive(4, visibility_timeout_ms=1000)
        clock.now += 2
    sub.ack_batch(sub.receive(1))
    with patch.object(journal, "LEAST_BYTES", 0):
        sub._state.compact_in_time()
    assert len(sub._state.cursor.tried(0).rows()[0]) == 3
    with crashed(store, clock) as again:
        got = again.subscribe(TOPIC, "a").receive(5)
        assert [(one.message.offset, one.attempt) for one in got] == [(1, 4), (2, 4), (3, 4), (4, 1), (5, 1)]
        again.subscribe(TOPIC, "a").seek("earliest")
        with crashed(again, clock) as last:
            assert {one.attempt for one in last.subscribe(TOPIC, "a").receive(50)} == {1}


def test_a_number_that_cannot_be_stored_counts_for_nothing_and_the_message_comes_again(
    store: MessageStore, clock: SteppedClock
) -> None:
    fill(store, 20)
    sub = store.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic=DEAD)
    sub.receive(1)  # so that messages are at hand

    def full(_records: Sequence[bytes]) -> Sequence[Request]:
        raise StoreFull("the disk is full")

    for count in (1, 7, 1000):
        with patch.object(sub._state.journal, "submit", full), pytest.raises(StoreFull):
            sub.receive(count)
    got = sub.receive(1000)
    assert (places(got), {one.attempt for one in got}) == ([(0, at) for at in range(1, 20)], {1})
    assert store.queue_bounds(DEAD, 0) == (0, 0)
    with crashed(store, clock) as again:
        assert again.subscribe(TOPIC, "a").receive(1000) == []
        assert again.queue_bounds(DEAD, 0) == (0, 20)


def test_a_number_whose_write_fails_counts_for_nothing(store: MessageStore) -> None:
    fill(store, 3)
    sub = store.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic=DEAD)
    with patch.object(Request, "result", side_effect=StoreFull("the disk is full")), pytest.raises(StoreFull):
        sub.receive()
    assert [(one.message.offset, one.attempt) for one in sub.receive()] == [(0, 1), (1, 1), (2, 1)]


def counted(sub: Subscription, receipts: Int64s) -> tuple[list[int], list[int]]:
    """The attempts of messages of queue 0, by the table and by the cursor."""
    table = sub._state.table
    places = table.places(table.find(receipts))
    return places.attempts.tolist(), sub._state.cursor.tried(0).of(places.offsets).tolist()


def received_twice(store: MessageStore, count: int) -> tuple[Subscription, Int64s]:
    """A subscription whose consumer has some messages for the second time, and their receipts."""
    fill(store, count)
    sub = store.subscribe(TOPIC, "a", max_attempts=9, dead_letter_topic=DEAD)
    sub.nack_batch(sub.receive(count))
    receipts = sub.receive_batch(count).receipts
    assert counted(sub, receipts) == ([2] * count, [2] * count)
    return sub, receipts


def test_a_receive_that_is_undone_twice_is_undone_once(store: MessageStore) -> None:
    """So it is if a coroutine ends while its thread takes messages: each of them may give back the same ones."""
    sub, receipts = received_twice(store, 2)
    for _ in range(3):
        sub._state.undo_receive(receipts)
        assert counted(sub, receipts) == ([1, 1], [1, 1])
    sub.close()
    assert [one.attempt for one in store.subscribe(TOPIC, "a").receive()] == [2, 2]


def test_an_undone_receive_leaves_the_attempts_of_messages_that_are_not_given_back(
    store: MessageStore, clock: SteppedClock
) -> None:
    sub, receipts = received_twice(store, 4)
    out, held, acked, _late = receipts.tolist()
    sub.extend(out, 60_000)
    sub.nack(held, 60_000)
    begin_ack(sub, acked)
    clock.now += 31
    with sub._state.lock:
        sub._state.table.expire(sub._state.now_ms(), sub._state.redeliver)
    sub._state.undo_receive(receipts)
    assert counted(sub, receipts) == ([1, 2, 2, 2], [1, 2, 2, 2])


def test_an_undo_that_is_interrupted_may_be_made_again(store: MessageStore) -> None:
    sub, receipts = received_twice(store, 2)
    for place in places_of_interrupts():
        interrupted, _ = interrupt_at(place, UNDOING, lambda: sub._state.undo_receive(receipts))  # noqa: B023  # called at once
        sub._state.undo_receive(receipts)
        assert counted(sub, receipts) == ([1, 1], [1, 1])
        if not interrupted:
            break
        receipts = sub.receive_batch(2).receipts
        assert counted(sub, receipts) == ([2, 2], [2, 2])


def test_without_max_attempts_nothing_is_written_to_receive(store: MessageStore, clock: SteppedClock) -> None:
    fill(store, 20)
    sub = store.subscribe(TOPIC, "a")
    before = store.stats()["log"]["messages"]
    for _ in range(3):
        sub.receive(1000, visibility_timeout_ms=1000)
        clock.now += 2
        sub.receive(1)
    assert store.stats()["log"]["messages"] == before


def test_attempts_of_a_queue_are_those_of_a_dict() -> None:
    chance = np.random.default_rng(5)
    attempts, acked, known = Attempts(0), AckedOffsets(), dict[int, int]()
    for _ in range(300):
        offsets = np.unique(chance.integers(0, 200, chance.integers(1, 40)))
        what = chance.integers(0, 4)
        if what < 2:
            counts = attempts.of(offsets) + 1
            attempts.note(offsets, counts)
            known |= dict(zip(offsets.tolist(), counts.tolist(), strict=True))
        elif what == 2:
            for offset in [one for one in offsets.tolist() if one in known][:2]:
                attempts.undo(offset, known[offset])
                known[offset] -= 1
        elif chance.random() < 0.1:
            acked.add_all(offsets)
            attempts.forget(acked.mark, acked.above)
            known = {offset: count for offset, count in known.items() if offset not in acked}
        known = {offset: count for offset, count in known.items() if count}
        rows = attempts.rows()
        assert dict(zip(rows[0].tolist(), rows[1].tolist(), strict=True)) == known
        assert attempts.of(np.arange(200)).tolist() == [known.get(at, 0) for at in range(200)]
        assert attempts.end == max(known, default=-1) + 1
