"""The thread visits the topics that have work, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore
from stratalog.store.delayed import delays as delays_module
from stratalog.store.delayed import topic as topic_module
from stratalog.store.delayed.decisions import Decisions
from stratalog.store.delayed.delays import Delays
from stratalog.store.delayed.topic import DelayedTopic
from stratalog.store.delayed.worker import SPARE_TIMES, Visits

from ..helpers import until
from .consumer import START_MS, Consumer, Hand, quiet, topic_of

HOUR_MS = 3_600_000


@pytest.fixture
def visited(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the topics that were visited, in order."""
    names: list[str] = []
    real = Delays._visit

    def visit(delays: Delays, topic: DelayedTopic) -> bool:
        names.append(topic.name)
        return real(delays, topic)

    monkeypatch.setattr(Delays, "_visit", visit)
    return names


def with_topics(store: MessageStore, count: int) -> Delays:
    """Topics with a message that comes in an hour each; all is done that there is to do."""
    for number in range(count):
        store.append(f"t{number}", 0, b"later", deliver_at_ms=START_MS + HOUR_MS)
    for number in range(count):
        topic_of(store, f"t{number}")
    delays = quiet(store)
    for _ in range(3):
        delays.work()
    return delays


@pytest.mark.parametrize("count", [4, 16])
def test_a_message_costs_a_visit_of_its_own_topic(store: MessageStore, visited: list[str], count: int) -> None:
    delays = with_topics(store, count)
    visited.clear()
    delays.work()
    assert visited == []
    store.append("t2", 0, b"x", deliver_at_ms=START_MS + HOUR_MS)
    delays.work()
    assert visited == ["t2"]


def test_a_topic_is_visited_when_its_next_message_is_due(store: MessageStore, hand: Hand, visited: list[str]) -> None:
    delays = with_topics(store, 3)
    store.append("t0", 0, b"x", deliver_at_ms=START_MS + 500)
    store.append("t1", 0, b"x", deliver_at_ms=START_MS + 900)
    delays.work()
    visited.clear()
    for now_ms, expected in ((499, []), (500, ["t0"]), (2_000, ["t0", "t1"]), (HOUR_MS, ["t0", "t1", "t2"])):
        hand.now_ms = START_MS + now_ms
        delays.work()  # what leaves an index is a change: such a topic is visited once more
        assert sorted(set(visited)) == expected
        visited.clear()
    delays.work()
    visited.clear()
    delays.work()
    assert visited == []
    assert [topic_of(store, f"t{number}").pending for number in range(3)] == [0, 0, 0]


def test_a_message_that_was_moved_is_handed_out_at_its_new_time(store: MessageStore, hand: Hand) -> None:
    consumer = Consumer(store)
    store.append("t", 0, b"x", deliver_at_ms=START_MS + HOUR_MS)
    delays = quiet(store)
    delays.work()
    assert store.reschedule_delayed("t", 0, 0, START_MS + 50)
    delays.work()
    calls = consumer.calls
    hand.now_ms += 50
    delays.work()
    assert consumer.calls == calls + 1, "who waits is told"
    assert len(consumer.poll()) == 1


def test_what_was_trimmed_leaves_the_index_of_its_topic_alone(store: MessageStore, visited: list[str]) -> None:
    delays = with_topics(store, 4)
    visited.clear()
    store.trim("t3", 0, 1)
    delays.work()
    assert visited == ["t3"]
    trackers = [topic_of(store, f"t{number}")._tracker for number in range(4)]
    assert [tracker.number_of_delayed_messages for tracker in trackers] == [1, 1, 1, 0]


def test_a_topic_that_fails_holds_no_other_up_and_is_visited_again(
    store: MessageStore, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays = with_topics(store, 3)
    real = DelayedTopic.look

    def look(topic: DelayedTopic) -> None:
        if topic.name == "t0":
            raise OSError("the device does not answer")
        real(topic)

    with monkeypatch.context() as patch:
        patch.setattr(DelayedTopic, "look", look)
        hand.now_ms += HOUR_MS
        with pytest.raises(OSError, match="does not answer"):
            delays.work()
        trackers = [topic_of(store, f"t{number}")._tracker for number in range(3)]
        assert [tracker.number_of_delayed_messages for tracker in trackers] == [1, 0, 0]
        with pytest.raises(OSError, match="does not answer"):
            delays.work()
    delays.work()
    assert topic_of(store, "t0")._tracker.number_of_delayed_messages == 0


def test_a_change_that_nobody_waits_for_any_more_is_settled(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays = with_topics(store, 1)
    topic = topic_of(store, "t0")
    with monkeypatch.context() as patch:
        patch.setattr(Decisions, "settle", lambda decisions: None)  # as where an interrupt comes before it
        assert store.cancel_delayed("t0", 0, 0)
        delays.work()
        assert topic.records.open
    delays.work()
    assert not topic.records.open


def test_an_index_with_changes_is_saved_in_time_and_a_quiet_one_is_not(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[str] = []
    real = Delays.checkpoint

    def checkpoint(delays: Delays, topic: DelayedTopic) -> None:
        saved.append(topic.name)
        real(delays, topic)

    monkeypatch.setattr(Delays, "checkpoint", checkpoint)
    with hand.open(tmp_path / "s") as store:
        delays = with_topics(store, 3)
        monkeypatch.setattr(delays_module, "CHECKPOINT_S", 0.0)
        delays.work()
        assert sorted(saved) == ["t0", "t1", "t2"]
        saved.clear()
        store.append("t1", 0, b"x", deliver_at_ms=START_MS + HOUR_MS)
        delays.work()
        delays.work()
        assert saved == ["t1"]


def test_a_damaged_index_is_made_anew_without_a_call(store: MessageStore) -> None:
    delays = with_topics(store, 2)
    topic = topic_of(store, "t1")
    topic._tracker.close()  # and what it had is gone
    topic.why_anew = "this test"
    store.append("t1", 0, b"x", deliver_at_ms=START_MS + HOUR_MS)
    until(lambda: (delays.work(), topic.rebuilds == 1 and not topic.is_lagging)[1])
    assert topic.pending == 2


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_an_index_that_an_interrupt_has_left_damaged_is_made_anew_at_the_next_round(
    store: MessageStore, visited: list[str], is_rebuilt: bool
) -> None:
    delays, consumer = with_topics(store, 3), Consumer(store, "t1")
    topic = consumer.topic
    if is_rebuilt:
        topic.why_anew = "so that it has another tracker"
        topic.ask_for_visit()
    for _ in range(3):
        delays.work()
    rebuilds = topic.rebuilds
    assert rebuilds == is_rebuilt

    def interrupted(*given: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), topic.lock:
        topic.tracker._change(interrupted)
    visited.clear()
    delays.work()
    assert (visited, topic.rebuilds) == (["t1"], rebuilds + 1)


def test_copies_are_looked_at_until_there_are_none(store: MessageStore) -> None:
    delays = with_topics(store, 2)
    assert not delays.with_copies
    store._delaying.keeping._write(topic_of(store, "t1"), store.read("t1", 0, 0))
    assert delays.with_copies == {topic_of(store, "t1")}
    assert store._delaying.keeping.extra_bytes > 0
    delays._drop_copies_s = 0.0
    delays.work()  # no subscription wants it
    assert not delays.with_copies


def test_a_topic_that_is_not_whole_yet_is_not_visited(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, visited: list[str]
) -> None:
    delays = with_topics(store, 1)
    visited.clear()
    store.append("new", 0, b"later", deliver_at_ms=START_MS + HOUR_MS)

    class Meanwhile(Decisions):
        def __init__(self, *given: Any) -> None:
            delays.work()  # the thread comes by
            super().__init__(*given)

    monkeypatch.setattr(topic_module, "Decisions", Meanwhile)
    topic_of(store, "new")
    assert visited == []
    delays.work()
    assert visited == ["new"]


def test_a_new_topic_is_visited_behind_an_interrupt(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, visited: list[str]
) -> None:
    delays = with_topics(store, 1)
    store.append("new", 0, b"later", deliver_at_ms=START_MS + HOUR_MS)

    def interrupted(visits: Visits[DelayedTopic], topic: DelayedTopic) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Visits, "begin", interrupted)
        topic_of(store, "new")
    topic_of(store, "new")
    visited.clear()
    delays.work()
    assert visited == ["new"]


def topics(count: int) -> list[DelayedTopic]:
    """Something to be visited."""
    made = [DelayedTopic.__new__(DelayedTopic) for _ in range(count)]
    for one in made:
        one.is_ready = True
    return made


def test_each_topic_is_taken_once_and_the_others_outlive_an_error() -> None:
    visits, (one, two, three) = Visits[DelayedTopic](), topics(3)
    for topic in (one, two, one, three, two):
        visits.ask(topic)
    visits.list_at(one, 5)
    taken = visits.take(7)
    assert next(taken) is one
    visits.ask(one)  # it has its turn the next time
    taken.close()
    assert [*visits.take(7)] == [two, three, one]
    assert [*visits.take(7)] == []


def test_the_newest_time_of_a_topic_counts_and_old_ones_take_no_room() -> None:
    visits, (one, two) = Visits[DelayedTopic](), topics(2)
    for time_ms in range(10_000, 0, -1):
        visits.list_at(one, time_ms)
        visits.list_at(two, 5)
    assert len(visits._times) <= 2 * 2 + SPARE_TIMES + 1
    visits.list_at(one, 9)
    assert [*visits.take(5)] == [two]
    visits.list_at(two, 9)
    visits.list_at(two, None)
    assert [*visits.take(8)] == []
    assert [*visits.take(9)] == [one]
    assert [*visits.take(1 << 60)] == []
