"""The measurement of delayed entries runs in its short form, and what it checks it notices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog import Subscription
from stratalog.index import HeapTracker
from stratalog.perf.experiments.delayed import ROWS
from stratalog.perf.workload import delayed_store
from stratalog.perf.workload.checker import WrongResult
from stratalog.perf.workload.delayed import DueCounts, Load, drain
from stratalog.perf.workload.delayed_store import StoreLoad
from tests.perf.short import report_of_run


def test_delayed_has_memory_the_tracker_on_disk_and_a_store(tmp_path: Path) -> None:
    report = report_of_run(tmp_path, "delayed")
    measures = report.measures()
    for row in ROWS:
        names = [f"memory.{row.name}.{figure}" for figure in ("add_m_per_s", "drain_m_per_s", "bytes_each", "grown_mb")]
        assert measures[names[0]].value > 0 and measures[names[1]].value > 0
        assert measures[names[3]].reference == (row.source_mb * 20_000 / 10_000_000 or None)
    assert "memory.heap.bytes_each" in measures
    assert 0 < measures["disk.not_sealed"].value < 120_000
    assert 0 < measures["disk.disk_bytes_each"].value < 20  # each entry is there by its time and by its place
    assert 0 <= measures["store.p50"].value <= measures["store.p99"].value <= measures["store.p99.9"].value
    assert report.checked_messages >= 2_000


def test_delayed_message_that_is_acknowledged_twice_is_a_wrong_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = delayed_store._receive

    def twice(sub: Subscription, producer: Any, load: StoreLoad) -> Any:
        found = real(sub, producer, load)
        found.counts[0] += 1
        return found

    monkeypatch.setattr(delayed_store, "_receive", twice)
    with pytest.raises(WrongResult, match="0 early, 0 lost, 1 twice"):
        delayed_store.deliver(tmp_path / "store", StoreLoad(200, 100, 100), 1)


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
