"""Which messages a bulk read wants, and the same as bounds in columns, one row a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidMessage, InvalidTopic, shown
from ..format.arrays import Bools, Int64s
from ..format.footer import Footer
from ..format.hidden import is_hidden
from ..format.layout import MAX_OFFSET, MAX_QUEUE_ID

NO_END = 1 << 62


@dataclass(frozen=True, slots=True)
class ScanFilter:
    """The messages that a bulk read wants; those that meet all of it. Without arguments, all messages.

    Attributes:
        topics: names of topics; None for all.
        queue_ids: ids of queues, of each topic; None for all.
        start_offset: the first offset wanted of each queue.
        end_offset: the first offset of each queue that is not wanted any more; None for no end.
        start_ms, end_ms: the range of times, ms since the epoch, without the end; None for no end. The time of a
            message is its `timestamp_ms`.
        starts: (topic, queue id, offset) of queues with a first offset of their own, in place of `start_offset`.

    Any iterables will do for `topics`, `queue_ids` and `starts`; they become tuples. A str is none: it is one name.

    Raises InvalidTopic or InvalidMessage for a wrong type or value.
    """

    topics: tuple[str, ...] | None = None
    queue_ids: tuple[int, ...] | None = None
    start_offset: int = 0
    end_offset: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    starts: tuple[tuple[str, int, int], ...] = ()

    def __post_init__(self) -> None:
        for field in ("topics", "queue_ids", "starts"):
            given = getattr(self, field)
            if given is not None:
                object.__setattr__(self, field, _listed(field, given))
        for name in self.topics or ():
            if not isinstance(name, str) or not name or is_hidden(name):
                raise InvalidTopic(f"a topic is a str that is not empty, not {shown(name)}")
        for queue in self.queue_ids or ():
            _check(queue, "a queue id", InvalidTopic, MAX_QUEUE_ID)
        _check(self.start_offset, "start_offset", InvalidMessage, NO_END)
        for name, value in (("end_offset", self.end_offset), ("start_ms", self.start_ms), ("end_ms", self.end_ms)):
            if value is not None:
                _check(value, name, InvalidMessage, NO_END)
        for one in self.starts:
            if not isinstance(one, tuple | list) or len(one) != 3:
                raise InvalidMessage(f"`starts` has a (topic, queue id, offset) for each queue, not {shown(one)}")
            topic, queue, offset = one
            if not isinstance(topic, str):
                raise InvalidTopic(f"a topic is a str, not {shown(topic)}")
            _check(queue, "a queue id", InvalidTopic, MAX_QUEUE_ID)
            _check(offset, "an offset", InvalidMessage, NO_END)

    @property
    def is_all_queues(self) -> bool:
        """True if all offsets of all queues are wanted."""
        of_all = self.topics is None and self.queue_ids is None
        return of_all and not self.starts and self.start_offset == 0 and self.end_offset is None

    @property
    def has_times(self) -> bool:
        """True if not all times are wanted."""
        return self.start_ms is not None or self.end_ms is not None

    def wants_time(self, least_ms: int, most_ms: int) -> bool:
        """Is there a wanted time in least .. most?"""
        if self.start_ms is not None and most_ms < self.start_ms:
            return False
        return self.end_ms is None or least_ms < self.end_ms

    def of_times(self, times: Int64s) -> Bools:
        """(n,) which of some times are wanted."""
        wanted = np.ones(len(times), np.bool_)
        if self.start_ms is not None:
            wanted &= times >= self.start_ms
        if self.end_ms is not None:
            wanted &= times < self.end_ms
        return wanted


def _listed(field: str, given: Any) -> tuple[Any, ...]:
    """The elements, with numpy's integers as plain ones. Raises InvalidMessage if there are none to be had."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidMessage(f"{field} is a tuple, or None for all, not {shown(given)}")
    return tuple(int(one) if isinstance(one, np.integer) else one for one in given)


def _check(value: Any, name: str, error: type[InvalidTopic | InvalidMessage], most: int) -> None:
    if type(value) is not int or not 0 <= value <= most:
        raise error(f"{name} is an integer from 0 to {most}, not {shown(value)}")


@dataclass(frozen=True, slots=True)
class StreamTable:
    """The names of s streams, by number.

    Attributes:
        topics: the different topics.
        topic_index: (s,) of each stream, an index into `topics`.
        queue_ids: (s,) of each stream.
    """

    topics: tuple[str, ...]
    topic_index: npt.NDArray[np.uint32]
    queue_ids: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.topic_index)

    def names(self) -> list[tuple[str, int]]:
        """(topic, queue id) of each stream."""
        pairs = zip(self.topic_index.tolist(), self.queue_ids.tolist(), strict=True)
        return [(self.topics[topic], queue) for topic, queue in pairs]

    @classmethod
    def of(cls, names: Sequence[tuple[str, int]]) -> StreamTable:
        """The table of some names."""
        numbers: dict[str, int] = {}
        index = [numbers.setdefault(topic, len(numbers)) for topic, _ in names]
        queues = [queue for _, queue in names]
        return cls(tuple(numbers), np.array(index, np.uint32), np.array(queues, np.uint32))


@dataclass(frozen=True, slots=True)
class Lows:
    """The first offsets of the streams of a lane that were trimmed: their numbers, ascending, and the offsets."""

    numbers: Int64s
    offsets: Int64s


def rows_of(trimmed: Lows | None, footer: Footer) -> Lows | None:
    """What is wanted, by rows of a footer in place of numbers; without those that it does not have."""
    if trimmed is None or footer.is_full:
        return trimmed
    rows = footer.rows_of(trimmed.numbers)
    known = rows < footer.stream_count
    return Lows(rows[known].astype(np.int64), trimmed.offsets[known])


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets that are wanted of each stream of a table, (s,) each: lows .. highs - 1."""

    lows: Int64s
    highs: Int64s

    def counts(self, first: Int64s, following: Int64s, numbers: npt.NDArray[np.integer] | None = None) -> Int64s:
        """How many of the offsets first .. following - 1 are wanted of some streams, or of the first ones."""
        which = slice(len(first)) if numbers is None else numbers
        begins, ends = np.maximum(first, self.lows[which]), np.minimum(following, self.highs[which])
        wanted: Int64s = np.maximum(ends - begins, 0)
        return wanted


def bounds_of(wanted: ScanFilter, table: StreamTable, trimmed: Lows | None) -> Bounds:
    """What is wanted of the streams of a table: nothing of the store's own, nothing that is trimmed."""
    topics = np.array(
        [not is_hidden(name) and (wanted.topics is None or name in wanted.topics) for name in table.topics],
        np.bool_,
    )
    there = topics[table.topic_index] if len(topics) else np.zeros(0, np.bool_)
    if wanted.queue_ids is not None:
        there &= np.isin(table.queue_ids, np.array(wanted.queue_ids, np.int64))
    lows = np.full(len(table), wanted.start_offset, np.int64)
    if wanted.starts:
        numbers = {name: number for number, name in enumerate(table.names())}
        for topic, queue, offset in wanted.starts:
            number = numbers.get((topic, queue))
            if number is not None:
                lows[number] = offset
    if trimmed is not None:
        known = trimmed.numbers < len(lows)
        numbers_there = trimmed.numbers[known]
        lows[numbers_there] = np.maximum(lows[numbers_there], trimmed.offsets[known])
    end = MAX_OFFSET if wanted.end_offset is None else wanted.end_offset
    return Bounds(lows, np.where(there, end, 0))


ALL = ScanFilter()
