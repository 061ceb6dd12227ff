"""Figures for `metrics()` beside those of `stats()`: topics and subscriptions by name, and what retention holds."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from ..config import StoreConfig
from ..log.lane import Lane
from ..log.retention import held_bytes
from ..log.streams import Stream
from ..metrics.family import MOST_NAMED
from ..subscriptions.registry import Subscriptions

MOST_QUEUES: Final = 1024  # that one look counts, of topics and again of subscriptions
MOST_LOOKED: Final = 256  # topics without figures, a look


class NamedTopics:
    """The topics that have figures of their own: those that were known first, without deleted ones.

    A look goes to those, to the newest topics and to some of the others, in turns: so a deleted topic is found and
    gives its place to another, however many topics there are. A topic that is found deleted is not left out.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: list[str] = []  # the topics, the oldest first; in a writer none goes while the store is open
        self._next = 0  # of them, where the next turn begins
        self._named: dict[str, None] = {}
        self._deleted: set[str] = set()

    def rows(self, topics: dict[str, dict[int, Stream]]) -> tuple[list[dict[str, Any]], int]:
        """A row for each of the topics: `topic`, `queues`, and `appended`, the sum of the offsets that come next; and
        how many have none. Those with more queues than are left to be counted have none either.
        """
        with self._lock:
            self._look(topics)
            found, left = [], MOST_QUEUES
            for topic in list(self._named):
                queues = topics.get(topic, {})
                if len(queues) > left:
                    continue
                left -= len(queues)
                streams = [stream for stream in list(queues.values()) if not stream.is_deleted]
                self._note(topic, is_deleted=not streams)
                if streams:
                    appended = sum([stream.next_offset for stream in streams])
                    found.append({"topic": topic, "queues": len(streams), "appended": appended})
            return found, max(0, len(self._known) - len(self._deleted) - len(found))

    def _look(self, topics: dict[str, dict[int, Stream]]) -> None:
        """Find out which topics are deleted, of some, and fill the places."""
        count = len(topics)
        fresh = list(islice(reversed(topics), count - len(self._known)))  # one step; each topic is taken once
        if len(topics) == count:  # else another one came in between: the next look takes them
            self._known += reversed(fresh)
        turn = self._known[self._next : self._next + MOST_LOOKED]
        turn += self._known[: min(self._next, MOST_LOOKED - len(turn))]
        self._next = (self._next + self._judge(topics, turn)) % max(1, len(self._known))
        self._judge(topics, self._known[: -MOST_NAMED - 1 : -1])

    def _judge(self, topics: dict[str, dict[int, Stream]], names: list[str]) -> int:
        """Find out which of these are deleted, by their first queues; return how many it came to."""
        steps = 2 * MOST_QUEUES
        for at, topic in enumerate(names):
            if steps < MOST_QUEUES:
                return at
            queues = list(islice(topics.get(topic, {}).values(), MOST_QUEUES))
            before = next((at for at, stream in enumerate(queues) if not stream.is_deleted), len(queues))
            steps -= before + 1
            self._note(topic, is_deleted=before == len(queues))
        return len(names)

    def _note(self, topic: str, *, is_deleted: bool) -> None:
        if is_deleted:
            self._deleted.add(topic)
            self._named.pop(topic, None)
        else:
            self._deleted.discard(topic)
            if len(self._named) < MOST_NAMED:
                self._named[topic] = None


def named_figures(
    of_topics: tuple[list[dict[str, Any]], int], subscriptions: Subscriptions | None, delayed: tuple[int, int]
) -> dict[str, Any]:
    """The rows of topics and subscriptions, and how many have none. `of_topics` is what `NamedTopics.rows` returns;
    `delayed`: topics with delays, and those shown.
    """
    rows = [] if subscriptions is None else subscriptions.watched.rows(MOST_NAMED, MOST_QUEUES)
    known = 0 if subscriptions is None else subscriptions.count
    return {
        "topics": of_topics[0],
        "subscriptions": rows,
        "left_out": {
            "topics": of_topics[1],
            "subscriptions": max(0, known - len(rows)),
            "delayed": max(0, delayed[0] - delayed[1]),
        },
    }


def retention_figures(lanes: Sequence[Lane], config: StoreConfig, now_ms: int) -> dict[str, Any]:
    """What the log holds and may hold: bytes, and the age of the newest message of the oldest sealed segment in ms."""
    # A store has 64 lanes at the most, and of each one segment is looked at.
    oldest = [view.sealed[0].record.newest_ms for view in [lane.view for lane in lanes] if view.sealed]
    return {
        "log_bytes": held_bytes(lanes),
        "limit_bytes": config.retention_bytes,
        "limit_ms": config.retention_ms,
        "oldest_age_ms": max(0, now_ms - min(oldest)) if oldest else None,
    }
