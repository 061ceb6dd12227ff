"""What the soak does next, drawn at random: settings, the fault, and how the child ends."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from typing import Any

from stratalog.store.testing import Kind

from .child import Plan

# How far the counter of a disk's faults goes: so many operations of the kind are made in a life, about.
DISK_KINDS: dict[Kind, int] = {
    "write": 400, "force": 400, "create": 12, "open": 40, "reserve": 12, "truncate": 12, "rename": 4, "remove": 6,
    "force_folder": 12, "read": 200,
}  # fmt: skip
WEIGHTS = {"kill": 4, "disk": 4, "file size": 2, "clock": 1, "close": 1}
QUEUE = "queue"  # lives of a store of its own, see `queue_child`
KINDS = (*WEIGHTS, QUEUE)
KIB = 1 << 10
SMALL_CACHE = {  # arguments of CacheConfig
    "heap_bytes": 64 * KIB,
    "off_heap_bytes": 256 * KIB,
    "block_bytes": 4 * KIB,
    "edge_bytes": 32 * KIB,
}


def settings(chance: random.Random, lanes: int) -> dict[str, Any]:
    """Small segments, so that they roll, are sealed, retired and recycled all the time."""
    return {
        "lanes": lanes,
        "durability": chance.choice(("force", "force", "force", "os")),
        "flush_interval_ms": chance.choice((5, 50, 1000)),
        "alignment": chance.choice(("pad", "trim", "adaptive")),
        "segment_bytes": chance.choice((64, 128, 256, 1024)) * KIB,
        "prewrite_bytes": chance.choice((0, 0, 256)) * KIB,
        "publish_buffer_bytes": chance.choice((64, 65_536)) * KIB,
        "max_message_bytes": 64 * KIB,
        "max_frame_bytes": chance.choice((16, 64)) * KIB,
        "recent_bytes": chance.choice((0, 4096)) * KIB,
        "retention_bytes": chance.choice((None, None, 512 * KIB)),
        "read_cache_bytes": chance.choice((0, 0, 256)) * KIB,
        "cache": chance.choice((None, None, SMALL_CACHE)),
        "direct_io": chance.choice((None, None, False)),
    }


def draw(
    chance: random.Random, path: str, lanes: int, number: int, seconds: float, kinds: Sequence[str] = tuple(WEIGHTS)
) -> tuple[Plan, float | None]:
    """A life, and after how many seconds it is killed (None: it closes by itself).

    The first lives of a soak are one of each kind.
    """
    kind = kinds[number] if number < len(kinds) else chance.choices(kinds, [WEIGHTS[one] for one in kinds])[0]
    plan = Plan(
        path, chance.getrandbits(32), settings(chance, lanes), producers=chance.choice((1, 4, 10, 40)),
        readers=chance.randrange(3), consumers=chance.randrange(3), seconds=chance.uniform(0.3, 1.0) * seconds,
        label=kind,
    )  # fmt: skip
    if kind == "disk":
        _break_disk(chance, plan)
    elif kind == "file size":
        plan.file_bytes = chance.randrange(KIB, plan.config["segment_bytes"] * 5 // 4)
    plan.clock = kind == "clock"
    dies = kind == "kill" or (kind != "close" and chance.random() < 0.5)
    return plan, chance.uniform(0.0, 1.2) * plan.seconds if dies else None


def draw_queue(chance: random.Random, path: str, lanes: int, seconds: float) -> tuple[Plan, float | None]:
    """A life of a queue of jobs, and after how many seconds it is killed."""
    config = {
        **settings(chance, lanes), "durability": "force", "publish_buffer_bytes": 64 << 20,
        "segment_bytes": chance.choice((512, 1024)) * KIB, "retention_bytes": None,
    }  # fmt: skip
    plan = Plan(path, chance.getrandbits(32), config, seconds=chance.uniform(0.5, 2.0) * seconds, label=QUEUE)
    return plan, chance.uniform(0.2, 1.0) * plan.seconds if chance.random() < 0.9 else None


def _break_disk(chance: random.Random, plan: Plan) -> None:
    kind = chance.choice(list(DISK_KINDS))
    error = chance.choice((errno.EIO, errno.ENOSPC))
    # Mostly early: a store meets its first errors where it makes what it needs.
    nth = max(1, int(DISK_KINDS[kind] * chance.random() ** 2))
    plan.disk_fault = {"kind": kind, "nth": nth, "error": error, "for_good": chance.random() < 0.5}
    plan.label = f"disk: {kind} {errno.errorcode[error]}"
