"""Open tables: what is visible of a stream is a prefix, and it is found by offset."""

from __future__ import annotations

import ctypes
import mmap
import random
import tracemalloc
from array import array
from itertools import accumulate

import numpy as np
import pytest

from stratalog.store.format.layout import WIDE_NUMBERS
from stratalog.store.segment.open_table import OpenTable, entry_columns, entry_rows

from ..seeds import draw_seed

HUGE_PAGE_BYTES = 2 << 20


class Book:
    """A table filled a frame at a time, by ten streams whose first offset here is 100 x their number."""

    def __init__(self) -> None:
        self.table = OpenTable([100 * number for number in range(10)])
        self.position = 8192

    def add(self, numbers: list[int], lengths: list[int]) -> None:
        """A frame, by the stream number and the length of each message."""
        starts = list(accumulate(lengths[:-1], initial=self.position + 88))
        sums = array("I", [length + 1 for length in lengths])
        rows = entry_rows(starts[: len(lengths)], array("I", lengths), sums)
        self.table.add_frame(self.position, 5, 0, array("H", numbers).tobytes(), rows)
        self.position += 88 + sum(lengths)


def shown(book: Book, number: int) -> tuple[int, list[int]]:
    """A stream's row: its first offset, and its entries."""
    row = book.table.row(number)
    assert row is not None
    return row[0], row[1].tolist()


@pytest.fixture
def book() -> Book:
    made = Book()
    made.add([1, 2, 1], [10, 20, 30])
    made.add([1], [40])
    return made


def test_nothing_is_visible_before_it_is_durable(book: Book) -> None:
    assert book.table.find(1, 100, 10).tolist() == []
    assert book.table.row(1) is None


def test_visible_messages_are_a_prefix(book: Book) -> None:
    book.table.visible = 2
    assert book.table.find(1, 100, 10).tolist() == [0]
    assert shown(book, 1) == (100, [0])
    assert book.table.row(2) == (200, array("I", [1]))
    book.table.visible = 4
    assert book.table.find(1, 100, 10).tolist() == [0, 2, 3]
    assert shown(book, 1) == (100, [0, 2, 3])


def test_find_keeps_to_the_limit_and_the_bounds(book: Book) -> None:
    book.table.visible = 4
    assert book.table.find(1, 101, 1).tolist() == [2]
    assert book.table.find(1, 99, 5).tolist() == []
    assert book.table.find(1, 103, 5).tolist() == []
    assert book.table.find(9, 0, 5).tolist() == []
    assert book.table.row(9) is None


def test_places_are_position_length_and_checksum(book: Book) -> None:
    entries = np.array([0, 2, 3], np.uint32)
    first, second = 8192 + 88, 8192 + 88 + 60 + 88
    assert book.table.places(entries) == ([first, first + 30, second], [10, 30, 40], [11, 31, 41])


def test_frames_of_entries_with_their_times_and_flags(book: Book) -> None:
    frames, times, flags = book.table.frames_of(np.arange(4, dtype=np.uint32))
    assert (frames.tolist(), times.tolist(), flags.tolist()) == ([0, 0, 0, 1], [5] * 4, [0] * 4)
    assert book.table.frames_of(np.array([3], np.uint32))[0].tolist() == [1]
    assert book.table.few_frames([0, 1, 2, 3]) == ([0, 0, 0, 1], [5] * 4, [0] * 4)
    assert book.table.few_frames([3])[0] == [1]


def test_few_entries_are_in_the_frames_that_many_are_in() -> None:
    book, chance = Book(), random.Random(draw_seed())
    for _ in range(50):
        count = chance.randrange(6)  # also frames without entries
        book.add([1] * count, [3] * count)
    for _ in range(200):
        entries = sorted(chance.sample(range(book.table.entries), chance.randrange(1, 5)))
        many = [column.tolist() for column in book.table.frames_of(np.array(entries, np.uint32))]
        assert [*book.table.few_frames(entries)] == many


def test_columns_grow_and_keep_what_they_have() -> None:
    book = Book()
    for count in (1000, 1000, 5000):
        book.add([1] * count, [3] * count)
    assert book.table.entries == 7000
    (first, _), lengths, _ = book.table.places(np.array([0, 6999], np.uint32))
    assert (first, lengths) == (8192 + 88, [3, 3])
    assert book.table.nbytes() < 7000 * 24


def test_a_large_table_has_the_pages_that_were_written_to_and_no_more() -> None:
    for _ in range(2):  # the second lies in memory that the allocator keeps for later, once it has seen the first freed
        np.ones(30 << 20, np.uint8)
    table, frame = OpenTable(), 4000
    rows = entry_rows(range(frame), array("I", [3] * frame), array("I", [1] * frame))
    for number in range(100):
        table.add_frame(8192 + number, 5, 0, bytes(2 * frame), rows)
    needed = 12 * table.entries
    columns = table.columns(0, 1 << 40)
    assert columns.nbytes > 1.2 * needed  # there is room for more
    assert resident_bytes(columns) <= needed + HUGE_PAGE_BYTES
    assert needed < table.nbytes() < 1.3 * needed


def resident_bytes(array: np.ndarray) -> int:
    """Bytes of the array's pages that are in memory."""
    begin = array.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    count = -(-(array.ctypes.data + array.nbytes - begin) // mmap.PAGESIZE)
    found = (ctypes.c_ubyte * count)()
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(begin), ctypes.c_size_t(count * mmap.PAGESIZE), found) == 0
    return mmap.PAGESIZE * sum(byte & 1 for byte in found)


def test_a_table_says_what_the_rows_of_many_streams_cost() -> None:
    """The objects of a row are most of it where a stream has a message or two in the segment."""
    count = 20_000
    table = OpenTable()
    numbers = np.arange(count, dtype=np.uint32)
    table.add_frame(
        8192, 5, WIDE_NUMBERS, numbers.tobytes(), entry_columns(np.arange(count), np.arange(count), numbers)
    )
    table.visible = count
    before = table.nbytes()
    tracemalloc.start()
    table.row(5)
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 200 * count < grown < 260 * count
    assert 0.9 * grown < table.nbytes() - before < 1.2 * grown
