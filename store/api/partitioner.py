"""Choosing the queue of a message that names none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

import numpy as np

from ..errors import InvalidMessage, shown
from ..format.layout import MAX_QUEUE_ID, checksum64
from ..log.streams import StreamMap, check_name
from ..topics.table import TopicTable

Queues = int | Sequence[int]


class Partitioner:
    """Chooses the queue of a message: by its key, or one queue after the other.

    Invariant: the queue of a key depends only on the key and on the queues to choose from. It is
    `queues[xxh3_64(key) % len(queues)]`: the same in every process, run and version.
    """

    def __init__(self, streams: StreamMap, configured: TopicTable) -> None:
        self._configured = configured
        self._streams = streams
        self._turns: dict[str, count[int]] = {}  # by topic; `next` of a count is one step for the interpreter
        self._known: dict[str, tuple[int, ...]] = {}

    def choose(self, topic: object, key: object, queues: Queues | None) -> int:
        """Return a queue id of a topic. `queues` n: one of 0 .. n - 1; None: one of those that the topic is configured
        with, or else has.

        Raises InvalidTopic, InvalidMessage.
        """
        name, _ = check_name(topic, 0)
        among = self._known_queues(name) if queues is None else _checked(queues)
        if key is None:
            turn = self._turns.get(name) or self._turns.setdefault(name, count())
            chosen = among[next(turn) % len(among)]
        elif isinstance(key, bytes):
            chosen = among[checksum64(key) % len(among)]
        else:
            raise InvalidMessage(f"key is bytes, not {type(key).__name__}")
        return check_name(name, chosen)[1]

    def _known_queues(self, topic: str) -> Sequence[int]:
        """The queues that the topic is configured with, or has, sorted; queue 0 if it has none."""
        queues = self._configured.settings(topic).queues
        if queues is not None:
            return range(queues)
        there = self._streams.topics.get(topic)
        if not there:
            return (0,)
        known = self._known.get(topic, ())
        if len(known) != len(there):
            known = self._known[topic] = tuple(sorted(_now(there)))
        return known


def _now(queues: Iterable[int]) -> list[int]:
    return list(queues)  # in one step: other threads make queues meanwhile


def _checked(queues: object) -> Sequence[int]:
    if isinstance(queues, int | np.integer) and not isinstance(queues, bool) and 1 <= queues <= MAX_QUEUE_ID + 1:
        return range(int(queues))
    if isinstance(queues, Sequence) and not isinstance(queues, str | bytes | memoryview) and len(queues):
        return queues
    raise InvalidMessage(
        f"queues is a number of queues, at least 1, or a sequence of queue ids in a fixed order, not {shown(queues)}"
    )
