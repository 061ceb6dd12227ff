"""What readers hold of sealed segments: memory is given back with what is evicted."""

from __future__ import annotations

import random
import sys
import weakref

import pytest

from stratalog.store.segment.copies import KEPT_BYTES, PART, TOUCHES, WINDOW_BYTES, Copies
from stratalog.store.segment.held import HOME_BYTES, ITEM_BYTES, PLACE_BYTES, HeldItem, HeldItems, HeldMemory

from ..seeds import draw_seed
from .interrupts import interrupt_at, places

MANY = 2000
KEPT = 50


def size_of(homes: list[dict[int, HeldItem]]) -> int:
    """The owners' dicts alone, without what is in them."""
    return sum(sys.getsizeof(home) - sys.getsizeof({}) for home in homes)


@pytest.mark.parametrize("used", [0, 1, 5])
def test_owners_whose_items_went_keep_no_memory_for_them(used: int) -> None:
    """A reader goes from owner to owner; others use a few items of each all the time."""
    homes: list[dict[int, HeldItem]] = [{} for _ in range(10)]
    held: HeldItems[HeldItem] = HeldItems((MANY + 100) * HeldItem(0).size_bytes)
    for home in homes:
        for number in range(MANY):
            held.keep(home, number, HeldItem(0))
            for other in homes:
                for one in range(used):
                    if one in other:
                        other[one].used = True
    assert size_of(homes) <= PLACE_BYTES * len(held.items) + HOME_BYTES * len(homes)
    held.limit(KEPT * HeldItem(0).size_bytes)
    assert len(held.items) == sum(map(len, homes)) == KEPT
    assert size_of(homes) <= PLACE_BYTES * KEPT + HOME_BYTES * len(homes)
    for home in homes:
        assert all(item.number == number and item.home is home for number, item in home.items())


def test_what_is_left_is_found_after_random_evictions() -> None:
    rng = random.Random(draw_seed())
    homes: list[dict[int, HeldItem]] = [{} for _ in range(3)]
    held: HeldItems[HeldItem] = HeldItems(300 * HeldItem(0).size_bytes)
    for _ in range(5000):
        home, number = rng.choice(homes), rng.randrange(400)
        if number in home:
            home[number].used = rng.random() < 0.5
        else:
            held.keep(home, number, HeldItem(0))
        if rng.random() < 0.01:
            held.limit(rng.choice((20, 100, 300)) * HeldItem(0).size_bytes)
    assert held.used_bytes == sum(item.size_bytes for item in held.items) <= held.limit_bytes
    assert sum(map(len, homes)) == len(held.items)
    assert all(home[item.number] is item for item in held.items for home in [item.home])


HELD = ("segment/held.py",)


def is_counted(held: HeldItems[HeldItem], *homes: dict[int, HeldItem]) -> bool:
    """Whether what the owners have is held and counted, and nothing else is."""
    there = [item for home in homes for item in home.values()]
    return set(there) == set(held.items) and held.used_bytes == sum(item.size_bytes for item in there)


def test_an_interrupted_drop_leaves_nothing_that_the_next_one_does_not_take() -> None:
    """An item that nobody could drop would keep its segments, and their files would never be used again."""
    for place in places():
        home: dict[int, HeldItem] = {}
        held: HeldItems[HeldItem] = HeldItems(10_000)
        for number in range(3):
            held.keep(home, number, HeldItem(100))
        came, _ = interrupt_at(place, HELD, lambda: held.drop(home, 1))  # noqa: B023  # it runs at once
        held.drop(home, 1)
        assert sorted(home) == [0, 2]
        assert is_counted(held, home), place
        if not came:
            break


def test_an_interrupted_eviction_takes_no_newer_item_from_its_owner() -> None:
    size = HeldItem(100).size_bytes
    for place in places():
        home: dict[int, HeldItem] = {}
        held: HeldItems[HeldItem] = HeldItems(3 * size)
        for number in range(3):
            held.keep(home, number, HeldItem(100))
        came, _ = interrupt_at(place, HELD, lambda: held.limit(2 * size))  # noqa: B023  # it runs at once
        newer = HeldItem(100)
        held.drop(home, 0)
        held.keep(home, 0, newer)  # it is the newest: the others go before it
        held.limit(size)
        assert home == {0: newer}, place
        assert is_counted(held, home), place
        if not came:
            break


def touch(memory: HeldMemory, copies: Copies, window: int) -> None:
    """Read message after message of a window, until it is kept or is not."""
    for _ in range(TOUCHES):
        if copies.is_worth_it(memory, window * WINDOW_BYTES, 100):
            copies.keep(memory, window * WINDOW_BYTES, bytes(KEPT_BYTES))


def test_the_windows_of_all_open_segments_stay_within_their_part_of_the_memory() -> None:
    room = 5
    memory = HeldMemory(PART * room * (KEPT_BYTES + ITEM_BYTES))
    segments = [Copies() for _ in range(4)]
    for window in range(room):
        for copies in segments:
            touch(memory, copies, window)
            for kept in copies.windows.values():
                kept.used = True
    assert sum(len(copies.windows) for copies in segments) == room
    assert memory.frames.used_bytes <= memory.limit_bytes // PART
    some = next(window for window, _ in segments[0].windows.items())
    before = segments[0].windows[some]
    touch(memory, segments[0], some)  # again, in place of what is kept of it
    assert segments[0].windows[some] is not before
    assert memory.frames.used_bytes <= memory.limit_bytes // PART


def test_windows_that_nobody_reads_any_more_make_room_for_those_of_later_segments() -> None:
    room = 5
    memory = HeldMemory(PART * room * (KEPT_BYTES + ITEM_BYTES))
    older, newer = Copies(), Copies()
    for window in range(room):
        touch(memory, older, window)
        older.windows[window].used = True
    for _ in range(2):
        for window in range(room):
            touch(memory, newer, window)
    assert (len(older.windows), len(newer.windows)) == (0, room)
    assert memory.frames.used_bytes <= memory.limit_bytes // PART


@pytest.mark.parametrize("by", ["others", "close"])
def test_windows_that_are_held_no_more_are_gone(by: str) -> None:
    memory, copies = HeldMemory(PART * 5 * (KEPT_BYTES + ITEM_BYTES)), Copies()
    for window in range(5):
        touch(memory, copies, window)
    left = [weakref.ref(window) for window in copies.windows.values()]
    assert len(left) == 5
    if by == "others":
        memory.frames.keep({}, 0, HeldItem(memory.limit_bytes))
    else:
        memory.clear()
    assert [window() for window in left] == [None] * 5


@pytest.mark.parametrize("limit", [0, KEPT_BYTES])
def test_a_memory_that_is_too_small_for_a_window_has_none(limit: int) -> None:
    memory, copies = HeldMemory(limit), Copies()
    for window in range(3):
        touch(memory, copies, window)
    assert copies.windows == {}
