"""Streams: one for each (topic, queue), with the rules for their names, and where readers begin in each."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import InvalidTopic, shown
from ..format.hidden import is_hidden
from ..format.layout import MAX_QUEUE_ID, MAX_TOPIC_BYTES, checksum64
from ..format.records import NOTHING_TRIMMED, StreamLow, Trimmed

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
            `Lows` moves both.
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


Change: TypeAlias = tuple[Stream, StreamLow]


class Lows:
    """Where the readers of a lane's streams begin. `trims` has the lows as the log says them.

    Each stream has its own, `Stream.low` and `Stream.hidden`; here are those of all in columns. They move when the
    record of a trim is durable.

    Invariants:
        * they only grow;
        * they are never ahead of the log's.
    """

    def __init__(self, records: Stream, trimmed: Trimmed = NOTHING_TRIMMED) -> None:
        """`records` is the lane's stream of records, `trimmed` what recovery has found."""
        self.records = records
        self.shown = len(trimmed)  # how often they have moved
        self._columns = _Columns(trimmed)
        self._showing = threading.Lock()
        self.on_shown: Callable[[Sequence[Change]], None] | None = None  # some have moved

    def show(self, changes: Sequence[Change]) -> None:
        """Let readers begin at these lows: the records of the changes are durable."""
        with self._showing:
            for stream, low in changes:
                stream.low = max(stream.low, low.low)
                stream.hidden = max(stream.hidden, low.hidden)
                self._columns.add(stream.number, low)
            self.shown += len(changes)
        if self.on_shown is not None:
            self.on_shown(changes)

    def column(self, streams: Sequence[Stream]) -> npt.NDArray[np.int64] | None:
        """(streams,) the first offset of each stream that is kept; no record of trims is. None: there is no record.

        Hidden streams count as others do: retention must not take what they hold.
        """
        if self.records.number == NOT_DEFINED:
            return None
        lows = self._columns.dense(len(streams))
        if self.records.number < len(lows):  # else none of them can be seen
            lows[self.records.number] = np.iinfo(np.int64).max
        return lows


class _Columns:
    """Lows by stream number; 0 means never trimmed, as no record has low 0.

    In columns, so that a footer or a scan takes them in a few operations, however many streams there are.
    """

    def __init__(self, trimmed: Trimmed) -> None:
        self._rows = np.zeros((max(trimmed, default=-1) + 1, 2), np.int64)  # low, hidden
        for number, low in trimmed.items():
            self._rows[number] = low

    def add(self, number: int, low: StreamLow) -> None:
        """Note what a record says. One thread at a time."""
        rows = self._rows
        if number >= len(rows):
            rows = np.zeros((2 * number + 1, 2), np.int64)
            rows[: len(self._rows)] = self._rows
        rows[number] = np.maximum(rows[number], low)
        self._rows = rows

    def dense(self, streams: int) -> npt.NDArray[np.int64]:
        """(streams,) a copy of the lows."""
        lows, rows = np.zeros(streams, np.int64), self._rows[:streams]
        lows[: len(rows)] = rows[:, 0]
        return lows


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
