"""What retention takes before it was acknowledged is counted, message by message, by subscription."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreConfig, SubscriptionInfo
from stratalog.store.format.arrays import Int64s
from stratalog.store.log.removal import Removal
from stratalog.store.subscriptions.progress import count_left, count_lost
from stratalog.store.subscriptions.registry import Subscriptions
from stratalog.store.subscriptions.state import State
from tests.seeds import draw_seed

from ..helpers import tiny, until

SIZE = 5_000
SUBSCRIPTIONS = [("t", "a"), ("t", "b"), ("u", "a")]


RETIRE = Removal.retire
Count = Callable[[State, int, int, int, Int64s], int]


def remove_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """No store's background removes segments, so no append waits until it does.

    From before the opening on: one thread alone may remove.
    """
    monkeypatch.setattr(Removal, "retire", lambda removal: None)
    monkeypatch.setattr("stratalog.store.log.pace.PATIENCE_S", 0.0)


def retention_by_hand(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Segments are removed by hand alone, none is sealed early, and no look of these modules holds for a while."""
    remove_by_hand(monkeypatch)
    monkeypatch.setattr("stratalog.store.log.early.PATIENCE_S", 1e9)  # else a slow machine comes to it
    for module in modules:
        monkeypatch.setattr(f"stratalog.store.{module}.LOOK_S", 0.0)
        monkeypatch.setattr(f"stratalog.store.{module}.LOOK_TIMES", 0)


@pytest.fixture(autouse=True)
def never_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    remove_by_hand(monkeypatch)


class ByHand:
    """Retention that removes when the test says so, with `remove_by_hand`."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def __call__(self) -> None:
        store = self._store
        until(lambda: not any(map(store._upkeep.sealer.waiting, store._lanes)))
        before = -1
        while before != store._upkeep.removal.removed_segments:
            before = store._upkeep.removal.removed_segments
            RETIRE(store._upkeep.removal)


def by_name(store: MessageStore) -> dict[tuple[str, str], SubscriptionInfo]:
    return {(one.topic, one.name): one for one in store.subscriptions()}


def fill(store: MessageStore, topic: str, queue_id: int, count: int) -> None:
    store.append_batch([(topic, queue_id, bytes(SIZE))] * count)


def counts(store: MessageStore) -> dict[tuple[str, str], int]:
    return {name: one.removed_unacknowledged for name, one in by_name(store).items()}


@pytest.fixture(
    params=[tiny(retention_bytes=200_000), tiny(retention_bytes=200_000, lanes=3)], ids=["one lane", "three"]
)
def config(request: pytest.FixtureRequest) -> StoreConfig:
    found: StoreConfig = request.param
    return found


def test_the_counts_are_those_of_a_model(tmp_path: Path, config: StoreConfig) -> None:
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, config) as store:
        remove = ByHand(store)
        subs = {name: store.subscribe(*name) for name in SUBSCRIPTIONS}
        acked: dict[tuple[str, str], set[tuple[int, int]]] = {name: set() for name in SUBSCRIPTIONS}
        left = {name: dict.fromkeys(range(3), 0) for name in SUBSCRIPTIONS}  # by queue: what was below was counted
        expected = dict.fromkeys(SUBSCRIPTIONS, 0)
        for _ in range(40):
            for _ in range(rng.randrange(6)):
                fill(store, rng.choice("tuv"), rng.randrange(3), rng.randrange(1, 9))
            for name, sub in subs.items():
                taken = sub.receive(rng.randrange(1, 30))
                chosen = [one for one in taken if rng.random() < 0.6]
                sub.ack_batch(chosen)
                acked[name] |= {(one.message.queue_id, one.message.offset) for one in chosen}
                if rng.random() < 0.3:
                    sub.nack_batch([one for one in taken if one not in chosen])
            if rng.random() < 0.2:
                topic, queue_id = rng.choice("tu"), rng.randrange(3)
                if queue_id in store.queues(topic):
                    first, end = store.queue_bounds(topic, queue_id)
                    low = rng.randrange(first, end + 1)
                    store.trim(topic, queue_id, low)
                    for name in SUBSCRIPTIONS:
                        if name[0] == topic:
                            left[name][queue_id] = max(low, left[name][queue_id])
            if rng.random() < 0.5:
                remove()
                for name in SUBSCRIPTIONS:
                    for queue_id in store.queues(name[0]):
                        first = store.queue_bounds(name[0], queue_id)[0]
                        gone = range(left[name][queue_id], first)
                        expected[name] += sum((queue_id, at) not in acked[name] for at in gone)
                        left[name][queue_id] = max(first, left[name][queue_id])
            assert counts(store) == expected
        assert all(expected.values())
        assert store.stats()["subscriptions"]["removed_unacknowledged"] == sum(expected.values())


def test_a_subscription_is_named_once_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        MessageStore.open(tmp_path, tiny(retention_bytes=100_000)) as store,
        caplog.at_level(logging.WARNING, "stratalog"),
    ):
        remove = ByHand(store)
        store.subscribe("t", "slow")
        quick = store.subscribe("t", "quick")
        for _ in range(3):
            fill(store, "t", 0, 60)
            quick.skip_all()
            remove()
        lost = by_name(store)["t", "slow"].removed_unacknowledged
        (record,) = caplog.records
        assert lost == store.queue_bounds("t", 0)[0]
        assert "'t'" in record.getMessage()
        assert "'slow'" in record.getMessage()
        assert isinstance(record.args, tuple)
        assert 0 < int(str(record.args[0])) < lost


def test_a_store_without_retention_counts_nothing_for_trims_and_deletions(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        remove = ByHand(store)
        store.subscribe("t", "a")
        store.subscribe("u", "a")
        for topic in "tu":
            fill(store, topic, 0, 60)
        store.trim("t", 0, 60)
        store.delete_topic("u")
        remove()
        assert store._upkeep.removal.removed_segments > 5
        assert counts(store) == {("t", "a"): 0, ("u", "a"): 0}


def test_what_is_on_its_way_to_be_acknowledged_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=100_000)) as store:
        remove = ByHand(store)
        sub = store.subscribe("t", "a", mode="ordered")
        fill(store, "t", 0, 60)
        got = sub.receive_batch(10)
        with monkeypatch.context() as patch:  # what was patched before stays: one thread alone removes
            patch.setattr(type(sub._acks), "settle", lambda *given: None)
            patch.setattr(type(sub._acks), "_settle_batch", lambda *given: None)
            sub.ack_batch(got.receipts)
        remove()
        first = store.queue_bounds("t", 0)[0]
        assert first > 10
        assert counts(store) == {("t", "a"): first - 10}


def test_messages_that_live_on_as_copies_or_were_cancelled_do_not_count(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=100_000)) as store:
        remove = ByHand(store)
        sub = store.subscribe("t", "a")
        for at in range(120):
            delayed = 1 << 50 if at % 20 == 3 else None
            store.append("t", 0, bytes(SIZE), deliver_at_ms=delayed)
        sub.receive(1)  # it has an index from here on
        assert store.cancel_delayed("t", 0, 3)
        remove()
        first = store.queue_bounds("t", 0)[0]
        delayed_ones = len(range(3, first, 20))
        assert delayed_ones > 2
        assert counts(store) == {("t", "a"): first - delayed_ones}


def test_a_subscription_that_nobody_has_opened_is_counted_as_well(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        fill(store, "t", 0, 60)
        sub = store.subscribe("t", "a")  # its records are not in a segment that goes
        sub.ack_batch(sub.receive(5))
    with MessageStore.open(tmp_path, tiny(retention_bytes=100_000)) as store:
        remove = ByHand(store)
        remove()
        first = store.queue_bounds("t", 0)[0]
        assert first > 20
        assert counts(store) == {("t", "a"): first - 5}


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_a_subscription_of_the_same_name_begins_to_count_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_forgotten: bool
) -> None:
    """Also if the deletion was interrupted before the old one was forgotten."""
    if not is_forgotten:
        monkeypatch.setattr(Subscriptions, "_forget_deleted", lambda *given: None)
    with MessageStore.open(tmp_path, tiny(retention_bytes=100_000)) as store:
        remove = ByHand(store)
        store.subscribe("t", "a")
        fill(store, "t", 0, 60)
        remove()
        lost = by_name(store)["t", "a"].removed_unacknowledged
        assert lost > 20
        assert store.delete_subscription("t", "a")
        store.subscribe("t", "a")
        assert counts(store) == {("t", "a"): 0}
        assert store.stats()["subscriptions"]["removed_unacknowledged"] == lost
        with MessageStore.open(tmp_path, read_only=True) as reader:
            assert [one.removed_unacknowledged for one in reader.subscriptions()] == [0]


def test_a_count_that_fails_does_not_hold_retention_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=100_000)) as store:
        remove = ByHand(store)
        store.subscribe("t", "a")
        fill(store, "t", 0, 60)

        def fail(*given: object) -> set[str]:
            raise MemoryError

        monkeypatch.setattr(Subscriptions, "topics", fail)
        remove()
        assert store.queue_bounds("t", 0)[0] > 20


@pytest.mark.parametrize("size", [SIZE, SIZE // 50])
def test_a_segment_costs_by_its_streams_not_by_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    asked = list[int]()

    def counted(real: Count, state: State, queue_id: int, begin: int, end: int, spared: Int64s) -> int:
        asked.append(queue_id)
        return real(state, queue_id, begin, end, spared)

    with MessageStore.open(tmp_path, tiny(retention_bytes=100_000)) as store:
        remove = ByHand(store)
        store.subscribe("t", "a", start="latest")
        sub = store.subscribe("u", "a")
        while store._lanes[0].view.sealed_bytes < 400_000:
            store.append_batch([(topic, queue_id, bytes(size)) for topic in "tuvw" for queue_id in range(2)])
        sub.skip_all()
        for real in (count_left, count_lost):
            monkeypatch.setattr(f"stratalog.store.subscriptions.removed.{real.__name__}", partial(counted, real))
        remove()
        assert store.queue_bounds("t", 0)[0] > 0
        assert counts(store)["t", "a"] == sum(store.queue_bounds("t", queue_id)[0] for queue_id in range(2))
        assert len(asked) == (2 * 2 + 2) * store._upkeep.removal.removed_segments
