"""Retention beside delayed messages: none of them is lost, and the disk is bounded."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from stratalog.store import MessageStore, StoreConfig, Subscription, inspect_folder
from stratalog.store.delayed import delays as delays_module
from stratalog.store.delayed.delays import Delays
from stratalog.store.delayed.messages import figures_of
from stratalog.store.format.copies import CopyHead
from stratalog.store.log.retention import held_bytes

from ..helpers import crash_copy, tiny, until
from .consumer import START_MS, Hand, topic_of

HOUR_MS = 3_600_000
SIZE = 3_000
SEGMENT_BYTES = 64 << 10


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays_module, "DROP_S", 0.0)
    monkeypatch.setattr("stratalog.store.delayed.keeping.LOOK_S", 0.0)
    monkeypatch.setattr("stratalog.store.delayed.keeping.LOOK_TIMES", 0)


def aging(**more: Any) -> StoreConfig:
    return tiny(retention_ms=1_000, **more)


def fill(store: MessageStore, count: int, every: int, delay_ms: int = HOUR_MS) -> list[int]:
    """Messages of which one of `every` is delayed: the offsets of these."""
    delayed = []
    for number in range(count):
        data = b"%08d" % number + bytes(SIZE)
        if number % every == 0:
            at_ms = store._shared.clock.wall_ms() + delay_ms
            key, properties = b"k%d" % number, {"n": str(number)}
            offset = store.append("t", 0, data, deliver_at_ms=at_ms, key=key, properties=properties)
            delayed.append(offset)
        else:
            store.append("t", 0, data)
    return delayed


def _has_looked(looks: Callable[[], int], wanted: int, store: MessageStore) -> bool:
    store._upkeep.wake()
    return looks() > wanted


def retire(store: MessageStore) -> None:
    """Let the store's upkeep do what there is to do, until it has looked a few times and found nothing."""
    looks = 0
    seen: list[object] = []
    real = store._upkeep.removal.clear_away

    def count() -> None:
        nonlocal looks
        looks += 1
        real()

    with patch.object(store._upkeep.removal, "clear_away", count):
        while len(seen) < 4 or len(set(seen[-4:])) > 1:
            before = looks
            store._upkeep.wake()
            until(partial(_has_looked, lambda: looks, before + 1, store))
            views = [lane.view for lane in store._lanes]
            seen.append(tuple((len(view.sealed), len(view.open), view.sealed[:1]) for view in views))


def first_of(store: MessageStore) -> int:
    return store.queue_bounds("t", 0)[0]


def taken(sub: Subscription) -> list[int]:
    found: list[int] = []
    while len(batch := sub.receive_batch()):
        found += batch.offsets.tolist()
        sub.ack_batch(batch.receipts)
    return found


def all_copied(store: MessageStore, hand: Hand) -> tuple[Subscription, list[int]]:
    """A subscription that has all that is due, and the offsets of delayed messages whose segments are gone."""
    sub = store.subscribe("t", "a")
    delayed = fill(store, 100, every=20)
    taken(sub)
    hand.now_ms += 5_000
    retire(store)
    return sub, delayed


def test_what_an_index_behind_has_not_read_stays_pending_when_it_is_copied(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scan comes too late: the segment is gone."""
    monkeypatch.setattr(Delays, "_catch_up_topic", lambda delays, topic: False)  # it never gets on
    with hand.open(tmp_path / "s", aging()) as store:
        sub, delayed = all_copied(store, hand)
        topic = topic_of(store)
        assert topic.is_lagging
        assert len(topic.copies) >= 3
        assert taken(sub) == []
        assert store.cancel_delayed("t", 0, delayed[0])
        assert store.reschedule_delayed("t", 0, delayed[1], hand.now_ms + 10)
        monkeypatch.undo()
        until(lambda: not topic.is_lagging)
        assert taken(sub) == []
        assert topic.pending == 4
        hand.now_ms += 10
        assert taken(sub) == [delayed[1]]
        hand.now_ms += HOUR_MS
        assert taken(sub) == delayed[2:]


def test_copy_that_went_with_its_segment_is_passed_over(tmp_path: Path, hand: Hand) -> None:
    """All had it, and then a subscription goes back."""
    with hand.open(tmp_path / "s", aging()) as store:
        sub, delayed = all_copied(store, hand)
        topic = topic_of(store)
        copies = len(topic.copies)
        assert copies >= 3
        assert topic.copies.stream is not None
        store._shared.hidden.trim(topic.copies.stream, topic.copies.next_at)  # as retention does, and no look since
        hand.now_ms += HOUR_MS
        assert not store.cancel_delayed("t", 0, delayed[0])
        assert taken(sub) == delayed[copies:]


def test_copies_that_went_with_their_segment_take_no_memory(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody wanted them, and then a subscription that goes back does, for ever: it cannot get them."""
    monkeypatch.setattr(Delays, "_drop_copies_in_time", lambda delays: None)  # this test says when
    with hand.open(tmp_path / "s", aging()) as store:
        sub, delayed = all_copied(store, hand)
        topic, delays = topic_of(store), store._delaying.delays
        copies = topic.copies
        assert len(copies) >= 3
        assert copies.stream is not None
        delays.drop_copies(topic)
        assert len(copies) >= 3, "they are pending"
        hand.now_ms += HOUR_MS
        assert taken(sub) == delayed
        store._shared.hidden.trim(copies.stream, copies.next_at)  # as retention does, and no look since
        sub.seek("earliest")
        delays.drop_copies(topic)
        assert (len(copies), copies.size_bytes, len(copies._left)) == (0, 0, 0)


def test_pending_messages_outlive_their_segments_under_their_own_names(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s", aging()) as store:
        sub = store.subscribe("t", "a")
        delayed = fill(store, 100, every=20)
        assert len(taken(sub)) == 95
        hand.now_ms += 5_000
        retire(store)
        assert first_of(store) > 60, "most segments are gone"
        assert figures_of(topic_of(store))["copies"] > 0
        hand.now_ms += HOUR_MS
        for delivery in sub.receive(100):
            message = delivery.message
            number = delayed.pop(0)
            assert (message.topic, message.queue_id, message.offset) == ("t", 0, number)
            assert (message.data[:8], message.key) == (b"%08d" % number, b"k%d" % number)
            assert (message.properties, message.timestamp_ms) == ({"n": str(number)}, START_MS)
            assert message.deliver_at_ms == START_MS + HOUR_MS
            sub.ack(delivery)
        assert delayed == []


@pytest.mark.parametrize("crashes", [False, True])
def test_copies_are_found_after_an_opening(tmp_path: Path, hand: Hand, crashes: bool) -> None:
    with hand.open(tmp_path / "s", aging()) as store:
        sub, _ = store.subscribe("t", "a"), store.subscribe("t", "closed")
        delayed = fill(store, 100, every=20)
        taken(sub)
        hand.now_ms += 5_000
        retire(store)
        assert store.cancel_delayed("t", 0, delayed[1])
        assert store.reschedule_delayed("t", 0, delayed[0], hand.now_ms + 10)
        crash_copy(tmp_path / "s", tmp_path / "crashed")
    with hand.open(tmp_path / ("crashed" if crashes else "s"), aging()) as store:
        sub = store.subscribe("t", "a")
        assert taken(sub) == []
        until(lambda: not topic_of(store).is_lagging)
        hand.now_ms += 10
        assert taken(sub) == delayed[:1]
        hand.now_ms += HOUR_MS
        assert taken(sub) == delayed[2:]
        other = store.subscribe("t", "closed")
        got = taken(other)
        assert set(delayed) - {delayed[1]} <= set(got), "it was not open when they became due"
        assert delayed[1] not in got


def test_copies_go_once_they_are_acknowledged_or_cancelled(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s", aging()) as store:
        sub, other = store.subscribe("t", "a"), store.subscribe("t", "b")
        delayed = fill(store, 100, every=20)
        taken(sub), taken(other)
        hand.now_ms += 5_000
        retire(store)
        topic = topic_of(store)
        copies = len(topic.copies)
        assert copies > 2
        assert store.cancel_delayed("t", 0, delayed[0])
        until(lambda: len(topic.copies) == copies - 1)
        hand.now_ms += HOUR_MS
        assert taken(sub) == delayed[1:]
        assert len(topic.copies) == copies - 1, "the other one has not got them"
        assert taken(other) == delayed[1:]
        until(lambda: len(topic.copies) == 0)
        stream = topic.copies.stream
        assert stream is not None
        until(lambda: stream.low == topic.copies.next_at)


def test_segments_of_pending_messages_alone_are_kept_and_not_copied(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s", aging(segment_bytes=256 << 10)) as store:
        sub = store.subscribe("t", "a")
        delayed = fill(store, 200, every=1)
        taken(sub)
        hand.now_ms += 5_000
        retire(store)
        assert (first_of(store), figures_of(topic_of(store))["copies"]) == (0, 0)
        assert store.stats()["delayed"]["t"]["kept_bytes"] >= 100 * SIZE
        hand.now_ms += HOUR_MS
        assert taken(sub) == delayed
        retire(store)
        assert first_of(store) > 0
        assert store.stats()["delayed"]["t"]["kept_bytes"] == 0


def test_messages_that_all_subscriptions_have_skipped_are_not_kept(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s", aging()) as store:
        sub = store.subscribe("t", "a")
        fill(store, 100, every=2)
        taken(sub)
        sub.skip_all()
        hand.now_ms += 5_000
        retire(store)
        assert first_of(store) > 60
        assert figures_of(topic_of(store))["copies"] == 0


def test_subscription_that_was_never_open_loses_nothing_delayed(tmp_path: Path, hand: Hand) -> None:
    """The index is made at the latest when retention is about to remove a delayed message."""
    with hand.open(tmp_path / "s", aging()) as store:
        store.subscribe("t", "a").close()
        delayed = fill(store, 100, every=20)
        hand.now_ms += 5_000
        retire(store)
        assert first_of(store) > 60
        hand.now_ms += HOUR_MS
        with store.subscribe("t", "a") as sub:
            assert set(delayed) <= set(taken(sub))


def test_filter_holds_for_copies(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s", aging()) as store:
        sub = store.subscribe("t", "a", filter={"n": {"20"}})
        fill(store, 100, every=20)
        hand.now_ms += 5_000
        retire(store)
        hand.now_ms += HOUR_MS
        assert taken(sub) == [20]


@pytest.mark.parametrize(("every", "lanes"), [(1, 1), (2, 2), (3, 1), (10, 2)])
def test_disk_in_use_is_bounded_by_what_is_retained_and_what_is_pending(
    tmp_path: Path, hand: Hand, every: int, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.store.log.retention_rounds.REST_S", 0.5)
    retained = 512 << 10
    with hand.open(tmp_path / "s", tiny(retention_bytes=retained, lanes=lanes)) as store:
        sub = store.subscribe("t", "a")
        delayed: list[int] = []
        for _ in range(6):
            delayed += fill(store, 60, every)
            taken(sub)
            hand.now_ms += 1_000
            for _ in range(3):
                retire(store)
            pending = len(delayed) * (SIZE + 150)
            slack = 4 * lanes * SEGMENT_BYTES  # those that are open, and the newest sealed one of each lane
            assert held_bytes(store._lanes) <= retained + 1.5 * pending + slack
        hand.now_ms += HOUR_MS
        assert sorted(taken(sub)) == delayed
        until(lambda: len(topic_of(store).copies) == 0)

        def is_bounded() -> bool:
            """Not at the first look, if the background has begun a lap just before: segments of records then rest."""
            retire(store)
            return held_bytes(store._lanes) <= retained + slack

        until(is_bounded)


def test_changes_outlive_the_segments_of_their_records(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s", aging()) as store:
        sub = store.subscribe("t", "a")
        delayed = fill(store, 40, every=20)
        taken(sub)
        assert store.cancel_delayed("t", 0, delayed[0])
        fill(store, 60, every=1000)
        hand.now_ms += 5_000
        retire(store)
        assert first_of(store) > 40
        stream = topic_of(store).decisions.stream
        assert store._reader.bounds(stream)[0] > 1
    with hand.open(tmp_path / "s", aging()) as store:
        sub = store.subscribe("t", "a")
        hand.now_ms += HOUR_MS
        got = taken(sub)
        assert delayed[0] not in got
        assert delayed[1] in got


def test_move_outlives_the_segment_of_its_record_and_the_files_of_the_index(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s", aging()) as store:
        sub = store.subscribe("t", "a")
        moved, other = fill(store, 40, every=20)
        taken(sub)
        assert store.reschedule_delayed("t", 0, moved, hand.now_ms + 2 * HOUR_MS)
        fill(store, 60, every=1000)
        hand.now_ms += 5_000
        retire(store)
        assert store._reader.bounds(topic_of(store).decisions.stream)[0] > 1
    shutil.rmtree(tmp_path / "s" / "delayed")  # it is built anew from the log
    with hand.open(tmp_path / "s", aging()) as store:
        sub = store.subscribe("t", "a")
        until(lambda: not topic_of(store).is_lagging)
        hand.now_ms += HOUR_MS
        got = taken(sub)
        assert other in got
        assert moved not in got
        hand.now_ms += HOUR_MS
        assert taken(sub) == [moved]


def test_bytes_of_a_copy_are_kept() -> None:
    head = CopyHead(3, 258, 7, b"key").pack()
    assert head.hex() == "534c445001010000" + "03000000" + "0201000000000000" + "0700000000000000" + b"key".hex()
    assert CopyHead.unpack(head) == CopyHead(3, 258, 7, b"key")
    assert CopyHead.unpack(CopyHead(3, 1, 7, None).pack()) == CopyHead(3, 1, 7, None)
    for wrong in (None, b"", b"SLDP", head[:20], b"x" + head[1:]):
        assert CopyHead.unpack(wrong) is None


def test_inspect_counts_messages_that_live_on_as_copies(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s", aging()) as store:
        sub = store.subscribe("t", "a")
        delayed = fill(store, 100, every=20, delay_ms=1 << 42)
        assert len(taken(sub)) == 95
        assert store.reschedule_delayed("t", 0, delayed[1], 1 << 43)
        hand.now_ms += 5_000
        retire(store)
        assert first_of(store) > delayed[1] and figures_of(topic_of(store))["copies"] >= 2
        assert store.cancel_delayed("t", 0, delayed[0])
        beside = inspect_folder(store.path)
    assert inspect_folder(tmp_path / "s")["delayed"] == beside["delayed"] == {"t": 4}
