"""The measurement of delayed entries runs in its short form, and its model is the source's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stratalog.index import HeapTracker
from stratalog.perf.experiments.delayed import GRID, ROWS, bar, model_bytes
from stratalog.perf.workload.checker import WrongResult
from stratalog.perf.workload.delayed import DueCounts, Load, drain
from tests.perf.short import figures_of


def test_delayed_has_a_row_a_load_the_model_and_the_tracker_on_disk(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "delayed")
    assert [row["name"] for row in figures["rows"][:-1]] == [row.name for row in ROWS]
    for row in figures["rows"]:
        assert min(row["add_m_per_s"], row["drain_m_per_s"], row["told_mb"]) > 0
    assert figures["rows"][3]["bitmap_part"] == 1 and figures["rows"][5]["bitmap_part"] == 0
    assert {row["tracker"] for row in figures["single"]} == {"heap", "time buckets", "on disk"}
    assert len(figures["model"]) == len(GRID)
    disk = figures["disk"]
    assert disk["entries"] == 120_000
    assert disk["after_added_again"] == disk["not_sealed"] < 120_000
    assert 0 < disk["disk_bytes_per_entry"] < 20  # each entry is there by its time and by its place


@pytest.mark.parametrize(
    ("rate", "bits", "expected"),
    [(1, 10, 2.0), (4, 10, 2.0), (8, 10, 1.0), (8, 15, 6 * 8192 / 262_144), (1000, 20, 0.16384)],
)
def test_model_is_the_one_of_the_source(rate: int, bits: int, expected: float) -> None:
    assert model_bytes(rate, bits) == pytest.approx(expected, rel=1e-4)


def test_bar_shows_both() -> None:
    assert bar(2.0, 0.0).index("o") == 24
    assert bar(1.0, 1.0).count("@") == 1
    assert bar(99.0, 0.5).rindex("o") == 29


def test_every_second_message_is_a_load_without_neighbours() -> None:
    ledgers, entries, times = next(Load(1_000, 4, stride=2).batches(1))
    assert (np.diff(entries) == 2).all() and ledgers[-1] == 0
    assert np.diff(times).max() == 1 and times[7] - times[0] == 1


def test_entry_that_is_lost_early_or_late_is_noticed() -> None:
    load = Load(1_000, 4, 5_000)
    due = DueCounts(load, 1, 1)
    for shift_ms, kept in ((0, 1_000), (0, 999), (100, 1_000), (-100, 1_000)):
        tracker = HeapTracker()
        for ledgers, entries, times in load.batches(1):
            tracker.add_messages(ledgers[:kept], entries[:kept], np.maximum(0, times[:kept] + shift_ms))
        if (shift_ms, kept) == (0, 1_000):
            assert drain(tracker, due, 1_000) > 0
        else:
            with pytest.raises(WrongResult):
                drain(tracker, due, 1_000)
