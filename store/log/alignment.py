"""The last, partly filled block of a write: it is filled, or held back (R4 to R6).

*Pad*: fill the block with zeros. It costs the empty bytes on the device, and no producer waits longer.
*Trim*: write the whole blocks, and keep the rest as the head of the next write. It costs no byte, but the
messages that end in the rest wait for one more write.

The adaptive rule compares the two in the one currency they share, a producer's time;
docs/decisions/appending.md derives it ("When to pad and when to trim") and has the figures.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from ..config import Alignment
from ..format.layout import align_down, align_up

# At most this share of the producers' rate may be lost by holding a tail back.
MOST_LOST_BY_HOLDING = 1 / 12


class TailChoice(NamedTuple):
    """The figures that `should_pad` compares.

    Attributes:
        held: requests that would stay waiting if the rest were held back.
        answered: requests that the write would answer in any case.
        empty_bytes: zeros that padding would add.
        active: requests that are under way at once, as the sizer sees them.
    """

    held: int
    answered: int
    empty_bytes: int
    active: int = 0


class UnissuedFrames:
    """Frames that are not wholly in a write yet: the end of each request (lane positions, ascending)."""

    def __init__(self) -> None:
        self._frames: list[list[int]] = []

    def add(self, ends: list[int]) -> None:
        """A frame was built; one end a request (a group is answered as a whole)."""
        self._frames.append(ends)

    def issue(self, high: int) -> None:
        """A write up to `high` was planned."""
        self._frames = [ends for ends in self._frames if ends[-1] > high]

    def tail(self, tail: int, issued: int, active: int, block_bytes: int) -> TailChoice:
        """The figures for `should_pad` about a write of [issued, tail) in such blocks."""
        total = sum(map(len, self._frames))
        whole, earlier = self._up_to(align_down(tail, block_bytes)), self._up_to(issued)
        return TailChoice(total - whole, whole - earlier, align_up(tail, block_bytes) - tail, active)

    def _up_to(self, position: int) -> int:
        return sum([bisect_right(ends, position) for ends in self._frames])


def should_pad(policy: Alignment, tail: TailChoice) -> bool:
    """True to fill the last block, False to hold it back. Only asked if a later write will take what is held back."""
    if tail.empty_bytes == 0:
        return True  # nothing to decide: the write ends on a boundary
    if policy == "pad":
        return True
    if policy == "trim":
        return False
    if tail.answered == 0:
        return True
    # A producer's round takes about active / batch writes, plus its own; one that is held back waits for one more.
    batch = tail.held + tail.answered
    rounds = max(tail.active, batch) / batch + 1
    return tail.held / batch / rounds > MOST_LOST_BY_HOLDING
