"""Streams: one for each (topic, queue), with the rules for their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..errors import InvalidTopic, shown
from ..format.hidden import is_hidden
from ..format.layout import MAX_QUEUE_ID, MAX_TOPIC_BYTES, checksum64

if TYPE_CHECKING:
    from .lane import Lane

NOT_DEFINED = -1
_CONTROL = re.compile("[\x00-\x1f\x7f]")


class Stream:
    """One (topic, queue) of a store.

    Invariants, both kept under the lane's build lock:
        * a stream lives in one lane for ever, so the order in its queue is the order in that log;
        * `number` is dense in the lane and given with the first frame that names the stream.

    Attributes:
        low: the first offset that readers see; messages below it are trimmed for good.
        hidden: the queue is not listed as long as its next offset is at most this: 0, until its topic is deleted.
            `trims` moves both.
    """

    __slots__ = ("hidden", "lane", "low", "number", "queue_id", "topic")  # few: a store may have a million

    def __init__(self, topic: str, queue_id: int, lane: Lane, number: int = NOT_DEFINED) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.lane = lane
        self.number = number
        self.low = 0
        self.hidden = 0

    # These are exact in the process that writes; in a reader of another process they may be out of date.

    @property
    def next_offset(self) -> int:
        """The offset that its next message gets; what is not durable yet is counted."""
        return self.lane.offsets[self.number] if self.number >= 0 else 0

    @property
    def is_empty(self) -> bool:
        """Whether all of its messages were trimmed, or there is none yet."""
        return self.low >= self.next_offset

    @property
    def is_deleted(self) -> bool:
        """Whether its topic was deleted and got no message since, or there is none yet."""
        return self.hidden >= self.next_offset


# Gives the streams of checked names, and makes those that are new.
FindOrMake: TypeAlias = Callable[[Sequence[tuple[str, int]]], list[Stream]]


class StreamMap:
    """The streams of a store by name, the users' apart from the hidden ones.

    A dict of queues a topic, not one of pairs: a pair is an object that every call makes anew, and with
    20,000 queues each look-up of one misses the processor's caches twice more. Hot paths index `topics`
    themselves.
    """

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, Stream]] = {}
        self.hidden: dict[str, Stream] = {}  # those that users never see, by topic: see `format.hidden`

    def add(self, stream: Stream) -> None:
        """Add a stream; its name is checked and new."""
        if is_hidden(stream.topic):
            stream.lane.hidden.append(stream)
            self.hidden[stream.topic] = stream
        else:
            queues = self.topics.get(stream.topic)
            if queues is None:
                queues = self.topics[stream.topic] = {}
            queues[stream.queue_id] = stream

    def add_all(self, streams: Iterable[Stream]) -> list[Stream]:
        """Add streams; their names are checked. Returns those that are left out: a later one has their name.

        The topic of several in a row is looked up once.
        """
        topic: str | None = None
        queues: dict[int, Stream] | None = None
        left_out: list[Stream] = []
        for stream in streams:
            if stream.topic is not topic:
                topic = stream.topic
                queues = None if is_hidden(topic) else self.topics.setdefault(topic, {})
            if queues is not None:
                found = queues.setdefault(stream.queue_id, stream)
                if found is not stream:
                    queues[stream.queue_id] = stream
                    left_out.append(found)
            else:
                left_out += [self.hidden[stream.topic]] if stream.topic in self.hidden else []
                self.add(stream)
        return left_out

    def drop(self, stream: Stream) -> None:
        """Forget a stream that is gone; its lane's list of hidden ones is the caller's."""
        if is_hidden(stream.topic):
            del self.hidden[stream.topic]
        else:
            queues = self.topics[stream.topic]
            del queues[stream.queue_id]
            if not queues:
                del self.topics[stream.topic]

    def replace(self, lane: int, fresh: StreamMap) -> None:
        """Put the streams of another map in the place of those of a lane. It may be called again.

        For a reader that begins a lane anew, because retention removed all that it knew. It passes over all streams.
        """
        known = list(self.hidden.values())
        for queues in list(self.topics.values()):
            known += list(queues.values())
        for stream in known:
            there = fresh.hidden.get(stream.topic) or fresh.get(stream.topic, stream.queue_id)
            if stream.lane.index == lane and there is None:
                self.drop(stream)
        self.hidden.update(fresh.hidden)
        for topic, queues in dict(fresh.topics).items():
            self.topics.setdefault(topic, {}).update(queues)

    def get(self, topic: str, queue_id: int) -> Stream | None:
        """The users' stream of a name, if there is one."""
        queues = self.topics.get(topic)
        return None if queues is None else queues.get(queue_id)

    def end_at_opening(self, topic: str, queue_id: int) -> int:
        """The end of a queue when the store was opened: messages after it that records tell of are lost."""
        stream = self.get(topic, queue_id)
        return 0 if stream is None else stream.lane.offsets.at_opening(stream.number)

    def __len__(self) -> int:
        return sum(map(len, list(self.topics.values())))


def check_name(topic: object, queue_id: object) -> tuple[str, int]:
    """The pair, if it may name a stream, numpy's integers as int; `InvalidTopic` otherwise.

    A topic is 1 to 255 bytes of UTF-8 without control characters. It never becomes a file name, so `/`
    and `..` are letters like any other.
    """
    if not isinstance(topic, str):
        raise InvalidTopic(f"a topic is a str, not {type(topic).__name__}")
    topic = str.__str__(topic)  # of a subclass, which may compare and encode in its own way, the plain name
    if isinstance(queue_id, bool) or not isinstance(queue_id, int | np.integer):
        raise InvalidTopic(f"a queue id is an int, not {type(queue_id).__name__}")
    queue_id = int.__index__(queue_id) if isinstance(queue_id, int) else int(queue_id)  # plain, also of a subclass
    if not 0 <= queue_id <= MAX_QUEUE_ID:
        raise InvalidTopic(f"a queue id is from 0 to {MAX_QUEUE_ID}, not {shown(queue_id)}")
    if not topic:
        raise InvalidTopic("a topic has at least one character")
    try:
        size = len(topic.encode())
    except UnicodeEncodeError as error:
        raise InvalidTopic(f"the topic cannot be written as UTF-8: {error}") from None
    if size > MAX_TOPIC_BYTES:
        raise InvalidTopic(f"a topic has at most {MAX_TOPIC_BYTES} bytes of UTF-8, this one has {size}")
    if _CONTROL.search(topic):
        raise InvalidTopic(f"a topic has no control characters: {topic!r}")
    return topic, queue_id


def store_of(topic: str, queue_id: int, stores: int) -> int:
    """Which of some stores has a stream: another hash that never changes, and that has nothing to do with lanes."""
    return (checksum64(topic.encode(), seed=queue_id) >> 32) % stores if stores > 1 else 0


def lane_of(topic: str, queue_id: int, lanes: int) -> int:
    """The lane of a stream: a hash that never changes, so it needs no record."""
    return checksum64(topic.encode(), seed=queue_id) % lanes if lanes > 1 else 0
