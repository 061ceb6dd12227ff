"""The columns of a scan: entry numbers with what a repair left out, and what a footer is made of."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from store.format import LOST_ENTRY
from store.rebuild import ScanColumns


class Columns(NamedTuple):
    """As much of a frame as is asked for."""

    numbers: npt.NDArray[np.uint32]
    lows: npt.NDArray[np.uint16]


def frame(numbers: list[int]) -> Any:
    return cast(Any, Columns(np.array(numbers, np.uint32), np.zeros(len(numbers), np.uint16)))


def test_nothing_scanned_is_nothing() -> None:
    columns = ScanColumns()
    assert columns.streams() == 0
    assert columns.entries().tolist() == []


def test_whole_frames_are_numbered_through() -> None:
    columns = ScanColumns()
    columns.add(frame([3, 1]), 2, None)
    columns.add(frame([]), 0, None)
    columns.add(frame([9, 2, 2]), 1, None)  # torn behind its first message
    assert columns.entries().tolist() == [0, 1, 2]
    assert columns.streams() == 10
    assert columns.next_entry == 3


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(st.booleans(), max_size=5)), max_size=8))
def test_entries_are_those_of_the_log(frames: list[tuple[int, list[bool]]]) -> None:
    """Each frame is preceded by a gap of some lost entries, and some of its messages are bad."""
    columns, expected, entry = ScanColumns(), [], 0
    for gap, good in frames:
        entry += gap
        columns.next_entry = entry
        columns.add(frame([0] * len(good)), len(good), np.array(good, np.bool_))
        expected += [entry + at if is_good else LOST_ENTRY for at, is_good in enumerate(good)]
        entry += len(good)
    assert columns.entries().tolist() == expected
