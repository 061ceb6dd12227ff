"""The bytes that a run pre-writes, and the free space that it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...store import StoreConfig

BLOCK_BYTES = 4096
SEGMENT_BYTES_MIN = 1 << 20
SPACE_PART = 1.5


def space_bytes(payload_bytes: float) -> float:
    """Free space that a store of that payload takes at most: columns, footers, padding and segments ahead included."""
    return SPACE_PART * payload_bytes + 2 * min(payload_bytes, StoreConfig().segment_bytes)


def prewritten(size_bytes: float, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """StoreConfig's arguments so that `size_bytes` are pre-written over all lanes (R7).

    Segments have the default size at most. A small run has smaller ones, so it does not write 256 MiB ahead a lane.
    """
    given = dict(settings or {})
    default = StoreConfig()
    a_lane = math.ceil(size_bytes / (given.get("lanes") or 1) / BLOCK_BYTES) * BLOCK_BYTES
    segment = max(SEGMENT_BYTES_MIN, min(default.segment_bytes, a_lane))
    return {"prewrite_bytes": int(size_bytes), "segment_bytes": segment, **given}
