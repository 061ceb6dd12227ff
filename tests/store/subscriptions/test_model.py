"""Subscriptions against a dict: any sequence of calls, closes and crashes gives out what a model says."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stratalog.store import Delivery, MessageStore, StaleReceipt, Subscription
from stratalog.store.filters.given import Filter
from stratalog.store.subscriptions import journal

from ...clocks import SteppedClock
from ..helpers import crash_copy, memory_folder, tiny

TOPIC = "orders"
QUEUES = (0, 1, 7)
NAMES = ("billing", "ü/..")
FILTERS: dict[str, tuple[Filter | None, str]] = {  # with the tags that pass
    "none": (None, "abc"),
    "mapping": ({"tag": {"a"}}, "a"),
    "sql": ("tag = 'b'", "b"),
    "key": ("tag = 'c' OR key = 'key of a'", "ac"),
}
RESTS_S: dict[str, tuple[float, ...]] = {
    NAMES[0]: (0.0,),
    NAMES[1]: (0.4, 12.0),
}  # after each attempt; the last repeats
Place = tuple[int, int]  # (queue id, offset)
queues = st.sampled_from(QUEUES)
names = st.sampled_from(NAMES)
some = st.integers(1, 12)


@dataclass
class Model:
    """What a subscription is to know: which messages are acknowledged, out (with their deadlines) or held."""

    chosen: str  # of `FILTERS`
    rests_s: tuple[float, ...]
    acked: set[Place] = field(default_factory=set)
    out: dict[int, tuple[Place, float]] = field(default_factory=dict)  # by receipt
    again: dict[Place, float] = field(default_factory=dict)  # given back, or timed out: when it comes
    late: dict[int, Place] = field(default_factory=dict)  # timed out, and not given to another
    attempts: dict[Place, int] = field(default_factory=dict)

    def forget_consumers(self) -> None:
        """Nobody has anything."""
        self.out.clear()
        self.again.clear()
        self.late.clear()
        self.attempts.clear()

    def expire(self, now: float) -> None:
        """Time has passed."""
        for receipt, (place, deadline) in list(self.out.items()):
            if deadline <= now:
                del self.out[receipt]
                self.again[place] = deadline + self.rest_s(place)
                self.late[receipt] = place

    def rest_s(self, place: Place) -> float:
        """How long a message that has failed rests."""
        return self.rests_s[min(self.attempts[place], len(self.rests_s)) - 1]


class SubscriptionMachine(RuleBasedStateMachine):
    """`messages` has the tag of each message by place, `first` the first offset of each queue."""

    def __init__(self) -> None:
        super().__init__()
        self.holder = memory_folder()
        self.home = self.holder.__enter__()
        self.generation = 0
        self.clock = SteppedClock()
        self.messages: dict[Place, str] = {}
        self.first = dict.fromkeys(QUEUES, 0)
        self.models: dict[str, Model] = {}
        self.subs: dict[str, Subscription] = {}
        self.config = tiny()

    @property
    def path(self) -> Path:
        return self.home / f"store-{self.generation}"

    @initialize(lanes=st.sampled_from([1, 2]))
    def begin(self, lanes: int) -> None:
        self.config = tiny(lanes=lanes)
        self.store = MessageStore.open(self.path, self.config, clock=self.clock)

    def teardown(self) -> None:
        self.store.close()
        self.holder.__exit__(None, None, None)

    def next_offset(self, queue_id: int) -> int:
        return len([place for place in self.messages if place[0] == queue_id])

    # -- what changes the log -------------------------------------------------------------------------

    @rule(queue_id=queues, count=some, tag=st.sampled_from("abc"))
    def append(self, queue_id: int, count: int, tag: str) -> None:
        begin = self.next_offset(queue_id)
        for offset in range(begin, begin + count):
            assert (
                self.store.append(
                    TOPIC, queue_id, b"%d" % offset, key=b"key of %s" % tag.encode(), properties={"tag": tag}
                )
                == offset
            )
            self.messages[queue_id, offset] = tag

    @rule(queue_id=queues, share=st.floats(0, 1))
    def trim(self, queue_id: int, share: float) -> None:
        low = int(share * self.next_offset(queue_id))
        self.first[queue_id] = max(self.first[queue_id], low)
        self.store.trim(TOPIC, queue_id, low)
        for model in self.models.values():  # what is gone is acknowledged, when it is looked for
            model.acked |= {place for place in self.messages if place[1] < self.first[place[0]]}

    @rule(crash=st.booleans())
    def reopen(self, crash: bool) -> None:
        if crash:
            self.store.flush()
            crash_copy(self.path, self.home / f"store-{self.generation + 1}")
        self.store.close()
        self.generation += crash
        self.store = MessageStore.open(self.path, self.config, clock=self.clock)
        self.subs.clear()
        for model in self.models.values():
            model.forget_consumers()

    @rule(seconds=st.sampled_from([0.5, 10.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    # -- subscriptions --------------------------------------------------------------------------------

    def sub(self, name: str) -> Subscription:
        """The subscription, opened if it is not; made with the filter for one of the names."""
        if name not in self.subs:
            chosen = self.models[name].chosen if name in self.models else "mapping" if name == NAMES[1] else "none"
            rests_ms = [int(rest_s * 1000) for rest_s in RESTS_S[name]]
            self.subs[name] = self.store.subscribe(TOPIC, name, filter=FILTERS[chosen][0], backoff_ms=rests_ms)
            if name not in self.models:
                self.models[name] = Model(chosen, RESTS_S[name])
                self.models[name].acked |= {place for place in self.messages if place[1] < self.first[place[0]]}
        self.models[name].expire(self.clock.now)
        return self.subs[name]

    def wanted(self, model: Model, place: Place) -> bool:
        return self.messages[place] in FILTERS[model.chosen][1]

    def available(self, model: Model) -> set[Place]:
        taken = {place for place, _ in model.out.values()} | set(model.again)
        ready = {place for place in self.messages if place not in model.acked | taken and self.wanted(model, place)}
        gone = {place for place in model.again if place[1] < self.first[place[0]]}
        return ready | {place for place, at in model.again.items() if at <= self.clock.now and place not in gone}

    @rule(
        name=names, count=some, batch=st.booleans(), timeout_s=st.sampled_from([1, 30]),
        only=st.sampled_from([None, None, *QUEUES, 5]),
    )  # fmt: skip
    def receive(self, name: str, count: int, batch: bool, timeout_s: int, only: int | None) -> None:
        sub = self.sub(name)
        model = self.models[name]
        available = {place for place in self.available(model) if only in (None, place[0])}
        if batch:
            columns = sub.receive_batch(count, 0, timeout_s * 1000, queue_id=only)
            assert columns.attempts.tolist() == [one.attempt for one in columns.deliveries()]
            got = columns.deliveries()
        else:
            got = sub.receive(count, 0, timeout_s * 1000, queue_id=only)
        places = [place_of(one) for one in got]
        assert len(places) == len(set(places)) == min(count, len(available))
        assert set(places) <= available
        assert [one.message.data for one in got] == [b"%d" % offset for _, offset in places]
        again = [place in model.again for place in places]
        assert again == sorted(again, reverse=True), "what comes again comes first"
        for queue_id in QUEUES:
            fresh = [at for (queue, at), old in zip(places, again, strict=True) if queue == queue_id and not old]
            rest = [at for queue, at in available - set(places) - set(model.again) if queue == queue_id]
            assert fresh == sorted(fresh)
            assert not fresh or not rest or fresh[-1] < min(rest)
        for one, place in zip(got, places, strict=True):
            model.attempts[place] = model.attempts.get(place, 0) + 1
            assert one.attempt == model.attempts[place]
            model.again.pop(place, None)
            model.late = {receipt: at for receipt, at in model.late.items() if at != place}
            model.out[one.receipt] = (place, self.clock.now + timeout_s)

    def draw(self, data: st.DataObject, model: Model) -> list[int]:
        known = sorted({*model.out, *model.late})
        return data.draw(st.lists(st.sampled_from(known), unique=True, max_size=8)) if known else []

    @rule(name=names, data=st.data(), batch=st.booleans())
    def ack(self, name: str, data: st.DataObject, batch: bool) -> None:
        sub = self.sub(name)
        model = self.models[name]
        receipts = self.draw(data, model)
        if batch:
            sub.ack_batch(receipts)
        for receipt in receipts:
            if not batch:
                sub.ack(receipt)
            place = self.settle(model, receipt)
            model.acked.add(place)
            with self.stale(place):
                sub.ack(receipt)

    def stale(self, place: Place) -> AbstractContextManager[object]:
        """A receipt that is used up is refused; of a removed message it may say nothing new."""
        is_gone = place[1] < self.first[place[0]]
        return suppress(StaleReceipt) if is_gone else pytest.raises(StaleReceipt)

    def settle(self, model: Model, receipt: int) -> Place:
        """A receipt is used up: its message."""
        if receipt in model.out:
            return model.out.pop(receipt)[0]
        place = model.late.pop(receipt)
        del model.again[place]
        return place

    @rule(name=names, data=st.data(), delay_s=st.sampled_from([0, 5]))
    def nack(self, name: str, data: st.DataObject, delay_s: int) -> None:
        sub = self.sub(name)
        model = self.models[name]
        for receipt in self.draw(data, model):
            sub.nack(receipt, delay_s * 1000)
            place = self.settle(model, receipt)
            model.again[place] = self.clock.now + (delay_s or model.rest_s(place))
            with self.stale(place):
                sub.nack(receipt)

    @rule(name=names, data=st.data())
    def extend(self, name: str, data: st.DataObject) -> None:
        sub = self.sub(name)
        model = self.models[name]
        for receipt in self.draw(data, model):
            sub.extend(receipt, 20_000)
            model.out[receipt] = (self.settle(model, receipt), self.clock.now + 20)

    @rule(name=names, where=st.sampled_from(["earliest", "latest", "offsets"]), data=st.data())
    def seek(self, name: str, where: str, data: st.DataObject) -> None:
        sub = self.sub(name)
        moved = {queue_id: self.next_offset(queue_id) for queue_id in QUEUES if self.next_offset(queue_id)}
        if where == "offsets":
            moved = {at: data.draw(st.integers(0, end)) for at, end in moved.items() if data.draw(st.booleans())}
            sub.seek(moved)
        else:
            sub.seek("earliest" if where == "earliest" else "latest")
            moved = moved if where == "latest" else dict.fromkeys(moved, 0)
        self.moved(self.models[name], moved)

    def moved(self, model: Model, offsets: dict[int, int]) -> None:
        for receipt, place in [*((one, at) for one, (at, _) in model.out.items()), *model.late.items()]:
            if place[0] in offsets:
                model.out.pop(receipt, None)
                model.late.pop(receipt, None)
        for places in (model.again, model.attempts):
            for place in [place for place in places if place[0] in offsets]:
                del places[place]
        for place in self.messages:
            if place[0] in offsets:
                low = max(offsets[place[0]], self.first[place[0]])
                (model.acked.add if place[1] < low else model.acked.discard)(place)

    @rule(name=names)
    def delete(self, name: str) -> None:
        existed = name in self.models
        assert self.store.delete_subscription(TOPIC, name) == existed
        self.models.pop(name, None)
        self.subs.pop(name, None)

    @precondition(lambda self: self.subs)
    @rule(data=st.data())
    def close_one(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.subs)))
        self.subs.pop(name).close()
        self.models[name].forget_consumers()

    @rule(name=names, chosen=st.sampled_from(sorted(FILTERS)))
    def change(self, name: str, chosen: str) -> None:
        """What the filter has left out by now stays acknowledged; all else goes by the new one."""
        sub, model = self.sub(name), self.models[name]
        for place in set(self.messages) - model.acked:
            if place[1] in sub._state.cursor.queue(place[0]):
                assert not self.wanted(model, place), "it was left out"
                model.acked.add(place)
        sub.change(filter=FILTERS[chosen][0])
        model.chosen = chosen

    @rule(name=names)
    def compact(self, name: str) -> None:
        sub = self.sub(name)
        with sub._state.changing:
            sub._state.compact()

    @invariant()
    def they_are_listed(self) -> None:
        listed = [(one.topic, one.name) for one in self.store.subscriptions()]
        assert listed == [(TOPIC, name) for name in sorted(self.models)]

    @invariant()
    def the_backlog_is_what_is_not_acknowledged(self) -> None:
        for name, sub in self.subs.items():
            model = self.models[name]
            if model.chosen == "none":
                left = [place for place in self.messages if place not in model.acked]
                assert sub.backlog().total == len(left)


def place_of(delivery: Delivery) -> Place:
    """Where the message is."""
    return delivery.message.queue_id, delivery.message.offset


TestSubscriptions = SubscriptionMachine.TestCase
TestSubscriptions.settings = settings(max_examples=12, stateful_step_count=40)


@pytest.fixture(autouse=True)
def compacts_early(monkeypatch: pytest.MonkeyPatch) -> Iterable[None]:
    """Snapshots after a few records, so that there are some."""
    monkeypatch.setattr(journal, "LEAST_BYTES", 500)
    yield
