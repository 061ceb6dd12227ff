"""What retention takes is counted by what consumers had acknowledged then, whatever they do while it is at it."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from stratalog.store import MessageStore, Subscription
from stratalog.store.testing import VirtualClock
from stratalog.store.topics.aging import TopicAges
from tests.seeds import draw_seed

from ..helpers import start
from ..topics.test_ttl import HOUR_MS, fill, info, opened
from .test_removed_counts import ByHand, retention_by_hand

SIZE = 3_800
Mode = Literal["shared", "ordered"]


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    retention_by_hand(monkeypatch, "topics.aging", "delayed.keeping")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def ages_of(store: MessageStore) -> TopicAges:
    look: Any = store._upkeep.removal.before
    ages = look.__self__
    assert isinstance(ages, TopicAges)
    return ages


def before_counts(monkeypatch: pytest.MonkeyPatch, store: MessageStore, act: Callable[[], object]) -> None:
    """`act` between what makes messages go and what counts them, for ages of topics and for whole segments."""
    ages = ages_of(store)
    real = ages._count

    def after_act(*given: Any) -> None:
        act()
        real(*given)

    monkeypatch.setattr(ages, "_count", after_act)
    counters: Any = store._upkeep.removal.counters
    counters.insert(0, lambda *given: act())


def meet_all(sub: Subscription) -> int:
    """A consumer asks for all that there is, and gives it back: what it cannot find counts as acknowledged."""
    got = sub.receive(1000)
    sub.nack_batch(got)
    return len(got)


def with_old_messages(store: MessageStore, clock: VirtualClock) -> tuple[ByHand, Subscription]:
    """Retention by hand, and a subscription that has still to get 60 messages, which are too old for their topic."""
    remove = ByHand(store)
    store.configure_topic("t", retention_ms=HOUR_MS)
    sub = store.subscribe("t", "a")
    fill(store, 60, size=SIZE)
    fill(store, 60, "u", size=SIZE)
    clock.advance(ms=HOUR_MS + 1)
    return remove, sub


@pytest.mark.parametrize("mode", ["shared", "ordered"])
@pytest.mark.parametrize("ttl_ms", [None, HOUR_MS])
@pytest.mark.parametrize("of_topic", [True, False], ids=["an age of the topic", "whole segments"])
def test_a_receive_before_the_count_hides_nothing_of_what_went(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, of_topic: bool, ttl_ms: int | None, mode: Mode
) -> None:
    looks = itertools.count()
    with opened(tmp_path, clock, **({} if of_topic else {"retention_ms": 2 * HOUR_MS})) as store:
        remove = ByHand(store)
        store.configure_topic("t", ttl_ms=ttl_ms, retention_ms=2 * HOUR_MS if of_topic else None)
        sub = store.subscribe("t", "a", mode=mode)
        fill(store, 60, size=SIZE)
        got = sub.receive(30, visibility_timeout_ms=1000)
        sub.ack_batch(got[:5])
        sub.nack_batch(got[5:15])  # the others time out
        fill(store, 60, "u", size=SIZE)
        clock.advance(ms=2 * HOUR_MS + 1)
        before_counts(monkeypatch, store, lambda: (next(looks), meet_all(sub)))
        if ttl_ms is not None:
            meet_all(sub)  # all expire
        remove()
        assert next(looks), "nothing was counted"
        assert store.queue_bounds("t", 0)[0] == 60
        meet_all(sub)  # what was read ahead comes still
        lost, expired = info(store).removed_unacknowledged, info(store).expired
        assert (lost, expired) == ((55, 0) if ttl_ms is None else (0, 55))


def test_a_trim_that_fails_counts_nothing_and_is_done_and_counted_by_the_next_look(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, clock) as store:
        remove, sub = with_old_messages(store, clock)

        def fail(*given: object) -> None:
            raise OSError("no memory")

        with monkeypatch.context() as patch:
            patch.setattr(ages_of(store), "_trim", fail)
            remove()
        assert (store.queue_bounds("t", 0)[0], info(store).removed_unacknowledged) == (0, 0)
        assert len(sub.receive(7)) == 7
        remove()
        assert (store.queue_bounds("t", 0)[0], info(store).removed_unacknowledged) == (60, 60)


def test_what_was_trimmed_by_hand_meanwhile_is_not_counted(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, clock) as store:
        remove, sub = with_old_messages(store, clock)
        before_counts(monkeypatch, store, lambda: (store.trim("t", 0, 20), meet_all(sub)))
        remove()
        assert (store.queue_bounds("t", 0)[0], info(store).removed_unacknowledged) == (60, 40)


class Consumer:
    """A thread that receives and gives back without an end, and acknowledges between the steps of retention.

    Attributes:
        acked: the offsets whose acknowledgement has returned, by queue id.
        acking: held to acknowledge.
    """

    def __init__(self, sub: Subscription, seed: int) -> None:
        self.acked = {0: set[int](), 1: set[int]()}
        self.acking = threading.Lock()
        self._sub = sub
        self._rng = random.Random(seed)
        self._ends = threading.Event()
        self._thread = start(self._run)

    def _run(self) -> None:
        while not self._ends.is_set():
            got = self._sub.receive(self._rng.randrange(1, 20), wait_ms=1)
            wanted = [one for one in got if self._rng.random() < 0.3]
            if wanted and self.acking.acquire(blocking=False):
                try:
                    self._sub.ack_batch(wanted)
                    for one in wanted:
                        self.acked[one.message.queue_id].add(one.message.offset)
                finally:
                    self.acking.release()
                got = [one for one in got if one not in wanted]
            self._sub.nack_batch(got)

    def end(self) -> None:
        self._ends.set()
        self._thread.join()


@pytest.mark.parametrize("of_topic", [True, False], ids=["an age of the topic", "whole segments"])
@pytest.mark.parametrize("mode", ["shared", "ordered"])
def test_by_a_model_the_counts_are_exact_with_a_consumer_beside_retention(
    tmp_path: Path, clock: VirtualClock, mode: Mode, of_topic: bool
) -> None:
    rng = random.Random(draw_seed())
    with opened(tmp_path, clock, **({} if of_topic else {"retention_ms": HOUR_MS})) as store:
        remove, low, expected = ByHand(store), [0, 0], 0
        store.configure_topic("t", retention_ms=HOUR_MS if of_topic else None)
        fill(store, 1)
        store.append("t", 1, b"")
        consumer = Consumer(store.subscribe("t", "a", mode=mode), rng.randrange(1 << 30))
        try:
            for _ in range(40):
                store.append_batch([("t", rng.randrange(2), bytes(SIZE)) for _ in range(rng.randrange(1, 40))])
                clock.advance(ms=rng.randrange(HOUR_MS))
                with consumer.acking:
                    remove()
                    for queue_id in range(2):
                        first = store.queue_bounds("t", queue_id)[0]
                        expected += len(set(range(low[queue_id], first)) - consumer.acked[queue_id])
                        low[queue_id] = first
                assert info(store).removed_unacknowledged == expected
        finally:
            consumer.end()
        assert expected
