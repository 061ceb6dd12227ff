"""Every measurement runs in its short form and gives the figures that its readers look for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stratalog.perf.experiments.recovery import Crashed
from tests.perf.short import figures_of


def test_recovery_keeps_all_that_was_acknowledged(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "recovery", "--unsealed", "1MiB", "--size", "2MiB")
    assert [row["sizes"] for row in figures["unsealed"]] == ["contest", "100"]
    for row in figures["unsealed"]:
        assert row.keys() >= {"unsealed_mb", "open_s", "scan_mb_per_s", "raw_read_mb_per_s", "open_ratio"}
        assert row["unsealed_mb"] >= 1.04  # all of it was unsealed
        assert row["scan_ratio"] > 0
    assert all(row.keys() >= {"open_s", "raw_read_s", "sealed_segments"} for row in figures["sealed"])
    sizes = [row["store_mb"] for row in figures["sealed"]]
    assert sizes == sorted(set(sizes))


def test_files_of_a_dead_process_are_put_back_also_where_an_opening_has_removed_one(tmp_path: Path) -> None:
    for name in ("segment", "retired"):
        (tmp_path / name).write_bytes(name.encode() * 3000)
    crashed = Crashed(tmp_path, 8192)
    (tmp_path / "segment").write_bytes(b"recovered")
    (tmp_path / "retired").unlink()
    (tmp_path / "new").write_bytes(b"of the opening")
    crashed.restore()
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {name: name.encode() * 3000 for name in ("segment", "retired")}


def test_batch_is_beside_rocksdb(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "batch")
    rate, peer = figures["append_batch_messages_per_s"], figures["rocksdb_messages_per_s"]
    assert figures["rocksdb_ratio"] == pytest.approx(rate / peer)
    assert figures["submit_messages_per_s"] > 0
    assert figures["checked_messages"] == 3 * 5000


def test_columns_are_beside_rocksdb_and_the_device(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "columns")
    ways = figures["ways"]
    rate, peer = figures["append_columns_messages_per_s"], figures["rocksdb_messages_per_s"]
    assert figures["rocksdb_ratio"] == pytest.approx(rate / peer)
    assert figures["time_with_keys_ratio"] == pytest.approx(rate / ways["with keys"]["messages_per_s"])
    mb_per_s = ways["contest, two under way"]["mb_per_s"]
    assert figures["raw_device_ratio"] == pytest.approx(mb_per_s / ways["raw device"]["mb_per_s"])
    contest = round((3 << 20) / ((100 + (17 << 10)) / 2))
    assert figures["checked_messages"] == 5 * 10_000 + contest


def test_reads_are_beside_lmdb_and_the_device(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "reads", "--size", "1MiB")
    for part, name in (("tail", "tail_over_lmdb"), ("small", "small_over_lmdb"), ("warm", "warm_over_lmdb")):
        rates = figures[part]
        expected = rates["get_range_messages_per_s"] / rates["lmdb_messages_per_s"]
        assert figures["ratios"][name] == pytest.approx(expected)
    cold = figures["cold"]
    assert figures["ratios"]["scan_over_raw"] == pytest.approx(cold["scan_mb_per_s"] / cold["raw_direct_mb_per_s"])
    better = max(cold["lmdb_queues_mb_per_s"], cold["lmdb_queues_no_readahead_mb_per_s"])
    assert figures["ratios"]["queues_over_lmdb"] == pytest.approx(cold["queues_mb_per_s"] / better)


@pytest.mark.parametrize(("command", "module"), [("batch", "rocksdict"), ("reads", "lmdb")])
def test_missing_peer_is_said_and_the_rest_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    figures = figures_of(tmp_path, command)
    if command == "batch":
        assert figures["rocksdb_messages_per_s"] is figures["rocksdb_ratio"] is None
        assert "pip install" in figures["rocksdb_missing"]
        assert figures["append_batch_messages_per_s"] > 0
    else:
        assert "pip install" in figures["missing"]
        assert figures["ratios"]["queues_over_lmdb"] is figures["ratios"]["tail_over_lmdb"] is None
        assert figures["ratios"]["scan_over_raw"] > 0
