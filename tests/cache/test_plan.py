"""The memory plan (R24), and what a container leaves of the machine's memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.cache.container import available_bytes
from stratalog.cache.errors import InvalidCacheConfig
from stratalog.cache.message_cache import MessageCache
from stratalog.cache.plan import LEAST_BYTES, plan_memory

GIB = 1 << 30


def group(root: Path, path: str, **files: object) -> None:
    """Write the files of a control group; `memory_max` is memory.max."""
    folder = root / "sys/fs/cgroup" / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name.replace("_", ".", 1)).write_text(f"{value}\n")


def member(root: Path, lines: str) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(lines)


def available(root: Path) -> int:
    return available_bytes(root, lambda: 64 * GIB)


@given(st.integers(LEAST_BYTES, 1 << 50))
def test_the_parts_follow_the_sources_proportions(limit: int) -> None:
    plan = plan_memory(limit)  # its own assertions check that nothing is over
    direct = plan.publish_buffer_bytes + plan.dram_bytes + plan.read_cache_bytes + plan.index_cache_bytes
    assert plan.working_bytes == pytest.approx(limit / 6, abs=8)
    assert direct == pytest.approx(limit / 3, abs=8)
    assert plan.page_cache_bytes == pytest.approx(limit / 2, abs=8)
    assert plan.publish_buffer_bytes == pytest.approx(5 * plan.index_cache_bytes, abs=8)
    assert plan.tail_cache_bytes == pytest.approx(2 * plan.index_cache_bytes, abs=8)
    assert abs(plan.read_cache_bytes - plan.write_cache_bytes) <= 1
    for tier, share in (("heap", 32), ("off_heap", 1700), ("private_file", 5000)):
        assert getattr(plan, f"{tier}_bytes") == pytest.approx(plan.tail_cache_bytes * share / 6732, abs=32 << 10)


def test_the_default_is_a_quarter_of_what_is_available() -> None:
    assert plan_memory(available=lambda: 8 * GIB).memory_limit_bytes == 2 * GIB
    assert plan_memory(available=lambda: 0).memory_limit_bytes == LEAST_BYTES
    assert plan_memory().memory_limit_bytes >= LEAST_BYTES  # of this machine


@pytest.mark.parametrize("limit", [0, -1, LEAST_BYTES - 1, 1e9, "1g", True])
def test_a_wrong_limit_is_refused(limit: Any) -> None:
    with pytest.raises(InvalidCacheConfig, match="memory_limit_bytes"):
        plan_memory(limit)


def test_a_cache_opens_with_what_was_planned(tmp_path: Path) -> None:
    plan = plan_memory(LEAST_BYTES)
    for settings in ({}, {"private_file_folder": tmp_path}):
        cache = MessageCache(plan.cache_config(**settings))
        assert 0.8 * plan.tail_cache_bytes <= cache.blocks.capacity_bytes <= plan.tail_cache_bytes
        cache.close()


def test_the_kernel_says_what_the_machine_has_available(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    for available_kib, bytes_ in ((4096, 4 << 20), (9000, 1 << 20)):  # more than all: the free ones
        text = f"MemTotal:  8192 kB\nMemFree:  1024 kB\nMemAvailable:  {available_kib} kB\nHugePages_Total:  0\n"
        (tmp_path / "proc/meminfo").write_text(text)
        assert available_bytes(tmp_path) == bytes_


def test_without_a_word_of_the_kernel_half_of_the_memory_counts(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) == psutil.virtual_memory().total // 2


def test_the_real_machine_has_what_its_tools_say() -> None:
    told = psutil.virtual_memory().available
    assert 0 < available_bytes() <= told + GIB  # less if a control group has a limit


def test_without_groups_the_machine_counts(tmp_path: Path) -> None:
    assert available(tmp_path) == 64 * GIB
    member(tmp_path, "0::/\n")
    group(tmp_path, "", memory_max="max", memory_current=5)
    assert available(tmp_path) == 64 * GIB


def test_a_limit_of_version_2_counts_also_if_it_is_set_above(tmp_path: Path) -> None:
    member(tmp_path, "0::/kubepods/pod7/run\n")
    group(tmp_path, "kubepods/pod7/run", memory_max="max", memory_current=GIB)
    group(tmp_path, "kubepods/pod7", memory_max=8 * GIB, memory_current=3 * GIB, memory_stat=f"inactive_file {GIB}")
    group(tmp_path, "kubepods", memory_max=32 * GIB, memory_current=4 * GIB)
    assert available(tmp_path) == 6 * GIB


def test_a_limit_of_version_1_counts(tmp_path: Path) -> None:
    member(tmp_path, "7:cpu,cpuacct:/a\n5:memory:/a/b\n")
    group(tmp_path, "memory/a/b", memory_limit_in_bytes=(1 << 63) - 4096, memory_usage_in_bytes=GIB)
    group(tmp_path, "memory/a", memory_stat=f"total_inactive_file {GIB // 2}")
    for name, value in (("limit", 4 * GIB), ("usage", 2 * GIB)):
        (tmp_path / f"sys/fs/cgroup/memory/a/memory.{name}_in_bytes").write_text(str(value))
    assert available(tmp_path) == 2 * GIB + GIB // 2


def test_a_path_of_the_host_falls_back_to_what_the_container_sees(tmp_path: Path) -> None:
    member(tmp_path, "0::/../../docker/abc\n")
    group(tmp_path, "", memory_max=GIB, memory_current=0)
    assert available(tmp_path) == GIB


def test_a_group_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    member(tmp_path, "0::/x\n")
    group(tmp_path, "x", memory_max=GIB, memory_current=2 * GIB)
    assert available(tmp_path) == 0
