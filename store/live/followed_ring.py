"""The newest bytes of a lane that another process writes, as its mirror has them."""

from __future__ import annotations

import mmap
from collections.abc import Sequence

from ..device.ring import NOWHERE, Ring
from ..device.shared_memory import SharedMemory
from ..format.layout import BLOCK_BYTES, FrameHead
from ..format.mirror import END, LOW, WORDS_BYTES, MirrorHeader, mirror_name, table_word
from .whole_frames import WholeFrames

LIFE_POSITIONS = 1 << 48  # of lane positions: more than one opening of a store writes


class FollowedRing(Ring):
    """A ring for reading that another process fills; empty as long as there is no mirror.

    Each mirror counts its lane positions from a multiple of `LIFE_POSITIONS`, the later ones from higher ones. So
    whoever has found a place in the mirror before finds it overtaken.

    Invariants:
        * it has only what is durable;
        * it has nothing while it does not reach up to `shown`, so a mirror whose writer is gone is not asked for what
          another one has written.

    Attributes:
        shown: the lane position up to which readers are shown messages; it is raised before they are shown any.
    """

    is_own = False

    def __init__(self, lanes: int = 1) -> None:
        """`lanes`: so many the store has."""
        self._words = memoryview(bytes(WORDS_BYTES)).cast("Q")
        self.shown = NOWHERE
        self._highest = self._origin = 0
        self._whole = WholeFrames(lanes)
        super().__init__(BLOCK_BYTES)

    @property
    def low(self) -> int:
        """Bytes at or above it are intact; `NOWHERE` if there are none."""
        words = self._words
        return self._origin + words[LOW] if self._origin + words[END] >= self.shown else NOWHERE

    @low.setter
    def low(self, position: int) -> None:
        """It is the writer's."""

    def take(self, words: mmap.mmap, memory: mmap.mmap) -> None:
        """Another mirror is there. Who has looked at the one before finds all of it overtaken."""
        self.shown, self._highest = NOWHERE, 0
        size = len(memory)
        self._map = self.recent = memory
        self.memory = self._view = memoryview(memory)
        self.size_bytes = size
        self.shape = 0, size
        self._origin += -(-LIFE_POSITIONS // size) * size  # so that positions modulo the size are the writer's
        self._words = memoryview(words).cast("Q")

    def show(self, position: int | None) -> None:
        """Readers are shown messages up to this position from now on; None if that is not known."""
        if position is None:
            self.shown = NOWHERE
        else:
            self.shown = self._highest = max(self._highest, position)

    def note_read(self, messages: int) -> None:
        """So many messages were read in columns."""
        self._whole.note_read(messages)

    def take_whole(self, base: int, heads: Sequence[FrameHead]) -> None:
        """Some frames of the segment that begins at `base` can be seen, one behind the other; copy them if it pays."""
        self._whole.add(self, base, heads, self.shown)
        self.span = self._whole.span

    def base_of(self, sequence: int) -> int | None:
        """The lane position of a segment's beginning; None if the mirror has nothing of it."""
        words, at = self._words, table_word(sequence)
        if words[at] != sequence or self._origin > NOWHERE // 2:
            return None
        base = self._origin + words[at + 1]
        return base if words[at] == sequence else None

    def close(self) -> None:
        """Let go of the mirror: a reader under way finds its bytes overtaken, and has the mapping until then."""
        self.shown = NOWHERE
        self.span = None
        self._whole.let_go()
        self._words = memoryview(bytes(WORDS_BYTES)).cast("Q")
        self._map = self.recent = mmap.mmap(-1, BLOCK_BYTES)
        self.memory = self._view = memoryview(self._map)


def find_mirror(
    disk: object, pid: int, store_id: bytes, lanes: int, opening: int
) -> tuple[SharedMemory, MirrorHeader] | None:
    """The mirror of a store that the process `pid` writes; None if there is none that we may see.

    Raises BlockingIOError if it cannot be had right now.
    """
    find = getattr(disk, "find_shared", None)
    memory: SharedMemory | None = None if find is None else find(pid, mirror_name(store_id, opening))
    if memory is None:
        return None
    try:
        header = MirrorHeader.unpack(memory.map(0, BLOCK_BYTES)[:])
        if header is not None and header[:2] == (store_id, lanes) and memory.size_bytes == header.size_bytes:
            return memory, header
    except (OSError, ValueError):  # too short
        pass
    memory.close()
    return None
