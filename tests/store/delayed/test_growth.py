"""Steps of retention and of trims at n and at 4 n, where a square would show as 16."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.index import BucketTracker
from stratalog.store import MessageStore
from stratalog.store.delayed import due_scan
from stratalog.store.delayed.keeping import Keeping
from stratalog.store.format.frame import Frame
from stratalog.store.segment.sealed import SealedSegment

from ..helpers import has_settled, tiny, until
from .consumer import Hand, topic_of

HOUR_MS = 3_600_000
LINEAR = 6
SIZE = 20_000


@pytest.fixture(autouse=True)
def looks_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratalog.store.delayed.keeping.LOOK_S", 1_000.0)
    monkeypatch.setattr("stratalog.store.delayed.keeping.LOOK_TIMES", 1_000_000)


def filled(hand: Hand, path: Path, segments: int, *, delayed: bool) -> None:
    with hand.open(path) as store:
        store.subscribe("t", "a").close()
        while store._lanes[0].segment is None or store._lanes[0].segment.sequence <= segments:
            store.append_batch([("t", 0, bytes(SIZE))] * 2)
            if delayed:
                store.append("t", 0, b"wanted", deliver_at_ms=hand.now_ms + HOUR_MS)


def retired(hand: Hand, path: Path) -> None:
    """All that may go of a store has gone."""
    with hand.open(path, tiny(retention_bytes=1)) as store:
        until(lambda: has_settled(store))
        assert store.stats()["log"]["removed_segments"]


def grows(steps: Callable[[Path, int], int], folder: Path, few: int) -> float:
    """How many times the steps of `few` those of 4 times as many are."""
    return steps(folder / "many", 4 * few) / steps(folder / "few", few)


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[int]:
    """How often a method was called, or a property asked."""
    calls, real = [0], getattr(owner, name)

    def call(one: Any, *given: Any) -> Any:
        calls[0] += 1
        return real.__get__(one) if isinstance(real, property) else real(one, *given)

    monkeypatch.setattr(owner, name, property(call) if isinstance(real, property) else call)
    return calls


def test_each_segment_that_retention_copies_from_is_walked_twice(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans = counted(monkeypatch, Keeping, "_wanted")

    def scanned(path: Path, segments: int) -> int:
        filled(hand, path, segments, delayed=True)
        scans[0] = 0
        retired(hand, path)
        assert scans[0] >= segments // 2
        return scans[0]

    assert grows(scanned, tmp_path, 10) <= LINEAR


def test_retention_asks_the_footer_of_each_segment_that_goes_a_few_times(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    footers = counted(monkeypatch, SealedSegment, "footer")

    def asked(path: Path, segments: int) -> int:
        filled(hand, path, segments, delayed=False)
        footers[0] = 0
        retired(hand, path)
        return footers[0]

    assert grows(asked, tmp_path, 10) <= LINEAR


def test_what_is_kept_is_told_by_topic_and_goes_with_its_segment(tmp_path: Path, hand: Hand) -> None:
    with hand.open(tmp_path / "s", tiny(retention_ms=1_000)) as store:
        sub = store.subscribe("t", "a")
        for _ in range(8):
            store.append("t", 0, bytes(SIZE), deliver_at_ms=hand.now_ms + HOUR_MS)
        hand.now_ms += 5_000
        keeping = store._delaying.keeping
        until(lambda: looked(store) and keeping.kept.get("t", 0) > SIZE)
        assert keeping.extra_bytes > SIZE and keeping.copied_messages == 0
        assert sub.backlog().delayed == 8


def looked(store: MessageStore) -> bool:
    store._upkeep.wake()
    return True


def test_trims_of_a_queue_look_at_what_they_remove_and_not_at_what_is_gone(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, real = [0], BucketTracker.discard

    def discard(tracker: BucketTracker, ledger: int, first_entry: int, before_entry: int) -> np.ndarray:
        looked[0] += before_entry - first_entry
        return real(tracker, ledger, first_entry, before_entry)

    monkeypatch.setattr(BucketTracker, "discard", discard)

    def steps(path: Path, count: int) -> int:
        with hand.open(path) as store, store.subscribe("t", "a") as sub:
            for _ in range(count):
                store.append("t", 0, b"x", deliver_at_ms=hand.now_ms + HOUR_MS)
            assert sub.receive() == []
            until(lambda: topic_of(store).pending == count)
            looked[0] = 0
            for low in range(1, count):
                store.trim("t", 0, low)
                assert topic_of(store).pending == count - low
            return looked[0]

    assert grows(steps, tmp_path, 20) <= LINEAR


def test_a_count_walks_the_log_of_a_topic_that_nobody_receives_from_no_more_than_once(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames, real = [0], due_scan._frame_at

    def frame_at(*given: Any) -> Frame:
        frames[0] += 1
        return real(*given)

    monkeypatch.setattr(due_scan, "_frame_at", frame_at)

    def scanned(path: Path, count: int) -> int:
        with hand.open(path) as store, store.subscribe("t", "a") as sub:
            for _ in range(count):
                store.append("t", 0, b"x", deliver_at_ms=hand.now_ms + HOUR_MS)
            assert sub.backlog() == (0, 0, count)
            index = store._delaying.delays.find("t")
            until(lambda: index is None or not index.is_lagging)
            frames[0] = 0
            assert sub.backlog() == store.subscriptions("t")[0].backlog == (0, 0, count)
            return frames[0]

    assert scanned(tmp_path / "many", 80) <= scanned(tmp_path / "few", 20)


def test_counts_of_a_topic_without_delays_walk_the_log_of_others_once(
    tmp_path: Path, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hand.open(tmp_path / "s") as store, store.subscribe("t", "a") as sub:
        for _ in range(20):
            store.append("other", 0, b"x", deliver_at_ms=hand.now_ms + HOUR_MS)
        assert sub.backlog() == (0, 0, 0)
        looked = counted(monkeypatch, due_scan.DueScan, "look")
        for at in range(20):
            store.append("t", at, b"x")
            assert sub.backlog() == (at + 1, 0, 0)
        assert looked[0] <= 2 * 20 + 2, "each goes on where the one before has got to"
        assert store.stats()["delayed"] == {}
