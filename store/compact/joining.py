"""A new lane made of shards: its log begins with the first live messages of the old one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..device.disk import Disk
from ..device.lane_start import write_compacted, write_start
from ..errors import StoreCorrupt
from ..format.footer import names_in
from ..format.frame import Definition
from ..format.layout import SealRecord, segment_name
from ..format.records import TRIM, LentTrims, Record, TrimmedColumns
from ..format.shard import Shard
from ..format.store_files import LaneStart
from ..segment.present import Numbers
from ..segment.sealing import FooterNames, NewestFooters, StreamNames, with_footer
from ..shards.log_end import LogEnd
from ..shards.record_segment import write_record_segment
from ..shards.rewriting import SegmentPlace, write_segment
from ..shards.staging import staged_in
from .plan import LanePlan
from .writing import WrittenPart


def join_lane(disk: Disk, plan: LanePlan, written: Sequence[WrittenPart], fresh: Path, now_ms: int) -> int:
    """Make the lane's new folder, forced except for its own name. Returns the number of its segments.

    Raises StoreCorrupt if the shards do not fit the plan, OSError.
    """
    disk.make_folder(fresh)
    joining = _Joining(disk, plan, fresh, now_ms)
    for part in written:
        for shard in part.shards:
            joining.add_shard(Path(part.folder), shard)
    joining.add_record()
    joining.check_end()
    start = LaneStart(plan.lane, plan.store_id, plan.sequence, plan.messages_before)
    write_compacted(disk, fresh, start)
    write_start(disk, fresh, start)  # it forces the folder
    return joining.end.sequence - plan.sequence


class _Joining:
    """`end` is the end of the new log so far."""

    def __init__(self, disk: Disk, plan: LanePlan, fresh: Path, now_ms: int) -> None:
        self._disk, self._plan, self._fresh, self._now_ms = disk, plan, fresh, now_ms
        self.end = LogEnd(plan.lane, plan.store_id, plan.sequence, plan.chain, plan.messages_before, (0, 0))
        self._names = FooterNames(StreamNames(), plan.streams)
        self._numbers = {(one.topic, one.queue_id): number for number, one in enumerate(plan.streams)}
        self._firsts = plan.firsts.copy()
        self._trimmed = LentTrims(TrimmedColumns.of(plan.trimmed), TrimmedColumns.of({}))
        self._behind: NewestFooters | None = None

    def add_record(self) -> None:
        """Add the last segment: a record that the records before it are gone.

        Its footer is a second one with all streams: in a log with one footer, losing that one would lose all names.
        """
        plan, number = self._plan, self._plan.records
        record = Record(TRIM, number, int(self._firsts[number]))
        self._trimmed = self._trimmed._replace(since=TrimmedColumns.of({number: record.effect}))
        self._behind = None if self._behind is None else self._behind._replace(is_due=True)
        streams = plan.streams[plan.known :]
        defined = [Definition(plan.known + at, one.topic, one.queue_id) for at, one in enumerate(streams)]
        path = self._fresh / segment_name(self.end.sequence)
        _, seal = write_record_segment(
            self._disk, path, record.pack(), number, int(self._firsts[number]), defined,
            self._place, plan.last_time_ms,
        )  # fmt: skip
        self._firsts[number] += seal.entries
        self.end.passed(seal)

    def add_shard(self, folder: Path, shard: Shard) -> None:
        """Add the next segment. Raises StoreCorrupt, OSError."""
        staged = staged_in(self._disk, folder, shard)
        index = staged.index
        numbers = np.array([self._numbers[name] for name in names_in(index.footer)], np.uint32)
        place = self._place(index.data_end)
        seal = write_segment(self._disk, staged.path, index, place, numbers)
        self._firsts[numbers] += index.counts
        self._disk.link(staged.path, self._fresh / segment_name(self.end.sequence))
        self._passed(seal, np.sort(numbers[index.counts > 0]))

    def _passed(self, seal: SealRecord, there: Numbers) -> None:
        self.end.passed(seal)
        named, is_full = (self._plan.records,), bool(seal.full)
        self._behind = with_footer(self._behind, seal.sequence, there, len(self._firsts), named, is_full=is_full)

    def _place(self, data_end: int) -> SegmentPlace:
        header = self.end.header(data_end, self._now_ms, self._plan.known)
        given = self._trimmed, self._plan.applied, self.end.mark, self._behind
        return SegmentPlace(header, self._names, self._firsts, *given)

    def check_end(self) -> None:
        """Raise StoreCorrupt unless each stream ends where it did in the old log, the records' stream one later."""
        ends = self._plan.nexts.copy()
        ends[self._plan.records] += 1
        if (self._firsts != ends).any():
            raise StoreCorrupt("a part of the compacted log has another number of messages", self._fresh, 0)
