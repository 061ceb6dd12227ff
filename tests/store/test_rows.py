"""Rows: indexed when somebody asks, up to what is visible, each entry once, also after an interrupt."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.store.segment.postings import FEW_TO_SORT as FEW
from stratalog.store.segment.postings import Numbers, OpenRows

from .interrupts import Interrupted

FIRSTS = np.array([100, 200], np.int64)


class Column:
    """What a table has: the streams of some entries."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers

    def only_stream(self, begin: int) -> int | None:
        rest = set(self.numbers[begin:])
        return rest.pop() if len(rest) == 1 else None

    def few_numbers(self, begin: int, end: int) -> Sequence[int]:
        return self.numbers[begin:end]

    def numbers_between(self, begin: int, end: int) -> Numbers:
        return np.array(self.numbers[begin:end], np.uint16)


def plain(rows: OpenRows) -> dict[int, tuple[int, list[int]]]:
    return {number: (first, entries.tolist()) for number, (first, entries) in rows.by_number.items()}


@given(st.lists(st.integers(0, 4), max_size=40), st.lists(st.integers(1, 20), max_size=6), st.booleans())
def test_rows_have_each_visible_entry_once(numbers: list[int], steps: list[int], many: bool) -> None:
    numbers = numbers * (FEW if many else 1)
    rows, visible = OpenRows(FIRSTS), 0
    for step in steps:
        visible = min(visible + step * (FEW if many else 1), len(numbers))
        rows.index(visible, Column(numbers))
        expected = {
            number: ([100, 200, 0, 0, 0][number], [i for i, one in enumerate(numbers[:visible]) if one == number])
            for number in set(numbers[:visible])
        }
        assert plain(rows) == expected
    assert rows.nbytes() >= 4 * visible


def test_rows_of_a_segment_gone_on_with_keep_their_first_offset() -> None:
    given_rows = {0: (7, array("I", [0, 1])), 3: (0, array("I", [2]))}
    rows = OpenRows(np.array([11, 200, 0, 1]), given_rows, 3)
    rows.index(6, Column([9, 9, 9, 0, 1, 3]))
    assert plain(rows) == {0: (7, [0, 1, 3]), 1: (200, [4]), 3: (0, [2, 5])}


@pytest.mark.parametrize("many", [1, FEW])
@pytest.mark.parametrize("after", range(4))
def test_an_interrupt_in_the_middle_loses_nothing_and_doubles_nothing(
    after: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [0, 1, 0, 2, 1, 1, 4] * many
    rows = OpenRows(FIRSTS)
    rows.index(2 * many, Column(numbers))
    calls = iter(range(100))

    def first_of(self: OpenRows, number: int) -> int:
        if next(calls) == after:
            raise Interrupted
        return 50

    with monkeypatch.context() as patch:
        patch.setattr(OpenRows, "first_of", first_of)
        held = dict(rows.by_number)
        try:
            rows.index(len(numbers), Column(numbers))
        except Interrupted:
            assert after < 2, "only streams 2 and 4 are new"
    rows.index(len(numbers), Column(numbers))
    found = plain(rows)
    for number in set(numbers):
        assert found[number][1] == [i for i, one in enumerate(numbers) if one == number]
    assert held.keys() <= rows.by_number.keys()


def test_readers_that_come_together_index_once() -> None:
    numbers = [i % 50 for i in range(20_000)]
    rows, gate = OpenRows(np.zeros(50, np.int64)), threading.Barrier(4)

    def read() -> None:
        gate.wait()
        for visible in range(1000, 20_001, 500):
            rows.index(visible, Column(numbers))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert plain(rows) == {number: (0, list(range(number, 20_000, 50))) for number in range(50)}
