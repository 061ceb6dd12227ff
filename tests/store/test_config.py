"""Settings out of their range are refused, each by its name."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from store import InvalidConfig, StoreConfig

BAD: list[tuple[str, Any]] = [
    ("lanes", 0), ("lanes", 65), ("lanes", True), ("lanes", 1.0), ("lanes", "1"), ("lanes", None),
    ("flush_interval_ms", 0), ("flush_interval_ms", -1),
    ("segment_bytes", 0), ("segment_bytes", 4096), ("segment_bytes", (64 << 10) + 1), ("segment_bytes", 1 << 32),
    ("prewrite_bytes", -1), ("publish_buffer_bytes", 0), ("append_timeout_ms", -1),
    ("max_message_bytes", 0), ("max_message_bytes", 1 << 40), ("max_frame_bytes", 0), ("recent_bytes", -1),
    ("retention_ms", -1), ("retention_ms", "1 day"), ("retention_bytes", -1), ("retention_bytes", 1.5),
    ("durability", "FORCE"), ("durability", None), ("alignment", "none"), ("alignment", 1),
    ("direct_io", "yes"), ("direct_io", 2),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD)
def test_bad_setting_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidConfig, match=name):
        StoreConfig(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lanes", 64), ("segment_bytes", 64 << 10), ("segment_bytes", (1 << 32) - (1 << 20)), ("recent_bytes", 0),
        ("append_timeout_ms", 0), ("retention_ms", 0), ("retention_ms", None), ("retention_bytes", 0),
        ("direct_io", True), ("direct_io", False), ("durability", "os"), ("alignment", "trim"),
    ],
)  # fmt: skip
def test_setting_at_the_end_of_its_range_is_taken(name: str, value: Any) -> None:
    assert getattr(StoreConfig(**{name: value}), name) == value


def test_settings_cannot_be_changed_later() -> None:
    config: Any = StoreConfig()
    with pytest.raises(FrozenInstanceError):
        config.lanes = 2


def test_defaults_are_the_documented_ones() -> None:
    config = StoreConfig()
    assert (config.lanes, config.durability, config.alignment) == (1, "force", "adaptive")
    assert config.append_timeout_ms == 30_000
    assert config.retention_ms is None
    assert config.retention_bytes is None
