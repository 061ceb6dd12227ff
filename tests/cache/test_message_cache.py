"""The parts joined: what a store sees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.cache.batch import Batch
from stratalog.cache.config import CacheConfig, TunedCacheConfig
from stratalog.cache.errors import CacheUnusable, InvalidCacheConfig
from stratalog.cache.message_cache import MessageCache

from ..seeds import draw_seed
from .helpers import batch_of, payload_of

MIB = 1 << 20


def test_all_tiers_serve_and_are_counted(tmp_path: Path) -> None:
    cache = MessageCache(
        CacheConfig(64 << 10, 64 << 10, 64 << 10, MIB, private_file_folder=tmp_path, persistent_folder=tmp_path)
    )
    rows = [(stream, offset, payload_of(stream, offset, 7_000)) for offset in range(10) for stream in range(5)]
    assert cache.fill(batch_of(rows)).all()
    for stream in range(5):
        assert cache.read(stream, 0, 10).payloads == [payload_of(stream, offset, 7_000) for offset in range(10)]
    stats = cache.stats()
    tiers = stats["tiers"]
    assert isinstance(tiers, dict)
    assert list(tiers) == ["heap", "off-heap", "private-file", "persistent"]
    assert all(tier["hit_messages"] > 0 for tier in tiers.values())
    assert sum(tier["hit_messages"] for tier in tiers.values()) == len(rows)
    assert sum(tier["filled_bytes"] for tier in tiers.values()) == 7_000 * len(rows)
    assert tiers["persistent"]["kind"] in ("map-sync", "shared")
    json.dumps(stats)
    cache.close()


def test_the_cache_ends_up_full_and_everything_under_the_threshold_is_in_it() -> None:
    """R17 and R18 together, as in the contest: capacity in use >= 99.5 %."""
    rng = np.random.default_rng(draw_seed())
    count, queues = 60_000, 500
    sizes, streams = rng.integers(100, 17 * 1024, count), rng.integers(0, queues, count)
    capacity = 64 * MIB
    cache = MessageCache(CacheConfig(off_heap_bytes=capacity, expected_bytes=int(sizes.sum())))
    payload, cached = bytes(17 * 1024), np.zeros(count, np.bool_)
    for begin in range(0, count, 512):
        part = slice(begin, min(begin + 512, count))
        starts = np.zeros(part.stop - begin, np.int64)
        cached[part] = cache.fill(Batch.of(streams[part], np.arange(begin, part.stop), sizes[part], payload, starts))
    assert cache.blocks.used_bytes >= 0.995 * cache.blocks.capacity_bytes
    assert cache.blocks.refused_messages <= 0.0005 * count
    closed_form = 17 * 1024 * np.sqrt(capacity / sizes.sum())
    small = sizes < 0.9 * closed_form
    assert cached[small].mean() >= 0.995


def test_what_is_not_cached_has_its_edges_kept() -> None:
    cache = MessageCache(TunedCacheConfig(off_heap_bytes=8192, block_bytes=4096, edge_bytes=64 << 10))
    rows = [(0, 0, payload_of(0, 0, 900)), (0, 1, payload_of(0, 1, 9_000))]
    assert cache.fill(batch_of(rows), positions=[4096 - 1000, 4096 - 100]).tolist() == [True, False]
    assert list(cache.read(0, 0, 2).offsets) == [0]
    edges = cache.read_edges(0, 0, 2)
    assert list(edges.offsets) == [1]
    assert edges.heads == [rows[1][2][:100]] and edges.tails == [rows[1][2][9_000 - (9_000 - 100) % 4096 :]]
    cache.release(0, 2)
    cache.fill(batch_of([(1, 0, b"another")]))
    assert not cache.read(0, 0, 2).offsets
    cache.fill(batch_of([(1, 1, bytes(9_000))]), positions=[4096 - 100])
    assert not cache.read_edges(0, 0, 2).offsets
    cache.close()


@pytest.mark.parametrize("off", ["heap", "off_heap", "private_file", "persistent"])
def test_any_tier_can_be_off(off: str, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {f"{name}_bytes": 64 << 10 for name in ("heap", "off_heap", "private_file", "persistent")}
    sizes[f"{off}_bytes"] = 0
    cache = MessageCache(TunedCacheConfig(**sizes, private_file_folder=tmp_path, persistent_folder=tmp_path))
    assert len(cache.blocks.counters) == 3 and cache.fill(batch_of([(0, 0, b"data")])).all()
    cache.close()


def test_all_off_is_a_cache_that_has_nothing() -> None:
    cache = MessageCache(CacheConfig(off_heap_bytes=0))
    assert not cache.fill(batch_of([(0, 0, b"data")]), positions=[0]).any()
    assert not cache.read(0, 0, 1).offsets and not cache.read_edges(0, 0, 1).offsets
    cache.release(0, 1)
    json.dumps(cache.stats())
    cache.close()


def test_a_missing_folder_is_an_error_at_open(tmp_path: Path) -> None:
    with pytest.raises(CacheUnusable, match="no such folder"):
        MessageCache(CacheConfig(persistent_bytes=MIB, persistent_folder=tmp_path / "missing"))


@pytest.mark.parametrize(
    "settings",
    [
        {"heap_bytes": -1},
        {"off_heap_bytes": 1.5},
        {"off_heap_bytes": None},
        {"persistent_bytes": MIB},
        {"private_file_bytes": MIB},
        {"block_bytes": 1000},
        {"block_bytes": 0},
        {"block_bytes": -512},
        {"block_bytes": 513},
        {"off_heap_bytes": True},
        {"expected_bytes": "1"},
        {"heap_bytes": 100},
        {"expected_bytes": -5},
        {"edge_bytes": 100},
        {"evict": "yes"},
        {"remainders": 1},
        {"readers": None},
        {"readers": "twice"},
        {"edges": 1},
        {"active_backlog_messages": True},
        {"persistent_folder": 5},
        {"off_heap_bytes": 1 << 60},
    ],
    ids=str,
)
def test_wrong_settings_are_refused_with_a_sentence_before_a_cache_is_made(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidCacheConfig) as caught:
        TunedCacheConfig(**settings)
    assert len(str(caught.value).split()) > 4
