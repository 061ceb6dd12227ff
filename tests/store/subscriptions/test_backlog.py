"""How much is left: exact for each subscription at any time, and the same wherever it is told."""

from __future__ import annotations

import errno
import json
import random
from pathlib import Path
from unittest import mock

import pytest
from typer.testing import CliRunner

from stratalog.console.app import app
from stratalog.store import Delivery, MessageStore, PublishBufferFull, StoreReader, Subscription

from ...seeds import draw_seed
from ..helpers import tiny
from .helpers import TOPIC, BothClocks, fill, places
from .test_damage import churn
from .test_delayed import append

HOUR_MS = 3_600_000
Place = tuple[int, int]


@pytest.fixture
def clock() -> BothClocks:
    return BothClocks()


def told(store: StoreReader, name: str = "a") -> tuple[int, int, int]:
    """By `store.subscriptions`."""
    (found,) = [one.backlog for one in store.subscriptions(TOPIC) if one.name == name]
    return found


def test_delayed_messages_that_were_trimmed_hide_no_ready_ones(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a")
    for _ in range(5):
        append(store, 0, HOUR_MS)
    fill(store, 4)
    assert sub.receive(1)
    store.trim(TOPIC, 0, 5)
    assert sub.backlog() == told(store) == (3, 1, 0)


def test_delayed_messages_that_were_passed_hide_no_ready_ones(store: MessageStore, clock: BothClocks) -> None:
    sub, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "b")
    for _ in range(5):
        append(store, 0, HOUR_MS)
    assert sub.receive() == []
    sub.skip_all()
    fill(store, 4)
    assert sub.backlog() == told(store) == (4, 0, 0)
    assert other.backlog() == told(store, "b") == (4, 0, 5)
    clock.go(HOUR_MS)
    assert sub.backlog() == (4, 0, 0)
    assert other.backlog() == (9, 0, 0)


def test_delayed_messages_count_as_such_before_the_first_receive(store: MessageStore, clock: BothClocks) -> None:
    sub = store.subscribe(TOPIC, "a")
    assert sub.backlog() == (0, 0, 0)
    fill(store, 3)
    assert sub.backlog() == (3, 0, 0)
    assert store.stats()["delayed"] == {}, "without a delayed message to count makes no index"
    append(store, 0, HOUR_MS)
    append(store, 1, HOUR_MS)
    assert sub.backlog() == told(store) == (3, 0, 2)
    assert len(sub.receive()) == 3
    assert sub.backlog() == told(store) == (0, 3, 2)


def test_a_count_makes_the_index_of_one_topic_at_a_time(store: MessageStore) -> None:
    topics = [f"{TOPIC}-{at}" for at in range(3)]
    for topic in topics:
        store.subscribe(topic, "a").close()
        store.append(topic, 0, b"x", deliver_at_ms=store._clock.wall_ms() + HOUR_MS)
    for made in range(1, 4):
        assert [one.backlog for one in store.subscriptions()] == [(0, 0, 1)] * 3
        assert list(store.stats()["delayed"]) == topics[:made]


@pytest.mark.parametrize("error", [PublishBufferFull("full"), OSError(errno.EMFILE, "no file")])
def test_where_no_index_can_be_made_the_log_is_counted(
    store: MessageStore, clock: BothClocks, error: Exception
) -> None:
    sub = store.subscribe(TOPIC, "a")
    append(store, 0, HOUR_MS)
    with mock.patch("stratalog.store.delayed.topic.open_index", side_effect=error) as opens:
        assert [sub.backlog(), told(store)] == [(0, 0, 1)] * 2
        assert opens.call_count == 1, "it is not tried again at once"
        clock.go(HOUR_MS // 2)
        assert sub.backlog() == (0, 0, 1)
        assert opens.call_count == 2
    assert store.stats()["delayed"] == {}
    clock.go(HOUR_MS // 4)
    assert sub.backlog() == (0, 0, 1)
    assert list(store.stats()["delayed"]) == [TOPIC]


def test_a_cancelled_message_is_in_no_count(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a")
    offset = append(store, 0, HOUR_MS)
    append(store, 0, HOUR_MS)
    fill(store, 2)
    assert store.cancel_delayed(TOPIC, 0, offset)
    assert sub.backlog() == told(store) == (2, 0, 1)
    assert len(sub.receive()) == 2
    assert sub.backlog() == told(store) == (0, 2, 1)


def test_messages_that_live_on_as_copies_are_counted(tmp_path: Path, clock: BothClocks) -> None:
    with MessageStore.open(tmp_path / "copies", tiny(retention_ms=1_000), clock=clock) as store:
        sub, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "b", start="latest")
        for number in range(40):
            store.append(TOPIC, 0, bytes(3000), deliver_at_ms=clock.wall_ms() + HOUR_MS if number % 10 == 0 else None)
        sub.ack_batch(sub.receive(1000))
        other.skip_all()
        clock.go(60_000)
        churn(store, clock, lambda: store.queue_bounds(TOPIC, 0)[0] == 40)
        assert len(store._delaying.delays.topics[TOPIC].copies) == 4
        assert sub.backlog() == told(store) == (0, 0, 4)
        assert other.backlog() == (0, 0, 0)
        clock.go(HOUR_MS)
        assert sub.backlog() == told(store) == (4, 0, 0)
        (got, _) = sub.receive(2)
        assert sub.backlog() == told(store) == (2, 2, 0)
        sub.ack(got)
        assert sub.backlog() == told(store) == (2, 1, 0)
        sub.close()
        assert told(store) == (3, 0, 0)
        with MessageStore.open(store.path, read_only=True, clock=clock) as reader:
            assert told(reader) == (3, 0, 0)


def test_what_timed_out_is_ready_before_anybody_has_looked(store: MessageStore, clock: BothClocks) -> None:
    fill(store, 3)
    sub = store.subscribe(TOPIC, "a")
    got = sub.receive(2, visibility_timeout_ms=1000)
    sub.nack(got[0], delay_ms=500)
    assert sub.backlog() == (1, 1, 1)
    clock.go(500)
    assert sub.backlog() == (2, 1, 0)
    clock.go(500)
    assert sub.backlog() == told(store) == (3, 0, 0)


def test_a_topic_whose_index_has_not_read_all_of_the_log_is_counted_by_the_log(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a")
    fill(store, 2)
    append(store, 0, HOUR_MS)
    assert len(sub.receive(1)) == 1
    index = store._delaying.delays.topic(TOPIC)
    places_now = [scan.place for scan in store._delaying.delays._scans]
    gone = append(store, 0, HOUR_MS)
    append(store, 1, HOUR_MS)
    assert store.cancel_delayed(TOPIC, 0, gone)
    with index.lock:  # so that the thread does not catch up
        index.lag_from(places_now)
        assert sub.backlog() == told(store) == (1, 1, 2)


def test_all_that_tell_a_backlog_tell_the_same(store: MessageStore, clock: BothClocks) -> None:
    sub = store.subscribe(TOPIC, "a")
    fill(store, 7, 3)
    far_ms = 1 << 50  # the commands have the machine's clock
    for queue_id in (0, 0, 1, 2):
        store.append(TOPIC, queue_id, b"later", deliver_at_ms=far_ms)
    assert store.cancel_delayed(TOPIC, 0, 7)
    sub.ack_batch(sub.receive(4))
    assert sub.backlog() == told(store) == (6, 0, 3)
    sub.close()
    assert told(store) == (6, 0, 3)

    def by_commands() -> list[object]:
        listed = CliRunner().invoke(app, ["subscriptions", str(store.path), "--json", "-"]).output
        shown = CliRunner().invoke(app, ["inspect", str(store.path), "--json", "-"]).output
        (row,), (other,) = json.loads(listed)["subscriptions"], json.loads(shown)["subscriptions"]
        return [row["ready"], row["delayed"], row["unacknowledged"], other["ready"], other["delayed"]]

    assert by_commands() == [6, 3, 9, 6, 3]
    store.close()
    assert by_commands() == [6, 3, 9, 6, 3]


class _Model:
    """What two subscriptions must say, message by message."""

    def __init__(self, store: MessageStore, clock: BothClocks, chance: random.Random) -> None:
        self.store, self.clock, self.chance = store, clock, chance
        self.due_ms: dict[Place, int] = {}  # of all that were not trimmed or cancelled
        self.left: dict[str, set[Place]] = {"a": set(), "b": set()}  # not acknowledged
        self.held: dict[str, dict[Place, tuple[Delivery, int, bool]]] = {"a": {}, "b": {}}  # until when; given back?
        self.subs: dict[str, Subscription] = {}
        self.reopen(store)

    def reopen(self, store: MessageStore) -> None:
        self.store = store
        for name in self.left:
            self.held[name].clear()
            self.subs[name] = store.subscribe(TOPIC, name)

    def now_ms(self) -> int:
        return self.subs["a"]._state.now_ms()

    def until_ms(self, after_ms: int) -> int:
        return self.subs["a"]._state.deadline_ms(after_ms)

    def expected(self, name: str) -> tuple[int, int, int]:
        now_ms, held = self.now_ms(), self.held[name]
        out = sum(until_ms > now_ms and not back for _, until_ms, back in held.values())
        later = sum(until_ms > now_ms and back for _, until_ms, back in held.values())
        later += sum(self.due_ms[place] > self.clock.wall for place in self.left[name] - set(held))
        return len(self.left[name]) - out - later, out, later

    def step(self) -> None:
        """One call, of the store and of the model."""
        name = self.chance.choice(["a", "b"])
        call = self.chance.choice([
            self.append, self.append, self.append, self.receive, self.receive, self.receive, self.ack, self.ack,
            self.nack, self.change, self.change, self.trim, self.seek, self.go, self.go,
        ])  # fmt: skip
        call(name)

    def append(self, _name: str) -> None:
        queue_id, delay_ms = self.chance.randrange(3), self.chance.choice([0, 0, 20, 500, HOUR_MS])
        place = queue_id, append(self.store, queue_id, delay_ms)
        self.due_ms[place] = self.clock.wall + delay_ms
        for left in self.left.values():
            left.add(place)

    def receive(self, name: str) -> None:
        visible_ms = self.chance.choice([30, 10_000])
        got = self.subs[name].receive(self.chance.randrange(1, 6), visibility_timeout_ms=visible_ms)
        for delivery, place in zip(got, places(got), strict=True):
            assert place in self.left[name]
            assert self.due_ms[place] <= self.clock.wall
            self.held[name][place] = delivery, self.until_ms(visible_ms), False

    def out(self, name: str) -> tuple[Place, Delivery] | None:
        out = [(place, delivery) for place, (delivery, _, back) in self.held[name].items() if not back]
        return self.chance.choice(sorted(out)) if out else None

    def ack(self, name: str) -> None:
        if (one := self.out(name)) is not None:
            self.subs[name].ack(one[1])
            self.left[name].discard(one[0])
            del self.held[name][one[0]]

    def nack(self, name: str) -> None:
        if (one := self.out(name)) is not None:
            delay_ms = self.chance.choice([0, 40])
            self.subs[name].nack(one[1], delay_ms)
            self.held[name][one[0]] = one[1], self.until_ms(delay_ms) if delay_ms else self.now_ms(), True

    def change(self, _name: str) -> None:
        pending = sorted(place for place, due_ms in self.due_ms.items() if due_ms > self.clock.wall)
        if not pending:
            return
        place = self.chance.choice(pending)
        if self.chance.random() < 0.5:
            assert self.store.cancel_delayed(TOPIC, *place)
            self.forget({place})
        else:
            self.due_ms[place] = self.clock.wall + self.chance.choice([0, 100, HOUR_MS])
            assert self.store.reschedule_delayed(TOPIC, *place, self.due_ms[place])

    def trim(self, _name: str) -> None:
        queue_id = self.chance.randrange(3)
        first, end = self.store.queue_bounds(TOPIC, queue_id)
        if end and self.chance.random() < 0.3:
            low = self.chance.randint(first, end)
            self.store.trim(TOPIC, queue_id, low)
            self.forget({place for place in self.due_ms if place[0] == queue_id and place[1] < low})

    def forget(self, gone: set[Place]) -> None:
        for place in gone:
            del self.due_ms[place]
        for name in self.left:
            self.left[name] -= gone
            self.held[name] = {place: one for place, one in self.held[name].items() if place not in gone}

    def seek(self, name: str) -> None:
        if self.chance.random() < 0.3:
            self.held[name].clear()
            if self.chance.random() < 0.5:
                self.subs[name].skip_all()
                self.left[name].clear()
            else:
                self.subs[name].seek("earliest")
                self.left[name] = set(self.due_ms)

    def go(self, _name: str) -> None:
        self.clock.go(self.chance.choice([1, 30, 600]))


def test_counts_are_those_of_a_model_after_any_calls(tmp_path: Path) -> None:
    seed = draw_seed()
    chance, clock = random.Random(seed), BothClocks()
    store = MessageStore.open(tmp_path / "model", tiny(lanes=2), clock=clock)
    model = _Model(store, clock, chance)
    try:
        for step in range(200):
            model.step()
            if chance.random() < 0.02:
                store.close()
                store = MessageStore.open(store.path, tiny(lanes=2), clock=clock)
                model.reopen(store)
            for name in model.left:
                expected = model.expected(name)
                assert model.subs[name].backlog() == expected == told(store, name), f"seed {seed}, step {step}"
    finally:
        store.close()
    with MessageStore.open(store.path, read_only=True, clock=clock) as reader:
        for name in model.held:
            model.held[name].clear()
            assert told(reader, name) == model.expected(name), f"seed {seed}"
