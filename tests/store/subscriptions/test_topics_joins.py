"""A topic that joins a subscription of several topics, beside other joins, a close, and an interrupt."""

from __future__ import annotations

import random
import threading
import traceback
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, SubscriptionClosed
from stratalog.store.subscriptions.members import Members

from ...seeds import draw_seed
from ..helpers import start, tiny
from ..interrupts import interrupt_at, places
from .helpers import fill
from .test_topics import whole

JOINS = ("members.py", "topic_news.py")
OPENING = ("members.py", "topics_opening.py", "registry.py")
STEP = 3  # each run tries every third place, and the next run others


def opened(store: MessageStore, topic: str, name: str) -> set[int]:
    """The objects of a topic's subscription that are open."""
    return set(store._subscriptions()._known[topic, name]._open)


def was_handing_out(ended: object) -> bool:
    """Whether an interrupt hit the outermost function. Once that has its result, nobody else can close the object."""
    return isinstance(ended, BaseException) and any(
        one.name == "subscribe_one_or_more" for one in traceback.extract_tb(ended.__traceback__)[-3:]
    )


def slow_opening(
    monkeypatch: pytest.MonkeyPatch, members: Members, opens: threading.Event, goes_on: threading.Event
) -> None:
    """Have the opening of a member tell when it has begun, and wait."""
    real = members._open_one

    def open_one(*given: Any) -> Any:
        found = real(*given)
        opens.set()
        goes_on.wait(1)
        return found

    monkeypatch.setattr(members, "_open_one", open_one)


def test_a_topic_that_several_threads_join_has_one_member(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sub, got = store.subscribe(pattern="o*", name="s"), list[Any]()
    opens, goes_on = threading.Event(), threading.Event()
    slow_opening(monkeypatch, sub._members, opens, goes_on)
    fill(store, 8, topic="o1")
    workers = [start(lambda: got.extend(sub.receive(2))) for _ in range(4)]
    assert opens.wait(10)
    goes_on.set()
    for worker in workers:
        worker.join()
    assert len({*whole(got)}) == 8
    assert len(opened(store, "o1", "s")) == 1
    sub.close()
    assert opened(store, "o1", "s") == set()
    assert len(store.subscribe("o1", "s").receive()) == 8, "at once"


def test_a_close_beside_a_join_leaves_no_member_open(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sub, errors = store.subscribe(pattern="o*", name="s"), list[BaseException]()
    opens, goes_on = threading.Event(), threading.Event()
    slow_opening(monkeypatch, sub._members, opens, goes_on)
    fill(store, 1, topic="o1")
    fill(store, 1, topic="o2")

    def receive() -> None:
        try:
            sub.receive()
        except SubscriptionClosed as error:
            errors.append(error)

    joins = start(receive)
    assert opens.wait(10)
    closes = start(sub.close)
    closes.thread.join(0.2)  # it may wait for the join
    goes_on.set()
    joins.join()
    closes.join()
    known = store._subscriptions()._known
    assert {topic: one._open for (topic, _), one in known.items()} == {topic: set() for topic, _ in known}
    assert not store._waiting.listeners
    assert all("was closed" in str(error) for error in errors)


def test_a_topic_whose_join_was_interrupted_joins(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        sub = store.subscribe(pattern="o*", name="s")
        for place in places():
            topic = f"o{place}"
            fill(store, 1, topic=topic)
            interrupted, _ = interrupt_at(place, JOINS, sub._members.join_new)
            assert whole(sub.receive()) == [(topic, 0, 0)]
            fill(store, 1, topic=topic)
            assert whole(sub.receive()) == [(topic, 0, 1)], "it is told of more"
            assert len(store._waiting.listeners._of_topic[topic]) == 1, "once"
            if not interrupted:
                break


def test_an_interrupted_opening_leaves_no_object_open(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 1, topic="a")
        for place in islice(places(), random.Random(draw_seed()).randrange(STEP), None, STEP):
            name, kept = f"s{place}", list[Any]()
            interrupted, ended = interrupt_at(place, OPENING, lambda: kept.append(store.subscribe(["a"], name)))  # noqa: B023  # called at once
            known = store._subscriptions()._known.get(("a", name))
            assert known is None or len(known._open) == len(kept) or was_handing_out(ended)
            if not interrupted:
                break
            store.delete_subscription("a", name)


def test_a_topic_whose_join_was_interrupted_has_one_object_and_a_close_closes_it(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        for place in islice(places(), random.Random(draw_seed()).randrange(STEP), None, STEP):
            topic, closes_at_once = f"o{place}", place % 2 == 0
            sub = store.subscribe(pattern=topic, name="s")
            fill(store, 1, topic=topic)
            interrupted, _ = interrupt_at(place, OPENING, sub._members.join_new)
            if not closes_at_once:
                assert whole(sub.receive()) == [(topic, 0, 0)]
                assert len(opened(store, topic, "s")) == 1
            sub.close()
            known = store._subscriptions()._known.get((topic, "s"))
            assert known is None or known._open == set()
            if not interrupted:
                break
