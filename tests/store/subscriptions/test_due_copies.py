"""Delayed messages that live on as copies, as subscriptions get them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stratalog.store import Message, MessageBatch, MessageStore, OffsetOutOfRange, StoreCorrupt
from stratalog.store.delayed.copies import Copies
from stratalog.store.subscriptions.place_list import PlaceList

from ..helpers import tiny, until
from .helpers import TOPIC, BothClocks, places

DELAY_MS = 3_600_000
MESSAGES = 200
EVERY = 10  # one of so many is delayed


@pytest.fixture
def clock() -> BothClocks:
    return BothClocks()


def copied(store: MessageStore, clock: BothClocks) -> int:
    """Have retention remove the segments of many messages: how many live on as copies."""
    for at in range(MESSAGES):
        due_ms = clock.wall + DELAY_MS if at % EVERY == 0 else None
        store.append(TOPIC, 0, bytes(3000), deliver_at_ms=due_ms)
    clock.go(60_000)

    def are_removed() -> bool:
        clock.go(100)
        store.append("other", 0, bytes(3000))
        store._upkeep.wake()
        return store._upkeep.removal.removed_segments >= 6

    until(are_removed)
    topic = store._delaying.delays.find(TOPIC)
    assert topic is not None
    return len(topic.copies)


def test_receive_gives_no_more_copies_than_asked_for_and_all_in_the_end(tmp_path: Path, clock: BothClocks) -> None:
    with MessageStore.open(tmp_path / "store", tiny(retention_ms=1000), clock=clock) as store:
        store.subscribe(TOPIC, "a").close()
        copies = copied(store, clock)
        assert copies >= 5
        clock.go(2 * DELAY_MS)
        sub = store.subscribe(TOPIC, "a")
        seen: list[tuple[int, int]] = []
        while got := sub.receive(2):
            assert len(got) <= 2
            seen += places(got)
        assert len(seen) == len(set(seen))
        assert {(0, at) for at in range(0, MESSAGES, EVERY)} <= set(seen)
        sub.seek("earliest")
        again = places(sub.receive(5))
        assert len(again) == 5


def test_a_trim_that_the_index_has_not_seen_yet_takes_its_copies_out_of_a_look_at_them(
    tmp_path: Path, clock: BothClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path / "store", tiny(retention_ms=1000), clock=clock) as store:
        store.subscribe(TOPIC, "a").close()
        assert copied(store, clock) >= 5
        clock.go(2 * DELAY_MS)
        sub = store.subscribe(TOPIC, "a")
        monkeypatch.setattr("stratalog.store.delayed.due_list.DUE_ROWS", 0)  # so much is due that no more is taken
        store.trim(TOPIC, 0, MESSAGES)
        assert sub.receive() == []


def test_a_copy_that_cannot_be_read_holds_up_no_other(
    tmp_path: Path, clock: BothClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path / "store", tiny(retention_ms=1000), clock=clock) as store:
        store.subscribe(TOPIC, "a").close()
        assert copied(store, clock) >= 5
        first = store.queue_bounds(TOPIC, 0)[0]
        clock.go(2 * DELAY_MS)
        read = Copies.read

        def damaged(copies: Copies, queue_id: int, offset: int, at: int) -> Message | None:
            if offset == EVERY:
                raise StoreCorrupt("a message's bytes do not match their checksum", "lane-00", 0)
            return read(copies, queue_id, offset, at)

        monkeypatch.setattr(Copies, "read", damaged)
        sub = store.subscribe(TOPIC, "a")
        seen: list[tuple[int, int]] = []
        errors = 0
        for _ in range(MESSAGES):  # the error comes once there is nothing else to give
            try:
                found = places(sub.receive(3))
            except StoreCorrupt:
                errors += 1
            else:
                seen += found
                if errors and not found:
                    break
        assert {(0, at) for at in range(0, first, EVERY) if at != EVERY} <= set(seen)
        assert errors
        assert len(seen) == len(set(seen))


def test_retention_that_goes_on_between_two_looks_is_no_error(
    tmp_path: Path, clock: BothClocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        sub = store.subscribe(TOPIC, "a")
        for _ in range(30):
            store.append(TOPIC, 0, b"x")
        real, firsts = store._fetcher.read_batch, [10, 20]

        def read_batch(topic: str, queue_id: int, offset: int, *most: int) -> MessageBatch:
            if firsts:
                raise OffsetOutOfRange(topic, queue_id, offset, firsts.pop(0), 30)
            return real(topic, queue_id, offset, *most)

        monkeypatch.setattr(store._fetcher, "read_batch", read_batch)
        assert places(sub.receive(100)) == [(0, at) for at in range(20, 30)]


def listed(due: PlaceList) -> list[tuple[int, int]]:
    queues, offsets = due.first(100)
    return list(zip(queues.tolist(), offsets.tolist(), strict=True))


def test_message_that_is_listed_stays_where_it_is() -> None:
    """A copy that is due is found among the copies, and in what became due: it went out twice in one call."""
    due = PlaceList()
    due.add(np.array([0, 0, 1]), np.array([5, 6, 7]))
    due.add(np.array([1, 0, 0, 1]), np.array([5, 6, 8, 7]))
    assert listed(due) == [(0, 5), (0, 6), (1, 7), (1, 5), (0, 8)]
    due.remove_first(2)
    due.add(np.array([0]), np.array([6]))
    assert listed(due) == [(1, 7), (1, 5), (0, 8), (0, 6)]
