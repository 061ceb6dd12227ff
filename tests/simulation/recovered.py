"""What a simulated disk holds, found out by recovery, verification and a look at its records; no store is opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stratalog.store.device.disk import Disk
from stratalog.store.device.folder import QUARANTINE, read_header
from stratalog.store.format.layout import BLOCK_BYTES, SEALED, SEGMENT_SUFFIX, SealRecord, lane_name, segment_name
from stratalog.store.log.write import View
from stratalog.store.read.message import MessageBatch
from stratalog.store.read.scan import LaneSnapshot
from stratalog.store.recovery.lane_recovery import LaneRecovery
from stratalog.store.recovery.recovered_lane import RecoveredLane
from stratalog.store.segment.evidence import mark_of
from stratalog.store.segment.scanner import ChunkReader, FrameScanner
from stratalog.store.testing import SimulatedDisk
from stratalog.store.verify.lane import LaneCheck
from stratalog.store.verify.report import Findings

from .engine import home


def recover(disk: Disk, *, repair: bool = False) -> list[RecoveredLane]:
    """Recover every lane as opening the store does. Raises StoreCorrupt."""
    return [recovery.run() for recovery in recoveries(disk, repair=repair)]


def recoveries(disk: Disk, *, repair: bool = False) -> list[LaneRecovery]:
    """The recovery of each lane, not begun; none if there is no store yet. Raises StoreCorrupt.

    Opening forces the names that it finds; so does this. That opening does it is shown by the lives of a run.
    """
    header = read_header(disk, home())
    if header is None:
        return []
    quarantine = home() / QUARANTINE
    folders = [home() / lane_name(lane) for lane in range(header.lanes)]
    for folder in (home(), *folders):
        disk.force_folder(folder)
    return [
        LaneRecovery(disk, folder, lane, header.store_id, quarantine, repair=repair, direct=False)
        for lane, folder in enumerate(folders)
    ]


def damages_of(disk: SimulatedDisk) -> list[str]:
    """What `verify` finds damaged in a closed store."""
    findings = Findings(None)
    header = read_header(disk, home())
    assert header is not None
    for lane in [LaneCheck(disk, home(), number, header.store_id, findings) for number in range(header.lanes)]:
        lane.run()
    return [f"{damage}" for damage in findings.report.damages]


def durable_up_to(disk: SimulatedDisk, lane: int) -> tuple[int, int]:
    """(sequence, position) up to which a frame or a seal record on the disk says that the lane was durable."""
    found = (0, 0)
    folder = home() / lane_name(lane)
    for name in disk.list(folder):
        if not name.endswith(SEGMENT_SUFFIX):
            continue
        sequence, file = int(name.removesuffix(SEGMENT_SUFFIX)), disk.open(folder / name)
        record = SealRecord.unpack(file.read(BLOCK_BYTES, BLOCK_BYTES))
        if record is not None and record.sequence == sequence:
            found = max(found, (sequence, record.data_end))
        reader = ChunkReader(file, file.size())
        frames = FrameScanner(reader, lane, sequence, 0, 0).find_later(0, reader.size_bytes)
        found = max([found, *map(mark_of, frames)])
        reader.close()
        file.close()
    return found


def held_bytes(disk: SimulatedDisk, newest: Sequence[int]) -> int:
    """What the segments in use take, up to the `newest` of each lane: the whole file, or up to the footer's end."""
    total = 0
    for path, size in disk.sizes().items():
        if path.suffix == SEGMENT_SUFFIX and int(path.stem) <= newest[int(path.parent.name.removeprefix("lane-"))]:
            record = record_of(disk, path)
            total += record.footer_position + record.footer_bytes if record is not None else size
    return total


def record_of(disk: SimulatedDisk, path: Path) -> SealRecord | None:
    """The record of a sealed segment; None of any other file."""
    file = disk.open(path)
    record = SealRecord.unpack(file.read(BLOCK_BYTES, BLOCK_BYTES))
    file.close()
    sealed = record is not None and record.state == SEALED and segment_name(record.sequence) == path.name
    return record if sealed else None


def batches_of(found: RecoveredLane, segment: Any) -> Iterator[MessageBatch]:
    """The messages of one recovered segment: of a sealed one, or of the one that is gone on with."""
    opened = found.resumable[0] if found.resumable is not None else None
    view = View(open=(opened,)) if opened is not None and segment is opened else View().sealing([segment], ())
    streams = [SimpleNamespace(topic=topic, queue_id=queue_id) for topic, queue_id in found.streams]
    nothing_trimmed = SimpleNamespace(column=lambda streams: None)  # all that lies in the log, records as well
    lane: Any = SimpleNamespace(view=view, streams=streams, hidden=[], lows=nothing_trimmed)
    return LaneSnapshot(lane).batches()
