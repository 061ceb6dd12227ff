"""Which layer served a read, and what a message cache holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.perf.report import layers
from stratalog.perf.report.layers import Mark
from stratalog.perf.workload.memory import CONTEST_DRAM_PART, CONTEST_PMEM_PART, RING_PART_OF_DRAM, Memory
from stratalog.store import MessageStore
from stratalog.store.testing import TunedConfig

MIB = 1 << 20


def test_contest_tiers_have_the_contests_parts() -> None:
    size = 1 << 30
    memory = Memory().as_in_the_contest(size, size // 2)
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
        burst = ring // 2 // len(data)  # it fits: the cache's thread misses what leaves the ring before it comes
        for _ in range(4):
            for _ in range(burst):
                store.append("topic", 0, data)
            layers.cached_all(store)
        held, before = layers.cached_all(store), Mark.now(store)
        assert held["missed_messages"] == 0
        assert held["filled_messages"] == 4 * burst
        last = store.queue_bounds("topic", 0)[1] - 1
        assert store.get_range("topic", 0, 0, 2).keys() == {0, 1}
        assert store.get_range("topic", 0, last, 1) == {0: data}
        found = layers.served(before, Mark.now(store))
    served = {name: found[f"{name}.messages"] for name in ("ring", "off-heap", "read cache", "device")}
    assert served == {"ring": 1, "off-heap": 2, "read cache": 0, "device": 0}
    assert found["off-heap.percent"] == pytest.approx(100 * 2 / 3)


def test_store_without_a_message_cache_has_no_figures_of_one(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        assert layers.cached_all(store) == {}
