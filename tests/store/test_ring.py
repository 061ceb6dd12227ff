"""The ring against a plain bytearray: what is at or above `low` is what was filled in."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.store.device.ring import Ring

SIZE = 8192
parts_of_a_write = st.lists(st.binary(max_size=3000), min_size=1, max_size=6)
part_lists = parts_of_a_write.filter(lambda parts: sum(map(len, parts)) < SIZE)


@settings(max_examples=60, deadline=None)
@given(st.lists(part_lists, min_size=1, max_size=12))
def test_newest_bytes_are_intact(writes: list[list[bytes]]) -> None:
    ring = Ring(SIZE)
    log = bytearray()
    for parts in writes:
        position, size = len(log), sum(map(len, parts))
        ring.reserve(position + size)
        ring.fill(position, parts, size)
        log += b"".join(parts)
        assert ring.low == max(0, len(log) - SIZE)
        assert ring.copy(ring.low, len(log) - ring.low) == log[ring.low :]
        assert b"".join(ring.parts(ring.low, len(log))) == log[ring.low :]
    ring.close()


@pytest.mark.parametrize("size", [10, 5000])  # small parts are joined, large ones are not
def test_parts_that_straddle_the_end_wrap(size: int) -> None:
    ring = Ring(SIZE)
    at = SIZE - size // 2
    data = bytes(range(256)) * 20
    ring.reserve(at + size)
    ring.fill(at, [data[: size - 3], data[size - 3 : size]], size)
    assert ring.copy(at, size) == data[:size]
    views = ring.parts(at, at + size)
    assert [len(view) for view in views] == [size // 2, size - size // 2]
    assert b"".join(views) == data[:size]
    assert bytes(ring.look(at, size)) == data[:size]
    seen = ring.look(at, size // 2)
    assert isinstance(seen, memoryview) and seen.readonly and bytes(seen) == data[: size // 2]


def test_part_that_ends_at_the_end_does_not_wrap() -> None:
    ring = Ring(SIZE)
    ring.reserve(SIZE)
    ring.fill(SIZE - 4, [b"abcd"], 4)
    assert ring.copy(SIZE - 4, 4) == b"abcd"
    assert len(ring.parts(SIZE - 4, SIZE)) == 1


def test_zero_fills_with_zeros() -> None:
    ring = Ring(SIZE)
    ring.reserve(SIZE)
    ring.fill(0, [b"x" * SIZE], SIZE)
    ring.zero(100, 200)
    ring.zero(300, 300)
    assert ring.copy(99, 102) == b"x" + bytes(100) + b"x"
    assert ring.copy(299, 2) == b"xx"


def test_reserve_never_lowers_the_mark() -> None:
    ring = Ring(SIZE)
    ring.reserve(3 * SIZE)
    ring.reserve(2 * SIZE)
    assert ring.low == 2 * SIZE
