"""The ring against a plain bytearray: what is at or above `low` is what was filled in."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.store.device.ring import Ring

SIZE = 8192
GROWING = 2 << 20  # a step of growth
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
    assert bytes(ring.view_of(at, size)) == data[:size]
    seen = ring.view_of(at, size // 2)
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


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(part_lists, st.booleans()), min_size=1, max_size=30), st.integers(0, 5))
def test_a_ring_that_grows_moves_nothing_and_says_what_it_loses(
    writes: list[tuple[list[bytes], bool]], begin: int
) -> None:
    ring = Ring(GROWING, GROWING * 4)
    ring.begin(begin * SIZE)
    log = bytearray(begin * SIZE)
    ring.warm_up(1 << 40)
    assert ring.warm == GROWING == ring.size_bytes
    for parts, grows in writes:
        if grows:
            ring.grow()
        filler = [bytes([len(log) % 251]) * (GROWING // 3)]
        for some in (filler, parts):
            position, size = len(log), sum(map(len, some))
            before, low = ring.shape, ring.low
            ring.reserve(position + size)
            ring.fill(position, some, size)
            log += b"".join(some)
            assert max(begin * SIZE, len(log) - ring.size_bytes) <= ring.low <= position
            for at in {ring.low, position} - ({position} if before != ring.shape else set()):
                assert (at - before[0]) % before[1] == (at - ring.shape[0]) % ring.shape[1]  # a reader's old shape
            assert ring.low >= low
            assert ring.copy(ring.low, len(log) - ring.low) == log[ring.low :]
            assert b"".join(ring.parts(ring.low, len(log))) == log[ring.low :]
    ring.close()


def test_a_ring_goes_on_into_provided_pages_where_its_lap_ends() -> None:
    ring = Ring(GROWING, GROWING * 2)
    ring.grow()
    assert ring.warm == 0  # the first size comes first
    ring.warm_up(1 << 40)
    ring.reserve(GROWING + 1)
    assert (ring.size_bytes, ring.low) == (GROWING, 1)  # nothing was provided: another lap
    ring.grow()
    assert ring.warm == GROWING * 2 and ring.grown_bytes == GROWING and not ring.can_grow
    ring.reserve(2 * GROWING)
    assert ring.size_bytes == GROWING  # the lap is under way
    ring.reserve(2 * GROWING + 1)
    assert (ring.size_bytes, ring.low) == (2 * GROWING, GROWING)
    ring.reserve(3 * GROWING)
    assert ring.low == GROWING
    ring.reserve(3 * GROWING + 1)
    assert ring.low == GROWING + 1
    ring.close()
    assert ring.grown_bytes == 0


def test_what_growth_drops_counts_as_overtaken_before_it_has_another_place() -> None:
    """The rest of the lap before, behind a frame that ends short of the ring's end."""
    ring = Ring(GROWING, GROWING * 2)
    ring.warm_up(1 << 40)
    ring.reserve(2 * GROWING - 100)
    assert ring.low == GROWING - 100
    ring.grow()
    seen: list[tuple[int, int]] = []

    class Watching(Ring):
        def __setattr__(self, name: str, value: object) -> None:
            if name == "shape":
                seen.append((self.low, ring.shape[1]))
            super().__setattr__(name, value)

    ring.__class__ = Watching
    ring.reserve(2 * GROWING + 100)
    assert seen == [(GROWING, GROWING)] and ring.size_bytes == 2 * GROWING


def test_a_ring_without_addresses_for_its_limit_keeps_its_first_size() -> None:
    ring = Ring(SIZE, 1 << 60)
    assert ring.limit_bytes == ring.size_bytes == SIZE and not ring.can_grow


@pytest.mark.parametrize("position", [0, SIZE - 100], ids=["within", "across the end"])
@pytest.mark.parametrize("said", [199, 201])
def test_parts_of_another_size_than_was_said_are_refused(position: int, said: int) -> None:
    ring = Ring(SIZE)
    ring.reserve(position + 4096)
    with pytest.raises(RuntimeError, match=f"a frame of {said} bytes was given 200"):
        ring.fill(position, [bytes(150), bytes(50)], said)


@pytest.mark.parametrize(("low", "high"), [(100, 99), (0, SIZE + 1)])
def test_a_range_that_a_ring_cannot_have_is_refused(low: int, high: int) -> None:
    with pytest.raises(RuntimeError, match=f"asked for {low} to {high}"):
        Ring(SIZE).parts(low, high)
