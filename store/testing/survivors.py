"""Draws what a power cut leaves of unforced writes: one choice for each block, length and change of a name."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal, TypeVar

BLOCK_BYTES = 4096
SECTOR_BYTES = 512

Manner = Literal["none", "all", "blocks", "sectors", "torn", "prefix", "one lost", "one kept"]
MANNERS: tuple[Manner, ...] = ("none", "all", "blocks", "sectors", "torn", "prefix", "one lost", "one kept")

Change = TypeVar("Change")


class Survivors:
    """The survivors of one power cut, drawn from `chance`.

    Manners:
        none, all: the two ends; "all" is also what the death of the process alone leaves.
        blocks: each unforced 4 KiB block survives or not.
        sectors: each unforced 512-byte sector survives or not, in any of the states it was written in.
        torn: as "sectors", and sectors are torn inside as well.
        prefix: the first unforced blocks of each file survive.
        one lost, one kept: all unforced blocks except one, over all files; and the reverse.

    Blocks are asked for in a fixed order, files by name and blocks by position, so that the same `chance`
    gives the same survivors.
    """

    def __init__(self, chance: random.Random, manner: Manner, unforced_blocks: int) -> None:
        self._chance = chance
        self._manner = manner
        self._likely = chance.choice((0.1, 0.5, 0.9))
        self._chosen = chance.randrange(max(1, unforced_blocks))
        self._at = -1

    def block(self, forced: bytes, unforced: Sequence[bytes]) -> bytes:
        """A block's bytes, given its forced bytes and those written since, the oldest first."""
        self._at += 1
        manner, newest = self._manner, unforced[-1]
        if manner == "none":
            return forced
        if manner == "all":
            return newest
        if manner in ("one lost", "one kept"):
            return newest if (self._at == self._chosen) == (manner == "one kept") else forced
        if manner == "prefix":
            return newest if self._at < self._chosen else forced
        if manner == "blocks":
            return self._chance.choice(unforced) if self._chance.random() < self._likely else forced
        return self._torn(forced, unforced)

    def _torn(self, forced: bytes, unforced: Sequence[bytes]) -> bytes:
        chance, likely = self._chance, self._likely
        parts = []
        for begin in range(0, BLOCK_BYTES, SECTOR_BYTES):
            end = begin + SECTOR_BYTES
            chosen = chance.choice(unforced) if chance.random() < likely else forced
            if self._manner == "torn" and chance.random() < 0.1:
                cut = begin + chance.randrange(SECTOR_BYTES)
                parts.append(chosen[begin:cut])
                parts.append(forced[cut:end])
            else:
                parts.append(chosen[begin:end])
        return b"".join(parts)

    def size(self, forced: int, unforced: Sequence[int]) -> int:
        """The length of a file, given the forced one and those since, the oldest first."""
        if self._manner == "none" or not unforced:
            return forced
        if self._manner in ("all", "one lost"):
            return unforced[-1]
        return self._chance.choice((forced, *unforced))

    def changes(self, unforced: Sequence[Change]) -> list[Change]:
        """The surviving ones of a folder's unforced changes, in their order: some of the first, or any."""
        if self._manner == "none":
            return []
        if self._manner in ("all", "one lost"):
            return list(unforced)
        if self._chance.random() < 0.5:
            return list(unforced[: self._chance.randrange(len(unforced) + 1)])
        return [change for change in unforced if self._chance.random() < 0.5]
