"""The layers that served reads: the ring of recent frames, a tier of the message cache, the read cache, the device."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...store import MessageStore
from ..machine.usage import device_bytes, moved_mb
from .figures import Figures

DRAM = ("heap", "off-heap", "private-file")
LOOK_S = 0.02
STILL_LOOKS = 15  # after so many looks without a change the cache is idle
GIVE_UP_S = 30.0
SHORT_LOOK_S, SOON_S = 0.001, 0.3


@dataclass(frozen=True)
class Mark:
    """The counters of a store and of the kernel at one moment."""

    stats: Mapping[str, Any]
    fetched_bytes: int | None

    @classmethod
    def now(cls, store: MessageStore) -> Mark:
        """The counters as they are."""
        return cls(store.stats(), device_bytes("read_bytes"))


def served(before: Mark, after: Mark) -> Figures:
    """Between two marks: `layers`, name -> messages, share and bytes of payload; and what the device did.

    The device's messages are those that no memory had. Bytes are None if the store does not count them.
    """
    first, last = _reads(before), _reads(after)
    least = last.pop("device_least_bytes", None)  # no counter: the shortest message since the store was opened
    reads = {name: count - first.get(name, 0) for name, count in last.items()}
    hits = _tier_hits(after)
    for name, (messages, size) in _tier_hits(before).items():
        hits[name] = (hits[name][0] - messages, hits[name][1] - size)
    layers: dict[str, tuple[int, int | None]] = {"ring": (reads["recent_messages"], reads.get("recent_bytes"))}
    layers |= hits
    layers["read cache"] = (reads["read_ahead_messages"], reads.get("read_ahead_bytes"))
    # A tier also counts a hit for a copy that the store then refuses.
    memory = reads["recent_messages"] + reads["cached_messages"] + reads["read_ahead_messages"]
    layers["device"] = (max(0, reads["messages"] - memory), reads.get("device_payload_bytes"))
    edges, edges_before = _edge_hits(after), _edge_hits(before)
    return {
        "layers": {
            name: {"messages": messages, "share": messages / max(1, reads["messages"]), "bytes": size}
            for name, (messages, size) in layers.items()
        },
        "messages": reads["messages"],
        "dram_share": _share(layers, DRAM, reads["messages"]),
        "ring_and_dram_share": _share(layers, ("ring", *DRAM), reads["messages"]),
        "memory_share": memory / max(1, reads["messages"]),
        "device_reads": reads["device_reads"],
        "device_mb": reads["device_bytes"] / 1e6,
        "device_messages": reads["device_messages"],
        "device_least_bytes": least,
        "kernel_read_mb": moved_mb(before.fetched_bytes, after.fetched_bytes),
        "edge_messages": edges[0] - edges_before[0],
        "edge_mb": (edges[1] - edges_before[1]) / 1e6,
        "unsound_messages": reads["unsound_messages"],
    }


def _reads(mark: Mark) -> dict[str, int]:
    return dict(mark.stats["reads"])


def _tier_hits(mark: Mark) -> dict[str, tuple[int, int]]:
    """Tier -> (messages, bytes)."""
    messages = mark.stats["cache"]["messages"]
    return _hits({} if messages is None else messages["tiers"])


def _edge_hits(mark: Mark) -> tuple[int, int]:
    messages = mark.stats["cache"]["messages"]
    found = _hits({} if messages is None else messages["edges"].get("tiers", {})).values()
    return sum(count for count, _ in found), sum(size for _, size in found)


def _hits(tiers: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    return {name: (tier["hit_messages"], tier["hit_bytes"]) for name, tier in tiers.items()}


def _share(layers: Mapping[str, tuple[int, int | None]], names: Iterable[str], messages: int) -> float:
    return sum(layers[name][0] for name in names if name in layers) / max(1, messages)


def rows(figures: Figures) -> list[Figures]:
    """The rows of a table, one for each layer."""
    return [
        {
            "served by": name,
            "messages": layer["messages"],
            "% of messages": 100 * layer["share"],
            "MB": None if layer["bytes"] is None else layer["bytes"] / 1e6,
        }
        for name, layer in figures["layers"].items()
    ]


def device_pairs(figures: Figures) -> Figures:
    """Figures of the device's side, and of the edges."""
    names = ("dram_share", "ring_and_dram_share", "device_reads", "device_mb", "device_least_bytes")
    return {name: figures[name] for name in (*names, "kernel_read_mb", "edge_messages", "edge_mb", "unsound_messages")}


def cached_all(store: MessageStore) -> Figures:
    """Wait until the message cache has seen all appended messages. Returns its figures."""
    before, still, until = None, 0, time.monotonic() + GIVE_UP_S
    while still < STILL_LOOKS and time.monotonic() < until:
        stats = store.stats()["cache"]
        if stats["messages"] is None:
            return {}
        seen = (_filled(stats), stats["missed_messages"], stats["messages"]["not_admitted_messages"])
        still = still + 1 if seen == before else 0
        before = seen
        time.sleep(LOOK_S)  # between two looks at what a thread of the store does
    return holding(store)


def seen_messages(store: MessageStore) -> int:
    """Appended messages that the message cache has seen, or has missed."""
    held = holding(store)
    names = ("filled_messages", "not_admitted_messages", "refused_messages", "missed_messages")
    return sum(held[name] for name in names) if held else 0


def wait_until_seen(store: MessageStore, messages: int) -> None:
    """Wait a moment at most until the cache has seen so many; some are never counted."""
    until = time.monotonic() + SOON_S
    while seen_messages(store) < messages and time.monotonic() < until:
        time.sleep(SHORT_LOOK_S)


def holding(store: MessageStore) -> Figures:
    """The figures of the message cache, held and refused; empty without one."""
    stats = store.stats()["cache"]
    messages = stats["messages"]
    if messages is None:
        return {}
    return {
        "capacity_bytes": messages["capacity_bytes"],
        "used_bytes": messages["used_bytes"],
        "used_part": messages["used_bytes"] / max(1, messages["capacity_bytes"]),
        "threshold_bytes": messages["threshold_bytes"],
        "filled_messages": _filled(stats),
        "filled_bytes": sum(tier["filled_bytes"] for tier in messages["tiers"].values()),
        "not_admitted_messages": messages["not_admitted_messages"],
        "not_admitted_bytes": messages["not_admitted_bytes"],
        "refused_messages": messages["refused_messages"],
        "missed_messages": stats["missed_messages"],
        "all_below_bytes": messages["all_below_bytes"],  # every shorter message so far was cached
        "tiers": {
            name: {"kind": tier["kind"], "capacity_mb": tier["capacity_bytes"] / 1e6,
                   "used_mb": tier["used_bytes"] / 1e6}
            for name, tier in messages["tiers"].items()
        },
        "error": stats["error"],
    }  # fmt: skip


def _filled(stats: Mapping[str, Any]) -> int:
    return sum(tier["filled_messages"] for tier in stats["messages"]["tiers"].values())
