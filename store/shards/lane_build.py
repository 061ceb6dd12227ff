"""The segments of one attaching in one lane: they are made, named, continued by the lane, and then shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from ..device.disk import Disk
from ..errors import StoreCorrupt
from ..format.applied import AppliedRecord, AppliedShard
from ..format.frame import Definition
from ..format.layout import RETIRED_PREFIX, SealRecord, SegmentHeader, segment_name
from ..format.records import LentTrims
from ..log.room import define
from ..log.sealed_log import include
from ..log.sealer import newest_footers
from ..log.streams import NOT_DEFINED, Stream
from ..log.together import Change
from ..log.written_lane import WrittenLane
from ..segment.present import Numbers
from ..segment.sealed import SealedSegment
from ..segment.sealing import FooterNames, StreamNames, with_footer
from ..segment.segment import Segment
from .log_end import LogEnd
from .record_segment import write_record_segment
from .rewriting import SegmentPlace, write_ahead, write_segment
from .staging import StagedShard


class LaneBuild:
    """Makes segments while the lane stands still. Nothing in the lane changes before `name_all`, so all can be dropped.

    Attributes:
        end: of the log, with the segments that were made.
        commits: the lane's commits from the first of these segments on.
        names: of the lane's streams, with the new ones.
    """

    def __init__(
        self, disk: Disk, lane: WrittenLane, names: StreamNames, sequence: int, streams: Sequence[Stream],
        store_id: bytes, clock_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        """`names` are the lane's own; `streams` those of all segments to be made."""
        self._disk = disk
        self._lane = lane
        self._clock_ms = clock_ms
        mark = lane.under_way.forced_mark
        self.end = LogEnd(lane.index, store_id, sequence, lane.chain, lane.messages_before, mark)
        self.commits = lane.commits
        self._fresh = list(dict.fromkeys(stream for stream in streams if stream.number == NOT_DEFINED))
        self._numbers = {stream: len(lane.streams) + at for at, stream in enumerate(self._fresh)}
        self._known = len(lane.streams)
        self.names = FooterNames(names, lane.streams, self._fresh)
        self._firsts = np.zeros(self._known + len(self._fresh), np.int64)
        before = lane.offsets.column()[: self._known]
        self._firsts[: len(before)] = before
        self._before = self._firsts.copy()
        self._newest = newest_footers(lane)
        self._made: list[tuple[Path, SegmentHeader, SealRecord, Numbers]] = []
        self._sealed: list[SealedSegment] = []
        self._offsets = lane.offsets
        self._settled: LentTrims | None = None  # the trims in the newest full footer
        self._records = self._payload_bytes = 0

    def _number(self, stream: Stream) -> int:
        return stream.number if stream.number != NOT_DEFINED else self._numbers[stream]

    def add_record(self, record: AppliedRecord) -> None:
        """Make the segment with the commit's record and the new streams. Raises OSError."""
        number = self._number(self._lane.lows.records)
        defined = [Definition(self._numbers[one], one.topic, one.queue_id) for one in self._fresh]
        path = self._lane.folder / (RETIRED_PREFIX + segment_name(self.end.sequence))
        with suppress(FileNotFoundError):
            self._disk.remove(path)  # of a failed attempt
        place, seal = write_record_segment(
            self._disk, path, record.pack(), number, int(self._firsts[number]), defined,
            lambda data_end: self._place(data_end, self._known), self._clock_ms(),
        )  # fmt: skip
        self._firsts[number] += seal.entries
        self._records += seal.entries
        self._note(path, place, seal, np.array([number], np.uint32))

    def add_shard(self, staged: StagedShard, streams: Sequence[Stream]) -> None:
        """Make a segment of a shard's file; `streams` are the shard's, by its numbers. Raises StoreCorrupt, OSError."""
        index = staged.index
        place = self._place(index.data_end, len(self._firsts))
        numbers = np.array([self._number(stream) for stream in streams], np.uint32)
        try:
            seal = write_segment(self._disk, staged.path, index, place, numbers)
        except FileNotFoundError:
            raise StoreCorrupt("a committed shard is missing", staged.path, 0) from None
        self._firsts[numbers] += index.counts
        self._payload_bytes += index.payload_bytes
        self._note(staged.path, place, seal, np.sort(numbers[index.counts > 0]))

    def _place(self, data_end: int, streams_before: int) -> SegmentPlace:
        header = self.end.header(data_end, self._clock_ms(), streams_before)
        trimmed = self._lane.trims.lend()
        return SegmentPlace(header, self.names, self._firsts, trimmed, self.commits.packed, self.end.mark, self._newest)

    def _note(self, path: Path, place: SegmentPlace, seal: SealRecord, there: Numbers) -> None:
        self._made.append((path, place.header, seal, there))
        self._settled = place.trimmed if seal.full else self._settled
        self.end.passed(seal)
        named = (self._number(self._lane.lows.records),)
        is_full = bool(seal.full)
        self._newest = with_footer(self._newest, seal.sequence, there, len(self._firsts), named, is_full=is_full)

    def name_all(self) -> None:
        """Give the files their names, each durably before the next: a crash leaves no gap. Raises OSError."""
        for path, header, _, _ in self._made:
            self._name(path, header)

    def _name(self, path: Path, header: SegmentHeader) -> None:
        folder = self._lane.folder
        if path.parent != folder:
            linked = folder / (RETIRED_PREFIX + segment_name(header.sequence))
            with suppress(FileNotFoundError):
                self._disk.remove(linked)  # of a failed attempt
            self._disk.link(path, linked)
            path = linked
        self._disk.rename(path, folder / segment_name(header.sequence))  # a spare may have this name
        self._disk.force_folder(folder)

    def go_on(self) -> None:
        """All is durable: the lane continues after it. Readers do not see it yet."""
        lane = self._lane
        define(lane, self._fresh)
        # They are shown with the segments: if no segment is open, these offsets say where a queue ends.
        self._offsets = lane.offsets.after(self._firsts - self._before, len(lane.streams))
        if self._settled is not None:
            lane.settle(self._settled, list(lane.gone))
        lane.attached(self.end.chain, self.end.messages_before, self.commits)
        for _, header, seal, there in self._made:
            segment = Segment(self._disk, lane.folder, header, direct=False)
            self._sealed.append(SealedSegment(segment, seal))
            self._sealed[-1].fresh = None if seal.full else there
            include(lane, self._sealed[-1])
        lane.counters.count(sum(seal.entries for _, _, seal, _ in self._made), self._records)
        lane.counters.payload_bytes += self._payload_bytes

    @property
    def changes(self) -> list[Change]:
        """The changes that show the segments to readers of this process. `lane.viewing` is held until they are made."""
        view = self._lane.view
        return [(self._lane, "view", view.sealing(self._sealed, view.open)), (self._lane, "offsets", self._offsets)]

    def tell(self) -> None:
        """The segments are shown: let other processes see them, too."""
        lane = self._lane
        lane.under_way.attached(self.end.mark)
        lane.tell_view()


def write_columns_ahead(
    disk: Disk, lane: WrittenLane, shards: Sequence[StagedShard], streams: Sequence[Sequence[Stream]]
) -> None:
    """Write the columns of the shards' frames as they are if no message comes into their streams before them.

    The lane goes on meanwhile: its numbers and offsets are taken as a guess, and `LaneBuild` corrects it. `streams` are
    each shard's. Raises StoreCorrupt, OSError.
    """
    fresh, before = len(lane.streams) + (lane.lows.records.number == NOT_DEFINED), lane.offsets.column()
    numbers: dict[Stream, int] = {}
    nexts: dict[Stream, int] = {}
    for staged, mine in zip(shards, streams, strict=True):
        for stream in mine:
            if stream not in numbers:
                is_new = stream.number == NOT_DEFINED
                numbers[stream] = fresh if is_new else stream.number
                nexts[stream] = 0 if is_new else int(before[stream.number : stream.number + 1].sum())
                fresh += is_new
        index = staged.index
        firsts = np.array([nexts[stream] for stream in mine], np.int64)
        try:
            write_ahead(disk, staged.path, index, np.array([numbers[one] for one in mine], np.uint32), firsts)
        except FileNotFoundError:
            raise StoreCorrupt("a committed shard is missing", staged.path, 0) from None
        for stream, count in zip(mine, index.counts.tolist(), strict=True):
            nexts[stream] += count


def record_of(entry_shards: Sequence[StagedShard]) -> tuple[AppliedShard, ...]:
    """The shards as a record names them."""
    return tuple(AppliedShard(one.shard.checksum, one.shard.rows, one.shard.payload_bytes) for one in entry_shards)


__all__ = ["LaneBuild", "record_of", "write_columns_ahead"]
