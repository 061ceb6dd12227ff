"""Mapped files of a simulated disk: a store into one is seen at once, and never forced."""

from __future__ import annotations

import random

from .content import Content
from .survivors import SECTOR_BYTES

KEPT_STATES = 3


class SimulatedPage:
    """A `Mapped` of a simulated disk.

    The kernel writes a mapped page back at any time, so a power cut leaves each sector in any of its states. No thread
    sleeps on it: threads of a simulation take their steps one by one.
    """

    inode = 1  # equal for all copies of a disk: they stand for one file

    def __init__(self, content: Content, data: bytes, before: list[bytes] | None = None) -> None:
        self.content = content  # the file's; a new file of its name has a page of its own
        self._data = bytearray(data)
        self._before = before or [bytes(len(data))]  # earlier states, some of them

    def load(self, at: int, size: int) -> bytes:
        """A copy of some bytes."""
        return bytes(self._data[at : at + size])

    def store(self, at: int, data: bytes) -> None:
        """Write some bytes."""
        self._before = [*self._before[1 - KEPT_STATES :], bytes(self._data)]
        self._data[at : at + len(data)] = data

    def word(self, at: int) -> int:
        """The unsigned 64-bit word at a multiple of 8."""
        return int.from_bytes(self._data[at : at + 8], "little")

    def set_word(self, at: int, value: int) -> None:
        """Write the unsigned 64-bit word at a multiple of 8, at once."""
        self.store(at, value.to_bytes(8, "little"))

    def store_and_set(self, at: int, data: bytes, word_at: int, value: int) -> None:
        """Write some bytes, and then the word at a multiple of 8, at once."""
        self.store(at, data)
        self.store(word_at, value.to_bytes(8, "little"))

    def wake(self) -> None:
        """Do nothing: no thread sleeps."""

    def sleep(self, seen: int, patience_s: float) -> None:
        """Return at once."""

    def is_in_place(self) -> bool:
        """True: the folder is one process's."""
        return True

    def close(self) -> None:
        """Do nothing: no memory is held."""

    def copy(self, content: Content) -> SimulatedPage:
        """A page in this state, for the copy of a disk."""
        return SimulatedPage(content, bytes(self._data), list(self._before))

    def survive(self, chance: random.Random, content: Content) -> SimulatedPage:
        """The page after a power cut."""
        states = [*self._before, bytes(self._data)]
        torn = chance.random() < 0.5
        one = chance.choice(states)
        parts = [
            (chance.choice(states) if torn else one)[at : at + SECTOR_BYTES]
            for at in range(0, len(self._data), SECTOR_BYTES)
        ]
        return SimulatedPage(content, b"".join(parts))
