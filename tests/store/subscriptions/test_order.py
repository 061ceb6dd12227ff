"""Ordered subscriptions: of each line one batch is out, its messages come in order, and all that is not done again."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal, cast
from unittest.mock import patch

import numpy as np
import pytest

from stratalog.store import Delivery, MessageStore, StaleReceipt, StoreUnreadable, Subscription
from stratalog.store.subscriptions import delivery, redelivery

from ...clocks import SteppedClock
from ...seeds import draw_seed
from ..helpers import PATIENCE_S, tiny, until
from .helpers import TOPIC, BothClocks, fill, places
from .test_failed_acks import begin_to_ack
from .test_read_errors import fail

SHORT_MS = 100
Place = tuple[int, int]  # (queue id, offset)
OrderBy = Literal["queue", "key"]
ORDERS: tuple[OrderBy, ...] = ("queue", "key")


def keyed(store: MessageStore, keys: bytes) -> None:
    """A message of queue 0 for each letter, which is its key; `-` for none."""
    for key in keys:
        store.append(TOPIC, 0, b"-", key=None if key == ord("-") else bytes([key]))


def offsets(given: list[Delivery]) -> list[int]:
    """Those of some messages of one queue."""
    return [one.message.offset for one in given]


# -- batches ------------------------------------------------------------------------------------------


def test_of_a_queue_the_next_batch_waits_for_all_of_the_one_before(store: MessageStore) -> None:
    fill(store, 5, 2)
    sub = store.subscribe(TOPIC, "a", mode="ordered")
    got = sub.receive(3)
    assert places(got) == [(0, 0), (0, 1), (0, 2)]
    assert places(sub.receive()) == [(1, 0), (1, 1)]
    sub.ack_batch(got[1:])
    assert sub.receive() == []
    sub.ack(got[0])
    assert places(sub.receive()) == [(0, 3), (0, 4)]


def test_of_a_key_the_next_batch_waits_for_all_of_the_one_before(store: MessageStore) -> None:
    keyed(store, b"xxy-xyx")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by="key")
    first = sub.receive(4)
    assert offsets(first) == [0, 1, 2, 3]
    assert sub.receive() == []
    sub.ack_batch([first[0], first[3]])
    assert sub.receive() == [], "one of x is out, and one of y"
    sub.ack(first[2])
    assert offsets(sub.receive()) == [5]
    sub.ack(first[1])
    assert offsets(sub.receive()) == [4, 6]


def test_messages_of_one_call_are_one_batch_however_they_are_found(store: MessageStore) -> None:
    keyed(store, b"xxxx")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by="key")
    (first,) = sub.receive(1)
    assert sub.receive() == []  # those behind it wait in their line
    sub.ack(first)
    keyed(store, b"xy")
    assert offsets(sub.receive()) == [1, 2, 3, 4, 5]
    assert sub.receive() == []


@pytest.mark.parametrize("order_by", ORDERS)
def test_what_comes_again_of_a_line_comes_in_order_and_before_what_is_behind_it(
    store: MessageStore, clock: SteppedClock, order_by: OrderBy
) -> None:
    keyed(store, b"kkkkkk")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by=order_by)
    got = sub.receive(4)
    sub.nack(got[2])
    sub.nack(got[0])
    assert sub.receive() == [], "a consumer has others of the line"
    sub.ack(got[1])
    assert sub.receive() == []
    sub.nack(got[3])
    assert [(one.message.offset, one.attempt) for one in sub.receive()] == [(0, 2), (2, 2), (3, 2)]
    clock.now += 31
    assert offsets(sub.receive(2)) == [0, 2]
    assert sub.receive() == [], "the third one waits for the two"


@pytest.mark.parametrize("order_by", ORDERS)
def test_an_acknowledgement_lets_come_again_what_waits_for_it(store: MessageStore, order_by: OrderBy) -> None:
    keyed(store, b"kkk")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by=order_by)
    got = sub.receive(2)
    sub.nack(got[0])
    assert sub.receive() == []
    sub.ack(got[1])
    (first,) = sub.receive()
    assert (first.message.offset, first.attempt) == (0, 2)
    sub.ack(first)
    assert offsets(sub.receive()) == [2]


@pytest.mark.parametrize("order_by", ORDERS)
def test_what_was_given_back_for_a_while_holds_up_its_line(
    store: MessageStore, clock: SteppedClock, order_by: OrderBy
) -> None:
    keyed(store, b"kkkk")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by=order_by)
    got = sub.receive(3)
    sub.nack(got[1], delay_ms=1000)
    sub.nack_batch([got[0], got[2]])
    (first,) = sub.receive()
    assert first.message.offset == 0
    sub.ack(first)
    assert sub.receive() == []
    clock.now += 1.1
    assert offsets(sub.receive()) == [1, 2]


@pytest.mark.parametrize("order_by", ORDERS)
def test_a_late_acknowledgement_of_what_waits_for_its_line_counts(
    store: MessageStore, clock: SteppedClock, order_by: OrderBy
) -> None:
    keyed(store, b"kkk")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by=order_by)
    got = sub.receive(2)
    sub.extend(got[1], 60_000)
    clock.now += 31
    assert sub.receive() == [], "the first one is late, and a consumer has the second"
    sub.ack(got[0])
    assert sub.receive() == []
    sub.ack(got[1])
    assert offsets(sub.receive()) == [2]


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("order_by", ORDERS)
def test_what_comes_again_waits_for_acknowledgements_on_their_way(
    store: MessageStore, clock: SteppedClock, order_by: OrderBy, is_stored: bool
) -> None:
    keyed(store, b"kkk")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by=order_by)
    got = sub.receive(2)
    answer = begin_to_ack(sub, got[0])
    sub.nack(got[1])
    assert sub.receive() == []
    answer(is_stored)
    clock.now += 1
    assert offsets(sub.receive()) == ([1] if is_stored else [0, 1])


def test_a_consumer_that_waits_is_told_when_the_rest_of_a_batch_may_come_again(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 2)
        sub = store.subscribe(TOPIC, "a", mode="ordered")
        got = sub.receive(visibility_timeout_ms=1 << 30)
        sub.nack(got[0])
        came: list[Delivery] = []
        thread = threading.Thread(target=lambda: came.extend(sub.receive(wait_ms=int(PATIENCE_S * 1000))))
        thread.start()
        until(lambda: len(store._fetcher.waiting) > 0)
        sub.ack(got[1])
        thread.join(PATIENCE_S / 4)
        assert offsets(came) == [0]


def test_a_queue_whose_batch_is_out_is_not_read_on(store: MessageStore) -> None:
    fill(store, 40, 1)
    sub = store.subscribe(TOPIC, "a", mode="ordered")
    assert len(sub.receive(2)) == 2
    assert places(sub.receive()) == [(1, 0)]
    order = sub._state.order
    assert order is not None
    assert order._parked == 0


def test_a_closed_consumers_batch_goes_to_another_one_whole(store: MessageStore) -> None:
    fill(store, 4)
    one, other = (store.subscribe(TOPIC, "a", mode="ordered") for _ in range(2))
    assert offsets(one.receive(3)) == [0, 1, 2]
    assert other.receive() == []
    one.close()
    assert offsets(other.receive()) == [0, 1, 2]


@pytest.mark.parametrize("order_by", ORDERS)
def test_behind_a_message_that_cannot_be_read_nothing_of_its_line_comes_again(
    store: MessageStore, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch, order_by: OrderBy
) -> None:
    keyed(store, b"kkkk")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by=order_by)
    sub.nack_batch(sub.receive(3))
    real = delivery._fetch

    def without_1(*call: object) -> delivery.Fetches:
        wanted = cast("np.ndarray[tuple[int], np.dtype[np.int64]]", call[4])
        if 1 in wanted.tolist():
            raise StoreUnreadable("this message cannot be read just now")
        return real(*call)  # type: ignore[arg-type]  # as it was called

    with monkeypatch.context() as patched:
        patched.setattr(delivery, "_fetch", without_1)
        assert offsets(sub.receive()) == [0]
    with pytest.raises(StoreUnreadable):
        sub.receive()
    assert sub.receive() == []
    sub.nack_batch([row for row in sub._state.table.receipts(sub._state.table.live()).tolist()][-1:])
    clock.now += 60
    assert offsets(sub.receive()) == [0, 1, 2]


@pytest.mark.parametrize("order_by", ORDERS)
def test_many_that_wait_for_their_lines_hold_up_no_other_line(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, order_by: OrderBy
) -> None:
    for queue_id in range(2):
        for _ in range(50):
            store.append(TOPIC, queue_id, b"-", key=b"k")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by=order_by)
    got, other = sub.receive(50), sub.receive(50)
    sub.nack_batch(got[:-1])
    sub.nack_batch(other)
    monkeypatch.setattr(redelivery, "MOVED_MESSAGES", 7)
    with patch.object(sub._dispatcher, "take", wraps=sub._dispatcher.take) as take:
        assert places(sub.receive(5)) == places(other[:5])
    assert take.call_count == 1


def test_a_failed_call_leaves_the_batch_of_a_line_whole(store: MessageStore) -> None:
    fill(store, 6)
    sub = store.subscribe(TOPIC, "a", mode="ordered")
    got = sub.receive(2)
    fail(sub)
    assert sub.receive() == []
    sub.nack_batch(got)
    got = fail(sub)
    assert offsets(got) == [0, 1]
    assert fail(sub) == []
    sub.ack_batch(got)
    assert offsets(sub.receive()) == [2, 3, 4, 5]


# -- whatever is done beside --------------------------------------------------------------------------


class LinesModel:
    """What an ordered subscription is to do, with two consumers, delays, time-outs and trims."""

    def __init__(self, store: MessageStore, clock: BothClocks, chance: random.Random, order_by: OrderBy) -> None:
        self.store, self.clock, self.chance, self.order_by = store, clock, chance, order_by
        self.subs = [self._subscribe(), self._subscribe()]
        self.keys: dict[Place, bytes] = {}  # of all that were not trimmed or acknowledged
        self.due_ms: dict[Place, int] = {}  # 0 without a delivery time
        self.out: dict[Place, tuple[Delivery, Subscription, int]] = {}  # until when it is whose
        self.late: dict[Place, Delivery] = {}

    def _subscribe(self) -> Subscription:
        return self.store.subscribe(TOPIC, "a", mode="ordered", order_by=self.order_by)

    def line(self, place: Place) -> tuple[int, bytes]:
        return place[0], self.keys[place] if self.order_by == "key" else b""

    def append(self) -> None:
        queue_id, key = self.chance.randrange(2), b"k%d" % self.chance.randrange(2)
        at_ms = self.clock.wall + self.chance.choice([50, 500]) if self.chance.random() < 0.3 else None
        place = queue_id, self.store.append(TOPIC, queue_id, bytes(500), key=key, deliver_at_ms=at_ms)
        self.keys[place], self.due_ms[place] = key, at_ms or 0

    def receive(self) -> None:
        sub, timeout_ms = self.chance.choice(self.subs), self.chance.choice([SHORT_MS, 1 << 30])
        self._look(sub.receive(self.chance.randrange(1, 8), visibility_timeout_ms=timeout_ms), sub, timeout_ms)

    def _look(self, given: list[Delivery], sub: Subscription, timeout_ms: int) -> None:
        for place in [place for place, (_, _, until_ms) in self.out.items() if until_ms <= self.clock.wall]:
            self.late[place] = self.out.pop(place)[0]
        busy = {self.line(place) for place in self.out}
        for at, place in enumerate(places(given)):
            assert place in self.keys, "neither trimmed nor acknowledged"
            assert self.due_ms[place] <= self.clock.wall
            assert self.line(place) not in busy, "nobody has anything of its line"
            if not self.due_ms[place]:
                before = [one for one in self.keys if self.line(one) == self.line(place) and one < place]
                waiting = {one for one in before if not self.due_ms[one]} - set(places(given[:at]))
                assert not waiting, "all before it are done, or come before it"
            self.late.pop(place, None)
        for place, one in zip(places(given), given, strict=True):
            self.out[place] = one, sub, self.clock.wall + timeout_ms

    def ack(self) -> None:
        some = self.chance.sample(sorted(self.out), min(len(self.out), self.chance.randrange(1, 5)))
        if some and self.chance.random() < 0.5:
            self.subs[0].ack_batch([self.out[place][0] for place in some])
        else:
            for place in some:
                self.subs[0].ack(self.out[place][0])
        for place in some:
            del self.out[place], self.keys[place]

    def ack_late(self) -> None:
        for place in sorted(self.late)[:1]:
            try:
                self.subs[0].ack(self.late.pop(place))
            except StaleReceipt:
                continue
            del self.keys[place]

    def give_back(self) -> None:
        some = self.chance.sample(sorted(self.out), min(len(self.out), self.chance.randrange(1, 4)))
        if some:
            self.subs[0].nack_batch([self.out.pop(place)[0] for place in some], self.chance.choice([0, 0, 50]))

    def extend(self) -> None:
        for place in sorted(self.out)[:1]:
            delivery, sub, _ = self.out[place]
            self.subs[0].extend(delivery, 300)
            self.out[place] = delivery, sub, self.clock.wall + 300

    def trim(self) -> None:
        queue_id = self.chance.randrange(2)
        first, end = self.store.queue_bounds(TOPIC, queue_id)
        if end > first:
            low = self.chance.randint(first, min(end, first + 4))
            self.store.trim(TOPIC, queue_id, low)
            for place in [place for place in self.keys if place[0] == queue_id and place[1] < low]:
                del self.keys[place]
                self.late.pop(place, None)
                gone = self.out.pop(place, None)
                if gone is not None and self.chance.random() < 0.5:
                    self.subs[0].ack(gone[0])

    def come_and_go(self) -> None:
        """A consumer closes: what it has comes again; another one comes."""
        gone = self.subs.pop()
        for place in [place for place, (_, sub, _) in self.out.items() if sub is gone]:
            del self.out[place]
        gone.close()
        self.subs.append(self._subscribe())

    def fail(self) -> None:
        sub, given = self.subs[0], list[Delivery]()
        with patch.object(sub._dispatcher._scanner, "take", side_effect=StoreUnreadable("refused")):
            with suppress(StoreUnreadable):
                given = sub.receive(4)
            self._look(given, sub, 30_000)
        with suppress(StoreUnreadable):  # beside what was found it has kept the error
            self._look(sub.receive(1), sub, 30_000)

    def go(self) -> None:
        self.clock.go(self.chance.choice([1, 60, 600]))
        for place in [place for place, (_, _, until_ms) in self.out.items() if until_ms <= self.clock.wall]:
            self.late[place] = self.out.pop(place)[0]

    def finish(self) -> None:
        """All that is left comes, one batch of each line after the other."""
        self.clock.go(10_000)
        deadline = 300
        while self.keys and deadline:
            deadline -= 1
            self.receive()
            self.ack()
            self.go()
        assert not self.keys


@pytest.mark.parametrize("order_by", ORDERS)
@pytest.mark.parametrize("part", range(3))
def test_order_holds_whatever_is_done_beside(tmp_path: Path, part: int, order_by: OrderBy) -> None:
    chance, clock = random.Random(draw_seed() + part), BothClocks()
    with MessageStore.open(tmp_path / "store", tiny(lanes=2), clock=clock) as store:
        model = LinesModel(store, clock, chance, order_by)
        calls = [
            *[model.append] * 5, *[model.receive] * 4, *[model.ack] * 3, model.ack_late,
            *[model.give_back] * 2, model.extend, model.trim, model.come_and_go, model.fail, model.go,
        ]  # fmt: skip
        for _ in range(400):
            chance.choice(calls)()
        model.finish()
        assert model.subs[0].backlog().total == 0
