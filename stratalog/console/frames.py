"""A frame of `stratalog top`: what a store did between two looks at its figures, ready for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..perf.report.figures import Figures
from ..store import FolderWatch

SOURCES: Final = {"ring": "recent", "cache": "cached", "read_ahead": "read_ahead", "device": "device"}
QUANTILES: Final = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


def frames(watch: FolderWatch) -> Iterator[Figures]:
    """Yield the frames of a store as they come. Raises StoreUnusable when its process has ended."""
    before = watch.next()
    while True:
        now = watch.next()
        if is_later(before, now):
            yield frame_of(before, now)
        before = now


def frame_of(before: Figures, now: Figures) -> Figures:
    """The frame between two figures of one opening; see docs/reference/metrics.md. A rate is None without a time."""
    seconds = (now["at_ms"] - before["at_ms"]) / 1000
    rates = _Rates(before, now, seconds)
    log = {
        name: rates.grown("log", name) for name in ("messages", "frames", "forces", "written_bytes", "payload_bytes")
    }
    return {
        "at_ms": now["at_ms"],
        "pid": now["pid"],
        "path": now["path"],
        "seconds": round(seconds, 3),
        "durability": now["durability"],
        "poisoned": now["poisoned"],
        "background_error": now["last_background_error"],
        "streams": now["streams"],
        "lanes": now["lanes"],
        "appends": {
            "messages_per_s": rates.of("log", "messages"),
            "payload_bytes_per_s": rates.of("log", "payload_bytes"),
            "written_bytes_per_s": rates.of("log", "written_bytes"),
            "forces_per_s": rates.of("log", "forces"),
            "messages_a_frame": _ratio(log["messages"], log["frames"]),
            "messages_a_force": _ratio(log["messages"], log["forces"]),
            "write_amplification": _ratio(log["written_bytes"], log["payload_bytes"]),
        },
        "writes": _write_times(before, now, seconds),
        "publish_buffer": dict(now["publish_buffer"]),
        "reads": _reads(rates),
        "tiers": _tiers(before, now, seconds),
        "segments": dict(now["segments"]),
        "retention": {**now["retention"], "removed_segments_per_s": rates.of("log", "removed_segments")},
        "topics": _topics(before, now, seconds),
        "subscriptions": _subscriptions(before, now, seconds),
        "delayed": _delayed(now),
        "lost": {name: now["subscriptions"].get(name, 0) for name in ("removed_unacknowledged", "expired")},
        "left_out": dict(now["named"]["left_out"]),
    }


def is_later(before: Figures, now: Figures) -> bool:
    """Whether both are of one opening: what has grown did so between them."""
    return before["pid"] == now["pid"] and all(
        now["log"][name] >= before["log"][name] for name in ("messages", "written_bytes", "frames", "forces")
    )


class _Rates:
    """How much counters have grown between two looks."""

    def __init__(self, before: Figures, now: Figures, seconds: float) -> None:
        self._before, self._now, self._seconds = before, now, seconds

    def grown(self, part: str, name: str) -> int:
        """By how much."""
        found: int = self._now[part][name] - self._before[part][name]
        return max(0, found)

    def of(self, part: str, name: str) -> float | None:
        """How much a second."""
        return _per_s(self.grown(part, name), self._seconds)


def _per_s(count: float, seconds: float) -> float | None:
    return round(count / seconds, 1) if seconds > 0 else None


def _ratio(count: float, of: float) -> float | None:
    return round(count / of, 2) if of else None


def _write_times(before: Figures, now: Figures, seconds: float) -> Figures:
    """How many writes there were, and their times in ms: the mean, and each quantile as a bound that it is below."""
    pairs = zip(now["log"]["writes_by_time"], before["log"]["writes_by_time"], strict=True)
    counts = [max(0, later - earlier) for later, earlier in pairs]
    total, spent_ms = sum(counts), now["log"]["write_ms"] - before["log"]["write_ms"]
    found: Figures = {"per_s": _per_s(total, seconds), "mean_ms": round(spent_ms / total, 3) if total else None}
    for name, quantile in QUANTILES.items():
        found[f"{name}_below_ms"] = _below_ms(counts, quantile * total) if total else None
    return found


def _below_ms(counts: Sequence[int], wanted: float) -> float | None:
    """The bound of the level in which so many counts are reached; None in the last one, which has no bound."""
    reached = 0
    for level, count in enumerate(counts[:-1]):
        reached += count
        if count and reached >= wanted:
            return 2.0**level / 1000
    return None


def _reads(rates: _Rates) -> Figures:
    grown = {source: rates.grown("reads", f"{name}_messages") for source, name in SOURCES.items()}
    total = sum(grown.values())
    return {
        "messages_per_s": rates.of("reads", "messages"),
        "bytes_per_s": rates.of("reads", "bytes"),
        "device_bytes_per_s": rates.of("reads", "device_bytes"),
        "share": {source: round(count / total, 4) if total else None for source, count in grown.items()},
    }


def _tiers(before: Figures, now: Figures, seconds: float) -> list[Figures]:
    """The ring and the tiers of the cache: bytes in use, and messages that were read from each."""
    ring_hits = max(0, now["reads"]["recent_messages"] - before["reads"]["recent_messages"])
    found = [{
        "tier": "ring", "capacity_bytes": now["recent_bytes"], "used_bytes": None,
        "hits_per_s": _per_s(ring_hits, seconds),
    }]  # fmt: skip
    tiers = [(figures["cache"]["messages"] or {}).get("tiers", {}) for figures in (before, now)]
    for name, tier in tiers[1].items():
        hits = tier["hit_messages"] - tiers[0].get(name, tier)["hit_messages"]
        found.append({
            "tier": name, "capacity_bytes": tier["capacity_bytes"], "used_bytes": tier["used_bytes"],
            "hits_per_s": _per_s(max(0, hits), seconds),
        })  # fmt: skip
    return found


def _topics(before: Figures, now: Figures, seconds: float) -> list[Figures]:
    """The topics by what they got, the most first."""
    known = {row["topic"]: row["appended"] for row in before["named"]["topics"]}
    rows = [
        {**row, "messages_per_s": _per_s(max(0, row["appended"] - known.get(row["topic"], row["appended"])), seconds)}
        for row in now["named"]["topics"]
    ]
    return sorted(rows, key=lambda row: (-(row["messages_per_s"] or 0), row["topic"]))


def _subscriptions(before: Figures, now: Figures, seconds: float) -> list[Figures]:
    """The subscriptions by their backlogs, the largest first.

    `acknowledged_per_s` is what came to the topic less what the backlog has grown by: what a trim or retention took
    counts, too. None if the topic has no row.
    """
    appended = [{row["topic"]: row["appended"] for row in one["named"]["topics"]} for one in (before, now)]
    known = {(row["topic"], row["subscription"]): row["unacknowledged"] for row in before["named"]["subscriptions"]}
    rows = []
    for row in now["named"]["subscriptions"]:
        topic, name, left = row["topic"], row["subscription"], row["unacknowledged"]
        rate = None
        if (topic, name) in known and all(topic in one for one in appended):
            came = appended[1][topic] - appended[0][topic]
            rate = _per_s(max(0, came - left + known[topic, name]), seconds)
        rows.append({**row, "acknowledged_per_s": rate})
    return sorted(rows, key=lambda row: (-row["unacknowledged"], row["topic"], row["subscription"]))


def _delayed(now: Figures) -> list[Figures]:
    """The topics with delayed messages, by their number."""
    found: list[tuple[str, Mapping[str, Any]]] = list(now["delayed"].items())
    names = "pending", "next_due_ms", "ready", "memory_bytes", "disk_bytes", "kept_bytes", "copies_bytes", "damaged"
    rows = [{"topic": topic, **{name: row.get(name) for name in names}} for topic, row in found]
    return sorted(rows, key=lambda row: (-(row["pending"] or 0), row["topic"]))
