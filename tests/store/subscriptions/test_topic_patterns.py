"""A subscription of all topics that match a pattern: which join, when, and where they begin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stratalog.store import InvalidMessage, InvalidTopic, MessageStore, StoreFull, SubscriptionClosed
from stratalog.store.read import topic_news
from stratalog.store.subscriptions.members import Members

from ..helpers import crash_copy, start, tiny
from .helpers import fill
from .test_topics import whole


def test_topics_that_match_join_when_their_first_message_comes(store: MessageStore) -> None:
    fill(store, 1, topic="orders.eu")
    fill(store, 1, topic="bills.eu")
    sub = store.subscribe(pattern="orders.*", name="s")
    assert (sub.topics, sub.pattern) == (["orders.eu"], "orders.*")
    fill(store, 2, topic="orders.us")
    fill(store, 2, topic="other")
    assert sorted(whole(sub.receive())) == [("orders.eu", 0, 0), ("orders.us", 0, 0), ("orders.us", 0, 1)]
    assert sub.topics == ["orders.eu", "orders.us"]
    assert "orders.*" in repr(sub)
    assert [one.topic for one in store.subscriptions()] == ["orders.eu", "orders.us"]
    fill(store, 1, topic="orders.new")
    assert sub.backlog() == (1, 3, 0)


@pytest.mark.parametrize(
    ("pattern", "those"),
    [
        ("*", ["A", "a*b", "a.b", "a[1]", "axb", "ü"]), ("a?b", ["a*b", "a.b", "axb"]), ("a[*]b", ["a*b"]),
        ("a[[]1]", ["a[1]"]), ("a.b", ["a.b"]), ("A", ["A"]), ("?", ["A", "ü"]), ("[!a]", ["A", "ü"]),
        ("a[1]", []), ("[", []),
    ],
)  # fmt: skip
def test_a_pattern_is_no_name_and_a_character_in_brackets_is_itself(
    store: MessageStore, pattern: str, those: list[str]
) -> None:
    for topic in ("A", "a*b", "a.b", "a[1]", "axb", "ü"):
        store.append(topic, 0, b"x")
    assert store.subscribe(pattern=pattern, name="s").topics == those
    assert store.subscribe(["a*b"], "list").topics == ["a*b"], "in a list it is a name"


def test_a_waiting_consumer_gets_the_first_message_of_a_new_topic(store: MessageStore) -> None:
    sub = store.subscribe(pattern="orders.*", name="s")
    got: list[tuple[str, int, int]] = []
    for at in range(5):
        waiting = start(lambda: got.extend(whole(sub.receive(wait_ms=60_000))))
        store.append(f"orders.{at}", at, b"x")
        waiting.join()
    assert got == [(f"orders.{at}", at, 0) for at in range(5)]


def test_wrong_patterns_are_refused(store: MessageStore) -> None:
    wrong_ones: list[Any] = ["", 7, b"a*", "x" * 1025, ["a"]]
    for wrong in wrong_ones:
        with pytest.raises(InvalidTopic):
            store.subscribe(pattern=wrong, name="s")
    for given in ({"topic": "a", "pattern": "a*"}, {"topic": ["a"], "pattern": "a*"}, {"pattern": "a*", "name": ""}):
        with pytest.raises(InvalidMessage):
            store.subscribe(**{"name": "s", **given})  # type: ignore[call-overload]
    with pytest.raises(InvalidMessage):
        store.subscribe(pattern="a*")  # type: ignore[call-overload]
    with pytest.raises(InvalidTopic):
        store.subscribe(name="s")  # type: ignore[call-overload]


def test_a_slow_pattern_is_matched_at_once(store: MessageStore) -> None:
    store.append("a" * 200, 0, b"x")
    assert store.subscribe(pattern="*a" * 40 + "b", name="s").topics == []


def test_the_topic_of_dead_letters_never_joins(store: MessageStore) -> None:
    store.append("orders.dead", 0, b"x")
    sub = store.subscribe(pattern="orders.*", name="s", max_attempts=1, dead_letter_topic="orders.dead")
    store.append("orders.eu", 0, b"poison")
    sub.nack_batch(sub.receive())
    for _ in range(3):
        assert sub.receive() == []
    assert sub.topics == ["orders.eu"]
    assert store.queue_bounds("orders.dead", 0) == (0, 2)
    sub.change(dead_letter_topic="orders.dead2")
    store.append("orders.dead2", 0, b"x")
    assert sub.receive() == []


def test_a_topic_with_other_settings_is_left_out_with_an_error(store: MessageStore) -> None:
    sub = store.subscribe(pattern="orders.*", name="s")
    store.subscribe("orders.odd", "s", mode="ordered").close()
    store.append("orders.odd", 0, b"x")
    store.append("orders.eu", 0, b"y")
    assert whole(sub.receive()) == [("orders.eu", 0, 0)], "it holds up no other"
    with pytest.raises(InvalidMessage, match="mode"):
        sub.receive()
    assert sub.receive() == []
    assert sub.topics == ["orders.eu"]
    with pytest.raises(InvalidMessage, match=r"'orders.odd'"):
        store.subscribe(pattern="orders.*", name="s")


def test_a_topic_that_cannot_join_now_joins_later(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sub = store.subscribe(pattern="orders.*", name="s")
    store.append("orders.eu", 0, b"x")
    real, fails = Members.join, [True, True]

    def join(members: Members, topic: str, *given: object) -> None:
        if topic == "orders.us" and fails:
            fails.pop()
            raise StoreFull("no room")
        real(members, topic, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Members, "join", join)
    assert whole(sub.receive()) == [("orders.eu", 0, 0)]
    store.append("orders.us", 0, b"x")
    with pytest.raises(StoreFull):
        sub.receive()
    with pytest.raises(StoreFull):
        sub.receive()
    assert whole(sub.receive()) == [("orders.us", 0, 0)]


@pytest.mark.parametrize("is_crash", [False, True])
def test_what_came_while_the_store_was_closed_is_not_skipped(tmp_path: Path, is_crash: bool) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        store.append("orders.old", 0, b"before")
        sub = store.subscribe(pattern="orders.*", name="s", start="latest")
        assert sub.receive() == []
        store.append("orders.new", 0, b"first")  # nobody receives: it does not join
        crash_copy(tmp_path / "s", tmp_path / "copy")
    with MessageStore.open(tmp_path / ("copy" if is_crash else "s"), tiny()) as store:
        sub = store.subscribe(pattern="orders.*", name="s", start="latest")
        assert whole(sub.receive()) == [("orders.new", 0, 0)]
        store.append("orders.old", 0, b"after")
        assert whole(sub.receive()) == [("orders.old", 0, 1)]


def test_new_members_have_the_settings_that_the_others_were_given(store: MessageStore) -> None:
    store.append("o1", 0, b"x")
    sub, other = store.subscribe(pattern="o*", name="s"), store.subscribe(["o1"], "s")
    other.change(filter="tag = 'a'", precision_ms=7)
    sub.change(backoff_ms=[5])
    store.append("o2", 0, b"x")
    store.append("o2", 0, b"y", properties={"tag": "a"})
    assert whole(sub.receive()) == [("o2", 0, 1)]
    assert {(one.settings.filter, one.settings.precision_ms) for one in store.subscriptions()} == {("tag = 'a'", 7)}


def test_deleted_members_do_not_end_it(store: MessageStore) -> None:
    store.append("o1", 0, b"x")
    sub = store.subscribe(pattern="o*", name="s")
    assert store.delete_subscription(sub.topics, "s")
    assert sub.receive() == []
    assert sub.topics == []
    assert sub.backlog() == (0, 0, 0)
    store.append("o1", 0, b"x")
    store.append("o2", 0, b"x")
    assert whole(sub.receive()) == [("o2", 0, 0)], "one that was deleted stays out"
    sub.close()
    with pytest.raises(SubscriptionClosed):
        sub.receive()


def test_the_names_of_topics_that_are_gone_are_forgotten(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_news, "LEAST_MET", 10)
    listeners = store._waiting.listeners
    listeners._most_met = 10
    sub = store.subscribe(pattern="none*", name="s")
    for at in range(40):
        store.append(f"t{at}", 0, b"x")
    assert len(listeners._met) == 40
    monkeypatch.setattr(listeners, "_exist", lambda topic: topic == "t7")
    for at in range(40, 60):
        store.append(f"t{at}", 0, b"x")
    assert len(listeners._met) <= 20
    sub.close()
    assert not listeners
    assert not listeners._met
