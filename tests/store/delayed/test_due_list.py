"""The list of what became due: rows by number, in few chunks."""

from __future__ import annotations

import random

import numpy as np

from stratalog.store.delayed.due_list import DueList, DueMessages
from stratalog.store.device.clock import SystemClock

from ...seeds import draw_seed

JOINED_ROWS = 1024


class Reader:
    """As much of a pointer as the list looks at."""

    def __init__(self) -> None:
        self.at = 0


def listing() -> tuple[DueList, Reader]:
    """An empty list with one pointer, which nothing else keeps."""
    due, reader = DueList(SystemClock()), Reader()
    due.pointers.add(reader)  # type: ignore[arg-type]
    return due, reader


def rows(begin: int, count: int) -> DueMessages:
    offsets = np.arange(begin, begin + count)
    return DueMessages(offsets % 7, offsets, offsets % 3 == 0)


def test_rows_that_are_added_one_by_one_share_chunks() -> None:
    due, _reader = listing()
    for number in range(4 * JOINED_ROWS):
        due.add(rows(number, 1))
    assert len(due) == 4 * JOINED_ROWS and len(due._chunks) == 4


def test_a_read_looks_at_the_chunks_that_it_gives_and_a_logarithm_of_the_others() -> None:
    looks = [0]

    class Chunks(list):  # type: ignore[type-arg]
        def __getitem__(self, at):  # type: ignore[no-untyped-def]
            looks[0] += 1
            return super().__getitem__(at)

        def __iter__(self):  # type: ignore[no-untyped-def]
            for chunk in super().__iter__():
                looks[0] += 1
                yield chunk

    def looked(chunks: int) -> int:
        due, _reader = listing()
        for number in range(chunks):
            due.add(rows(number * JOINED_ROWS, JOINED_ROWS))
        due._chunks = Chunks(due._chunks)  # type: ignore[assignment]
        looks[0] = 0
        assert due.read(due.end, 10).offsets.tolist() == []
        assert due.read(due.end - 3, 10).offsets.tolist() == [due.end - 3, due.end - 2, due.end - 1]
        return looks[0]

    assert looked(4 * 50) <= looked(50) + 8


def test_any_row_is_read_by_its_number_however_rows_were_added_and_dropped() -> None:
    rng, (due, reader), end = random.Random(draw_seed()), listing(), 0
    for _ in range(300):
        count = rng.choice([0, 1, 1, 2, 700, JOINED_ROWS, 3 * JOINED_ROWS])
        due.add(rows(end, count))
        end += count
        assert due.end == end
        at, most = rng.randint(due.begin, end), rng.randint(0, 3000)
        found, wanted = due.read(at, most), rows(at, min(most, end - at))
        assert [column.tolist() for column in found[:3]] == [column.tolist() for column in wanted[:3]]
        if rng.random() < 0.3:
            reader.at = rng.randint(due.begin, end)
            due.drop_passed()
