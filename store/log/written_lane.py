"""A lane that this process writes: its open segment, the frames at its end, and the segments before it.

The builders of frames (`row_build`, `column_build`, `room`) and all that works in the background (upkeep, sealing,
retention, bulk commits) know a lane as a `WrittenLane`. `lane_machine` adds the steps that flushers make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..config import StoreConfig, TunedConfig
from ..device.background import report
from ..device.disk import Disk
from ..device.ring import Ring
from ..errors import StorePoisoned
from ..format.column_frame import WHOLE_CHECKSUM_BELOW_BYTES
from ..format.commit_names import CommitNames
from ..format.dues import due_range
from ..format.frame import numbers_bytes
from ..format.layout import (
    BLOCK_BYTES,
    DATA_START,
    FINE_BLOCK_BYTES,
    FRAME_HEADER_BYTES,
    HAS_DUE,
    HAS_PAYLOAD_CHECKSUM,
    UNKNOWN,
    FrameHeader,
    SegmentHeader,
    align_up,
    checksum64,
)
from ..format.records import LentTrims
from ..segment.footer_room import FooterRoom
from ..segment.held import HeldMemory
from ..segment.open_table import EntryRows, OpenTable
from ..segment.sealing import FullSegment
from ..segment.segment import Segment
from .alignment import UnissuedFrames
from .lane import Lane
from .queue import RequestQueue
from .request import Request
from .sealed_log import include
from .trims import Trims
from .write import Counters, OpenSegment, Write
from .writes import WritesInFlight

if TYPE_CHECKING:
    from ..segment.sealed import SealedSegment
    from .reserve import Reserve

PROGRESS_BYTES = 4 << 20

# Of stored payloads and the position of the first: the columns as they go to disk, and the rows of the entries.
Pack: TypeAlias = "Callable[[bytes | memoryview, int], tuple[bytes, EntryRows]]"


class LaneHooks(NamedTuple):
    """What a lane calls; `log.upkeep` has them.

    Attributes:
        next_segment, reserve_segment: the segment that follows, of so many bytes at least; the second takes the reserve
            for it. Raise StoreFull.
        on_progress: more bytes were put into frames.
        on_full: a segment's last write has ended.
    """

    next_segment: Callable[[WrittenLane, int], Segment]
    reserve_segment: Callable[[WrittenLane, int], Segment]
    on_progress: Callable[[], None]
    on_full: Callable[[WrittenLane, FullSegment], None]


class WrittenLane(Lane):
    """The log's end: the open segment, and what was built and planned of it. No threads, no clock of its own.

    Other folders set no attribute but these hooks, which come and go: `on_segment` (`read.feed`), `on_view` and
    `under_way.on_forced` (`live.publisher`).

    Invariants:
        * durable <= issued <= tail rounded up, and durable and issued are block boundaries;
        * no block is written again once it was forced (R4): each write begins where the one before ended, at a
          boundary of `forced_block_bytes` after a force. Where answers do not wait for forces ("os"), the others
          begin at one of `block_bytes`.

    Attributes:
        block_bytes, forced_block_bytes: of writes to the open segment; see `device.blocks`.
    """

    def __init__(
        self, index: int, folder: Path, disk: Disk, config: StoreConfig, clock_ms: Callable[[], int], ring: Ring,
        queue: RequestQueue[Request], memory: HeldMemory, hooks: LaneHooks, reserve: Reserve | None = None,
    ) -> None:  # fmt: skip
        """`reserve` is the segment that records may take; for the others see `Lane`."""
        super().__init__(index, folder, disk, config, ring, queue, memory)
        self.trims = Trims()
        self.counters = Counters()
        self._lazy = config.durability == "os"  # answers do not wait for forces
        tuned = TunedConfig.of(config)
        self._clock_ms, self._alignment = clock_ms, tuned.alignment
        given = tuned.block_bytes
        self._device_block_bytes = BLOCK_BYTES if self._lazy or given is None else given
        self.block_bytes = self.forced_block_bytes = BLOCK_BYTES
        # Of the next segments.
        self._fine = int(given != BLOCK_BYTES if self._lazy else given == FINE_BLOCK_BYTES)
        self.next_segment, self.reserve_segment, self._on_progress, self._on_full = hooks
        self._report_at = 0  # the tail at which upkeep looks again
        self.on_segment: Callable[[OpenSegment], object] | None = None  # a new one takes frames: see `read.feed`
        self.on_view: Callable[[], object] | None = None  # a segment was sealed or removed: see `live.publisher`
        self.segment: Segment | None = None
        self.table = OpenTable()
        self.tail = self.issued = self.chain = 0
        self.footer_room = FooterRoom()
        self.fits_until = 0  # frames that end before this lane position fit into the open segment with their footer
        self.for_records = reserve
        self.messages_before = 0  # of the log, before the first segment that this opening begins
        self.commits = CommitNames()  # those that the log has
        self.marked = (0, 0)  # the mark of the newest frame: what it vouches for (see `WritesInFlight.forced_mark`)
        self._planned: list[Write] = []
        self.unissued = UnissuedFrames()
        self.under_way = WritesInFlight(self.counters)

    @property
    def durable(self) -> int:
        """The lane position up to which the log is durable."""
        return self.under_way.durable

    @property
    def answered_block_bytes(self) -> int:
        """The blocks of a write whose end answers its messages."""
        if self.segment is None:
            return FINE_BLOCK_BYTES if self._fine else BLOCK_BYTES
        return self.block_bytes if self._lazy else self.forced_block_bytes

    @property
    def poison(self) -> StorePoisoned | None:
        """The error of the lane, once a write or force has failed."""
        return self.under_way.poison

    def now_ms(self) -> int:
        """The time by the store's clock, in ms since the epoch."""
        return self._clock_ms()

    def wants_mark(self) -> bool:
        """True if the lane is idle and its newest frames are vouched for by no mark on disk."""
        # Compare marks, not positions: no mark vouches for a mark's own block, and none needs to.
        idle = self.durable == self.tail and self.under_way.is_idle
        return self.segment is not None and idle and self.marked != self.under_way.forced_mark

    # -- the open segment -----------------------------------------------------------------------------

    def put_frame(
        self, flags: int, columns_bytes: int, count: int, payloads: Sequence[bytes | memoryview], payload_bytes: int,
        pack: Pack, *, is_own: bool,
    ) -> int:  # fmt: skip
        """Copy a frame at the tail into the ring and its columns into the table; where its payloads begin there.

        A caller's buffer may change at any moment, so its bytes come first, and checksums are of what is in the ring:
        `pack` gives the columns, of `columns_bytes`, and the rows of the entries only then, for the payloads as stored
        and the position of the first in the segment. Where they are the store's own, one copy does, and it gets none.
        """
        segment, ring, start = self.segment, self.ring, self.tail
        assert segment is not None and segment.base is not None
        payload = start + FRAME_HEADER_BYTES + columns_bytes
        end = payload + payload_bytes
        self.reserve(align_up(end))
        has_whole = payload_bytes < WHOLE_CHECKSUM_BELOW_BYTES * count
        stored: bytes | memoryview = b""
        if not is_own:
            ring.fill(payload, payloads, payload_bytes)
            stored, payloads = ring.view_of(payload, payload_bytes), ()
        elif has_whole:
            stored = b"".join(payloads)  # a copy more, and a call less for each message
            payloads = [stored]
        whole, flags = (checksum64(stored), flags | HAS_PAYLOAD_CHECKSUM) if has_whole else (0, flags)
        packed, rows = pack(stored, payload - segment.base)
        mark, position = self.under_way.forced_mark, start - segment.base
        header = FrameHeader(
            flags, self.index, payload - start, count, payload_bytes, self.table.entries, segment.sequence, position,
            self._clock_ms(), *mark, self.chain, whole,
        )  # fmt: skip
        head, self.chain = header.seal(packed)  # the chain goes on from it
        ring.fill(start, [head, *payloads], (end if is_own else payload) - start)
        self.marked = mark
        self.table.add_frame(position, header.time_ms, flags, packed[: numbers_bytes(flags, count)], rows)
        if flags & HAS_DUE:
            self.table.dues = self.table.dues.joined(due_range(flags, count, packed))
        self.tail = end
        self.counters.frames += 1
        if end > self._report_at:
            self._report_at = end + PROGRESS_BYTES
            self._on_progress()
        return payload

    def reserve(self, end: int) -> None:
        """Make room in the ring up to a lane position. Raises RuntimeError where bytes in flight would be lost."""
        if end - self.ring.size_bytes > self.under_way.durable:
            raise RuntimeError("the ring is too small for the writes in flight")
        self.ring.reserve(end)

    def finish(self, segment: Segment) -> None:
        """Plan the last write of a segment: its tail is padded, the next one begins on a boundary."""
        assert segment.base is not None
        self.fits_until = 0
        data_end = self.tail - segment.base
        # Forced also where answers do not wait for forces: so at most one segment ever waits for its force.
        write = self._plan_up_to(segment, align_up(self.tail, self.forced_block_bytes), force=True)
        write.full = FullSegment(segment, self.table, data_end, self.chain, self.trims.lend(), self.commits.packed)
        self._planned.append(write)

    def fill_block(self) -> None:
        """Have the next frame begin with a block of the segment; `plan` has the write of what is filled in."""
        segment = self.segment
        if segment is not None and segment.base is not None:
            high = segment.base + align_up(self.tail - segment.base)
            if high > max(self.tail, self.issued):
                self._planned.append(self._plan_up_to(segment, high, force=True))

    def roll(self) -> None:
        """The open segment takes no more frames, and none follows yet; `plan` has its last write."""
        segment = self.segment
        if segment is not None:
            self.finish(segment)
            self.messages_before = self.next_header(0, 0, b"").messages_before
            self.segment, self.table = None, OpenTable()

    def begin(self, segment: Segment) -> None:
        """Append to a fresh segment from now on. Its header goes to disk with the first frames: no force of its own."""
        segment.base = self.tail
        self.reserve(self.tail + DATA_START)
        header = segment.header.pack()
        self.ring.fill(self.tail, [header, bytes(DATA_START - len(header))], DATA_START)
        self.chain = segment.header.chain
        self.look_at_footer()
        self.segment = segment
        self.take_blocks(segment)
        self.table = OpenTable(self.offsets.column())
        self.tail += DATA_START
        self._report_at = 0  # with its first frame: upkeep then looks at this segment
        opened = OpenSegment(segment, self.table)
        tell = self.on_segment
        if tell is not None:
            tell(opened)
        with self.viewing:
            self.view = self.view._replace(open=(*self.view.open, opened))

    def take_blocks(self, segment: Segment) -> None:
        """Write in the blocks that a segment's header says, and after a force in those of the device."""
        self.block_bytes = segment.header.block_bytes
        self.forced_block_bytes = max(self.block_bytes, self._device_block_bytes)

    def next_header(self, sequence: int, capacity_bytes: int, store_id: bytes) -> SegmentHeader:
        """The header of the segment that follows."""
        messages = self.messages_before if self.segment is None else self.segment.header.messages_before
        if self.segment is not None and messages != UNKNOWN:
            messages += self.table.entries
        return SegmentHeader(
            self.index, store_id, sequence, capacity_bytes, self._clock_ms(), self.chain, messages, len(self.streams),
            self._fine,
        )  # fmt: skip

    def _plan_up_to(self, segment: Segment, high: int, *, force: bool, looks: bool = False) -> Write:
        """A write of everything that is not yet issued, up to the boundary `high`, padded if beyond it."""
        if high > self.tail:
            self.reserve(high)
            self.ring.zero(self.tail, high)
            self.counters.padding_bytes += high - self.tail
            self.tail = high
        force = force or not self._lazy
        parts = self.ring.parts(self.issued, high)
        write = Write(segment, parts, self.issued, high, force=force, earlier=self._lazy, looks=looks, filled=not force)
        self.counters.written_bytes += high - self.issued
        self.counters.writes += 1
        self.counters.forces += force
        self.issued = high
        self.unissued.issue(high)
        return write

    # -- its footers, and the segments before ---------------------------------------------------------

    def look_at_footer(self) -> None:
        """Count the lane's part of each footer again: it may have become larger."""
        self.fits_until = 0
        self.footer_room.update(self.streams, self.trims.count, self.commits.size_bytes)

    def settle(self, lent: LentTrims, gone: Sequence[int]) -> None:
        """A full footer has what was lent. The streams that are `gone`, the lane's first ones, are in none any more."""
        self.groups.wants_full = False
        self.trims.settle(lent, gone)
        del self.gone[: len(gone)]

    def attached(self, chain: int, messages: int, commits: CommitNames) -> None:
        """Go on after segments that were put at the lane's end while it stood still: see `shards.lane_build`."""
        self.chain, self.messages_before, self.commits = chain, messages, commits

    def replace_commits(self, commits: CommitNames) -> None:
        """Know these commits from now on."""
        self.commits = commits

    def replace_open(self, sealed: SealedSegment) -> None:
        """Show readers a segment by its footer from now on, no longer by its open table.

        Invariant: segments are sealed in log order. A later footer begins where the one before ends, and a seal
        record vouches for all segments before it.
        """
        include(self, sealed)
        with self.viewing:
            if not self.view.open or self.view.open[0].segment is not sealed.segment:
                raise RuntimeError(f"{sealed.segment.path} is sealed before an older segment of its lane")
            rest = tuple(opened for opened in self.view.open if opened.segment is not sealed.segment)
            self.view = self.view.sealing([sealed], rest)
        self.tell_view()

    def forget_oldest(self, count: int) -> None:
        """Take the oldest sealed segments from the readers' view."""
        with self.viewing:
            self.view = self.view.without_oldest(count)
        self.tell_view()

    def tell_view(self) -> None:
        """The view was replaced: call the hook. The view holds also if the hook raises."""
        try:
            if self.on_view is not None:
                self.on_view()
        except Exception as error:
            report("readers in other processes could not be told of a segment", error)
