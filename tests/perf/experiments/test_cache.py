"""The measurements of the caches in their short forms, and their arithmetic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stratalog.perf.experiments import cache_capacity
from stratalog.perf.report import layers
from stratalog.perf.report.layers import Mark
from stratalog.perf.workload.memory import CONTEST_DRAM_PART, CONTEST_PMEM_PART, RING_PART_OF_DRAM, Memory
from stratalog.store import MessageStore
from stratalog.store.testing import TunedConfig
from tests.perf.short import figures_of

MIB = 1 << 20


def test_hotcold_tells_which_layer_served(tmp_path: Path) -> None:
    figures = figures_of(
        tmp_path, "hotcold", "--size", "3MiB", "--no-reference", "--contest-memory", "--block", "4KiB",
        "--pmem-dir", str(tmp_path), "--edge", "64KiB",
    )  # fmt: skip
    reads, held = figures["served"], figures["cache_after_phase1"]
    assert reads["layers"].keys() >= {"ring", "persistent", "read cache", "device"}
    assert sum(layer["messages"] for layer in reads["layers"].values()) == figures["reads"]["messages"]
    assert reads["memory_share"] + reads["layers"]["device"]["share"] == pytest.approx(1)
    assert reads["unsound_messages"] == 0
    assert held["tiers"]["persistent"]["kind"] in ("shared", "map-sync")
    counted = ("filled_messages", "not_admitted_messages", "refused_messages", "missed_messages")
    assert sum(held[name] for name in counted) == figures["phase1"]["messages"]
    assert figures["config"]["store"]["cache"]["readers"] == "once"


def test_hotcold_without_a_cache_has_no_tiers(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "hotcold", "--size", "1MiB", "--no-reference")
    assert figures["served"]["layers"].keys() == {"ring", "read cache", "device"}
    assert figures["cache_after_phase1"] == {}


def test_hotcold_plans_its_memory_from_one_number(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "hotcold", "--size", "1MiB", "--no-reference", "--memory-limit", "64MiB")
    assert figures["stats"]["cache"]["plan"]["memory_limit_bytes"] == 64 * MIB
    assert figures["stats"]["recent_bytes"] > 0


def test_ablation_has_a_row_a_technique(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "cache", "--section", "ablation", "--size", "2MiB")["ablation"]
    names = [row["memory"] for row in figures["rows"]]
    assert names[:6] == ["no cache", "one tier", "tiers", "+ admission", "+ remainder", "+ edge"]
    for row in figures["rows"]:
        shares = [row[f"{name}_share"] for name in ("ring", "dram", "pmem", "device")]
        assert sum(shares) == pytest.approx(1)
    assert len({row["ring_bytes"] for row in figures["rows"]}) == 1


def test_appends_are_beside_the_same_without_a_cache(tmp_path: Path) -> None:
    rows = figures_of(tmp_path, "cache", "--section", "appends")["appends"]["rows"]
    assert len(rows) == 5
    assert all(row["ratio"] > 0 and 0 <= row["missed_part"] <= 1 for row in rows)


def test_hits_are_served_by_the_layer_they_are_to_show(tmp_path: Path) -> None:
    for row in figures_of(tmp_path, "cache", "--section", "hits")["hits"]["rows"]:
        assert row["ring_share"] == 1
        assert row["hit_share"] > 0
        # Without a cache, a call that begins before the ring's oldest message takes the rest of it from the ring.
        assert row["hit_share"] == pytest.approx(row["off_device_share"], rel=0.15)


def test_no_message_under_the_lowest_threshold_is_left_to_the_device(tmp_path: Path) -> None:
    rows = figures_of(tmp_path, "cache", "--section", "admission")["admission"]["rows"]
    assert [row["sizes"].split(",")[0] for row in rows] == ["uniform", "log-normal", "bimodal", "constant"]
    for row in rows:
        assert row["device_served_under_lowest"] == 0
        assert row["missed_messages"] == 0
        assert row["used_part"] > 0.95


def test_lent_blocks_recover_what_many_queues_waste(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "cache", "--section", "remainder")["remainder"]
    assert figures["used_part_without"] < 0.9 < figures["used_part_with"]
    assert figures["recovered_part"] > 0.9


def test_tail_is_served_by_the_ring_and_catching_up_reads_the_backlog(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, "tail_catchup")
    assert (figures["tail"]["device_reads"], figures["tail"]["lower_layers_messages"]) == (0, 0)
    rows = {row["reader"]: row for row in figures["catchup"]}
    assert rows.keys() == {"no reader", "read cache off", "read cache on"}
    assert rows["no reader"]["read_per_s"] == 0
    assert rows["read cache off"]["device_reads"] > 0
    assert rows["read cache off"]["read_ahead_share"] == 0
    assert all(row["written_per_s"] > 0 and row["writers_ratio"] > 0 for row in rows.values())


def test_contest_tiers_have_the_contests_parts() -> None:
    size = 1 << 30
    memory = Memory().as_in_the_contest(size)
    dram = memory.tier_bytes - memory.persistent_bytes
    assert memory.recent_bytes is not None
    assert dram + memory.recent_bytes == pytest.approx(CONTEST_DRAM_PART * size, rel=0.01)
    assert memory.recent_bytes == pytest.approx(CONTEST_DRAM_PART * size / RING_PART_OF_DRAM, rel=0.01)
    assert memory.persistent_bytes == pytest.approx(CONTEST_PMEM_PART * size, rel=0.01)


def test_what_the_ring_and_a_tier_served_is_told_apart(tmp_path: Path) -> None:
    memory = Memory(off_heap_bytes=32 * MIB, recent_bytes=0, largest_message_bytes=64 << 10)
    data = bytes(60 << 10)
    with MessageStore.open(tmp_path / "store", TunedConfig(**memory.settings(tmp_path))) as store:
        ring = store.stats()["recent_bytes"]
        for _ in range(2 * ring // len(data)):
            store.append("topic", 0, data)
        held, before = layers.cached_all(store), Mark.now(store)
        assert held["missed_messages"] == 0
        last = store.queue_bounds("topic", 0)[1] - 1
        assert store.get_range("topic", 0, 0, 2).keys() == {0, 1}
        assert store.get_range("topic", 0, last, 1) == {0: data}
        found = layers.served(before, Mark.now(store))
    assert {name: layer["messages"] for name, layer in found["layers"].items()} == {
        "ring": 1, "off-heap": 2, "read cache": 0, "device": 0,
    }  # fmt: skip
    assert found["dram_share"] == pytest.approx(2 / 3)


def test_sizes_of_the_distributions_are_what_their_names_say() -> None:
    made = cache_capacity.draws(np.random.default_rng(1), 10_000)
    drawn = {name.split(",")[0]: sizes for name, sizes in made.items()}
    assert drawn.keys() == {"uniform", "log-normal", "bimodal", "constant"}
    assert max(int(sizes.max()) for sizes in drawn.values()) <= cache_capacity.LARGEST_BYTES
    assert np.median(drawn["log-normal"]) == pytest.approx(1_800, rel=0.1)
    assert (drawn["bimodal"] < 500).mean() == pytest.approx(0.8, abs=0.02)
    assert set(drawn["constant"].tolist()) == {4_000}
