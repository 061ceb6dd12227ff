"""Whose turn it is: the queues of a topic that may have something to read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from ..log.lane import Lane
from .parts import Parts

FEW_QUEUES = 64  # of a topic: all are looked at, which is quicker than to ask for news


class ReadyQueues:
    """By turns. One thread at a time.

    Invariant: a queue that is not here was read to its end and had no news since; or it waits, and is
    added when it goes on.
    """

    def __init__(self, parts: Parts, topic: str) -> None:
        self.queues: OrderedDict[int, None] = OrderedDict()
        self._parts = parts
        self._topic = topic
        self._news = parts.news.topic(topic)
        self._version = -1  # of the news that were taken; before the first one all queues are ready

    def newest(self, lanes: Iterable[Lane]) -> int:
        """A number that changes when the topic may have more durable messages."""
        return self._parts.news.newest(self._news, lanes)

    def find(self, lanes: Iterable[Lane]) -> int:
        """Have all queues that may have something to read here: how many these are."""
        queues = self._parts.streams.topics.get(self._topic, {})
        news, version = list(queues) if len(queues) <= FEW_QUEUES else None, -1
        if news is None:
            version, news = self._parts.news.since(self._news, lanes, self._version)
        self.add(list(queues) if news is None else news)
        self._version = version  # last: after an interrupt they are found again
        return len(self.queues)

    def add(self, queue_ids: Iterable[int]) -> None:
        """Queues may have something to read; their turn comes behind the others'."""
        ready = self.queues
        for queue_id in queue_ids:
            if queue_id not in ready:
                ready[queue_id] = None

    def add_all(self) -> None:
        """All queues may have something to read."""
        self._version = -1

    def turn(self, count: int, skip: Callable[[Sequence[int]], None]) -> Iterator[int]:
        """So many queues, each once, as their turn comes; `skip` goes over what comes later in them."""
        while count > 0:
            group = list(islice(self.queues, min(count, FEW_QUEUES)))
            count -= len(group)
            skip(group)
            yield from group

    def served(self, queue_id: int, *, is_over: bool) -> None:
        """The others have their turns before a queue; one that was read to its end has none."""
        if is_over:
            del self.queues[queue_id]
        else:
            self.queues.move_to_end(queue_id)

    def stop(self, queue_id: int, *, by_key: bool) -> bool:
        """A queue has to wait, until it is added again; True if all have to."""
        if not by_key:
            del self.queues[queue_id]
        return by_key
