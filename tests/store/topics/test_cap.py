"""The most that a topic keeps for its subscriptions: what counts, from when on, and who may append all the same."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest

from stratalog.store import InvalidMessage, MessageStore, TopicFull
from stratalog.store.delayed.keeping import REFUSED_S
from stratalog.store.log.retention import size_of
from stratalog.store.testing import VirtualClock
from stratalog.store.topics.full import FullTopics

from ..helpers import start, tiny
from ..subscriptions.test_removed_counts import ByHand
from .keeping import SIZE, all_of, data_of, fill, look_at_once, opened, places

BYTES = 200_000
FULL_BYTES = 300_000
SEGMENT = 64 << 10


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_once(monkeypatch)


def takes(store: MessageStore) -> bool:
    with suppress(TopicFull):
        store.append("t", 0, data_of(0, 0))
        return True
    return False


def test_copies_in_segments_that_are_kept_count_once(tmp_path: Path) -> None:
    """Messages become copies; then the copies' own segments expire, and are kept."""
    store, remove = opened(tmp_path, retention_bytes=BYTES)
    with store:
        store.configure_topic("t", keep="unacknowledged")
        store.subscribe("t", "slow")
        for _ in range(30):
            fill(store, 2)
            fill(store, 6, "waste")
        remove()
        for _ in range(5):
            fill(store, 20)
            remove()
        stream = store._delaying.delays.topics["t"].copies.stream
        assert stream is not None
        oldest, keeping = store._lanes[0].view.sealed[0], store._delaying.keeping
        assert oldest.first_of(stream.number)[1], "copies lie in front"
        assert store.stats()["delayed"]["t"]["copies_bytes"] > 50 * SIZE
        expired_bytes = sum(map(size_of, keeping._all_expired()))
        assert store._upkeep.removal.held_bytes() - expired_bytes < BYTES + SEGMENT, "no more than retention leaves"
        store.configure_topic("t", keep="unacknowledged", retention_bytes=570_000)
        remove()
        assert takes(store), "what is kept beyond retention is less than the cap"


def test_the_cap_holds_when_a_store_has_been_opened(tmp_path: Path) -> None:
    store, remove = opened(tmp_path, retention_bytes=BYTES)
    with store:
        store.configure_topic("t", keep="unacknowledged", retention_bytes=FULL_BYTES)
        store.subscribe("t", "slow")
        fill(store, 200)
        remove()
        assert not takes(store)
    store, _ = opened(tmp_path, retention_bytes=BYTES)
    with store:
        with pytest.raises(TopicFull, match="'slow' has 200 messages"):
            store.append("t", 0, b"x")
        store.append("u", 0, b"x")


def test_a_cap_holds_when_it_has_been_set(tmp_path: Path) -> None:
    store, _ = opened(tmp_path, retention_bytes=BYTES)
    with store:
        store.configure_topic("t", keep="unacknowledged")
        store.subscribe("t", "slow")
        fill(store, 200)
        assert takes(store)
        store.configure_topic("t", keep="unacknowledged", retention_bytes=FULL_BYTES)
        with pytest.raises(TopicFull, match=f"its retention_bytes is {FULL_BYTES}"):
            store.append("t", 0, b"x")
        store.configure_topic("t", keep="unacknowledged", retention_bytes=FULL_BYTES - 1000)
        with pytest.raises(TopicFull, match=f"its retention_bytes is {FULL_BYTES - 1000}"):
            store.append("t", 0, b"x")
        store.configure_topic("t", keep="unacknowledged", retention_bytes=100 * FULL_BYTES)
        assert takes(store)


def test_a_transaction_that_acknowledges_as_much_as_it_appends_passes_the_cap(tmp_path: Path) -> None:
    store, remove = opened(tmp_path, retention_bytes=BYTES)
    with store:
        store.configure_topic("t", keep="unacknowledged", retention_bytes=FULL_BYTES)
        sub = store.subscribe("t", "steps")
        fill(store, 200)
        remove()
        for number in range(3):  # a consumer that does nothing else gets on
            (got,) = sub.receive(1)
            with store.transaction() as tx:
                tx.append("t", 0, b"the next step")
                tx.ack(got)
            assert tx.offsets.tolist() == [200 + number]
        (got,) = sub.receive(1)
        for topics in (["t", "t"], ["u", "t", "t"]):
            with pytest.raises(TopicFull), store.transaction() as tx:
                for topic in topics:
                    tx.append(topic, 0, b"more than it acknowledges")
                tx.ack(got)
        with store.transaction() as tx:
            tx.append("t", 0, b"1")
            tx.append("u", 0, b"other topics are not full")
            tx.ack(got)
        assert places([one for one in all_of(sub) if one.message.offset < 200]) == [(0, at) for at in range(4, 200)]


def test_acknowledgements_of_another_topic_do_not_count_for_a_full_one(tmp_path: Path) -> None:
    store, remove = opened(tmp_path, retention_bytes=BYTES)
    with store:
        store.configure_topic("t", keep="unacknowledged", retention_bytes=FULL_BYTES)
        store.subscribe("t", "slow")
        other = store.subscribe("u", "a")
        fill(store, 200)
        remove()
        store.append("u", 0, b"x")
        (got,) = other.receive()
        with pytest.raises(TopicFull), store.transaction() as tx:
            tx.append("t", 0, b"x")
            tx.ack(got)
        other.ack(got)  # nothing was stored, so it is the consumer's still


def test_dead_letters_that_go_back_to_a_full_topic_wait(tmp_path: Path) -> None:
    store, remove = opened(tmp_path, retention_bytes=BYTES)
    with store:
        store.configure_topic("t", keep="unacknowledged", retention_bytes=FULL_BYTES)
        sub = store.subscribe("t", "a", max_attempts=1, dead_letter_topic="dead")
        fill(store, 200)
        sub.nack(sub.receive(1)[0])
        sub.receive(1)
        remove()
        assert store.redrive("dead") == 0
        sub.skip_all()
        remove()
        store.configure_topic("t", keep="unacknowledged", retention_bytes=FULL_BYTES)
        assert store.redrive("dead") == 1


def test_the_newest_of_two_notes_at_once_holds() -> None:
    full, told, inside, goes_on = FullTopics(), list[bool](), threading.Event(), threading.Event()

    def holder(topic: str) -> tuple[str, int]:
        inside.set()
        goes_on.wait(0.3)  # the other thread has its note to make meanwhile
        return "slow", 1

    full.watch(told.append, bool, bool, holder)
    first = start(full.note, {"t": 10}, {"t": 5})
    inside.wait()
    second = start(full.note, {"t": 0}, {"t": 5})
    second.thread.join(0.2)
    goes_on.set()
    first.join()
    second.join()
    assert not full and told[-1] is False


def test_a_limit_belongs_to_a_topic_that_keeps(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        with pytest.raises(InvalidMessage, match="limits what is kept for its subscriptions"):
            store.configure_topic("t", retention_bytes=5)
        settings = store.configure_topic("t", keep="until_acknowledged", retention_bytes=5)
        assert (settings.keep, settings.retention_bytes) == ("until_acknowledged", 5)


@pytest.mark.parametrize("is_copied", [False, True])
@pytest.mark.parametrize("keep", ["unacknowledged", "until_acknowledged"])
def test_delayed_messages_that_are_too_old_are_given_back(
    tmp_path: Path, keep: Literal["unacknowledged", "until_acknowledged"], is_copied: bool
) -> None:
    """No consumer comes: a message ages from its delivery time on, and one that was moved does not."""
    clock = VirtualClock()
    config = tiny(retention_bytes=100_000) if keep == "unacknowledged" else tiny()
    with MessageStore.open(tmp_path, config, clock=clock) as store:
        remove = ByHand(store)
        store.configure_topic("t", keep=keep, retention_bytes=FULL_BYTES, ttl_ms=60_000)
        store.subscribe("t", "slow").close()
        due_ms = clock.wall_ms() + 3_600_000
        for at in range(200):
            with suppress(TopicFull):
                store.append("t", 0, data_of(0, at), deliver_at_ms=due_ms)
            if is_copied and keep == "unacknowledged":
                store.append("waste", 0, bytes(SIZE))
            if at == 1:
                assert store.reschedule_delayed("t", 0, 1, due_ms + 1000)
            if at % 20 == 19:
                remove()
        assert not takes(store)
        clock.advance(ms=3_600_000 + 30_000)
        remove()
        assert not takes(store), "they came half a minute ago"
        clock.advance(ms=40_000)
        for topic in list(store._delaying.delays.with_copies):
            store._delaying.delays.drop_copies(topic)
            assert topic.copies.size_bytes <= 2 * SIZE, "but for the one that was moved"
        remove()
        for topic in list(store._delaying.delays.with_copies):
            store._delaying.delays.drop_copies(topic)
        remove()
        clock.advance(ms=int(1000 * REFUSED_S))  # after this an append that is refused has it looked at
        assert takes(store) or takes(store)
        assert 1 in [one.message.offset for one in all_of(store.subscribe("t", "slow"))]
        remove()
