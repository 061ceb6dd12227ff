"""The layers that served reads: the ring of recent frames, a tier of the message cache, the read cache, the device."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...store import MessageStore
from ..machine.usage import device_bytes, moved_mb

LAYERS = {
    "ring": "the ring of recent frames", "heap": "the heap tier", "off-heap": "the off-heap tier",
    "private-file": "the private mapping", "persistent": "the persistent tier", "read cache": "the read cache",
    "device": "the device",
}  # fmt: skip
LOOK_S = 0.02
STILL_LOOKS = 15  # after so many looks without a change the cache is idle
GIVE_UP_S = 30.0


@dataclass(frozen=True)
class Mark:
    """The counters of a store and of the kernel at one moment."""

    stats: Mapping[str, Any]
    fetched_bytes: int | None

    @classmethod
    def now(cls, store: MessageStore) -> Mark:
        """The counters as they are."""
        return cls(store.stats(), device_bytes("read_bytes"))


def served(before: Mark, after: Mark) -> dict[str, float | None]:
    """Between two marks: "LAYER.messages" and "LAYER.percent" of each of LAYERS that is there, and what the device did.

    The device's messages are those that no memory had.
    """
    first, last = before.stats["reads"], after.stats["reads"]
    reads = {name: last[name] - first.get(name, 0) for name in last if name != "device_least_bytes"}
    tiers = {name: hits - _tier_hits(before).get(name, 0) for name, hits in _tier_hits(after).items()}
    # A tier also counts a hit for a copy that the store then refuses.
    memory = reads["recent_messages"] + reads["cached_messages"] + reads["read_ahead_messages"]
    layers = {
        "ring": reads["recent_messages"], **tiers, "read cache": reads["read_ahead_messages"],
        "device": max(0, reads["messages"] - memory),
    }  # fmt: skip
    return {
        "messages": reads["messages"],
        **{f"{name}.messages": messages for name, messages in layers.items()},
        **{f"{name}.percent": 100 * messages / max(1, reads["messages"]) for name, messages in layers.items()},
        "device_reads": reads["device_reads"],
        "device_mb": reads["device_bytes"] / 1e6,
        "kernel_mb": moved_mb(before.fetched_bytes, after.fetched_bytes),
        "unsound_messages": reads["unsound_messages"],
    }


def _tier_hits(mark: Mark) -> dict[str, int]:
    messages = mark.stats["cache"]["messages"]
    tiers = {} if messages is None else messages["tiers"]
    return {name: tier["hit_messages"] for name, tier in tiers.items()}


def cached_all(store: MessageStore) -> dict[str, float]:
    """Wait until the message cache has seen all appended messages. Returns its figures; none without a cache."""
    before, still, until = None, 0, time.monotonic() + GIVE_UP_S
    while still < STILL_LOOKS and time.monotonic() < until:
        held = _holding(store)
        if not held:
            return {}
        still = still + 1 if held == before else 0
        before = held
        time.sleep(LOOK_S)  # between two looks at what a thread of the store does
    return _holding(store)


def _holding(store: MessageStore) -> dict[str, float]:
    stats = store.stats()["cache"]
    messages = stats["messages"]
    if messages is None:
        return {}
    tiers = messages["tiers"]
    return {
        "capacity_mb": messages["capacity_bytes"] / 1e6,
        "used_percent": 100 * messages["used_bytes"] / max(1, messages["capacity_bytes"]),
        "filled_messages": sum(tier["filled_messages"] for tier in tiers.values()),
        "not_admitted_messages": messages["not_admitted_messages"],
        "refused_messages": messages["refused_messages"],
        "missed_messages": stats["missed_messages"],
        "all_below_bytes": messages["all_below_bytes"],  # every shorter message so far was cached
        **{f"{name}.used_mb": tier["used_bytes"] / 1e6 for name, tier in tiers.items()},
    }
