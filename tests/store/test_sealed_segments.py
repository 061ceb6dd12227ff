"""The sequence of a lane's sealed segments, beside a tuple of the same."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.store import MessageStore
from stratalog.store.segment.sealed_segments import IN_PART, SealedSegments

from .helpers import tiny, until

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 2 * IN_PART + 3)), max_size=12)


class Numbered:
    """A sealed segment, as far as the sequence asks it."""

    def __init__(self, number: int) -> None:
        self.segment = SimpleNamespace(sequence=number)


def segment(number: int) -> Any:
    return Numbered(number)


def check(found: SealedSegments, expected: tuple[Any, ...]) -> None:
    assert len(found) == len(expected) and bool(found) == bool(expected)
    assert tuple(found) == expected and tuple(reversed(found)) == expected[::-1]
    assert [found[at] for at in range(-len(expected), len(expected))] == [*expected, *expected]
    assert [found.at(at) for at in range(len(expected))] == list(expected)
    for at in (-len(expected) - 1, len(expected), len(expected) + IN_PART, len(expected) + 10 * IN_PART):
        with pytest.raises(IndexError):
            found[at]
    ends = [one.segment.sequence for one in (*expected[:1], *expected[-1:])] or [0, 0]
    assert found.span == (*ends, len(expected))


@given(STEPS, st.lists(st.tuples(*[st.none() | st.integers(-200, 200)] * 2, st.sampled_from([None, 1, 2, -1, -3]))))
def test_it_has_what_a_tuple_has_and_older_ones_stay_as_they_are(
    steps: list[tuple[bool, int]], slices: list[tuple[int | None, int | None, int | None]]
) -> None:
    found, expected, next_number = SealedSegments(), tuple[Any, ...](), 1
    seen = [(found, expected)]
    for is_added, count in steps:
        if is_added:
            added = [segment(next_number + at) for at in range(count)]
            next_number += count
            found, expected = found.with_newest(added), (*expected, *added)
        else:
            found, expected = found.without_oldest(min(count, len(expected))), expected[count:]
        if expected == seen[-1][1]:
            assert found is seen[-1][0], "readers that wait compare by identity"
        seen.append((found, expected))
    for one, other in seen:
        check(one, other)
    for begin, end, step in slices:
        assert found[begin:end:step] == expected[begin:end:step]


@given(st.integers(1, 3 * IN_PART), st.data())
def test_a_removed_segment_is_kept_by_no_part(count: int, data: st.DataObject) -> None:
    segments = [segment(number) for number in range(1, count + 1)]
    known = [weakref.ref(one) for one in segments]
    gone = data.draw(st.integers(1, count))
    left = SealedSegments().with_newest(segments).without_oldest(gone)
    del segments
    gc.collect()
    assert [one() is not None for one in known] == [number >= gone for number in range(count)]
    assert len(left) == count - gone


def test_a_seal_and_a_removal_copy_few_references_of_many() -> None:
    """As many as a part has, and one of each other part: what a part has is shared."""
    many = SealedSegments().with_newest([segment(number) for number in range(1, 100 * IN_PART)])
    for other in (many.with_newest([segment(9_999)]), many.without_oldest(70)):
        parts = {id(part) for part in many._parts}
        assert sum(id(part) not in parts for part in other._parts) == 1


def test_views_that_seals_and_retention_replace_have_their_segments(tmp_path: Any) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=3_000_000)) as store:
        views = []
        for _ in range(300):
            store.append_batch([("t", 0, bytes(7_000))] * 9)
            views.append(store._lanes[0].view)
        until(lambda: store._lanes[0].view.sealed.span[0] > IN_PART)
        for view in views:
            sequences = [one.segment.sequence for one in view.sealed]
            assert sequences == list(range(view.sealed.span[0], view.sealed.span[1] + 1))[: len(sequences)]
            assert view.sealed_messages == sum(one.record.entries for one in view.sealed)
