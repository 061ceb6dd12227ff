"""Every measurement runs in its short form and gives the figures that its readers look for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from perf import hotcold
from perf.bench import app
from perf.checker import Counts
from perf.phases import ReadSide
from perf.threads import on_cpus, run_together

HOTCOLD_KEYS = {
    "lost", "duplicated", "out_of_order", "corrupted", "wrong_offsets", "seed", "config", "total_s", "phase1",
    "phase2", "reads", "write_amplification", "forces", "mean_batch", "cpu_s", "peak_rss_mb",
    "raw_device_mb_per_s", "raw_device_ratio", "thread_floor_messages_per_s", "thread_floor_ratio",
    "thread_floor_bare_messages_per_s", "thread_floor_all_cpus_messages_per_s", "thread_floor_all_cpus_ratio",
    "prewrite_s", "prewritten_mb", "stats",
}  # fmt: skip
PHASE_KEYS = {"seconds", "messages", "bytes", "messages_per_s", "mb_per_s", "latency_us"}


def figures_of(tmp_path: Path, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
    """The JSON of a command; nothing may be left of its folder."""
    runs, out = tmp_path / "runs", tmp_path / "out.json"
    done = CliRunner().invoke(app, [*arguments, "--dir", str(runs), "--json", str(out)])
    assert done.exit_code == exit_code, (done.output, done.exception)
    assert list(runs.iterdir()) == []
    figures: dict[str, Any] = json.loads(out.read_text())
    return figures


@pytest.mark.usefixtures("time_for_some_writes")
@pytest.mark.parametrize("api", ["blocking", "pipelined", "batch", "asyncio"])
def test_hotcold_loses_nothing_and_gives_every_key(tmp_path: Path, api: str) -> None:
    figures = figures_of(tmp_path, "hotcold", "--short", "--size", "3MiB", "--api", api, "--seed", "5")
    assert figures.keys() >= HOTCOLD_KEYS
    assert figures["phase1"].keys() >= PHASE_KEYS
    assert figures["phase2"].keys() >= PHASE_KEYS
    assert figures["phase1"]["latency_us"].keys() == {"p50", "p99", "p999"}
    assert figures["reads"].keys() >= {"messages", "bytes", "messages_per_s", "device_mb"}
    assert [figures[name] for name in hotcold.COUNT_NAMES] == [0] * 5
    rate, device = figures["phase1"]["mb_per_s"], figures["raw_device_mb_per_s"]
    assert figures["raw_device_ratio"] == pytest.approx(rate / device)
    assert (figures["thread_floor_ratio"] is not None) == (api in ("blocking", "asyncio"))
    assert (figures["thread_floor_all_cpus_ratio"] is not None) == (api == "blocking")  # the others are on all anyway
    assert figures["config"]["drive"]["api"] == api
    written = figures["phase1"]["messages"] + figures["phase2"]["messages"]
    assert figures["phase2"]["messages"] < figures["reads"]["messages"] < written


def test_hotcold_takes_medians_and_passes_settings_on(tmp_path: Path) -> None:
    figures = figures_of(
        tmp_path, "hotcold", "--short", "--size", "1MiB", "--repeat", "2", "--no-reference", "--no-prewrite",
        "--lanes", "2", "--alignment", "trim", "--durability", "os", "--sizes", "small", "--threads", "3",
        "--cpus", "1",
    )  # fmt: skip
    assert figures["config"]["cpus"] == 1
    assert len(figures["runs"]) == 2
    assert "raw_device_ratio" not in figures
    store = figures["config"]["store"]
    assert (store["lanes"], store["alignment"], store["durability"]) == (2, "trim", "os")
    assert store["prewrite_bytes"] == 0


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no CPU affinity here")
def test_threads_stay_on_so_many_cpus_for_a_while_only() -> None:
    before, seen = os.sched_getaffinity(0), list[int]()
    with on_cpus(1):
        run_together([lambda: seen.append(len(os.sched_getaffinity(0)))] * 2)
    assert seen == [1, 1]
    assert os.sched_getaffinity(0) == before


def test_hotcold_exits_with_1_when_a_message_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadSide, "finish", lambda self: Counts(lost=1))
    figures = figures_of(tmp_path, "hotcold", "--short", "--size", "1MiB", "--no-reference", exit_code=1)
    assert figures["lost"] == 1


@pytest.mark.parametrize(("counts", "code"), [(Counts(), 0), (Counts(lost=1, corrupted=2), 1)], ids=["clean", "not"])
def test_last_line_of_hotcold_has_the_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: Counts, code: int
) -> None:
    monkeypatch.setattr(ReadSide, "finish", lambda self: counts)
    done = CliRunner().invoke(app, ["hotcold", "--short", "--size", "1MiB", "--no-reference", "--dir", str(tmp_path)])
    assert done.exit_code == code
    lost, corrupted = counts.lost, counts.corrupted
    expected = f"lost {lost}  duplicated 0  out_of_order 0  corrupted {corrupted}  wrong_offsets 0"
    assert done.output.splitlines()[-1] == expected


def test_fewer_queues_than_topics_are_no_error(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "hotcold", "--short", "--size", "1MiB", "--no-reference", "--queues", "3")
    assert figures["config"]["topics"] == 3


def test_hotcold_refuses_what_is_no_size() -> None:
    assert CliRunner().invoke(app, ["hotcold", "--size", "much"]).exit_code == 2
    assert CliRunner().invoke(app, ["hotcold", "--sizes", "odd"]).exit_code == 2


def test_alignment_compares_adaptive_with_both(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "alignment", "--short")
    assert {row["alignment"] for row in figures["rows"]} == {"pad", "trim", "adaptive"}
    assert figures["rows"][0].keys() >= {"mb_per_s", "write_amplification", "held_requests", "producers"}
    assert figures["adaptive"][0].keys() >= {"throughput_over_best", "amplification_over_trim"}


def test_prewrite_has_device_and_store(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "prewrite", "--short", "--size", "1MiB")
    assert {row["file"] for row in figures["raw"]} == {"prewritten", "fallocated", "growing"}
    assert {row["segments"] for row in figures["store"]} == {"pre-written", "made in the run"}


def test_lanes_are_beside_as_many_writers(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "lanes", "--short", "--size", "1MiB")
    assert {row["lanes"] for row in figures["rows"]} == {1, 2, 4}
    assert all(row["raw_device_ratio"] > 0 for row in figures["rows"])


def test_recovery_keeps_all_that_was_acknowledged(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "recovery", "--short", "--unsealed", "1MiB", "--size", "2MiB")
    assert [row["sizes"] for row in figures["unsealed"]] == ["contest", "100"]
    for row in figures["unsealed"]:
        assert row.keys() >= {"unsealed_mb", "open_s", "scan_mb_per_s", "raw_read_mb_per_s", "open_ratio"}
        assert row["unsealed_mb"] >= 1.04  # all of it was unsealed
        assert row["scan_ratio"] > 0
    assert all(row.keys() >= {"open_s", "raw_read_s", "sealed_segments"} for row in figures["sealed"])
    messages = [row["messages"] for row in figures["sealed"]]
    assert messages == sorted(messages)


def test_batch_is_beside_rocksdb(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "batch", "--short")
    assert figures["append_batch_messages_per_s"] > 0
    assert figures["submit_messages_per_s"] > 0
    assert figures["rocksdb_messages_per_s"] > 0  # the peers are installed with the tests
    assert "rocksdb_missing" not in figures


def test_reads_are_beside_lmdb_and_the_device(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "reads", "--short", "--size", "1MiB")
    assert figures["ratios"].keys() >= {"tail_over_lmdb", "read_batch_over_get_range", "scan_over_raw"}
    assert figures["cold"]["scan_mb_per_s"] > 0
    assert figures["tail"]["lmdb_messages_per_s"] > 0  # the peers are installed with the tests
    assert figures["tail"]["missing"] is None


def test_memory_gives_bytes_a_message(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "memory", "--short")
    assert figures["messages"] == 20_000
    metadata = figures["disk_metadata_bytes_per_message"]
    assert 10 < metadata < 100
    assert metadata == pytest.approx(
        figures["disk_frames_bytes_per_message"] + figures["disk_footers_bytes_per_message"]
    )
    # 20,000 messages are one segment that is cleanly closed: it has no footer yet.
    assert figures["disk_bytes_per_message"] == pytest.approx(
        metadata + figures["disk_padding_bytes_per_message"]
    )
    assert figures["open_table_bytes_per_message"] > 0


def test_missing_peer_is_said_and_the_rest_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rocksdict", None)
    figures = figures_of(tmp_path, "batch", "--short")
    assert figures["rocksdb_messages_per_s"] is None
    assert "pip install" in figures["rocksdb_missing"]
    assert figures["append_batch_messages_per_s"] > 0
