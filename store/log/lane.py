"""A lane: one append log as a plain state machine (R1, R3 to R8). No threads, no clock of its own.

    build(requests)   requests become a frame in the ring; offsets are given
    plan(follows)     the writes to do next, padded or trimmed to whole blocks
    Write.perform()   the device does it: may run beside the next build
    complete(write)   what is now durable becomes visible and is answered, in log order

`flusher` drives it with threads, a test may drive it step by step.
"""

from __future__ import annotations

import contextlib
import threading
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..config import StoreConfig, TunedConfig
from ..device.background import report
from ..device.disk import Disk
from ..device.ring import Ring
from ..errors import StoreFull, StorePoisoned
from ..format.column_frame import WHOLE_CHECKSUM_BELOW_BYTES
from ..format.commit_names import CommitNames
from ..format.dues import due_range
from ..format.frame import numbers_bytes
from ..format.layout import (
    DATA_START,
    FRAME_HEADER_BYTES,
    GONE_TOPIC,
    HAS_DUE,
    HAS_PAYLOAD_CHECKSUM,
    UNKNOWN,
    FrameHeader,
    SegmentHeader,
    align_down,
    align_up,
    checksum64,
)
from ..format.records import RECORDS_TOPIC, LentTrims
from ..segment.footer_room import FooterRoom, share_of_frame
from ..segment.groups import Groups
from ..segment.held import HeldMemory
from ..segment.newest import NewestTimes
from ..segment.open_table import EntryRows, OpenTable
from ..segment.sealing import FullSegment
from ..segment.segment import Segment
from .alignment import UnissuedFrames, should_pad
from .batch import PLAIN
from .column_build import build_columns, have_columns
from .offsets import NextOffsets
from .request import NotedBarrier, Request, answer_all
from .room import look_at_footer, wanted_segment
from .row_build import build_rows
from .sealed_log import include
from .streams import NOT_DEFINED, Stream
from .trims import Trims
from .write import Counters, LaneHooks, OpenSegment, PendingFrame, View, Write, WriteOutcome
from .writes import WritesInFlight

if TYPE_CHECKING:
    from ..segment.sealed import SealedSegment
    from .queue import RequestQueue
    from .reserve import Reserve

PROGRESS_BYTES = 4 << 20

# Of stored payloads and the position of the first: the columns as they go to disk, and the rows of the entries.
Pack: TypeAlias = "Callable[[bytes | memoryview, int], tuple[bytes, EntryRows]]"


class Lane:
    """One append log; the module's text has its steps. Other folders set no attribute but these:

    `on_segment` (`read.feed`), `on_view`, `under_way.on_forced` (`live.publisher`): hooks that come and go; `view`
    where another process writes (`live.lane`); `view` and `offsets` where a commit is shown (`log.together`).

    Invariants:
        * durable <= issued <= tail rounded up, and durable and issued are block boundaries;
        * no block is written twice (R4): each write begins where the one before ended;
        * a request is answered only when `durable` has passed its last byte (R5), and frames become
          durable in log order, whichever of two overlapping writes comes back first;
        * after a failed write or force `poison` is set for good, and nothing is answered as durable.
    """

    def __init__(
        self,
        index: int,
        folder: Path,
        disk: Disk,
        config: StoreConfig,
        clock_ms: Callable[[], int],
        ring: Ring,
        queue: RequestQueue,
        memory: HeldMemory,
        hooks: LaneHooks,
        reserve: Reserve | None = None,
        offsets: Callable[[Lane], NextOffsets] | None = None,
    ) -> None:
        """`memory` is for readers of its segments, those of all lanes; `reserve` the segment that records may take.

        `offsets`: of a lane that another process writes.
        """
        self.index = index
        self.folder, self.disk = folder, disk
        self.config = config
        self.ring = ring
        self.streams: list[Stream] = []  # by number
        self.hidden: list[Stream] = []  # those that users never see, without that of the records
        self.nobody = Stream(GONE_TOPIC, 0, self)  # in the place of those that are gone: see `gone`
        self.gone: list[int] = []  # their numbers, until a full footer has none of them
        self.queue = queue  # its requests
        self.trims = Trims(Stream(RECORDS_TOPIC, index, self))
        self.view = View()
        self.offsets = NextOffsets() if offsets is None else offsets(self)  # after all that frames have, durable or not
        self.index_memory = memory
        self.newest = NewestTimes()  # of the sealed ones
        self.mapped: set[Segment] = set()  # its segments that readers copy from a mapping
        self.viewing = threading.Lock()  # held to replace the view
        self.counters = Counters()
        self._lazy = config.durability == "os"  # answers do not wait for forces
        self._clock_ms, self._alignment = clock_ms, TunedConfig.of(config).alignment
        self._next_segment, self._reserve_segment, self._on_progress, self._on_full = hooks
        self._report_at = 0  # the tail at which upkeep looks again
        self.on_segment: Callable[[OpenSegment], object] | None = None  # a new one takes frames: see `read.feed`
        self.on_view: Callable[[], object] | None = None  # a segment was sealed or removed: see `live.publisher`
        self.segment: Segment | None = None
        self.table = OpenTable()
        self.tail = self.issued = self.chain = 0
        self.footer_room = FooterRoom()
        self.fits_until = 0  # frames that end before this lane position fit into the open segment with their footer
        self.groups = Groups()
        self.for_records = reserve
        self.messages_before = 0  # of the log, before the first segment that this opening begins
        self.commits = CommitNames()  # those that the log has
        self.marked = (0, 0)  # the mark of the newest frame: what it vouches for (see `WritesInFlight.forced_mark`)
        self._planned: list[Write] = []
        self.unissued = UnissuedFrames()
        self.under_way = WritesInFlight(self.counters)

    def retire(self, stream: Stream) -> None:
        """Take the number from a stream that is gone; no stream gets it again."""
        self.streams[stream.number] = self.nobody
        self.gone.append(stream.number)
        stream.number, stream.low, stream.hidden = NOT_DEFINED, 0, 0

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

    # -- building -------------------------------------------------------------------------------------

    def build(self, requests: Sequence[Request], left_bytes: int | None = None) -> int:
        """Make one frame of the requests' messages, in their order. Gives offsets and entry numbers.

        Returns how many requests were answered at once: barriers of a lane that nothing was ever written to.
        Raises StoreFull when no segment could be had; then nothing has changed.
        """
        plain = PLAIN.issuperset(map(type, requests))  # each is one message: no group, no barrier, no record
        if not plain and have_columns(requests):
            return build_columns(self, requests)  # of users, and records that come with them
        if not requests or not (plain or any([request.count for request in requests])):
            return self._add_barriers(requests)
        build_rows(self, requests, left_bytes, plain=plain)
        return 0

    def build_mark(self) -> None:
        """An empty frame that vouches for all that is durable."""
        self.make_room(FRAME_HEADER_BYTES, lambda: share_of_frame(0))
        self.put_frame(0, 0, 0, (), 0, lambda stored, position: (b"", array("I")), is_own=True)

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

    def wants_mark(self) -> bool:
        """True if the lane is idle and its newest frames are vouched for by no mark on disk."""
        # Compare marks, not positions: no mark vouches for a mark's own block, and none needs to.
        idle = self.durable == self.tail and self.under_way.is_idle
        return self.segment is not None and idle and self.marked != self.under_way.forced_mark

    def _add_barriers(self, requests: Sequence[Request]) -> int:
        if self.segment is None:
            answer_all(requests)  # nothing was ever written: nothing to wait for
            return len(requests)
        if any(type(request) is NotedBarrier for request in requests) and self.wants_mark():
            with contextlib.suppress(StoreFull):  # no room for it: the others do not need it
                self.build_mark()
        self.under_way.add_frame(PendingFrame(requests, [], self.tail, self.table.entries, self.table, 0, None))
        return 0

    # -- segments -------------------------------------------------------------------------------------

    def make_room(self, frame_bytes: int, share: Callable[[], int], left_bytes: int | None = None) -> None:
        """Have an open segment with room for a frame of up to that size. Raises StoreFull; then nothing has changed.

        `share`: what the frame adds to the footer. With `left_bytes` a record may take the reserve: see `room`.
        """
        reserve = self.for_records
        if self.tail + frame_bytes <= self.fits_until and left_bytes is None and (reserve is None or reserve.is_ready):
            return  # as with most frames
        size = wanted_segment(self, frame_bytes, share, left_bytes)
        if size:
            make, left = (self._next_segment, 0) if left_bytes is None else (self._reserve_segment, left_bytes)
            following = make(self, size + left)
            if self.segment is not None:
                self.finish(self.segment)
            self.begin(following)

    def finish(self, segment: Segment) -> None:
        """Plan the last write of a segment: its tail is padded, the next one begins on a boundary."""
        assert segment.base is not None
        self.fits_until = 0
        data_end = self.tail - segment.base
        # Forced also where answers do not wait for forces: so at most one segment ever waits for its force.
        write = self._plan_up_to(segment, align_up(self.tail), force=True)
        write.full = FullSegment(segment, self.table, data_end, self.chain, self.trims.lend(), self.commits.packed)
        self._planned.append(write)

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
        look_at_footer(self)
        self.segment = segment
        self.table = OpenTable(self.offsets.column())
        self.tail += DATA_START
        opened = OpenSegment(segment, self.table)
        tell = self.on_segment
        if tell is not None:
            tell(opened)
        with self.viewing:
            self.view = self.view._replace(open=(*self.view.open, opened))

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

    def close(self) -> None:
        """Close all files and give the ring back."""
        for sealed in self.view.sealed:
            sealed.close()
        for opened in self.view.open:
            opened.segment.close()
        self.ring.close()

    def next_header(self, sequence: int, capacity_bytes: int, store_id: bytes) -> SegmentHeader:
        """The header of the segment that follows."""
        messages = self.messages_before if self.segment is None else self.segment.header.messages_before
        if self.segment is not None and messages != UNKNOWN:
            messages += self.table.entries
        return SegmentHeader(
            self.index, store_id, sequence, capacity_bytes, self._clock_ms(), self.chain, messages, len(self.streams)
        )

    # -- writing --------------------------------------------------------------------------------------

    def plan(self, *, follows: bool, barrier: bool = False, active: int = 0) -> list[Write]:
        """The writes that are due now, in order. Where more `follows`, all may be held back; then there are none."""
        if self.segment is not None and self.tail > self.issued:
            pad = not follows or barrier or should_pad(
                self._alignment, self.unissued.tail(self.tail, self.issued, active)
            )  # fmt: skip
            high = align_up(self.tail) if pad else align_down(self.tail)
            if high > self.issued:
                self._planned.append(self._plan_up_to(self.segment, high, force=barrier, looks=barrier))
        elif barrier and self.segment is not None:
            at = self.issued
            self._planned.append(Write(self.segment, [], at, at, force=True, earlier=self._lazy, looks=True))
        planned, self._planned = self._planned, []
        self.under_way.add_writes(planned)
        return planned

    def _plan_up_to(self, segment: Segment, high: int, *, force: bool, looks: bool = False) -> Write:
        """A write of everything that is not yet issued, up to the boundary `high`, padded if beyond it."""
        if high > self.tail:
            self.reserve(high)
            self.ring.zero(self.tail, high)
            self.counters.padding_bytes += high - self.tail
            self.tail = high
        force = force or not self._lazy
        parts = self.ring.parts(self.issued, high)
        write = Write(segment, parts, self.issued, high, force=force, earlier=self._lazy, looks=looks)
        self.counters.written_bytes += high - self.issued
        self.counters.writes += 1
        self.counters.forces += force
        self.issued = high
        self.unissued.issue(high)
        return write

    # -- completing -----------------------------------------------------------------------------------

    def complete(self, write: Write) -> WriteOutcome:
        """Account for a write that succeeded; answer what became durable by it, in log order."""
        done = self.under_way.complete(write)
        for segment in done.full:
            self._on_full(self, segment)
        return done

    @property
    def durable(self) -> int:
        """The lane position up to which the log is durable."""
        return self.under_way.durable

    @property
    def poison(self) -> StorePoisoned | None:
        """The error of the lane, once a write or force has failed."""
        return self.under_way.poison
