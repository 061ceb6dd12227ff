"""The columns of a scan: entry numbers with what a repair left out, and what a footer is made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from stratalog.store.device.disk import OsDisk
from stratalog.store.format.footer import FooterData, by_stream
from stratalog.store.format.layout import LOST_ENTRY
from stratalog.store.recovery.name_list import NameList
from stratalog.store.recovery.placement import NO_OFFSET, OffsetBounds
from stratalog.store.recovery.reindex import ScanColumns, index_by_footer, index_columns
from stratalog.store.recovery.repair import Repair


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


def stretch(numbers: list[int], firsts: list[int], lost: range) -> tuple[ScanColumns, FooterData]:
    """A segment of messages of these streams, scanned without the `lost` entries; and its whole footer."""
    columns, given = ScanColumns(), np.array(numbers, np.uint32)
    order = by_stream(given)
    counts = np.bincount(given, minlength=len(firsts))
    start = np.concatenate([[0], counts.cumsum()])
    offsets = np.empty(len(given), np.int64)
    offsets[order] = np.repeat(np.array(firsts) - start[:-1], counts) + np.arange(len(given))
    none = np.empty(0, np.uint32)
    footer = FooterData(
        ["t"], np.zeros(len(firsts), np.uint32), np.arange(len(firsts), dtype=np.uint32), np.array(firsts, np.int64),
        start.astype(np.uint32), order.astype(np.uint32), none, none, np.empty(0, np.int64),
        np.empty(0, np.uint16),
    )  # fmt: skip
    for part in (range(lost.start), range(lost.stop, len(given))):
        columns.next_entry = part.start
        rows = slice(part.start, part.stop)
        columns.add(cast(Any, Columns(given[rows], offsets[rows].astype(np.uint16))), len(part), None)
    columns.frames.clear()  # that they were frames is of no importance here
    return columns, footer


def expected_of(footer: FooterData, lost: range) -> list[int]:
    return [LOST_ENTRY if entry in lost else entry for entry in footer.entries.tolist()]


def test_footer_places_messages_behind_any_number_of_lost_ones() -> None:
    lost = range(10_000, 150_000)
    columns, footer = stretch([0, 0, 1] * 60_000, [7, 70_000], lost)
    made = index_by_footer(columns, footer, [7, NO_OFFSET])
    assert made is not None
    assert made.entries.tolist() == expected_of(footer, lost)
    assert (made.first.tolist(), made.start.tolist()) == (footer.first.tolist(), footer.start.tolist())


def test_messages_missing_before_the_footer_are_lost_in_its_segment() -> None:
    columns, footer = stretch([0, 1, 0], [3, 5], range(0, 0))
    made = index_by_footer(columns, footer, [1, NO_OFFSET])
    assert made is not None
    assert (made.first.tolist(), made.next_offsets.tolist()) == ([1, 5], [5, 6])
    assert made.entries.tolist() == [LOST_ENTRY, LOST_ENTRY, 0, 2, 1]


def test_footer_of_other_streams_or_offsets_is_not_taken() -> None:
    columns, footer = stretch([0, 1, 0, 1], [0, 0], range(2, 3))
    assert index_by_footer(columns, replace(footer, first=footer.first + 1), []) is None
    assert index_by_footer(columns, replace(footer, entries=footer.entries[::-1].copy()), []) is None
    assert index_by_footer(columns, footer, [0, 0]) is not None


@given(
    st.lists(st.integers(0, 3), max_size=40),
    st.lists(st.sampled_from([0, 5, 65_530]), min_size=4, max_size=4),
    st.tuples(st.integers(0, 40), st.integers(0, 40)),
)
def test_without_a_footer_low_bits_and_the_next_segment_place_what_is_left(
    numbers: list[int], firsts: list[int], cut: tuple[int, int]
) -> None:
    lost = range(min(*cut, len(numbers)), min(max(cut), len(numbers)))
    columns, footer = stretch(numbers, firsts, lost)
    names = NameList(("t", number) for number in range(4))
    repair = Repair(OsDisk(), Path("nowhere"), 0, allowed=True)
    known = OffsetBounds(np.array(firsts, np.int64), ends=footer.next_offsets, is_exact=True, inside=len(lost))
    made, is_sure = index_columns(columns, names, known, repair, Path("segment"))
    assert is_sure
    assert made.entries.tolist() == expected_of(footer, lost)
    assert made.start.tolist() == footer.start.tolist()
