"""The objects that a lane passes on: segments as readers see them, writes to the device, and their outcome."""

from __future__ import annotations

import errno
from array import array
from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple

from ..format.layout import BLOCK_BYTES, align_up
from ..segment.open_table import OpenTable
from ..segment.sealed_segments import SealedSegments
from ..segment.sealing import FullSegment
from ..segment.segment import Segment

if TYPE_CHECKING:
    from ..segment.sealed import SealedSegment


_ZEROS = memoryview(bytes(BLOCK_BYTES))


class OpenSegment(NamedTuple):
    """A segment whose index is in memory."""

    segment: Segment
    table: OpenTable

    @property
    def frames(self) -> tuple[array[int], array[int], array[int]]:
        """The positions, times and flags of the frames."""
        table = self.table
        return table.frame_position, table.frame_time, table.frame_flags


class View(NamedTuple):
    """The segments of a lane that readers see, oldest first. It is replaced as a whole.

    Invariant: the sums are those of `sealed`. A view is made of the one before it, in steps for what has changed.

    Attributes:
        sealed_bytes: what the sealed segments take on disk.
        sealed_messages: how many messages they have.
    """

    sealed: SealedSegments = SealedSegments()
    open: tuple[OpenSegment, ...] = ()
    sealed_bytes: int = 0
    sealed_messages: int = 0

    def sealing(self, added: Sequence[SealedSegment], opened: tuple[OpenSegment, ...]) -> View:
        """The view with more sealed segments at their end, and these open ones."""
        size_bytes, messages = _sums(added)
        sums = self.sealed_bytes + size_bytes, self.sealed_messages + messages
        return View(self.sealed.with_newest(added), opened, *sums)

    def without_oldest(self, count: int) -> View:
        """The view without its `count` oldest sealed segments."""
        size_bytes, messages = _sums(self.sealed[:count])
        left = self.sealed_bytes - size_bytes, self.sealed_messages - messages
        return View(self.sealed.without_oldest(count), self.open, *left)


def _sums(sealed: Sequence[SealedSegment]) -> tuple[int, int]:
    """Bytes and messages of some segments."""
    records = [one.record for one in sealed]
    return sum([one.footer_position + one.footer_bytes for one in records]), sum([one.entries for one in records])


# Entries of one frame that readers see from now on: the table, the first entry, and the end (the last one plus 1).
VisibleEntries = tuple[OpenTable, int, int]


class Counters:
    """The counts of a lane; plain numbers, read without a lock."""

    def __init__(self) -> None:
        self.written_bytes = 0
        self.forces = 0
        self.writes = 0
        self.frames = 0
        self.messages = 0
        self.records = 0  # of internal streams
        self.payload_bytes = 0
        self.padding_bytes = 0
        self.held_requests = 0

    def count(self, messages: int, records: int) -> None:
        """Count a frame that was built, by its messages; `records` of them are records."""
        self.records += records
        self.messages += messages - records


class Write:
    """One write of whole blocks, and one force. `begin` and `end` are lane positions.

    `earlier`: the force must also cover earlier writes of the segment, which were not forced themselves.
    `looks`: `settle` then checks that the segment's path still leads to the file. If it does not, all is lost that is
    forced.
    `took_ns`: how long `perform` took, and a force of `settle`.
    `filled`: zeros follow up to the end of the page, so that the kernel need not read it to change a part of it. The
    next write replaces them; so it begins when this one has ended.

    Invariant: a force that covers earlier writes begins after all of them have ended. A force vouches for nothing that
    reaches the kernel after it began, and another thread may still be at an earlier write. So `perform` leaves such a
    force to `settle`.
    """

    def __init__(
        self, segment: Segment, parts: list[memoryview], begin: int, end: int, *, force: bool, earlier: bool,
        looks: bool = False, filled: bool = False,
    ) -> None:  # fmt: skip
        self.segment = segment
        self.begin = begin
        self.end = end
        self.force = force
        self.earlier = earlier
        self.looks = looks
        self.done = False
        self.took_ns = 0
        self.full: FullSegment | None = None
        self._parts = parts
        self._filled = filled

    @property
    def is_filling(self) -> bool:
        """Whether zeros follow."""
        assert self.segment.base is not None
        end = self.end - self.segment.base
        return self._filled and end != align_up(end)

    def perform(self) -> None:
        """Write, and force what needs no other write. Raises OSError; then nothing is taken for durable any more."""
        assert self.segment.base is not None
        began = perf_counter_ns()
        log, own = self.segment.writer.file, self.force and not self.earlier
        if self.end > self.begin:
            at = self.begin - self.segment.base
            if self._filled:
                end = self.end - self.segment.base
                self._parts.append(_ZEROS[: align_up(end) - end])
            self.segment.writer.reach(self.end - self.segment.base)
            log.write(self._parts, at, force=own)
        elif own:
            log.force()
        self._parts = []
        self.took_ns = perf_counter_ns() - began

    def settle(self) -> None:
        """Do what may only be done when this write and all before it have ended. Raises OSError, as `perform` does."""
        if self.force and self.earlier:
            began = perf_counter_ns()
            self.segment.writer.file.force()
            self.took_ns += perf_counter_ns() - began
        if self.looks and not self.segment.writer.file.is_in_place():
            raise FileNotFoundError(
                errno.ENOENT, "moved, replaced or deleted while the store was open", str(self.segment.path)
            )


class WriteOutcome(NamedTuple):
    """The outcome of a completed write.

    Attributes:
        requests, cost_bytes: the number of requests that were answered, and their cost at the cap.
        shown: the entries that readers see from now on.
        writes: how many writes are accounted for by it, in log order: 0 while an earlier one is out.
        full: segments whose last write this was: they can be sealed.
    """

    requests: int
    cost_bytes: int
    shown: list[VisibleEntries]
    writes: int
    full: list[FullSegment]
