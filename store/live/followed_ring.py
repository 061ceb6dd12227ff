"""The newest bytes of a lane that another process writes, as its mirror has them."""

from __future__ import annotations

import mmap
from collections.abc import Sequence

from ..device.disk import Disk
from ..device.ring import NOWHERE, Ring
from ..device.shared_memory import SharedMemory
from ..format.layout import BLOCK_BYTES, FrameHead
from ..format.live_page import LiveHeader
from ..format.mirror import END, LOW, WORDS_BYTES, MirrorHeader, mirror_name, table_word
from .whole_frames import WholeFrames

LIFE_POSITIONS = 1 << 48  # of lane positions: more than one opening of a store writes


class FollowedRing(Ring):
    """A ring for reading that another process fills; empty as long as there is no mirror.

    Each mirror has lane positions of its own, `LIFE_POSITIONS` above those of the one before. So a place in the one
    before counts as overtaken.

    Invariants:
        * it has only what is durable;
        * what it takes from a mirror is one value, replaced as a whole: the words with the origin of their positions,
          and the bytes with their shape. No read mixes two mirrors, whatever their sizes are;
        * it has nothing while it does not reach up to `shown`, so a mirror whose writer is gone is not asked for what
          another one has written.

    Attributes:
        shown: the lane position up to which readers are shown messages; it is raised before they are shown any.
    """

    is_own = False

    def __init__(self, lanes: int = 1) -> None:
        """`lanes`: how many lanes the store has."""
        self._mirror = memoryview(bytes(WORDS_BYTES)).cast("Q"), 0  # the writer's words, and our position for its 0
        self.shown = NOWHERE
        self._highest = 0
        self._whole = WholeFrames(lanes)
        super().__init__(BLOCK_BYTES)

    @property
    def low(self) -> int:
        """Bytes at or above it are intact; `NOWHERE` if there are none."""
        words, origin = self._mirror
        return origin + words[LOW] if origin + words[END] >= self.shown else NOWHERE

    @low.setter
    def low(self, position: int) -> None:
        """Does nothing: the writer sets it."""

    def take(self, words: mmap.mmap, memory: mmap.mmap) -> None:
        """Use another mirror from now on. A reader that looked at the one before finds all of it overtaken."""
        self._replace(memoryview(words).cast("Q"), memory, self._mirror[1] + LIFE_POSITIONS)

    def _replace(self, words: memoryview, memory: mmap.mmap, origin: int) -> None:
        self.shown, self._highest = NOWHERE, 0  # first: what is found until the end of this is overtaken
        self._map = memory
        self.memory = self._view = memoryview(memory)
        self.size_bytes = len(memory)
        self.shape = origin, len(memory), memory  # the writer's position 0 is at the memory's beginning
        self._mirror = words, origin

    def show(self, position: int | None) -> None:
        """Let readers see messages up to this position from now on; None if that is not known."""
        if position is None:
            self.shown = NOWHERE
        else:
            self.shown = self._highest = max(self._highest, position)

    def note_read(self, messages: int) -> None:
        """Count messages that were read in columns."""
        self._whole.note_read(messages)

    def take_whole(self, base: int, heads: Sequence[FrameHead]) -> None:
        """Copy frames that can be seen now, if it pays. They stand in a row in the segment that begins at `base`."""
        self._whole.add(self, base, heads, self.shown)
        self.span = self._whole.span

    def base_of(self, sequence: int) -> int | None:
        """The lane position of a segment's beginning; None if the mirror has nothing of it."""
        (words, origin), at = self._mirror, table_word(sequence)
        if words[at] != sequence or origin > NOWHERE // 2:
            return None
        base = origin + words[at + 1]
        return base if words[at] == sequence else None

    def close(self) -> None:
        """Let go of the mirror: a reader under way finds its bytes overtaken, and has the mapping until then."""
        self.span = None
        self._whole.let_go()
        self._replace(memoryview(bytes(WORDS_BYTES)).cast("Q"), mmap.mmap(-1, BLOCK_BYTES), self._mirror[1])


def find_mirror(disk: Disk, opening: LiveHeader) -> tuple[SharedMemory, MirrorHeader] | None:
    """The mirror of a writer, whose live page has this header; None if there is none that we may see.

    Raises BlockingIOError if it cannot be had right now.
    """
    memory = disk.find_shared(opening.pid, mirror_name(opening.store_id, opening.openings))
    if memory is None:
        return None
    try:
        header = MirrorHeader.unpack(memory.map(0, BLOCK_BYTES)[:])
        if header is not None and header.is_of(opening) and memory.size_bytes == header.size_bytes:
            return memory, header
    except (OSError, ValueError):  # too short
        pass
    memory.close()
    return None
