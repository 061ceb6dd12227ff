"""Dead letters beside consumers that are late, and beside failures."""

from __future__ import annotations

import dataclasses
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from stratalog.store import (
    Delivery,
    InvalidMessage,
    MessageStore,
    MessageTooLarge,
    StaleReceipt,
    StoreFull,
    Subscription,
)
from stratalog.store.log.streams import Stream
from stratalog.store.subscriptions import redelivery
from stratalog.store.subscriptions.settings import DeadLetterChains
from stratalog.store.testing import SimulatedDisk
from stratalog.store.topics.full import Acknowledged

from ...clocks import SteppedClock
from ...seeds import draw_seed
from ..helpers import PATIENCE_S, tiny
from .helpers import TOPIC, fill, own_properties, places

DEAD = "orders/dead"


class Hooked:
    """The part that appends, as transactions see it; `hook` is called before it looks for streams."""

    def __init__(self, sub: Subscription, hook: Callable[[], object]) -> None:
        state = sub._state
        assert state.parts.appending is not None
        self._real, self._hook = state.parts.appending, hook
        self.most_atomic_bytes, self.atomic_group = self._real.most_atomic_bytes, self._real.atomic_group
        self.check_open, self.frame_bytes = self._real.check_open, self._real.frame_bytes
        state.parts = dataclasses.replace(state.parts, appending=self)

    def find_or_make(self, names: Sequence[tuple[str, int]], acknowledged: Acknowledged | None = None) -> list[Stream]:
        self._hook()
        return self._real.find_or_make(names, acknowledged)

    def find_again(self, names: Sequence[tuple[str, int]], acknowledged: Acknowledged | None = None) -> list[Stream]:
        self._hook()
        return self._real.find_again(names, acknowledged)


def acks_in_the_first_append(sub: Subscription, late: Delivery) -> list[bool]:
    """Have a consumer acknowledge while the first dead letter is appended; what came of it, once that was."""
    outcome = list[bool]()

    def hook() -> None:
        if not outcome:
            try:
                sub.ack(late)
                outcome.append(True)
            except StaleReceipt:
                outcome.append(False)

    Hooked(sub, hook)
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
    assert [one.data for one in store.read(DEAD, 0, 0, max_messages=100)] == [b"0/%d" % at for at in range(64)], (
        "each once"
    )
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

    def fail() -> None:
        raise StoreFull("the disk is full")

    Hooked(sub, fail)
    with pytest.raises(StoreFull):
        sub.receive()
    fill(store, 1)
    assert places(sub.receive()) == [(0, 2)], "others are not held up"
    state.parts = whole
    clock.now += 2
    assert sub.receive() == []
    assert [one.data for one in store.read(DEAD, 0, 0)] == [b"0/0", b"0/1"]


def test_a_call_goes_on_after_dead_letters_to_what_may_be_given_out(store: MessageStore) -> None:
    fill(store, 5)
    sub = store.subscribe(TOPIC, "a", max_attempts=2, dead_letter_topic=DEAD)
    sub.nack_batch(sub.receive(4))
    sub.nack_batch(sub.receive(5))  # four of them were given out twice
    assert places(sub.receive(1)) == [(0, 4)]
    assert store.queue_bounds(DEAD, 0) == (0, 4)
    assert sub.receive(1) == []


def test_many_dead_letters_of_many_queues_are_moved_by_few_appends(store: MessageStore, clock: SteppedClock) -> None:
    for at in range(400):
        more = {"key": b"k%d" % at} if at % 3 == 0 else {"properties": {"n": str(at)}} if at % 3 == 1 else {}
        store.append(TOPIC, at % 4, b"%d" % at, **more)
    sub = store.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic=DEAD)
    sub.nack_batch(sub.receive_batch(1000).receipts)
    before = store.stats()["log"]["frames"]
    assert sub.receive(1000) == []
    assert store.stats()["log"]["frames"] - before <= 3, "one for all, and the attempts"
    assert sub.backlog().total == 0
    for queue_id in range(4):
        wanted, moved = (
            store.read(TOPIC, queue_id, 0, max_messages=1000),
            store.read(DEAD, queue_id, 0, max_messages=1000),
        )
        assert [(one.data, one.key, own_properties(one)) for one in moved] == [
            (one.data, one.key, one.properties or {}) for one in wanted
        ]
        assert [(one.properties or {})["dead_letter.offset"] for one in moved] == [str(one.offset) for one in wanted]


def test_dead_letters_larger_than_one_append_takes_are_moved_in_parts(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redelivery, "MOVED_BYTES", 100)
    for _ in range(20):
        store.append(TOPIC, 0, bytes(60))
    sub = store.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic=DEAD)
    sub.nack_batch(sub.receive_batch(1000).receipts)
    assert sub.receive(1000) == []
    assert store.queue_bounds(DEAD, 0) == (0, 20)
    assert sub.backlog().total == 0


@pytest.mark.parametrize("keyed", [False, True])
def test_no_crash_makes_a_dead_letter_twice_or_loses_one(tmp_path: Path, keyed: bool) -> None:
    """The power fails at each operation of the disk while they are moved."""
    disk, chance, clock = SimulatedDisk(), random.Random(draw_seed()), SteppedClock()
    crashed = list[SimulatedDisk]()
    with MessageStore.open(tmp_path, tiny(), disk=disk, clock=clock) as store:
        for at in range(9):
            store.append(TOPIC, at % 3, b"%d;" % at + bytes(3000), key=b"k" if keyed else None)
        sub = store.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic=DEAD)
        sub.nack_batch(sub.receive_batch().receipts)
        disk.on_operation = lambda operation: crashed.extend(disk.crash(chance) for _ in range(4))
        assert sub.receive() == []
        disk.on_operation = None
        crashed += [disk.crash(chance) for _ in range(4)]
    assert len(crashed) > 8
    for left in crashed:
        with MessageStore.open(tmp_path, tiny(), disk=left, clock=clock) as store:
            sub = store.subscribe(TOPIC, "a")
            assert sub.receive() == []
            dead = [one.data for queue_id in range(3) for one in store.read(DEAD, queue_id)]
            assert sorted(dead) == [b"%d;" % at + bytes(3000) for at in range(9)]
            assert sub.backlog().total == 0


def test_dead_letters_in_another_lane_are_moved_as_well(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=4)) as store:
        fill(store, *[2] * 8)
        sub = store.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic=DEAD)
        sub.nack_batch(sub.receive_batch().receipts)
        assert sub.receive() == []
        assert [store.queue_bounds(DEAD, queue_id) for queue_id in range(8)] == [(0, 2)] * 8
        assert sub.backlog().total == 0


def test_dead_letters_that_were_trimmed_meanwhile_are_over(store: MessageStore) -> None:
    fill(store, 10)
    sub = store.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic=DEAD)
    sub.nack_batch(sub.receive_batch(1000).receipts)
    store.trim(TOPIC, 0, 7)
    assert sub.receive(1000) == []
    assert [one.data for one in store.read(DEAD, 0, 0)] == [b"0/7", b"0/8", b"0/9"]
    assert sub.backlog().total == 0


def test_dead_letter_larger_than_the_limit_of_now_is_moved_with_the_others(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for size_bytes in (10, 60_000, 20):
            store.append(TOPIC, 0, bytes(size_bytes), key=b"k")
    with MessageStore.open(tmp_path, tiny(max_message_bytes=4096, max_frame_bytes=4096)) as store:
        sub = store.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic=DEAD)
        sub.nack_batch(sub.receive_batch().receipts)
        assert sub.receive() == []
        assert [len(one.data) for one in store.read(DEAD, 0, 0)] == [10, 60_000, 20]
        assert sub.backlog().total == 0
        with pytest.raises(MessageTooLarge):
            store.append(DEAD, 0, bytes(5000))


def test_dead_letters_that_would_come_back_are_refused(store: MessageStore) -> None:
    for topic, to in (("a", "b"), ("b", "c")):
        store.subscribe(topic, "s", max_attempts=1, dead_letter_topic=to)
    for topic, to in (("c", "b"), ("c", "a"), ("b", "a")):
        with pytest.raises(InvalidMessage, match="come back"):
            store.subscribe(topic, "again", max_attempts=1, dead_letter_topic=to)
    plain = store.subscribe("c", "plain")
    with pytest.raises(InvalidMessage, match="come back"):
        plain.change(max_attempts=3, dead_letter_topic="a")
    plain.change(max_attempts=3, dead_letter_topic="d")
    plain.change(max_attempts=4)
    with pytest.raises(InvalidMessage, match="come back"):
        plain.change(dead_letter_topic="b")
    assert [(one.topic, one.name) for one in store.subscriptions()] == [("a", "s"), ("b", "s"), ("c", "plain")]
    store.delete_subscription("b", "s")
    plain.change(dead_letter_topic="a")


def test_a_chain_that_went_round_before_it_was_refused_opens_still(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.subscribe("a", "s", max_attempts=1, dead_letter_topic="b")
    with monkeypatch.context() as patch:
        patch.setattr(DeadLetterChains, "_check", lambda *given: None)
        store.subscribe("b", "s", max_attempts=1, dead_letter_topic="a").close()
    sub = store.subscribe("b", "s")
    sub.change(max_attempts=5)
    sub.change(dead_letter_topic="c")


def test_of_two_that_make_a_chain_go_round_at_one_moment_one_is_refused(store: MessageStore) -> None:
    barrier = threading.Barrier(2)
    refused = list[str]()

    def make(topic: str, to: str) -> None:
        barrier.wait(PATIENCE_S)
        try:
            store.subscribe(topic, "s", max_attempts=1, dead_letter_topic=to)
        except InvalidMessage:
            refused.append(topic)

    for number in range(20):
        names = f"a{number}", f"b{number}"
        threads = [threading.Thread(target=make, args=pair) for pair in (names, names[::-1])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert len(refused) == number + 1
