"""Which segments retention would remove: what `Removal` goes by, as a list."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from ..config import StoreConfig

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
        total += lane.view.sealed_bytes
        total += sum([opened.segment.header.capacity_bytes for opened in lane.view.open])
    return total


def expired_segments(lanes: Sequence[Lane], config: StoreConfig, now_ms: int, more_bytes: int) -> list[SealedSegment]:
    """The segments whose time has come, of all lanes: by their age, and the oldest of those beyond the bytes.

    Each lane keeps its newest sealed segment. `more_bytes` may be held beside `retention_bytes`. Only the segments that
    are found are looked at, and one more of each lane.
    """
    found: list[SealedSegment] = []
    rest: list[tuple[int, int, int]] = []  # the oldest one of each lane that is left: its age, its lane, its number
    views = [lane.view.sealed for lane in lanes]
    limit = -1 if config.retention_ms is None else now_ms - config.retention_ms
    for lane, sealed in enumerate(views):
        for at in range(len(sealed) - 1):
            age = sealed[at].record.newest_ms
            if age >= limit:
                heappush(rest, (age, lane, at))
                break
            found.append(sealed[at])
    if config.retention_bytes is not None:
        excess = held_bytes(lanes) - sum(map(size_of, found)) - config.retention_bytes - more_bytes
        while rest and excess > 0:
            _, lane, at = heappop(rest)
            sealed = views[lane]
            found.append(sealed[at])
            excess -= size_of(sealed[at])
            if at + 2 < len(sealed):
                heappush(rest, (sealed[at + 1].record.newest_ms, lane, at + 1))
    return found
