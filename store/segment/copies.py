"""Copies of a segment's windows in memory, for reads of a file that is still written to.

Such a file has no lease and so no mapping (`device/leased.py`), and a system call a message costs twice as much as its
copy. So a window from which many messages are read is kept, as part of the memory for segments.
"""

from __future__ import annotations

from .held import ITEM_BYTES, HeldItem, HeldMemory

WINDOW_SHIFT = 18  # 256 KiB
WINDOW_BYTES = 1 << WINDOW_SHIFT
KEPT_BYTES = WINDOW_BYTES + (24 << 10)  # with the rest of a message that begins near the end; longer ones are read
TOUCHES = 8  # messages that were read from a window before it is kept: a copy of it costs as much
PART = 4  # of the memory for segments, for the windows of all of them: more would drive out too much else


class Window(HeldItem):
    """The first KEPT_BYTES of the file from a window's beginning on, as far as the file had them."""

    __slots__ = ("__weakref__", "data")

    def __init__(self, data: bytes) -> None:
        super().__init__(len(data))
        self.data = data


class Copies:
    """The kept windows of one segment. Any number of threads may use it.

    Durable bytes do not change. Bytes of a window past the durable end may be stale: a wrong checksum tells, and the
    window is copied again. So each reader of a window compares checksums.

    Attributes:
        windows: those that are kept, by number.
    """

    __slots__ = ("_touches", "windows")

    def __init__(self) -> None:
        self.windows: dict[int, Window] = {}
        self._touches: dict[int, int] = {}

    def is_worth_it(self, memory: HeldMemory, at: int, length: int) -> bool:
        """Note that a message was read from the file. True if its window should be kept now. Races may lose touches."""
        if (at & (WINDOW_BYTES - 1)) + length > KEPT_BYTES:
            return False
        window = at >> WINDOW_SHIFT
        touches = self._touches.get(window, 0) + 1
        self._touches[window] = 0 if touches == TOUCHES else touches
        if touches != TOUCHES:
            return False
        return window in self.windows or memory.takes_window(KEPT_BYTES + ITEM_BYTES, memory.frames.limit_bytes // PART)

    def keep(self, memory: HeldMemory, at: int, data: bytes) -> None:
        """Keep the window of a position, in the place of an older copy of it."""
        memory.keep_window(self.windows, at >> WINDOW_SHIFT, Window(data))
