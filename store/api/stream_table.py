"""A caller's table of streams: names looked up once, then numbers by one step for all messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from ..errors import InvalidMessage, InvalidTopic, StoreError, shown
from ..format.arrays import Int64s
from ..log.streams import NOT_DEFINED, FindOrMake, Stream, check_name


class ResolvedStreams(NamedTuple):
    """The streams of n messages.

    Attributes:
        numbers: (n,) if all streams have one, else None.
        streams: a table of streams; with `numbers` it has one stream a lane, of the lowest lane first.
        stream_index: (n,) each message's place in the table; None with `numbers`.
        lanes: (n,) the lane of each message; None if all have the same one.
    """

    numbers: Int64s | None
    streams: list[Stream]
    stream_index: Int64s | None
    lanes: Int64s | None


class StreamTable:
    """The streams of a table, as far as messages have used them.

    Invariant: a number that is noted is the stream's for ever; so any thread may note it.
    """

    def __init__(self, given: Sequence[object]) -> None:
        self.given = given
        self._streams: list[Stream | None] = [None] * len(given)
        self._numbers = np.full(len(given), NOT_DEFINED, np.int64)
        self._lanes = np.zeros(len(given), np.int64)
        self._is_of_tuples = {*map(type, given)} == {tuple}  # which do not change

    def is_of(self, streams: object) -> bool:
        """Is it made of this very tuple, or of a list with the same pairs, each the very tuple that it was?"""
        if streams is self.given:
            return type(streams) is tuple
        if type(streams) is not list or not self._is_of_tuples or len(streams) != len(self.given):
            return False
        return all(map(is_, streams, self.given))

    def resolve(self, index: Int64s, find_or_make: FindOrMake) -> ResolvedStreams:
        """The streams of n messages; `index` (n,) has the place of each one's stream in the table.

        Raises InvalidTopic, which names the first row of a wrong name; then no stream is made.
        """
        numbers = self._numbers[index]
        if int(numbers.min()) < 0:
            self._look_up(index, find_or_make)
            numbers = self._numbers[index]
        lanes = self._lanes[index]
        different = int(lanes.min()) != int(lanes.max())
        if int(numbers.min()) >= 0:
            firsts = index[np.unique(lanes, return_index=True)[1]] if different else index[:1]
            return ResolvedStreams(numbers, self._taken(firsts.tolist()), None, lanes if different else None)
        used, places = np.unique(index, return_inverse=True)
        return ResolvedStreams(None, self._taken(used.tolist()), places, lanes if different else None)

    def _taken(self, places: list[int]) -> list[Stream]:
        return [stream for at in places if (stream := self._streams[at]) is not None]

    def _look_up(self, index: Int64s, find_or_make: FindOrMake) -> None:
        used = np.flatnonzero(np.bincount(index, minlength=len(self.given)))
        wanted = used[self._numbers[used] < 0].tolist()
        unknown = [at for at in wanted if self._streams[at] is None]
        names = [name_at(self.given, at, index) for at in unknown]
        try:
            streams = find_or_make(names)
        except InvalidTopic as error:  # a topic does not have that queue
            raise _in_row(str(error), unknown[error.row or 0], index) from None
        for at, stream in zip(unknown, streams, strict=True):
            self._streams[at] = stream
        found = self._taken(wanted)
        self._lanes[wanted] = [stream.lane.index for stream in found]
        self._numbers[wanted] = [stream.number for stream in found]


def name_at(table: Sequence[object], at: int, index: Int64s) -> tuple[str, int]:
    """The name at a place of a table, checked. Raises InvalidTopic with the first row that has it; `index` (n,)."""
    given: Any = table[at]
    try:
        try:
            topic, queue_id = given
        except Exception as error:  # of anything that is no pair, whatever its type raises
            raise InvalidTopic(f"a stream is a (topic, queue id) pair, not {shown(given)}") from error
        return check_name(topic, queue_id)
    except StoreError as error:
        raise _in_row(str(error), at, index) from error.__cause__


def _in_row(what: str, at: int, index: Int64s) -> InvalidTopic:
    """The error of the first row that has a place of a table; `index` (n,)."""
    return InvalidTopic(what).in_row(int(np.argmax(index == at)))


def table_of(streams: object) -> StreamTable:
    """The table, of a copy where it may change. Raises InvalidMessage if it is none."""
    checked = check_table(streams)
    return StreamTable(checked if type(checked) is tuple else list(checked))


def check_table(streams: object) -> Sequence[object]:
    """The argument, if it can be a table of streams. Raises InvalidMessage."""
    if isinstance(streams, str | bytes | bytearray | memoryview | Mapping) or not isinstance(streams, Sequence):
        raise InvalidMessage(f"streams are (topic, queue id) pairs, not {shown(streams)}")
    return streams
