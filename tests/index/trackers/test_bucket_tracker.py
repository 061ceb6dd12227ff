"""The tracker on disk: sealing, segments, merging, checkpoints, opening; and what went wrong elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.index import BadEntry, BucketTracker, TrackerDamaged
from stratalog.index.trackers import shelf, time_buckets
from stratalog.index.trackers.format import PendingRows
from stratalog.index.trackers.places import Rows
from stratalog.index.trackers.sealed_bucket import SealedBucket
from tests.seeds import draw_seed

from .kinds import on_disk, taken
from .simulated_files import SimulatedFiles

END_MS = 1 << 50


def filled(files: SimulatedFiles, ledgers: int = 10, entries: int = 1_000, **given: Any) -> BucketTracker:
    """A tracker with entries of random times below 10,000 ms."""
    tracker, chance = on_disk(files=files, **given), np.random.default_rng(1)
    for ledger in range(ledgers):
        tracker.add_messages(ledger, np.arange(entries), chance.integers(0, 10_000, entries))
    return tracker


def test_mutable_bucket_is_sealed_where_a_ledger_ends() -> None:
    tracker = on_disk(seal_entries=100, most_entries=1_000)
    tracker.add_messages(0, np.arange(99), 50)
    tracker.add_messages(1, np.arange(200), 50)
    assert tracker.stats()["buckets"] == 0
    tracker.add_message(2, 0, 50)
    assert (tracker.stats()["sealed"], tracker.stats()["mutable"]["pending"]) == (299, 1)


def test_ledger_that_never_ends_does_not_keep_the_mutable_bucket_growing() -> None:
    """A bound that waits for the ledger's end is no bound."""
    tracker = on_disk(seal_entries=100, most_entries=1_000)
    for first in range(0, 5_000, 250):
        tracker.add_messages(0, np.arange(first, first + 250), 50)
        assert tracker.stats()["mutable"]["pending"] <= 1_000
    tracker.add_messages(0, np.arange(5_000, 9_999), 50)
    assert tracker.stats()["mutable"]["pending"] <= 1_000
    for entry in range(9_999, 12_000):
        tracker.add_message(0, entry, 50)
        assert tracker.stats()["mutable"]["pending"] <= 1_000
    assert len(taken(tracker, 50)) == 12_000


def test_mutable_bucket_is_sealed_after_a_time() -> None:
    tracker = on_disk(seal_after_ms=60_000)
    tracker.add_message(0, 0, END_MS)
    for now_ms in (5_000, 64_999):
        taken(tracker, now_ms)
        assert tracker.stats()["buckets"] == 0
    taken(tracker, 65_000)
    assert tracker.stats()["buckets"] == 1
    assert len(tracker) == 1


@pytest.mark.parametrize("most_buckets", [1, 2, 3, 7])
def test_buckets_stay_few_and_nothing_is_lost(most_buckets: int) -> None:
    """A merge that picks buckets by a rule for many breaks where 1 to 3 are allowed."""
    tracker = filled(SimulatedFiles(0), 60, 700, seal_entries=700, most_buckets=most_buckets)
    assert tracker.stats()["buckets"] <= 2 * most_buckets + 2
    while tracker.upkeep(1_000):
        pass
    assert tracker.stats()["buckets"] <= most_buckets
    assert tracker.stats()["merges"] > 0
    assert len(set(taken(tracker, END_MS))) == 42_000


def test_merge_that_misses_rows_keeps_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge skipped a segment, and then deleted the sources."""
    files = SimulatedFiles(0)
    tracker = filled(files, 12, 700, seal_entries=700, most_buckets=20)
    tracker.checkpoint()
    whole = SealedBucket.kept_rows

    def without_a_part(bucket: SealedBucket, left: PendingRows, part_rows: int) -> Iterator[Rows]:
        yield from list(whole(bucket, left, 100))[1:]

    tracker._shelf.most_buckets = 2
    monkeypatch.setattr(SealedBucket, "kept_rows", without_a_part)
    with pytest.raises(Exception, match="missing"):
        tracker.upkeep(1 << 30)
    monkeypatch.undo()
    with pytest.raises(TrackerDamaged, match="missing"):
        tracker.cancel(0, 0)
    tracker.close()
    assert len(set(taken(on_disk(files=files), END_MS))) == 8_400


def test_merge_goes_on_a_part_with_each_sealing() -> None:
    """A seal that merges all that there is holds everybody up, the longer the more is delayed."""
    files = SimulatedFiles(0)
    tracker = filled(files, 40, 1_000, seal_entries=1_000, segment_entries=100, segment_ms=1 << 30, most_buckets=16)
    most, chance = 0, np.random.default_rng(2)
    for ledger in range(40, 140):
        before = files.read_bytes
        tracker.add_messages(ledger, np.arange(1_000), chance.integers(0, 10_000, 1_000))
        most = max(most, files.read_bytes - before)
    assert tracker.stats()["merges"] > 3
    assert most < 8 * 60_000  # of 140,000 rows of 8 bytes


def test_entries_that_leave_during_a_merge_stay_away_and_those_that_move_come_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shelf, "MERGED_ROWS", 300)
    files = SimulatedFiles(0)
    tracker = filled(files, 6, 700, seal_entries=700, most_buckets=20)
    tracker._shelf.most_buckets = 4  # with 1, the merge would be made at once
    assert tracker.upkeep(200)
    gone = taken(tracker, 1_000)
    assert tracker.upkeep(200)
    assert tracker.stats()["is_merging"]
    assert tracker.cancel(0, 3) == ((0, 3) not in gone)
    assert tracker.add_message(0, 3, 20_000)
    tracker.checkpoint()
    while tracker.upkeep(200):
        pass
    for one in (tracker, on_disk(files=files.crashed(draw_seed()))):
        count = one.number_of_delayed_messages
        assert count == 4_200 - len(gone) + ((0, 3) in gone)
        rest = taken(one, 20_000)
        assert (rest[-1], len(rest), len(set(rest))) == ((0, 3), count, count)


def test_only_the_next_segment_of_a_bucket_is_read() -> None:
    files = SimulatedFiles(0)
    filled(files, 10, 1_000, segment_ms=1_000, seal_entries=1_000, most_buckets=50).checkpoint()
    tracker = on_disk(files=files)
    before = files.read_bytes
    assert len(taken(tracker, 500, 5)) == 5
    assert files.read_bytes - before <= 8 * 10 * 130  # ten segments of about 90 rows


def test_opening_reads_no_segment() -> None:
    """Recovery that reads everything holds up all deliveries."""
    files = SimulatedFiles(0)
    filled(files, 100, 1_000, segment_ms=1 << 30, segment_entries=1_000, most_buckets=200).checkpoint()
    before = files.read_bytes
    assert len(on_disk(files=files, most_buckets=200)) == 100_000
    assert files.read_bytes - before < 8 * 100_000 / 10


def test_count_costs_no_look_at_the_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count of everything with every addition made additions as slow as there were entries."""
    settled: list[int] = []
    settle = time_buckets.TimeBuckets.settle

    def noted(buckets: time_buckets.TimeBuckets) -> None:
        settled.append(1)
        settle(buckets)

    monkeypatch.setattr(time_buckets.TimeBuckets, "settle", noted)
    files = SimulatedFiles(0)
    tracker = filled(files, 3, 1_000)
    tracker.add_message(9, 0, END_MS)
    reads, before = files.read_bytes, len(settled)
    for entry in range(1, 500):
        tracker.add_message(9, entry, END_MS)
        assert tracker.number_of_delayed_messages == 3_001 + entry
    assert (files.read_bytes, len(settled)) == (reads, before)


def test_segment_that_cannot_be_read_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that failed left no timer behind, and the rest of its bucket was never delivered."""
    tracker = filled(SimulatedFiles(0), 3, 700)
    tracker.checkpoint()
    read = SimulatedFiles.read

    def fail(files: SimulatedFiles, name: str, at: int, size: int) -> bytes:
        raise OSError(5, "input/output error")

    assert len(taken(tracker, 500)) > 0
    left = len(tracker)
    monkeypatch.setattr(SimulatedFiles, "read", fail)
    with pytest.raises(OSError, match="input"):
        taken(tracker, END_MS)
    monkeypatch.setattr(SimulatedFiles, "read", read)
    assert len(tracker) == left and tracker.has_message_available(END_MS)
    assert len(taken(tracker, END_MS)) == left


def test_disk_that_is_full_for_long_does_not_let_the_mutable_bucket_grow() -> None:
    files = SimulatedFiles(0)
    tracker = on_disk(files=files, seal_entries=50, most_entries=100)

    def fail() -> None:
        files.fail_at = files.steps

    files.on_step, refused = fail, 0
    for entry in range(300):
        try:
            tracker.add_message(0, entry, 50)
        except OSError:
            refused += 1
    assert (len(tracker), refused) == (100, 200)
    assert tracker.cancel(0, 7) and tracker.put_back(0, 7, 50), "what was taken out needs no room"
    files.on_step = None
    assert tracker.add_messages(0, np.arange(300), 50) == 200
    assert len(taken(tracker, 50)) == 300


def test_full_disk_does_not_hold_back_what_is_due() -> None:
    files = SimulatedFiles(0)
    tracker = on_disk(files=files, seal_after_ms=1_000)
    tracker.add_messages(0, [1, 2], [100, 3_000])
    assert taken(tracker, 100) == [(0, 1)]

    def fail() -> None:
        files.fail_at = files.steps

    files.on_step = fail
    assert taken(tracker, 3_000) == [(0, 2)]


def test_what_was_taken_comes_back_after_a_crash_until_the_checkpoint() -> None:
    files = SimulatedFiles(0)
    tracker = filled(files, 3, 700)
    tracker.checkpoint(b"here")
    first = taken(tracker, 2_000)
    assert tracker.cancel(*next((1, entry) for entry in range(700) if (1, entry) not in first))
    again = on_disk(files=files.crashed(draw_seed()))
    assert (again.mark, len(again)) == (b"here", 2_100)
    assert taken(again, 2_000) == first
    tracker.checkpoint()
    again = on_disk(files=files.crashed(draw_seed()))
    assert (again.mark, len(again)) == (b"here", 2_100 - len(first) - 1)
    assert taken(again, 2_000) == []


def test_any_number_of_holes_survives() -> None:
    """Ranges beyond 10,000 were dropped in silence when they were written."""
    files = SimulatedFiles(0)
    tracker = on_disk(files=files, most_entries=100_000, seal_entries=100_000)
    tracker.add_messages(0, np.arange(24_000), 5)
    tracker.checkpoint()
    assert all(tracker.cancel(0, entry) for entry in range(0, 24_000, 2))
    tracker.checkpoint()
    again = on_disk(files=files.crashed(draw_seed()))
    assert len(again) == 12_000
    assert [entry for _, entry in taken(again, 5)] == list(range(1, 24_000, 2))


def test_trimmed_entries_stay_away_and_their_neighbours_stay() -> None:
    files = SimulatedFiles(0)
    tracker = filled(files, 6, 700, seal_entries=1_000)
    assert tracker.trim(3) == 2_100
    again = on_disk(files=files.crashed(draw_seed()))
    assert {ledger for ledger, _ in taken(again, END_MS)} <= {3, 4, 5}
    assert {ledger for ledger, _ in taken(tracker, END_MS)} == {3, 4, 5}


def test_bucket_goes_when_it_is_used_up_and_a_cleared_tracker_leaves_no_bucket() -> None:
    files = SimulatedFiles(0)
    tracker = filled(files, 3, 700, seal_entries=700, most_buckets=9)
    assert sum(name.endswith(".bucket") for name in files.names()) == 2
    taken(tracker, END_MS)
    assert sum(name.endswith(".bucket") for name in files.names()) == 2
    tracker.checkpoint()
    assert files.names() == ["MANIFEST"]
    tracker.add_messages(0, np.arange(3_000), 5)
    tracker.clear()
    assert files.names() == ["MANIFEST"]
    assert len(on_disk(files=files)) == 0


def test_entry_that_moved_and_was_cancelled_does_not_come_back_from_the_bucket_where_it_was_first() -> None:
    """The later bucket, which overrules the first one, drops it at a checkpoint: so must the first one."""
    files = SimulatedFiles(0)
    tracker = on_disk(files=files, seal_entries=2, most_entries=2, most_buckets=9)
    tracker.add_messages(0, [1, 2], [10, 20])
    tracker.add_message(0, 9, 40)
    assert tracker.cancel(0, 1)
    tracker.add_message(0, 1, 30)
    tracker.add_message(0, 3, 30)
    assert tracker.stats()["seals"] == 2
    assert tracker.cancel(0, 1)
    tracker.checkpoint()
    assert taken(on_disk(files=files), 100) == [(0, 2), (0, 3), (0, 9)]


@pytest.mark.parametrize("ledgers", [[0, 1], [0, 1 << 30], [(1 << 31) - 1]])
@pytest.mark.parametrize("entry", [0, 65_535, 65_536, (1 << 32) - 1])
def test_positions_of_any_size_are_kept(ledgers: list[int], entry: int) -> None:
    """Each of the three widths of rows."""
    files = SimulatedFiles(0)
    tracker = on_disk(files=files)
    tracker.add_messages(np.repeat(ledgers, 2), [entry, entry ^ 1] * len(ledgers), 5)
    tracker.checkpoint()
    expected = sorted((ledger, one) for ledger in ledgers for one in (entry, entry ^ 1))
    assert taken(on_disk(files=files), 5) == expected


def test_settings_out_of_range_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"seal_entries": 0}, {"seal_entries": 4_000}, {"most_buckets": 0}, {"segment_ms": 1 << 33},
        {"segment_entries": 1.5},
    ]  # fmt: skip
    for given in wrong:
        with pytest.raises(BadEntry):
            on_disk(**given)


def test_folder_keeps_a_tracker(tmp_path: Path) -> None:
    folder, chance = tmp_path / "new" / "delayed", np.random.default_rng(1)
    with BucketTracker(folder, seal_entries=1_000, most_buckets=2, segment_entries=100) as tracker:
        for ledger in range(20):
            tracker.add_messages(ledger, np.arange(1_000), chance.integers(0, 1 << 30, 1_000))
        first = taken(tracker, 1 << 29)
        tracker.cancel(3, 3)
        tracker.checkpoint(b"mark")
    (folder / "00000000000000ff.bucket").write_bytes(b"of a step that was cut off")
    (folder / "notes.txt").write_text("somebody's own")
    with BucketTracker(folder) as tracker:
        assert tracker.mark == b"mark"
        rest = taken(tracker, END_MS)
        tracker.checkpoint()
    assert len({*first, *rest, (3, 3)}) == 20_000
    assert sorted(path.name for path in folder.iterdir()) == ["MANIFEST", "notes.txt"]


def test_mutable_bucket_goes_to_disk_before_memory_is_full() -> None:
    tracker, chance = on_disk(
        memory_limit_bytes=400_000, seal_entries=500_000, most_entries=500_000, segment_ms=1 << 30,
        segment_entries=5_000,
    ), np.random.default_rng(draw_seed())  # fmt: skip
    most = 0
    for ledger in range(100):
        tracker.add_messages(ledger, np.arange(2_000), chance.integers(0, 1 << 30, 2_000))
        most = max(most, tracker.buffer_memory_usage)
    for entry in range(2_000):
        tracker.add_message(100, entry, 5)
    assert tracker.stats()["seals"] > 1
    assert most < 500_000
    assert len(tracker) == 202_000
