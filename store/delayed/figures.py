"""The figures of a topic's delayed messages, for `stats()`."""

from __future__ import annotations

from typing import Any

from .topic import DelayedTopic


def figures_of(topic: DelayedTopic) -> dict[str, Any]:
    """Counts, plain and JSON-ready; bytes and times have their unit in the name."""
    with topic.lock:
        tracker = topic.tracker.stats()  # first: it may have to be made anew
        return {
            "pending": tracker["pending"],
            "next_due_ms": topic.tracker.next_deadline_ms,
            "cancelled": len(topic.changes.cancelled),
            "moved": len(topic.changes.moved),
            "moved_and_come": len(topic.changes.come),
            "ready": topic.ready,
            "pointers": topic.pointers,
            "is_behind": topic.is_behind,
            "rebuilds": topic.rebuilds,
            "last_rebuild": topic.last_rebuild,
            "last_error": topic.last_error,
            "damaged": None,
            "damaged_frames": topic.damaged_frames,
            "mended_messages": topic.mended_messages,
            "paused": topic.should_pause_all_deliveries,
            "memory_limit_bytes": topic.memory.limit_bytes,
            "precision_ms": topic.tracker.latest_ms,
            "memory_bytes": tracker["memory_bytes"] + topic.changes.memory_bytes,
            "disk_bytes": tracker["disk_bytes"],
            "buckets": tracker["buckets"],
            "copies": len(topic.copies),
            "copies_damaged": topic.copies.damaged,
            "copies_bytes": topic.copies.size_bytes,
        }
