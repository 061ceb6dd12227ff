"""A guess by proportion at the segment that has an offset, before the rest is bisected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sealed import SealedSegment

MANY_SEGMENTS = 64  # of fewer a bisection alone asks as few
GUESSES = 3


def around(sealed: Sequence[SealedSegment], number: int, offset: int) -> tuple[int, int]:
    """The two indexes between which a bisection for an offset goes on, of segments with full footers alone.

    Most segments have equally many messages of a stream, so the guess is near. It reads the footers of a few segments;
    a bisection would read a dozen, each for this search alone.
    """
    at, high = 0, len(sealed)
    begins, ends = sealed[0].first_offset(number), sealed[-1].first_offset(number)
    if not begins <= offset < ends:
        return (high, high) if ends <= offset else (0, 1)
    for _ in range(GUESSES):
        middle = at + (offset - begins) * (high - at) // (ends - begins)
        if not at <= middle < high:
            break
        found = sealed[middle].first_offset(number)
        if found <= offset:
            at, begins = middle + 1, found
        else:
            high, ends = middle, found
        if at == high or ends == begins:
            break
    return at, high
