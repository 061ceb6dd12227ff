"""How many bytes a run lets the store write ahead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perf.rawfile import round_up
from store import StoreConfig

SEGMENT_BYTES_MIN = 1 << 20
SPACE_PART = 1.5


def space_bytes(payload_bytes: float) -> float:
    """Free space that a store of that payload takes at most: with columns, footers, padding, and segments ahead."""
    return SPACE_PART * payload_bytes + 2 * min(payload_bytes, StoreConfig().segment_bytes)


def prewritten(size_bytes: float, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """StoreConfig's arguments so that `size_bytes` stand pre-written over all lanes (R7).

    Segments are at most the default size; smaller for small runs, so that these don't write 256 MiB ahead a
    lane.
    """
    given = dict(settings or {})
    default = StoreConfig()
    a_lane = round_up(int(size_bytes) // given.get("lanes", 1))
    segment = max(SEGMENT_BYTES_MIN, min(default.segment_bytes, a_lane))
    return {"prewrite_bytes": int(size_bytes), "segment_bytes": segment, **given}
