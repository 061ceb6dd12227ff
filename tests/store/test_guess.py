"""Where a guess by proportion leaves a bisection to go on: the segment that is looked for is always between."""

from __future__ import annotations

import random
from typing import Any

from stratalog.store.segment.groups import around


class Segment:
    """Of which nothing is asked but where a stream begins."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.asked = 0

    def first_offset(self, number: int) -> int:
        self.asked += 1
        return self.first


def steps(chance: random.Random, kind: int) -> int:
    """How many messages a segment has: as many as others, any number, mostly none, or a few in front alone."""
    return (20, chance.randrange(40), chance.choice((0, 0, 0, 1, 1_000)), 0)[kind]


def test_the_segment_of_an_offset_is_between_the_places_that_are_left() -> None:
    chance = random.Random(2_711)
    for case in range(400):
        kind, count = case % 4, chance.choice((2, 65, 200, 900))
        firsts = [0]
        for at in range(count - 1):
            firsts.append(firsts[-1] + (3 if kind == 3 and at < 2 else steps(chance, kind)))
        segments: Any = [Segment(first) for first in firsts]
        for _ in range(20):
            offset = chance.randrange(firsts[-1] + 3)
            low, high = around(segments, 0, offset)
            behind = sum(first <= offset for first in firsts)  # the first segment that begins later
            assert low <= behind <= high, (firsts, offset, low, high)


def test_of_segments_alike_a_few_are_asked() -> None:
    segments: Any = [Segment(20 * at + at % 3) for at in range(10_000)]
    for offset in range(0, 199_000, 997):
        low, high = around(segments, 0, offset)
        assert high - low <= 2
    assert sum(one.asked for one in segments) <= 5 * 200 + 10
