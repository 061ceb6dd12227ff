"""The postings of each stream in an open segment, made when a reader asks (R9)."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from sys import getsizeof
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..format.footer import by_stream

FEW_TO_SORT = 1024  # messages: below it a loop is quicker than sorting them

ROW_OBJECTS = getsizeof((0, 0)) + 2 * getsizeof(1 << 20)  # a row's tuple, its number and its offset

# A stream's messages in one segment: the offset of the first, and the entry numbers ("I") in offset order.
Row = tuple[int, "array[int]"]
Numbers = npt.NDArray[np.unsignedinteger]


class EntryNumbers(Protocol):
    """The source of rows: the stream numbers of entries in log order. `OpenTable` is it."""

    def only_stream(self, begin: int) -> int | None:
        """The stream of the entry `begin` and of all after it; None if they differ, or if one look is not enough."""

    def few_numbers(self, begin: int, end: int) -> Sequence[int]:
        """The stream numbers of the entries begin .. end - 1, at least one."""

    def numbers_between(self, begin: int, end: int) -> Numbers:
        """What `few_numbers` gives, as an array."""


class OpenRows:
    """The rows of an open table. Readers add new entries before they look, one reader at a time; appends never do.

    Invariants:
        * all entries below `indexed`, and no others, are in the rows, each once;
        * the entries of a row ascend without a gap in the offsets (a segment with lost messages is sealed before it is
          shown), and rows only grow at their ends;
        * `indexed` is raised after the rows are in place: a reader that finds it high enough needs no lock.

    Not for signal handlers: one that reads may have interrupted the reader that has the lock.
    """

    def __init__(self, firsts: npt.NDArray[np.int64], given: dict[int, Row] | None = None, indexed: int = 0) -> None:
        """`firsts` (streams,): where the streams begin here; later streams begin at 0. `given`: rows to go on with."""
        self.by_number: dict[int, Row] = {} if given is None else given
        self.indexed = indexed
        self._firsts = firsts.data
        self._indexing = threading.Lock()
        self._halfway = False  # an interrupt came in the middle

    def index(self, visible: int, source: EntryNumbers) -> None:
        """Bring in the entries up to `visible`."""
        with self._indexing:
            if self._halfway:
                self._take_back()
            begin = self.indexed
            if begin >= visible:
                return  # another thread did it meanwhile
            self._halfway = True
            only = source.only_stream(begin)
            if only is not None:
                self._add_run(only, begin, visible)
            elif visible - begin < FEW_TO_SORT:
                self._add_each(source.few_numbers(begin, visible), begin)
            else:
                self._add_runs(source.numbers_between(begin, visible), begin)
            self.indexed = visible
            self._halfway = False

    def first_offsets(self) -> npt.NDArray[np.int64]:
        """(streams,) a copy of where the streams begin here."""
        first = np.array(self._firsts, np.int64)
        for number, (offset, _) in dict(self.by_number).items():
            if number < len(first):
                first[number] = offset
        return first

    def nbytes(self) -> int:
        """Memory of all rows: entry numbers, and the objects around them, some 230 bytes a stream that has a row."""
        rows = self.by_number
        return getsizeof(rows) + sum([ROW_OBJECTS + getsizeof(entries) for _, entries in list(rows.values())])

    def first_of(self, number: int) -> int:
        """The offset that a new row begins with."""
        return self._firsts[number] if number < len(self._firsts) else 0

    def _add_run(self, number: int, begin: int, end: int) -> None:
        row = self.by_number.get(number)
        if row is None:
            row = self.by_number[number] = (self.first_of(number), array("I"))
        row[1].extend(range(begin, end))

    def _add_each(self, numbers: Sequence[int], begin: int) -> None:
        rows = self.by_number
        for entry, number in enumerate(numbers, begin):
            row = rows.get(number)
            if row is None:
                rows[number] = (self.first_of(number), array("I", (entry,)))
            else:
                row[1].append(entry)

    def _add_runs(self, numbers: Numbers, begin: int) -> None:
        """As `_add_each`, for many: sorted by stream, and a stream's added together."""
        order = by_stream(numbers)
        ordered = numbers[order]
        begins = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        data = (order + begin).astype(np.uint32).tobytes()
        starts = (4 * begins).tolist()
        rows = self.by_number
        for number, low, high in zip(ordered[begins].tolist(), starts, [*starts[1:], len(data)], strict=True):
            row = rows.get(number)
            if row is None:
                row = rows[number] = (self.first_of(number), array("I"))
            row[1].frombytes(data[low:high])

    def _take_back(self) -> None:
        """Take back what was added before an interrupt. In new rows: others may be looking at the old ones."""
        rows: dict[int, Row] = {}
        for number, (first, entries) in self.by_number.items():
            count = bisect_left(entries, self.indexed)
            if count:
                rows[number] = (first, entries[:count])
        self.by_number = rows
        self._halfway = False
