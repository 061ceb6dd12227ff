"""What the tracker on disk does for four times as many entries: four times as much, and a doubling of merges."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stratalog.index import BucketTracker

from .kinds import on_disk, taken
from .simulated_files import SimulatedFiles

LEDGERS, ENTRIES, SPAN_MS = 24, 500, 1 << 30
LINEAR = 4 * 1.5
Cost = Callable[[int], int]  # bytes, by the number of ledgers


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read is not kept."""
    monkeypatch.setattr("stratalog.index.trackers.pages.PAGE_ROWS", 64)
    monkeypatch.setattr("stratalog.index.trackers.pages.KEPT_PAGES", 2)


def filled(ledgers: int) -> tuple[BucketTracker, SimulatedFiles]:
    """A tracker with entries of random times, all of them sealed; the ledgers that lie far apart share a bucket."""
    files, chance = SimulatedFiles(0), np.random.default_rng(1)
    tracker = on_disk(files=files, seal_entries=ENTRIES, segment_ms=SPAN_MS // 16, most_buckets=8)
    for ledger in range(ledgers):
        tracker.add_messages(ledger, np.arange(ENTRIES), chance.integers(0, SPAN_MS, ENTRIES))
    tracker.checkpoint()
    return tracker, files


def grows(cost: Cost) -> float:
    return cost(4 * LEDGERS) / cost(LEDGERS)


def test_entries_are_written_once_more_a_doubling_at_the_most() -> None:
    def cost(ledgers: int) -> int:
        tracker, _ = filled(ledgers)
        return int(tracker.stats()["merged_rows"]) + ledgers * ENTRIES

    assert grows(cost) <= 4 * 2.5


def test_taking_all_reads_each_row_once() -> None:
    def cost(ledgers: int) -> int:
        tracker, files = filled(ledgers)
        before = files.read_bytes
        for step in range(64):
            taken(tracker, (step + 1) * SPAN_MS // 64)
        assert len(tracker) == 0
        return files.read_bytes - before

    assert grows(cost) <= LINEAR


def test_trims_of_one_ledger_after_another_read_what_goes_and_not_what_is_gone() -> None:
    def cost(ledgers: int) -> int:
        tracker, files = filled(ledgers)
        while tracker.upkeep():
            pass
        before = files.read_bytes
        for ledger in range(ledgers):
            assert tracker.trim(ledger + 1) == ENTRIES
        return files.read_bytes - before

    assert grows(cost) <= 4 * 2.5, "and a page of each bucket, of which there are no more than a few"
