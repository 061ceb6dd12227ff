"""The set of acknowledged offsets of a queue, against Python's own sets; and the records that carry it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.store.format.cursors import (
    _GROUP,
    COUNTS,
    RANGES,
    CursorMark,
    Group,
    Record,
    State,
    bitmap_of,
    pack_acks,
    pack_delete,
    pack_ones,
    pack_state,
    unpack_acks,
    unpack_state,
)
from stratalog.store.subscriptions.cursor import AckedOffsets, Cursor
from stratalog.store.subscriptions.settings import Settings

OFFSETS = range(90)
offsets = st.sets(st.integers(0, 80), max_size=60)
steps = st.lists(
    st.tuples(st.sampled_from(["add", "range", "all", "bitmap", "mark", "cut"]), offsets), max_size=30
)  # fmt: skip


def array_of(places: set[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(sorted(places), np.int64)


@given(steps)
def test_it_is_a_set(taken: list[tuple[str, set[int]]]) -> None:
    acked, model = AckedOffsets(), set[int]()
    for what, places in taken:
        lowest = min(places, default=0)
        if what == "add":
            for place in places:
                acked.add(place)
            model |= places
        elif what == "range":
            acked.add_range(lowest, lowest + len(places))
            model |= set(range(lowest, lowest + len(places)))
        elif what == "all":
            acked.add_all(array_of(places))
            model |= places
        elif what == "bitmap":
            acked.add_bitmap(bitmap_of(array_of(places)))
            model |= places
        elif what == "mark":
            acked.raise_mark(lowest)
            model |= set(range(lowest))
        else:
            acked.cut(lowest)
            model = {at for at in model if at < lowest}
        assert {at for at in OFFSETS if at in acked} == model
        assert acked.mark == next(at for at in OFFSETS if at not in model)
        assert set(acked.above) == {at for at in model if at > acked.mark}
        asked = array_of(places)
        assert acked.are_in(asked).tolist() == [at in model for at in asked.tolist()]
        assert acked.first_missing(lowest) == next(at for at in range(lowest, 91) if at not in model)


@given(st.dictionaries(st.integers(0, 2**31 - 1), offsets.filter(bool), max_size=5), st.integers(60, 4000))
def test_acks_are_read_as_they_were_written(by_queue: dict[int, set[int]], limit_bytes: int) -> None:
    records = pack_acks(3, [(queue, 9, array_of(places)) for queue, places in by_queue.items()], limit_bytes)
    found: dict[int, set[int]] = {}
    for data in records:
        record = Record.unpack(data)
        assert record is not None
        assert record.life == 3
        for group in unpack_acks(record.body):
            assert group.era == 9
            places = set(group.bitmap) if group.bitmap is not None else ranges(group)
            found.setdefault(group.queue_id, set()).update(places)
    assert found == by_queue


def ranges(group: Group) -> set[int]:
    assert group.ranges is not None
    return {at for begin, end in group.ranges.tolist() for at in range(begin, end)}


@given(
    st.dictionaries(st.integers(0, 2**31 - 1), st.builds(CursorMark, st.integers(0, 2**32 - 1), st.integers(0, 2**62))),
    st.binary(max_size=3000),
    st.integers(17, 500),
)
def test_a_state_is_read_as_it_was_written_in_however_many_records(
    marks: dict[int, CursorMark], settings: bytes, limit_bytes: int
) -> None:
    group = Group(5, 1, None, bitmap_of(np.arange(0, 3000, 3)))
    records = [Record.unpack(data) for data in pack_state(1, State(settings, marks, [group]), limit_bytes)]
    bodies = [record.body for record in records if record is not None]
    assert [record.part for record in records if record is not None] == list(range(len(records)))
    state = unpack_state(bodies)
    assert (state.settings, state.marks) == (settings, marks)
    assert [one.bitmap for one in state.groups] == [group.bitmap]


def test_a_state_counts_only_when_all_its_records_are_there() -> None:
    marks = {queue: CursorMark(1, queue * 1_000_003 % 977) for queue in range(300)}
    cursor = Cursor()
    for data in pack_state(1, State(Settings().pack(), {}), 4096):
        cursor.read(memoryview(data))
    records = pack_state(1, State(Settings().pack(), marks), 64)
    assert len(records) > 3
    for data in [*records[:-1], *records[1:]]:  # the process has died, and the first record is lost by damage
        cursor.read(memoryview(data))
    cursor.read(memoryview(pack_ones(1, [(3, 0, 0)])))
    assert {queue: acked.mark for queue, acked in cursor.queues.items()} == {3: 1}
    for data in records:
        cursor.read(memoryview(data))
    assert {queue: acked.mark for queue, acked in cursor.queues.items()} == {at: marks[at].offset for at in marks}


def test_what_belongs_to_an_earlier_era_or_life_counts_for_nothing() -> None:
    cursor = Cursor()
    settings = Settings().pack()
    for record in (
        *pack_state(2, State(settings, {0: CursorMark(1, 10)}), 4096),
        pack_ones(1, [(0, 1, 10)]), pack_ones(2, [(0, 0, 10)]),
        *pack_state(2, State(settings, {0: CursorMark(2, 4)}), 4096),
        pack_ones(2, [(0, 1, 4)]), pack_ones(2, [(0, 2, 6)]),
        pack_ones(1, [(0, 2, 7)]), pack_delete(1),
    ):  # fmt: skip
        cursor.read(memoryview(record))
    assert cursor.settings is not None
    assert (cursor.queues[0].mark, set(cursor.queues[0].above)) == (4, {6})


def test_a_million_holes_take_less_than_ten_bytes_each() -> None:
    order = np.random.default_rng(1).permutation(2_000_000)[:1_000_000]
    acked = AckedOffsets()
    for begin in range(0, len(order), 4096):
        acked.add_all(np.sort(order[begin : begin + 4096]))
    cursor = Cursor()
    cursor.begin(1, Settings())
    cursor.queues[0] = acked
    size = sum(map(len, cursor.frozen().records(1 << 19)))
    assert size < 10 * len(acked.above)


@pytest.mark.parametrize("form", [RANGES, COUNTS])
@pytest.mark.parametrize("size", [1, 8, 15, 17, 24])
def test_a_group_of_pairs_with_a_part_of_a_pair_is_damage(form: int, size: int) -> None:
    """An offset without its number of attempts, or a range without its end."""
    whole = _GROUP.pack(0, 0, form, 32) + bytes(32)
    assert len(unpack_acks(memoryview(whole))) == 1
    with pytest.raises(ValueError, match=f"a group of form {form} with {size} bytes is not known"):
        unpack_acks(memoryview(whole + _GROUP.pack(0, 0, form, size) + bytes(size)))
