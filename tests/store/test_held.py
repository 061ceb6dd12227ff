"""What readers hold of sealed segments: memory is given back with what is evicted."""

from __future__ import annotations

import random
import sys

import pytest

from stratalog.store.segment.held import HOME_BYTES, PLACE_BYTES, Held, Item

from ..seeds import draw_seed

MANY = 2000
KEPT = 50


def size_of(homes: list[dict[int, Item]]) -> int:
    """The owners' dicts alone, without what is in them."""
    return sum(sys.getsizeof(home) - sys.getsizeof({}) for home in homes)


@pytest.mark.parametrize("used", [0, 1, 5])
def test_owners_whose_items_went_keep_no_memory_for_them(used: int) -> None:
    """A reader goes from owner to owner; others use a few items of each all the time."""
    homes: list[dict[int, Item]] = [{} for _ in range(10)]
    held: Held[Item] = Held((MANY + 100) * Item(0).size_bytes)
    for home in homes:
        for number in range(MANY):
            held.keep(home, number, Item(0))
            for other in homes:
                for one in range(used):
                    if one in other:
                        other[one].used = True
    assert size_of(homes) <= PLACE_BYTES * len(held.items) + HOME_BYTES * len(homes)
    held.limit(KEPT * Item(0).size_bytes)
    assert len(held.items) == sum(map(len, homes)) == KEPT
    assert size_of(homes) <= PLACE_BYTES * KEPT + HOME_BYTES * len(homes)
    for home in homes:
        assert all(item.number == number and item.home is home for number, item in home.items())


def test_what_is_left_is_found_after_random_evictions() -> None:
    rng = random.Random(draw_seed())
    homes: list[dict[int, Item]] = [{} for _ in range(3)]
    held: Held[Item] = Held(300 * Item(0).size_bytes)
    for _ in range(5000):
        home, number = rng.choice(homes), rng.randrange(400)
        if number in home:
            home[number].used = rng.random() < 0.5
        else:
            held.keep(home, number, Item(0))
        if rng.random() < 0.01:
            held.limit(rng.choice((20, 100, 300)) * Item(0).size_bytes)
    assert held.used_bytes == sum(item.size_bytes for item in held.items) <= held.limit_bytes
    assert sum(map(len, homes)) == len(held.items)
    assert all(home[item.number] is item for item in held.items for home in [item.home])
