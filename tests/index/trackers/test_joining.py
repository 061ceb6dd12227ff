"""Trackers that were filled apart become one: it gives what one that was filled alone gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stratalog.index import BucketTracker, TrackerDamaged, join_trackers
from stratalog.index.columns import Int64s
from stratalog.index.trackers.files import FolderFiles
from tests.seeds import draw_seed


def filled(folder: Path, ledgers: Int64s, entries: Int64s, times: Int64s) -> None:
    """A closed tracker with these entries, in some buckets."""
    tracker = BucketTracker(folder, seal_entries=100, most_entries=300)
    tracker.add_messages(ledgers, entries, times)
    tracker.checkpoint(b"of a part")
    tracker.close()


@pytest.mark.parametrize("parts", [0, 1, 3])
def test_joined_trackers_give_all_entries_in_order(tmp_path: Path, parts: int) -> None:
    chance = np.random.default_rng(draw_seed())
    count = 2_000 if parts else 0
    ledgers, entries = np.sort(chance.integers(0, 5, count)), np.arange(count)
    times, of = chance.integers(0, 3_000_000, count), chance.integers(0, max(1, parts), count)
    for part in range(parts):
        filled(tmp_path / str(part), ledgers[of == part], entries[of == part], times[of == part])
    sources = [FolderFiles(tmp_path / str(part)) for part in range(parts)]
    assert join_trackers(sources, FolderFiles(tmp_path / "all"), b"mark") == count
    with_all = BucketTracker(tmp_path / "all")
    assert with_all.mark == b"mark" and with_all.number_of_delayed_messages == count
    for now_ms in (1_000_000, 3_000_000):
        due = (times <= now_ms) & (times > now_ms - (1_000_000 if now_ms == 1_000_000 else 2_000_000))
        found = with_all.get_scheduled_messages(now_ms, count + 1)
        order = np.lexsort((entries[due], ledgers[due], times[due]))
        assert np.array_equal(found[0], ledgers[due][order]) and np.array_equal(found[1], entries[due][order])
    with_all.close()
    left = [FolderFiles(tmp_path / str(part)) for part in range(parts)]
    assert join_trackers(left, FolderFiles(tmp_path / "again"), b"") == count  # the sources are as they were


def test_damaged_source_is_an_error_and_makes_no_tracker(tmp_path: Path) -> None:
    filled(tmp_path / "one", np.zeros(10, np.int64), np.arange(10), np.arange(10))
    [bucket] = (tmp_path / "one").glob("*.bucket")
    data = bytearray(bucket.read_bytes())
    data[len(data) // 2] ^= 1
    bucket.write_bytes(data)
    with pytest.raises(TrackerDamaged):
        join_trackers([FolderFiles(tmp_path / "one")], FolderFiles(tmp_path / "all"), b"mark")
    assert not (tmp_path / "all" / "MANIFEST").exists()
