"""Settings out of their range are refused, each by its name."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.cache import CacheConfig as AnyCacheConfig
from stratalog.store import CacheConfig, InvalidConfig, MessageStore, StoreConfig
from stratalog.store.testing import TunedCacheConfig, TunedConfig

BAD: list[tuple[str, Any]] = [
    ("lanes", 0), ("lanes", 65), ("lanes", True), ("lanes", 1.0), ("lanes", "1"),
    ("flush_interval_ms", 0), ("flush_interval_ms", -1),
    ("segment_bytes", 0), ("segment_bytes", 4096), ("segment_bytes", (64 << 10) + 1), ("segment_bytes", 1 << 32),
    ("prewrite_bytes", -1), ("publish_buffer_bytes", 0), ("append_timeout_ms", -1),
    ("max_message_bytes", 0), ("max_message_bytes", 1 << 40), ("max_frame_bytes", 0), ("recent_bytes", -1),
    ("retention_ms", -1), ("retention_ms", "1 day"), ("retention_bytes", -1), ("retention_bytes", 1.5),
    ("durability", "FORCE"), ("durability", None), ("alignment", "none"), ("alignment", 1),
    ("direct_io", "yes"), ("direct_io", 2), ("direct_io", 1), ("read_cache_bytes", 100), ("read_cache_bytes", False),
    ("cache", "all"), ("cache", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD)
def test_bad_setting_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidConfig, match=name):
        TunedConfig(**{name: value})


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({}, 2 << 20),
        ({"max_frame_bytes": 64 << 10}, 64 << 10),
        ({"segment_bytes": 6 << 20}, 3 << 19),
        ({"segment_bytes": 4 << 20}, 1 << 20),
        ({"segment_bytes": 64 << 10}, 1 << 20),
    ],
)
def test_frames_are_smaller_in_small_segments(settings: dict[str, int], size: int) -> None:
    assert TunedConfig(**settings).frame_bytes == size  # type: ignore[arg-type]


def test_a_small_segment_is_not_half_empty(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, StoreConfig(segment_bytes=4 << 20)) as store:
        store.append_columns([("t", 0)], np.zeros(24_000, int), np.full(24_000, 1000), bytes(24_000_000))
        assert len([*tmp_path.rglob("*.seg")]) <= 10  # of 3 frames each, and a spare; with 2 MiB there were 13


def odd_values() -> list[Any]:
    view = memoryview(b"gone")
    view.release()

    class Raising:
        def __eq__(self, other: object) -> bool:
            raise NotImplementedError("eq")

        __hash__ = object.__hash__

        def __len__(self) -> int:
            raise NotImplementedError("len")

        def __repr__(self) -> str:
            raise NotImplementedError("repr")

    return [view, np.zeros(3), np.zeros(0), Raising(), [], object, float("nan"), 10**5000, -(10**5000), b"force"]


@pytest.mark.parametrize("name", [field.name for field in fields(TunedConfig)])
def test_odd_value_of_any_type_is_refused_by_its_name(name: str) -> None:
    for value in odd_values():
        with pytest.raises(InvalidConfig, match=name):
            TunedConfig(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lanes", 64), ("lanes", None), ("segment_bytes", 64 << 10), ("segment_bytes", (1 << 32) - (1 << 20)),
        ("recent_bytes", 0),
        ("append_timeout_ms", 0), ("retention_ms", 0), ("retention_ms", None), ("retention_bytes", 0),
        ("direct_io", True), ("direct_io", False), ("durability", "os"), ("alignment", "trim"),
    ],
)  # fmt: skip
def test_setting_at_the_end_of_its_range_is_taken(name: str, value: Any) -> None:
    assert getattr(TunedConfig(**{name: value}), name) == value


def test_direct_io_that_durability_os_would_ignore_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="direct_io"):
        TunedConfig(direct_io=True, durability="os")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("heap_bytes", -1), ("block_bytes", 1000), ("block_bytes", 256), ("off_heap_bytes", 100), ("edge_bytes", 511),
        ("evict", "yes"), ("evict", 1), ("remainders", None), ("readers", 0), ("readers", "all"), ("edges", 0),
        ("active_backlog_messages", 1.0), ("private_file_folder", 5), ("persistent_bytes", 1 << 20),
        ("expected_bytes", -1), ("off_heap_bytes", 1 << 60),
    ],
)  # fmt: skip
def test_bad_setting_of_the_cache_is_refused_when_it_is_made(name: str, value: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"_bytes" if name == "off_heap_bytes" else name):
        TunedCacheConfig(**{name: value})


def test_settings_of_the_cache_are_taken(tmp_path: Path) -> None:
    config = TunedCacheConfig(evict=False, expected_bytes=1 << 20, edge_bytes=512, persistent_folder=str(tmp_path))
    assert StoreConfig(cache=config).cache is config
    assert config.evicts is False
    assert pickle.loads(pickle.dumps(config)) == config


def test_there_are_twenty_settings_at_the_most_and_others_are_for_tests() -> None:
    public = [field.name for kind in (StoreConfig, CacheConfig) for field in fields(kind)]
    tuned = [field.name for kind in (TunedConfig, TunedCacheConfig) for field in fields(kind)]
    assert len(public) <= 20
    kinds: list[tuple[Any, Any]] = [(StoreConfig, StoreConfig), (CacheConfig, AnyCacheConfig)]
    for kind, described in kinds:
        assert all(field.name in str(described.__doc__) for field in fields(kind))
        for name in set(tuned) - set(public):
            assert not hasattr(kind, name)
            with pytest.raises(TypeError, match=name):
                kind(**{name: 1})


def test_settings_cannot_be_changed_later() -> None:
    config: Any = StoreConfig()
    with pytest.raises(FrozenInstanceError):
        config.lanes = 2


def test_defaults_are_the_documented_ones() -> None:
    config = TunedConfig.of(StoreConfig())
    assert (config.lanes, config.durability, config.alignment) == (None, "force", "adaptive")
    assert config.append_timeout_ms == 30_000
    assert config.retention_ms is None
    assert config.retention_bytes is None


class OwnSettings(StoreConfig):
    """A program's own, made of other arguments."""

    def __init__(self, name: str) -> None:
        super().__init__(segment_bytes=len(name) << 20)


def test_settings_of_a_subclass_are_taken_and_say_what_is_in_force(tmp_path: Path) -> None:
    MessageStore.open(tmp_path, StoreConfig(lanes=3)).close()
    with MessageStore.open(tmp_path, OwnSettings("m")) as store:
        assert isinstance(store.config, OwnSettings)
        assert (store.config.lanes, store.config.segment_bytes) == (3, 1 << 20)
