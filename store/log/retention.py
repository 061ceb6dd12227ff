"""Which segments retention would remove: what `Removal` goes by, as a list."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..config import StoreConfig
from ..errors import StoreCorrupt

if TYPE_CHECKING:
    from ..segment.sealed import SealedSegment
    from .lane import Lane


def size_of(sealed: SealedSegment) -> int:
    """Bytes of a sealed segment on disk."""
    return sealed.record.footer_position + sealed.record.footer_bytes


def held_bytes(lanes: Sequence[Lane]) -> int:
    """Bytes of all segments in use."""
    total = 0
    for lane in lanes:
        total += sum(map(size_of, lane.view.sealed))
        total += sum(opened.segment.header.capacity_bytes for opened in lane.view.open)
    return total


def newest_ms(segments: Sequence[SealedSegment]) -> int:
    """When the newest message of the first of some segments, which are all of a lane, was written.

    Where damage hides it, it counts as being as young as the first one that tells. The newest segment counts as young
    in any case: retention by age then leaves them all.
    """
    for sealed in segments:
        with contextlib.suppress(StoreCorrupt):
            return int(sealed.footer.time_max_ms)
    return sys.maxsize


def expired_segments(lanes: Sequence[Lane], config: StoreConfig, now_ms: int, more_bytes: int) -> list[SealedSegment]:
    """The segments whose time has come, of all lanes: by their age, and the oldest of those beyond the bytes.

    Each lane keeps its newest sealed segment. `more_bytes` may be held beside `retention_bytes`.
    """
    found: list[SealedSegment] = []
    rest: list[tuple[int, SealedSegment]] = []
    for lane in lanes:
        sealed = lane.view.sealed
        ages = [newest_ms(sealed[at:]) for at in range(len(sealed) - 1)]
        limit = -1 if config.retention_ms is None else now_ms - config.retention_ms
        count = next((at for at, age in enumerate(ages) if age >= limit), len(ages))
        found += sealed[:count]
        rest += list(zip(ages[count:], sealed[count:], strict=False))
    if config.retention_bytes is not None:
        excess = held_bytes(lanes) - sum(map(size_of, found)) - config.retention_bytes - more_bytes
        for _, sealed_one in sorted(rest, key=lambda pair: pair[0]):
            if excess <= 0:
                break
            found.append(sealed_one)
            excess -= size_of(sealed_one)
    return found
