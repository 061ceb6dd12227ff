"""The writer's side of the mirror: what was forced is copied for readers in other processes, while there are any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from ..device.disk import Disk
from ..device.ring import NOWHERE
from ..device.shared_memory import SharedMemory, give_back
from ..format.layout import align_down
from ..format.live_page import LiveHeader
from ..format.mirror import END, LOW, WORDS_BYTES, MirrorHeader, mirror_name, table_word
from ..log.lane import Lane
from ..log.write import View

MOST_BYTES = 32 << 20  # of all lanes
LEAST_RING_BYTES = 64 << 10
LOOK_S = 0.05  # between two looks whether there are readers
KEPT_S = 5.0  # memory without readers is kept so long; after a refusal the next try is so much later


class LaneMirror:
    """The mirror of one lane. One thread at a time.

    Invariants:
        * only what was forced is copied: what a reader finds below `END` is durable, also after another writer;
        * `LOW` is raised before a byte is overwritten, `END` after it was copied;
        * what the lane's ring has lost while it was copied is given up: no reader finds it.
    """

    def __init__(self, memory: SharedMemory, header: MirrorHeader, lane: Lane) -> None:
        """Raises OSError."""
        self._lane = lane
        self._size = header.ring_bytes
        at = header.words_at(lane.index)
        self._words_map = memory.map(at, WORDS_BYTES)
        self._words = memoryview(self._words_map).cast("Q")
        self._bytes = memory.map(at + WORDS_BYTES, self._size)
        self._end = 0
        self._view: View | None = None

    def bring_up(self, forced: int) -> None:
        """Copy what was forced since the last time; `forced` is the lane position up to which all was."""
        lane, words, size = self._lane, self._words, self._size
        if forced == self._end:
            return
        ring, view = lane.ring, lane.view
        if view is not self._view:
            self._note_segments(view)
        # After a while without readers, or of a log that is forced now and then, there is much, and most of it is old.
        begin = max(self._end, ring.low, forced - size // 2)
        if begin > self._end:
            words[LOW] = begin  # nothing, for now: the end is below it
            words[END] = begin
        low = forced - size
        words[LOW] = max(words[LOW], low)
        at = begin
        for part in ring.parts(begin, forced):
            place, count = at % size, len(part)
            first = min(count, size - place)
            self._bytes[place : place + first] = part[:first]
            if first < count:  # it is half of the mirror at the most
                self._bytes[: count - first] = part[first:]
            at += count
        if ring.low > begin:
            words[LOW] = forced
        words[END] = self._end = forced

    def _note_segments(self, view: View) -> None:
        words = self._words
        for segment, _ in view.open:
            at, base = table_word(segment.sequence), segment.base
            if base is not None and words[at] != segment.sequence:
                words[at] = 0
                words[at + 1] = base
                words[at] = segment.sequence
        self._view = view

    def give_back(self) -> None:
        """Free the memory for now; readers find nothing until more is brought up."""
        self._words[LOW] = self._end
        give_back(self._bytes)

    def close(self) -> None:
        """Free the memory; nothing is brought up any more. Readers under way find their bytes overtaken."""
        self._words[LOW] = NOWHERE
        give_back(self._bytes)
        self._words.release()
        for mapping in (self._words_map, self._bytes):
            mapping.close()  # each has a descriptor of its own


class Mirror:
    """The mirror of a store. It takes no memory, and costs nothing but a look now and then, until a reader maps it.

    Invariant: nothing is brought up before the kernel has provided all of the memory, nor after it was given back.

    Attributes:
        is_read: there are readers, and memory for them.
    """

    def __init__(
        self, memory: SharedMemory, header: MirrorHeader, lanes: Sequence[Lane], on_wanted: Callable[[], object]
    ) -> None:
        """`on_wanted` is called when a reader has come: `provide` is to be called soon. Raises OSError."""
        self._memory = memory
        self._on_wanted = on_wanted
        self._look_at = self._wanted_at = self._try_at = 0.0
        self._is_provided = False
        self.is_read = False
        self.lanes = [LaneMirror(memory, header, lane) for lane in lanes]
        first = memory.map(0, len(header.pack()))
        first[:] = header.pack()

    @classmethod
    def of(
        cls, disk: Disk, opening: LiveHeader, lanes: Sequence[Lane], on_wanted: Callable[[], object]
    ) -> Mirror | None:
        """A mirror of these lanes, with the name of their opening; None where the system does not have what it takes.

        Readers then read the files.
        """
        size = align_down(min(MOST_BYTES // len(lanes), *[lane.ring.size_bytes for lane in lanes]))
        if size < LEAST_RING_BYTES:
            return None
        header = MirrorHeader(opening.store_id, len(lanes), size, opening.inode, opening.openings)
        memory = disk.make_shared(mirror_name(opening.store_id, opening.openings), header.size_bytes)
        if memory is None:
            return None
        try:
            return cls(memory, header, lanes, on_wanted)
        except OSError:
            memory.close()
            return None

    def note_readers(self) -> None:
        """Look now and then whether there are readers."""
        now = monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            is_wanted = self._memory.is_wanted()
            self.is_read = is_wanted and self._is_provided
            if is_wanted and not self._is_provided and now >= self._try_at:
                self._on_wanted()

    def provide(self) -> None:
        """Provide the memory if there are readers. One thread calls it while the others go on."""
        if self._memory.is_wanted():
            self._wanted_at = now = monotonic()
            if not self._is_provided and now >= self._try_at:
                self._is_provided = self._memory.provide()
                self._try_at = now + KEPT_S

    def retire(self) -> None:
        """Give the memory back if there were no readers for a while. Not while something is brought up."""
        if self._is_provided and monotonic() - self._wanted_at >= KEPT_S and not self._memory.is_wanted():
            self.is_read = self._is_provided = False
            self._try_at = 0.0
            for lane in self.lanes:
                lane.give_back()

    def close(self) -> None:
        """Let go of it, and free the memory."""
        for lane in self.lanes:
            lane.close()
        self._memory.close()
