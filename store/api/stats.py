"""The figures of lanes, caches and queues, for `stats()`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..log.queue import RequestQueue
from ..log.request import Request
from ..log.upkeep import Upkeep
from ..log.write_times import counts_of
from ..log.written_lane import WrittenLane
from ..read.caches import Caches
from ..read.feeder import Feeder
from ..recovery.repair import Loss
from ..shards.attacher import Attacher


def lane_figures(lanes: Sequence[WrittenLane], upkeep: Upkeep) -> dict[str, Any]:
    """The lanes' work, and the bytes and counts of their segments and tables."""
    log: dict[str, Any] = dict.fromkeys(vars(lanes[0].counters), 0)
    for lane in lanes:
        for name, value in vars(lane.counters).items():
            log[name] += value
    times = [lane.under_way.times for lane in lanes]
    log["write_ms"] = round(sum(one.total_ns for one in times) / 1e6, 3)
    log["writes_by_time"] = counts_of(times)
    segments = [lane.segment for lane in lanes if lane.segment is not None]
    log["direct_io"] = upkeep.direct and all(segment.writer.direct for segment in segments)
    log["block_bytes"] = max(lane.answered_block_bytes for lane in lanes)
    log["prewritten_bytes"] = upkeep.prewritten_bytes
    log["recycled_segments"] = upkeep.recycled_segments
    log["removed_segments"] = upkeep.removal.removed_segments
    views = [lane.view for lane in lanes]
    tables = [opened.table for view in views for opened in view.open]
    held = lanes[0].index_memory
    return {
        "lanes": len(lanes),
        "log": log,
        "last_background_error": upkeep.last_error,
        "segments": {
            "open": len(tables),
            "sealed": sum(len(view.sealed) for view in views),
            "spare": upkeep.spare_count(),
            "unsealed": sum(map(upkeep.sealer.waiting, lanes)),
            "failed_seals": upkeep.sealer.failures(),
        },
        "reserve": reserve_figures(upkeep),
        "queue_tables": {
            "open_bytes": sum(table.nbytes() for table in tables),
            "open_messages": sum(table.visible for table in tables),
            "sealed_bytes": held.frames.used_bytes + held.footers.used_bytes,
            "sealed_messages": sum(view.sealed_messages for view in views),
        },
        "recent_bytes": sum(lane.ring.size_bytes for lane in lanes),
    }


def reserve_figures(upkeep: Upkeep) -> dict[str, int]:
    """Bytes that the lanes keep for records alone, for a full disk; and how many lanes have none."""
    reserves = upkeep.reserves()
    return {
        "bytes": sum(reserve.size_bytes for reserve in reserves),
        "wanted_bytes": sum(max(reserve.size_bytes, reserve.nominal_bytes) for reserve in reserves),
        "lanes_without": sum(not reserve.size_bytes for reserve in reserves),
    }


def cache_figures(caches: Caches, feeder: Feeder | None) -> dict[str, Any]:
    """The work of the caches and their bytes, and how many messages came too fast for them."""
    return {**caches.stats(), "missed_messages": 0 if feeder is None else feeder.missed_messages}


def queue_figures(queues: Sequence[RequestQueue[Request]]) -> dict[str, Any]:
    """The fill of the publish buffer, in bytes."""
    return {
        "used_bytes": sum(queue.used_bytes for queue in queues),
        "cap_bytes": sum(queue.cap_bytes for queue in queues),
    }


def bulk_figures(attacher: Attacher | None) -> dict[str, Any]:
    """The bulk commits that were attached since the opening."""
    return {
        "commits": 0 if attacher is None else attacher.commits,
        "messages": 0 if attacher is None else attacher.messages,
    }


def recovery_figures(open_ms: float, scan_ms: float, scanned_bytes: int, losses: Sequence[Loss]) -> dict[str, Any]:
    """The figures of the opening."""
    return {
        "open_ms": round(open_ms, 3),
        "scan_ms": round(scan_ms, 3),
        "scanned_bytes": scanned_bytes,
        "losses": [loss._asdict() for loss in losses],
    }
