"""The names of a lane's streams by number, while a store is opened: two columns, for there may be millions."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from operator import eq
from typing import TypeAlias

import numpy as np

from ..format.arrays import Uint32s
from ..format.footer import Footer, FooterData
from ..format.layout import GONE_TOPIC

Name: TypeAlias = tuple[str, int]  # (topic, queue)


class NameList:
    """A list of names. A pair for each would take 100 bytes a stream, and hold the memory around it when it is gone.

    Attributes:
        topics: by number.
        queue_ids: "I", by number.
    """

    __slots__ = ("queue_ids", "topics")

    def __init__(self, names: Iterable[Name] = ()) -> None:
        self.topics: list[str] = []
        self.queue_ids = array("I")
        for name in names:
            self.append(name)

    @classmethod
    def of(cls, footer: Footer | FooterData) -> NameList:
        """The names of the rows of a footer: by number, if it is full. Raises StoreCorrupt."""
        names = cls()
        topics = footer.topics() if isinstance(footer, Footer) else footer.topics
        names.topics = [topics[index] for index in footer.stream_topic.tolist()]
        names.queue_ids.frombytes(footer.stream_queue.astype(np.uint32).tobytes())
        return names

    def append(self, name: Name) -> None:
        """Add the name of the next stream."""
        self.topics.append(name[0])
        self.queue_ids.append(name[1])

    def copy(self) -> NameList:
        """A list of its own."""
        copied = NameList()
        copied.topics, copied.queue_ids = self.topics.copy(), self.queue_ids[:]
        return copied

    def is_prefix_of(self, other: NameList) -> bool:
        """Whether these are the first names of another list, except those of streams that are gone there."""
        count = len(self)
        if (
            count <= len(other)
            and self.queue_ids == other.queue_ids[:count]
            and all(map(eq, self.topics, other.topics))
        ):
            return True
        return count <= len(other) and all(
            mine == its or its[0] == GONE_TOPIC for mine, its in zip(self, other, strict=False)
        )

    def columns(self) -> tuple[list[str], Uint32s, Uint32s]:
        """The topics, each once, and the topic index and the queue id of each stream: what a full footer has.

        A pass over all streams of the lane: for an opening or a repair, which makes a full footer of them.
        """
        topics = {topic: index for index, topic in enumerate(dict.fromkeys(self.topics))}
        topic_of = np.fromiter(map(topics.__getitem__, self.topics), np.uint32, len(self))
        return list(topics), topic_of, np.array(self.queue_ids, np.uint32)

    def __len__(self) -> int:
        return len(self.topics)

    def __getitem__(self, number: int) -> Name:
        return self.topics[number], self.queue_ids[number]

    def __setitem__(self, number: int, name: Name) -> None:
        self.topics[number], self.queue_ids[number] = name

    def __iter__(self) -> Iterator[Name]:
        return zip(self.topics, self.queue_ids, strict=True)
