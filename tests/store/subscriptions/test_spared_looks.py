"""A receive that is spared its look finds what the look would have found: two stores, of which one always looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest

from stratalog.store import Delivery, MessageStore, StaleReceipt, StoreUnreadable, Subscription
from stratalog.store.subscriptions.calling import WaitingConsumers

from ...seeds import draw_seed
from ..helpers import memory_folder, tiny
from .helpers import TOPIC, BothClocks

STEPS = 150
VISIBILITY_MS = 400
QUEUE_ID = 0  # one alone: which of several has its turn depends on looks that find nothing
Found = list[tuple[int, int, int]]  # queue id, offset and attempt


class Side:
    """One of the stores, with what its consumers have."""

    def __init__(self, store: MessageStore, clock: BothClocks, mode: dict[str, str], *, always_looks: bool) -> None:
        self.store, self.clock = store, clock
        self.always_looks = always_looks
        self.spared = 0
        self._mode = mode
        self.sub = self._opened()
        self.other = self._opened()
        self.held: list[Delivery] = []

    def _opened(self) -> Subscription:
        given = {**self._mode, "max_attempts": 5, "dead_letter_topic": "dead"}
        return self.store.subscribe(TOPIC, "a", **given)  # type: ignore[call-overload,no-any-return]

    def receive(self, count: int, *, by_other: bool) -> Found:
        """The places and attempts of what a consumer gets."""
        sub = self.other if by_other else self.sub
        if self.always_looks:
            sub._state.calling.looked_at = None
        with mock.patch.object(sub._dispatcher, "take", wraps=sub._dispatcher.take) as take:
            got = sub.receive_batch(count, visibility_timeout_ms=VISIBILITY_MS).deliveries()
        self.spared += take.call_count == 0
        self.held += got
        return [(one.message.queue_id, one.message.offset, one.attempt) for one in got]

    def do(self, what: str, number: int) -> object:
        """One call, told by a number: what it answers."""
        now_ms, (first, end) = self.clock.wall, self.store.queue_bounds(TOPIC, QUEUE_ID)
        offset, key = first + number % (end - first + 1), b"%d" % (number % 4)
        due_ms = now_ms + 20 * (number % 30)
        calls: dict[str, Callable[[], object]] = {
            "append": lambda: self.store.append(TOPIC, QUEUE_ID, b"x", key=key),
            "delay": lambda: self.store.append(TOPIC, QUEUE_ID, b"x", key=key, deliver_at_ms=due_ms),
            "elsewhere": lambda: self.store.append("elsewhere", QUEUE_ID, b"x"),
            "pass": lambda: self.clock.go(7 * (number % 40)),
            "cancel": lambda: self.store.cancel_delayed(TOPIC, QUEUE_ID, offset),
            "move": lambda: self.store.reschedule_delayed(TOPIC, QUEUE_ID, offset, now_ms + 30 * (number % 20)),
            "trim": lambda: self.store.trim(TOPIC, QUEUE_ID, min(end, first + number % 3)),
            "seek": lambda: self.sub.seek({QUEUE_ID: offset}),
            "reopen": lambda: self._reopen(self.other),
            "all reopen": lambda: self._reopen(self.other, self.sub),
            "ack": lambda: self.sub.ack(self._one(number)),
            "nack": lambda: self.sub.nack(self._one(number), delay_ms=(number % 3) * 50),
            "extend": lambda: self.sub.extend(self._one(number), ms=1 + number % 500),
        }
        try:
            return calls[what]()
        except (StaleReceipt, LookupError) as error:
            return type(error)

    def _one(self, number: int) -> Delivery:
        return self.held.pop(number % len(self.held)) if self.held else self.held[0]

    def _reopen(self, *closed: Subscription) -> None:
        for one in closed:
            one.close()
        self.other = self._opened()
        self.sub = self._opened() if self.sub.closed else self.sub


@contextmanager
def sides(mode: dict[str, str], *, are_waited_for: bool) -> Iterator[list[Side]]:
    """The one that may be spared, and the one that always looks."""
    clocks = [BothClocks(), BothClocks()]
    with (
        mock.patch.object(WaitingConsumers, "is_waited_for", are_waited_for),
        mock.patch.object(
            WaitingConsumers, "_at"
        ),  # nobody really waits, and real timers would wait for the tests' clocks
        memory_folder() as folder,
        MessageStore.open(folder / "spared", tiny(), clock=clocks[0]) as spared,
        MessageStore.open(folder / "looks", tiny(), clock=clocks[1]) as looks,
    ):
        yield [
            Side(store, clock, mode, always_looks=store is looks)
            for store, clock in zip((spared, looks), clocks, strict=True)
        ]


CALLS = {
    "receive": 40, "append": 8, "delay": 4, "elsewhere": 3, "pass": 12, "ack": 12, "nack": 6, "extend": 3, "cancel": 2,
    "move": 2, "trim": 1, "seek": 1, "reopen": 1, "all reopen": 1,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("are_waited_for", [False, True])
@pytest.mark.parametrize("mode", [{}, {"mode": "ordered"}, {"mode": "ordered", "order_by": "key"}])
def test_a_look_that_is_spared_would_have_found_nothing(mode: dict[str, str], are_waited_for: bool, seed: int) -> None:
    chance = np.random.default_rng([draw_seed(), seed])
    names, weights = list(CALLS), np.array(list(CALLS.values()), float)
    with sides(mode, are_waited_for=are_waited_for) as both:
        for step in range(STEPS):
            what = names[int(chance.choice(len(names), p=weights / weights.sum()))]
            number, by_other = int(chance.integers(1 << 16)), chance.random() < 0.3
            found: list[object] = []
            for side in both:
                is_receive, count = what == "receive", 1 + number % 6
                found.append(side.receive(count, by_other=by_other) if is_receive else side.do(what, number))
            assert found[0] == found[1], (step, what, number)
        for side in both:
            side.clock.go(100 * VISIBILITY_MS)
        left = [side.receive(10_000, by_other=False) for side in both]
        assert left[0] == left[1]
        assert both[0].spared > both[1].spared == 0


def test_an_error_that_waits_for_the_next_call_is_raised_by_it(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a")
    assert sub.receive() == []
    sub._dispatcher._failed = StoreUnreadable("refused")  # as by a look that has given something out besides
    with pytest.raises(StoreUnreadable):
        sub.receive()
    assert sub.receive() == []


def test_what_a_look_has_left_is_looked_for(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a")
    assert sub.receive() == []
    sub._dispatcher._has_missed = True  # as after an interrupt
    with mock.patch.object(sub._dispatcher, "take", wraps=sub._dispatcher.take) as take:
        assert sub.receive() == []
        assert take.call_count == 1
