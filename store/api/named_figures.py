"""Figures for `metrics()` beside those of `stats()`: topics and subscriptions by name, and what retention holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

from ..config import StoreConfig
from ..log.lane import Lane
from ..log.retention import held_bytes
from ..log.streams import Stream
from ..metrics.family import MOST_NAMED
from ..subscriptions.registry import Subscriptions

MOST_QUEUES: Final = 1024  # that one look counts, of topics and again of subscriptions


def topic_rows(topics: Mapping[str, Mapping[int, Stream]]) -> list[dict[str, Any]]:
    """A row for each of the topics that were known first: `topic`, `queues`, and `appended`, the sum of the offsets
    that come next. Deleted topics have none, nor those with more queues than are left to be counted.
    """
    found, left = [], MOST_QUEUES
    for topic in list(islice(topics, MOST_NAMED)):  # one step: it makes no other object
        queues = topics.get(topic, {})
        if len(queues) > left:
            continue
        left -= len(queues)
        streams = [stream for stream in list(queues.values()) if not stream.is_deleted]
        if streams:
            appended = sum([stream.next_offset for stream in streams])
            found.append({"topic": topic, "queues": len(streams), "appended": appended})
    return found


def named_figures(
    topics: Mapping[str, Mapping[int, Stream]], subscriptions: Subscriptions | None, delayed: tuple[int, int]
) -> dict[str, Any]:
    """The rows of topics and subscriptions, and how many have none; `delayed`: topics with delays, and those shown."""
    of_topics = topic_rows(topics)
    rows = [] if subscriptions is None else subscriptions.watched.rows(MOST_NAMED, MOST_QUEUES)
    known = 0 if subscriptions is None else subscriptions.count
    return {
        "topics": of_topics,
        "subscriptions": rows,
        "left_out": {
            "topics": len(topics) - len(of_topics),
            "subscriptions": max(0, known - len(rows)),
            "delayed": max(0, delayed[0] - delayed[1]),
        },
    }


def retention_figures(lanes: Sequence[Lane], config: StoreConfig, now_ms: int) -> dict[str, Any]:
    """What the log holds and may hold: bytes, and the age of the newest message of the oldest sealed segment in ms."""
    oldest = [view.sealed[0].record.newest_ms for view in [lane.view for lane in lanes] if view.sealed]
    return {
        "log_bytes": held_bytes(lanes),
        "limit_bytes": config.retention_bytes,
        "limit_ms": config.retention_ms,
        "oldest_age_ms": max(0, now_ms - min(oldest)) if oldest else None,
    }
