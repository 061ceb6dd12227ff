"""The next offset of each stream of a lane, and the offsets that a batch takes from it (R9)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FIRST_STREAMS = 64
FEW_MESSAGES = 256  # up to here a loop is quicker than fifteen calls of numpy


class NextOffsets:
    """The offset that the next message of each stream gets, by the stream's number. Not safe for threads.

    One column for all, not a number in each stream: eight bytes a stream stay in the processor's caches where the
    objects of 20,000 streams do not.

    Invariant: the offsets of a stream are given in order, without a gap, each once.
    """

    def __init__(self, known: npt.ArrayLike = ()) -> None:
        """`known` (streams,): where the streams 0, 1, 2 .. go on; those that come later begin at 0."""
        self._column = np.array(known, np.int64)
        self._items = self._column.data
        self.streams = len(self._column)
        self._known = self._column.copy()

    def at_opening(self, number: int) -> int:
        """The next offset of a stream when the store was opened."""
        return int(self._known[number]) if 0 <= number < len(self._known) else 0

    def grow(self, streams: int) -> None:
        """Make room for `streams` streams."""
        if streams > len(self._column):
            grown = np.zeros(max(streams, 2 * len(self._column), FIRST_STREAMS), np.int64)
            grown[: self.streams] = self._column[: self.streams]
            self._column, self._items = grown, grown.data
        self.streams = max(self.streams, streams)

    def give(self, numbers: Sequence[int]) -> array[int]:
        """The offsets ("q", one a message) of messages with these stream numbers, in their order.

        The one loop over messages of a batch. Sorting by stream in columns was no quicker below a thousand messages.
        """
        items, given = self._items, []
        for number in numbers:
            offset = items[number]
            items[number] = offset + 1
            given.append(offset)
        return array("q", given)

    def give_column(self, numbers: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.int64]:
        """As `give`, int64 (n) of a column of stream numbers: the running count of each stream, without a loop."""
        column, count = self._column, len(numbers)
        first = int(numbers[0])
        if count <= FEW_MESSAGES:
            return np.frombuffer(self.give(numbers.tolist()), np.int64)
        if int(numbers.min()) == int(numbers.max()):
            begin = int(column[first])
            column[first] += count
            return np.arange(begin, begin + count)
        order = numbers.argsort(kind="stable")  # by stream, and in a stream by row; 16 bits are sorted by their digits
        by_stream = numbers[order]
        begins = np.concatenate([[0], np.flatnonzero(by_stream[1:] != by_stream[:-1]) + 1])
        counts = np.diff(begins, append=count)
        streams = by_stream[begins]
        given = np.empty(count, np.int64)
        given[order] = np.arange(count) + np.repeat(column[streams] - begins, counts)
        column[streams] += counts
        return given

    def after(self, counts: npt.NDArray[np.int64], streams: int) -> NextOffsets:
        """A copy for `streams` streams, after messages that got their offsets elsewhere: `counts` of the first ones."""
        found = NextOffsets(self._column[: self.streams])
        found._known = self._known
        found.grow(streams)
        found._column[: len(counts)] += counts
        return found

    def __getitem__(self, number: int) -> int:
        return self._items[number] if number < self.streams else 0

    def after_log(self, number: int) -> int:
        """The offset with which a stream goes on after the log's segments."""
        return self[number]

    def column(self) -> npt.NDArray[np.int64]:
        """(streams,) a copy, as of now."""
        return self._column[: self.streams].copy()
