"""Topics that keep what is not acknowledged: it outlives age and size, and comes to each subscription once."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from typer.testing import CliRunner

from stratalog.console.app import app
from stratalog.store import Delivery, InvalidMessage, MessageStore, Subscription, TopicFull
from tests.seeds import draw_seed

from ..helpers import crash_copy, payload, tiny, until
from ..subscriptions.test_removed_counts import ByHand, counts, retention_by_hand

SIZE = 3_800
BYTES = 200_000


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    retention_by_hand(monkeypatch, "delayed.keeping")
    monkeypatch.setattr("stratalog.store.delayed.delays.DROP_S", 0.0)


def opened(path: Path, **more: Any) -> tuple[MessageStore, ByHand]:
    store = MessageStore.open(path, tiny(**{"retention_bytes": BYTES, **more}))
    return store, ByHand(store)


def data_of(queue_id: int, offset: int) -> bytes:
    return payload(queue_id << 32 | offset, SIZE)


def fill(store: MessageStore, count: int, topic: str = "t", queue_id: int = 0) -> None:
    begin = store.queue_bounds(topic, queue_id)[1] if queue_id in store.queues(topic) else 0
    tickets = [
        store.submit(topic, queue_id, data_of(queue_id, at), key=b"k%d" % at, properties={"n": str(at)})
        for at in range(begin, begin + count)
    ]
    assert [ticket.result() for ticket in tickets] == list(range(begin, begin + count))


def places(deliveries: list[Delivery]) -> list[tuple[int, int]]:
    for one in deliveries:
        message = one.message
        assert message.data == data_of(message.queue_id, message.offset)
        assert (message.key, message.properties) == (b"k%d" % message.offset, {"n": str(message.offset)})
    return [(one.message.queue_id, one.message.offset) for one in deliveries]


def all_of(sub: Subscription, most: int = 1000) -> list[Delivery]:
    found: list[Delivery] = []
    while got := sub.receive(most):
        found += got
    return found


def leave(sub: Subscription, kept: Callable[[int], bool]) -> list[tuple[int, int]]:
    """Acknowledge all but some messages, which are given back: their places."""
    got = all_of(sub)
    sub.ack_batch([one for one in got if not kept(one.message.offset)])
    left = [one for one in got if kept(one.message.offset)]
    sub.nack_batch(left)
    return places(left)


Mode = Literal["shared", "ordered"]


@pytest.mark.parametrize("how", ["goes on", "is opened again", "crashes"])
@pytest.mark.parametrize("every", [1, 7])
def test_what_one_subscription_has_not_acknowledged_outlives_size(tmp_path: Path, every: int, how: str) -> None:
    store, remove = opened(tmp_path / "s")
    with store:
        store.configure_topic("t", keep="unacknowledged")
        slow, quick = store.subscribe("t", "slow"), store.subscribe("t", "quick")
        fill(store, 300)
        expected = leave(slow, lambda at: at % every == 0)
        leave(quick, lambda _: False)
        remove()
        if every == 7:
            assert store.queue_bounds("t", 0)[0] > 200
            assert store.stats()["delayed"]["t"]["copies"] > 25
        else:
            assert store.queue_bounds("t", 0)[0] == 0, "copying would free nothing"
        if how == "goes on":
            assert sorted(places(all_of(slow))) == expected
            assert all_of(quick) == []
            return
        crash_copy(tmp_path / "s", tmp_path / "crashed")
    store, _ = opened(tmp_path / ("crashed" if how == "crashes" else "s"))
    with store:
        slow = store.subscribe("t", "slow")
        assert slow.backlog().total == len(expected)
        assert places(all_of(slow)) == expected
        assert slow.receive() == []
        assert store.subscribe("t", "quick").receive() == []
        assert set(counts(store).values()) == {0}


def test_after_a_change_back_copies_stay_and_what_lies_in_segments_goes_with_them(tmp_path: Path) -> None:
    store, remove = opened(tmp_path)
    with store:
        store.configure_topic("t", keep="unacknowledged")
        sub = store.subscribe("t", "a")
        fill(store, 300)
        left = leave(sub, lambda at: at % 7 == 0)
        remove()
        copied = [place for place in left if place[1] < store.queue_bounds("t", 0)[0]]
        assert len(copied) > 20
        store.configure_topic("t")
        fill(store, 300)
        remove()
        first = store.queue_bounds("t", 0)[0]
        assert first > 300
        assert sorted(places(all_of(sub))) == copied + [(0, at) for at in range(first, 600)]


def test_what_retention_alone_keeps_goes_beside_it(tmp_path: Path) -> None:
    store, remove = opened(tmp_path)
    with store:
        store.configure_topic("t", keep="unacknowledged")
        sub, other = store.subscribe("t", "a"), store.subscribe("u", "a")
        for _ in range(10):
            fill(store, 1)
            fill(store, 20, "u")
        remove()
        lost = store.queue_bounds("u", 0)[0]
        assert lost > 100
        assert counts(store) == {("t", "a"): 0, ("u", "a"): lost}
        assert len(places(all_of(sub))) == 10
        assert len(places(all_of(other))) == 200 - lost


def test_cancelled_and_trimmed_messages_are_not_kept(tmp_path: Path) -> None:
    store, remove = opened(tmp_path)
    with store:
        store.configure_topic("t", keep="unacknowledged")
        sub = store.subscribe("t", "a")
        for at in range(120):
            store.append("t", 0, data_of(0, at), deliver_at_ms=1 << 50)
        assert sub.receive() == []
        for at in range(120):
            if at % 10:
                assert store.cancel_delayed("t", 0, at)
        store.trim("t", 0, 30)
        remove()
        gone = store.queue_bounds("t", 0)[0]
        assert gone > 60
        assert store._delaying.keeping.copied_messages == len(range(30, gone, 10))
        assert sub.backlog().total == len(range(30, 120, 10))


def test_a_topic_that_keeps_and_has_no_subscription_keeps_nothing(tmp_path: Path) -> None:
    store, remove = opened(tmp_path)
    with store:
        store.configure_topic("t", keep="unacknowledged")
        fill(store, 300)
        remove()
        assert store.queue_bounds("t", 0)[0] > 200


@pytest.mark.parametrize("order_by", ["queue", "key"])
def test_an_ordered_subscription_gets_copies_in_their_place_in_the_line(tmp_path: Path, order_by: Any) -> None:
    store, remove = opened(tmp_path)
    with store:
        store.configure_topic("t", keep="unacknowledged")
        sub = store.subscribe("t", "a", mode="ordered", order_by=order_by)
        other = store.subscribe("t", "b", mode="ordered", order_by=order_by)
        fill(store, 250)
        got = (
            [one for part in iter(lambda: sub.receive(1), []) for one in part] if order_by == "key" else sub.receive(1)
        )
        assert places(got)[0] == (0, 0)
        while batch := other.receive(100):  # it gets on, and the first subscription does not
            other.ack_batch([one for one in batch if one.message.offset % 9 or order_by == "queue"])
            other.nack_batch([one for one in batch if not one.message.offset % 9 and order_by == "key"])
            if order_by == "key" and len(batch) < 100:
                break
        remove()
        sub.nack_batch(got)
        order: list[int] = []
        while batch := sub.receive(40):
            order += [one.message.offset for one in batch]
            places(batch)
            sub.ack_batch(batch)
        assert order == list(range(250))


def test_an_ordered_subscription_that_meets_a_gap_gets_the_copies_before_what_follows(tmp_path: Path) -> None:
    """Its scanner has not read them yet when their segments go."""
    store, remove = opened(tmp_path)
    with store:
        store.configure_topic("t", keep="unacknowledged")
        sub = store.subscribe("t", "a", mode="ordered")
        for _ in range(10):
            fill(store, 3)
            fill(store, 20, "waste", 1)
        fill(store, 10)
        assert places(sub.receive(2)) == [(0, 0), (0, 1)]
        remove()
        assert store.queue_bounds("t", 0)[0] > 15
        sub.close()
        sub = store.subscribe("t", "a", mode="ordered")
        order: list[int] = []
        while batch := sub.receive(7):
            order += [one.message.offset for one in batch]
            sub.ack_batch(batch)
        assert order == list(range(40))


def test_an_ordered_subscription_in_use_gets_new_copies_before_what_follows_them(tmp_path: Path) -> None:
    """It has taken some copies already when its next messages, which it has not read, become copies, too."""
    store, remove = opened(tmp_path)
    with store:
        store.configure_topic("t", keep="unacknowledged")
        sub = store.subscribe("t", "a", mode="ordered")
        order: list[int] = []
        for _ in range(3):
            for _ in range(4):
                fill(store, 12)
                fill(store, 30, "waste", 1)
            remove()
            assert store.queue_bounds("t", 0)[0] > len(order) + 20
            got = sub.receive(10)
            order += [one.message.offset for one in got]
            sub.ack_batch(got)
        fill(store, 6)
        while got := sub.receive(50):
            order += [one.message.offset for one in got]
            sub.ack_batch(got)
        assert order == list(range(150))


class Model:
    """What was appended, and what each subscription has acknowledged."""

    def __init__(self, rng: random.Random, mode: Mode) -> None:
        self.rng, self.mode = rng, mode
        self.ends = dict.fromkeys(range(3), 0)
        self.acked: dict[str, set[tuple[int, int]]] = {"a": set(), "b": set()}

    def left(self, name: str) -> list[tuple[int, int]]:
        return sorted({(queue_id, at) for queue_id, end in self.ends.items() for at in range(end)} - self.acked[name])

    def step(self, store: MessageStore, subs: dict[str, Subscription]) -> None:
        for _ in range(self.rng.randrange(5)):
            queue_id, count = self.rng.randrange(3), self.rng.randrange(1, 12)
            fill(store, count, "t", queue_id)
            self.ends[queue_id] += count
            fill(store, self.rng.randrange(10), "waste", queue_id)
        for name, sub in subs.items():
            got = sub.receive(self.rng.randrange(1, 40))
            assert not self.acked[name] & set(places(got))
            chosen = [one for one in got if self.rng.random() < 0.9]
            sub.ack_batch(chosen)
            self.acked[name] |= set(places(chosen))
            if self.rng.random() < 0.7:
                sub.nack_batch([one for one in got if one not in chosen])

    def check_the_rest(self, name: str, sub: Subscription) -> None:
        got = list[tuple[int, int]]()
        while batch := sub.receive(50):
            got += places(batch)
            sub.ack_batch(batch)
        assert sorted(got) == self.left(name)
        if self.mode == "ordered":
            for queue_id in range(3):
                mine = [at for one, at in got if one == queue_id]
                assert mine == sorted(mine)


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("mode", ["shared", "ordered"])
def test_nothing_is_lost_or_comes_again_by_a_model(tmp_path: Path, mode: Mode, lanes: int) -> None:
    rng = random.Random(draw_seed())
    model = Model(rng, mode)
    store, remove = opened(tmp_path, lanes=lanes)
    store.configure_topic("t", keep="unacknowledged")
    for _ in range(5):
        subs = {name: store.subscribe("t", name, mode=mode) for name in model.acked}
        for _ in range(12):
            model.step(store, subs)
            if rng.random() < 0.4:
                remove()
            for name, sub in subs.items():
                assert sub.backlog().total == len(model.left(name))
        for sub in subs.values():
            sub.close()
        if rng.random() < 0.5:
            store.close()
            store, remove = opened(tmp_path, lanes=lanes)
    assert max(store.queue_bounds("t", queue_id)[0] for queue_id in store.queues("t")) > 20
    for name in model.acked:
        model.check_the_rest(name, store.subscribe("t", name, mode=mode))
    assert set(counts(store).values()) == {0}
    store.close()


def appends(store: MessageStore) -> dict[str, Callable[[], object]]:
    """All calls that append to the topic t."""
    data = data_of(0, 0)
    columns = [("t", 0)], [0], [len(data)], data
    return {
        "append": lambda: store.append("t", 0, data),
        "append to a new queue": lambda: store.append("t", 7, data),
        "append to some queue": lambda: store.append("t", None, data),
        "submit": lambda: store.submit("t", 0, data).result(),
        "append_batch": lambda: store.append_batch([("u", 0, data), ("t", 0, data)]),
        "append_columns": lambda: store.append_columns(*columns),
        "submit_columns": lambda: store.submit_columns(*columns).result(),
        "transaction": lambda: _transaction(store, data),
        "append_async": lambda: asyncio.run(_awaited(lambda: store.append_async("t", 0, data))),
        "append_batch_async": lambda: asyncio.run(_awaited(lambda: store.append_batch_async([("t", 0, data)]))),
    }


def _transaction(store: MessageStore, data: bytes) -> None:
    with store.transaction() as tx:
        tx.append("t", 0, data)


async def _awaited(call: Callable[[], Awaitable[object]]) -> object:
    return await call()


def test_a_topic_that_keeps_too_much_takes_no_message_and_names_the_subscription(tmp_path: Path) -> None:
    store, remove = opened(tmp_path)
    with store:
        settings = store.configure_topic("t", keep="unacknowledged", retention_bytes=300_000)
        assert store.topic_settings("t") == settings
        slow, quick = store.subscribe("t", "slow"), store.subscribe("t", "quick")
        for call in appends(store).values():
            call()
        store.append_batch([("t", 0, data_of(0, 0))] * 200)
        quick.skip_all()
        remove()
        end = store.queue_bounds("t", 0)[1]
        for name, call in appends(store).items():
            with pytest.raises(TopicFull, match=r"'t' keeps \d+ bytes.*'slow' has \d+ messages") as raised:
                call()
            assert (raised.value.topic, raised.value.subscription) == ("t", "slow"), name
            assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
        assert store.queue_bounds("t", 0) == (0, end)
        store.append("u", 0, b"others go on")
        store.append_columns([("u", 0), ("t", 0)], [0], [1], b"x")
        left = slow.backlog().total
        got = slow.receive(1000)
        assert len(got) == left
        slow.ack_batch(got)
        remove()
        for call in appends(store).values():
            call()


def test_a_larger_cap_or_none_lets_a_full_topic_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratalog.store.delayed.keeping.REFUSED_S", 0.0)
    store, remove = opened(tmp_path)
    with store:
        store.configure_topic("t", keep="unacknowledged", retention_bytes=300_000)
        store.subscribe("t", "slow")
        fill(store, 200)
        remove()
        with pytest.raises(TopicFull):
            store.append("t", 0, b"x")
        store.configure_topic("t", keep="unacknowledged", retention_bytes=10_000_000)
        store.append("t", 0, b"x")
        store.configure_topic("t", keep="unacknowledged", retention_bytes=300_000)
        remove()
        with pytest.raises(TopicFull):
            store.append("t", 0, b"x")
        assert store.delete_topic("t")
        store.append("t", 0, b"x")


def test_a_topic_is_full_of_copies_too(tmp_path: Path) -> None:
    store, remove = opened(tmp_path)
    with store:
        store.configure_topic("t", keep="unacknowledged", retention_bytes=20_000)
        sub = store.subscribe("t", "a")
        for _ in range(15):
            fill(store, 1)
            fill(store, 12, "waste", 1)
        remove()
        with pytest.raises(TopicFull):
            store.append("t", 0, b"x")
        got = sub.receive(100)
        assert len(places(got)) == 15
        sub.ack_batch(got)
        until(lambda: not store.stats()["delayed"]["t"]["copies"])
        until(lambda: _takes(store))


def _takes(store: MessageStore) -> bool:
    with suppress(TopicFull):
        store.append("t", 0, b"x")
        return True
    return False


@pytest.mark.parametrize(
    "wrong",
    [
        {"keep": "all"}, {"keep": None}, {"keep": b"retention"}, {"keep": "Unacknowledged"}, {"keep": "x" * 10_000},
        {"retention_bytes": 5}, {"keep": "unacknowledged", "retention_bytes": 0},
        {"keep": "unacknowledged", "retention_bytes": 1.5}, {"keep": "unacknowledged", "retention_bytes": True},
        {"keep": "unacknowledged", "retention_bytes": 1 << 63},
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_and_change_nothing(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with MessageStore.open(tmp_path) as store:
        before = store.configure_topic("t", keep="unacknowledged", retention_bytes=7)
        with pytest.raises(InvalidMessage):
            store.configure_topic("t", **wrong)
        assert store.topic_settings("t") == before


def test_a_seek_to_a_time_before_all_that_is_left_brings_the_copies_too(tmp_path: Path) -> None:
    """And the console's `trim --until` leaves them: nothing in the queue is older than that."""
    store, remove = opened(tmp_path / "s")
    with store:
        store.configure_topic("t", keep="unacknowledged")
        sub = store.subscribe("t", "slow")
        fill(store, 300)
        left = leave(sub, lambda at: at % 7 == 0)
        remove()
        assert store.queue_bounds("t", 0)[0] > 200
        assert sub.backlog().total == len(left)
        sub.seek(1)  # ms since the epoch
        assert sub.backlog().total > len(left)
    result = CliRunner().invoke(app, ["trim", str(tmp_path / "s"), "t", "--until", "1000"])
    assert result.exit_code == 0, result.output
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        assert {at for _, at in left} <= {at for _, at in places(all_of(store.subscribe("t", "slow")))}
