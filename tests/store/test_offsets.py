"""Offsets: those of a stream are 0, 1, 2 .., whatever batches they come in."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.store.log.offsets import FEW_MESSAGES, FIRST_STREAMS, NextOffsets

from ..seeds import draw_seed


@given(st.lists(st.lists(st.integers(0, 5), max_size=30), max_size=8))
def test_a_streams_offsets_follow_each_other(batches: list[list[int]]) -> None:
    offsets, seen = NextOffsets([10, 20]), Counter({0: 10, 1: 20})
    offsets.grow(6)
    for numbers in batches:
        expected = []
        for number in numbers:
            expected.append(seen[number])
            seen[number] += 1
        assert offsets.give(numbers).tolist() == expected
    assert offsets.column().tolist() == [seen[number] for number in range(6)]


@pytest.mark.parametrize("streams", [1, 2, 100])
@pytest.mark.parametrize("count", [1, FEW_MESSAGES, FEW_MESSAGES + 1, 5000])
@pytest.mark.parametrize("kind", [np.uint16, np.uint32])
def test_a_column_of_numbers_gets_what_a_list_of_them_gets(streams: int, count: int, kind: Any) -> None:
    rng = np.random.default_rng(draw_seed())
    columns, lists = NextOffsets(np.arange(streams) * 7), NextOffsets(np.arange(streams) * 7)
    for _ in range(3):
        numbers = rng.integers(0, streams, count).astype(kind)
        given = columns.give_column(numbers)
        assert given.dtype == np.int64
        assert given.tolist() == lists.give(numbers.tolist()).tolist()
    assert columns.column().tolist() == lists.column().tolist()


def test_streams_join_and_begin_at_0() -> None:
    offsets = NextOffsets()
    assert offsets[3] == 0
    for streams in (1, FIRST_STREAMS + 1, 5):  # fewer than there are changes nothing
        offsets.grow(streams)
        offsets.give([0, streams - 1])
    assert (offsets[0], offsets[FIRST_STREAMS], offsets[4]) == (4, 1, 1)
    assert offsets.streams == FIRST_STREAMS + 1


def test_a_stream_that_did_not_join_is_refused() -> None:
    with pytest.raises(IndexError):
        NextOffsets([1, 2]).give([2])


def test_a_column_is_a_copy() -> None:
    offsets = NextOffsets([1])
    column = offsets.column()
    offsets.give([0])
    assert column.tolist() == [1]
