"""Open tables: what is visible of a stream is a prefix, and it is found by offset."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from store.streams import Stream
from store.table import OpenTable


class Book:
    """A table filled a frame at a time, by streams whose first offset here is 100 x their number."""

    def __init__(self) -> None:
        self.table = OpenTable()
        self.position = 8192
        self.streams: dict[int, Stream] = {}

    def add(self, rows: dict[int, list[int]], lengths: list[int]) -> None:
        """A frame: rows maps a stream's number to its entry numbers."""
        for number, entries in rows.items():
            if number not in self.streams:
                self.streams[number] = stream = Stream("t", number, cast(Any, None), cast(Any, None), number)
                stream.next_offset = 100 * number
                self.table.admit(stream)
            self.streams[number].entries.extend(entries)
        columns = np.array(lengths, np.uint32)
        self.table.add_frame(self.position, 5, 0, columns, columns + 1, self.position + 88)
        self.position += 88 + sum(lengths)


@pytest.fixture
def book() -> Book:
    made = Book()
    made.add({1: [0, 2], 2: [1]}, [10, 20, 30])
    made.add({1: [3]}, [40])
    return made


def test_nothing_is_visible_before_it_is_durable(book: Book) -> None:
    assert book.table.find(1, 100, 10).tolist() == []
    assert book.table.next_offset(1) == 100


def test_visible_messages_are_a_prefix(book: Book) -> None:
    book.table.visible = 2
    assert book.table.find(1, 100, 10).tolist() == [0]
    assert book.table.next_offset(1) == 101
    book.table.visible = 4
    assert book.table.find(1, 100, 10).tolist() == [0, 2, 3]
    assert book.table.next_offset(1) == 103


def test_find_keeps_to_the_limit_and_the_bounds(book: Book) -> None:
    book.table.visible = 4
    assert book.table.find(1, 101, 1).tolist() == [2]
    assert book.table.find(1, 99, 5).tolist() == []
    assert book.table.find(1, 103, 5).tolist() == []
    assert book.table.find(9, 0, 5).tolist() == []
    assert book.table.next_offset(9) is None


def test_look_up_gives_position_length_and_checksum(book: Book) -> None:
    found = book.table.look_up(np.array([0, 2, 3], np.uint32))
    first, second = 8192 + 88, 8192 + 88 + 60 + 88
    assert [tuple(map(int, row)) for row in found] == [(first, 10, 11), (first + 30, 30, 31), (second, 40, 41)]


def test_frame_of_an_entry(book: Book) -> None:
    assert [book.table.frame_of(entry) for entry in range(4)] == [0, 0, 0, 1]
    assert book.table.frames_of(np.arange(4, dtype=np.uint32)).tolist() == [0, 0, 0, 1]


def test_columns_grow_and_keep_what_they_have() -> None:
    book = Book()
    for count in (1000, 1000, 5000):
        book.add({}, [3] * count)
    assert book.table.entries == 7000
    assert int(book.table.columns(np.array([0], np.uint32))["position"][0]) == 8192 + 88
    assert int(book.table.columns(np.array([6999], np.uint32))["length"][0]) == 3
    assert book.table.nbytes() < 7000 * 24
