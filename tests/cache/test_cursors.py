"""Active cursors (R20)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.cache import InvalidCacheConfig, TunedCacheConfig
from stratalog.cache.cursors import ActiveCursors
from stratalog.cache.message_cache import MessageCache

from .helpers import batch_of


def wanted(cursors: ActiveCursors, stream: int, offset: int) -> bool:
    return bool(cursors.wanted(np.array([stream]), np.array([offset]))[0])


def test_a_message_is_wanted_while_some_cursor_is_near() -> None:
    cursors = ActiveCursors(1000)
    assert not wanted(cursors, 3, 0)
    cursors.move(3, 0)
    assert wanted(cursors, 3, 999) and not wanted(cursors, 3, 1000)
    cursors.move(3, 5000)
    assert wanted(cursors, 3, 5999) and not wanted(cursors, 3, 6000)
    cursors.move(3, 10)
    assert wanted(cursors, 3, 1009) and not wanted(cursors, 3, 1010)


def test_streams_that_nobody_knows_are_not_wanted() -> None:
    cursors = ActiveCursors(1000)
    assert not wanted(cursors, 1_000_000, 0)
    cursors.move(1_000_000, 0)
    assert wanted(cursors, 1_000_000, 0) and not wanted(cursors, 999_999, 0)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 50))))
def test_it_is_a_dict_of_positions(moves: list[tuple[int, int]]) -> None:
    cursors, model = ActiveCursors(10), dict[int, int]()
    for stream, position in moves:
        cursors.move(stream, position)
        model[stream] = position
    for stream in range(201):
        for offset in range(0, 70, 7):
            assert wanted(cursors, stream, offset) == (stream in model and offset - model[stream] < 10)


def test_a_message_cache_keeps_only_what_active_readers_want() -> None:
    cache = MessageCache(TunedCacheConfig(readers="near", active_backlog_messages=10))
    assert cache.cursors is not None
    cache.cursors.move(1, 0)
    rows = [(stream, offset, b"%d" % offset) for offset in range(20) for stream in (0, 1)]
    cache.fill(batch_of(rows))
    assert not cache.read(0, 0, 99).offsets and list(cache.read(1, 0, 99).offsets) == list(range(10))
    cache.close()


def test_with_a_backlog_of_one_only_the_next_message_of_a_reader_is_wanted() -> None:
    tuned = TunedCacheConfig(readers="near", active_backlog_messages=1)
    cursors = MessageCache(tuned).cursors
    assert cursors is not None
    cursors.move(0, 5)
    assert [wanted(cursors, 0, offset) for offset in (4, 5, 6)] == [True, True, False]


@pytest.mark.parametrize("refused", [0, -1, 1.0, "1"])
def test_a_backlog_is_a_number_of_one_message_at_least(refused: object) -> None:
    with pytest.raises(InvalidCacheConfig, match="at least 1"):
        TunedCacheConfig(readers="near", active_backlog_messages=refused)  # type: ignore[arg-type]  # refused
