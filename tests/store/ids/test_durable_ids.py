"""The columns of durable ids: what came and has not left is found, and nothing else, whatever the ring has done."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from stratalog.store.format.message_ids import FEW, digest_of
from stratalog.store.topics.durable_ids import LEAST, MOST_ROOM, DurableIds
from tests.seeds import draw_seed

Place = tuple[int, int]


def digest(number: int, *, alike: bool = False) -> bytes:
    """Of an id; `alike`: one of few that are all in one chain, and of which some begin with the same eight bytes."""
    made = digest_of(b"%d" % number)
    return bytes([number % 3, *bytes(7)]) + made[8:] if alike else made


class Model:
    """The ids that should be there, the oldest first, and the table of them."""

    def __init__(self) -> None:
        self.known: dict[bytes, Place] = {}
        self.table = DurableIds()

    def add(self, digests: list[bytes], first: int) -> None:
        places = [(number % 7, (first + number) << 33) for number in range(len(digests))]
        queue_ids, offsets = ([place[column] for place in places] for column in (0, 1))
        self.table.add(b"".join(digests), queue_ids, offsets)
        self.known.update(zip(digests, places, strict=True))

    def leave(self, count: int) -> None:
        for one in list(self.known)[:count]:
            del self.known[one]
            self.table.begin += 1

    def compare(self, asked: list[bytes]) -> None:
        expected = [self.known.get(one) for one in asked]
        assert [self.table.find(one) for one in asked] == expected
        found = self.table.find_all(b"".join(asked))
        columns = found or (np.full(len(asked), -1),) * 2
        places = zip(*[column.tolist() for column in columns], strict=True)
        assert [None if place == (-1, -1) else place for place in places] == expected
        assert (found is None) == (not any(expected))
        offsets = self.table.offsets_of(asked)
        assert (offsets or [-1] * len(asked)) == [-1 if one is None else one[1] for one in expected]
        assert len(self.table) == len(self.known)


@pytest.mark.parametrize("alike", [False, True])
def test_what_came_and_has_not_left_is_found_and_nothing_else(alike: bool) -> None:
    rng, model, serial = random.Random(draw_seed()), Model(), 0
    for step in range(600):
        count = rng.choice([1, 1, 2, 5, 16, 17, 60, 300])
        drawn = {digest(rng.randrange(serial // 2, serial + 3 * count), alike=alike) for _ in range(count)}
        model.add([one for one in drawn if one not in model.known], serial)
        serial += count
        model.leave(len(model.known) if step % 97 == 0 else rng.choice([0, 1, count, 2 * count]))
        model.compare([digest(rng.randrange(serial + 10), alike=alike) for _ in range(rng.choice([1, 10, 40]))])


def test_the_ring_grows_and_becomes_small_again() -> None:
    model = Model()
    sizes: list[int] = []
    for count in (1, 5000, 1, 1):
        model.add([digest(len(sizes) << 20 | number) for number in range(count)], 0)
        sizes.append(model.table._mask + 1)
        model.compare(list(model.known)[::97])
        model.leave(len(model.known) - 1)
    assert sizes[0] == LEAST == sizes[-1] and 5000 < sizes[1] < 5000 * MOST_ROOM


@pytest.mark.parametrize("count", [3, 100])
def test_ids_that_an_interrupt_has_cut_off_harm_no_others_and_are_gone_with_the_next_ones(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    model = Model()
    model.add([digest(number, alike=True) for number in range(40)], 0)
    step = "_chain" if count > FEW else "_add_few"
    take: Callable[..., None] = getattr(DurableIds, step)

    def interrupted(*given: object) -> None:
        take(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DurableIds, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            cut_off = [digest(number, alike=True) for number in range(1000, 1000 + count)]
            model.table.add(b"".join(cut_off), [0] * count, [9] * count)
    for _ in range(2):
        model.compare([digest(number, alike=True) for number in range(50)])
        model.add([digest(number, alike=True) for number in range(len(model.known), len(model.known) + count)], 77)
        assert [model.table.find(one) for one in cut_off] == [None] * count
    model.leave(30)
    model.compare([digest(number, alike=True) for number in range(60)])
