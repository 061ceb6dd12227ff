"""What retention may remove: the oldest sealed segments of a lane; trimmed, by age, or while the store is too large."""

from __future__ import annotations

from pathlib import Path

from stratalog.store import MessageStore
from stratalog.store.format.layout import BLOCK_BYTES, SEGMENT_SUFFIX, SegmentHeader, segment_name
from stratalog.store.log.retention import size_of
from stratalog.store.testing import Operation, SimulatedDisk

from .check import BrokenPromise
from .damage import lane_of
from .engine import bounds_held, lanes_of, newest_segments, removable_count
from .ledger import Ledger
from .recovered import held_bytes, record_of
from .shape import Settings

LANE_PREFIX = "lane-"
START_FILE = "START"


def note_removal(
    operation: Operation, disk: SimulatedDisk, store: MessageStore, ledger: Ledger, settings: Settings, now_ms: int
) -> bool:
    """Is a segment about to lose its name? Then it must be one that retention may take; the ledger notes it."""
    path = operation.path
    if not path.parent.name.startswith(LANE_PREFIX):
        return False
    if operation.kind == "write" and path.name == START_FILE:
        # The lane notes where its log begins from now on: from here a crash may take all that go in this step.
        gone_bytes = 0
        for sealed in lanes_of(store)[lane_of(path)][0].view.sealed:
            if sealed.segment.removed:
                _may_take(sealed.segment.path, disk, store, ledger, settings, now_ms, gone_bytes)
                gone_bytes += size_of(sealed)
        return False
    if operation.kind != "rename" or path.suffix != SEGMENT_SUFFIX:
        return False
    if path != _oldest(disk, path.parent):
        header = SegmentHeader.unpack(disk.bytes_of(path)[:BLOCK_BYTES])
        if header is None or segment_name(header.sequence) != path.name:
            return False  # a reserve that could not be begun gets its own name back
        raise BrokenPromise(f"{path.parent.name}/{path.name} is removed, and is not the oldest segment")
    _may_take(path, disk, store, ledger, settings, now_ms, 0)
    return True


def _oldest(disk: SimulatedDisk, folder: Path) -> Path:
    return folder / min(name for name in disk.list(folder) if name.endswith(SEGMENT_SUFFIX))


def _may_take(
    path: Path, disk: SimulatedDisk, store: MessageStore, ledger: Ledger, settings: Settings, now_ms: int,
    gone_bytes: int,
) -> None:  # fmt: skip
    """May a segment go? So many bytes of older ones are about to, in the same step."""
    lane, sequence = lane_of(path), int(path.stem)
    if sequence <= ledger.lanes[lane].removed:
        return
    if record_of(disk, path) is None:
        raise BrokenPromise(f"segment {sequence} of lane {lane} is removed, and is not sealed")
    following = path.with_name(segment_name(sequence + 1))
    if following.name not in disk.list(path.parent) or record_of(disk, following) is None:
        raise BrokenPromise(f"segment {sequence} of lane {lane} is removed, the newest that is sealed")
    limit_ms, limit_bytes = settings.retention_ms, settings.retention_bytes
    too_old = limit_ms is not None and ledger.newest_ms(lane, sequence) < now_ms - limit_ms
    too_large = limit_bytes is not None and held_bytes(disk, newest_segments(store)) - gone_bytes > limit_bytes
    if not (too_old or too_large or ledger.all_trimmed(lane, sequence)):
        raise BrokenPromise(f"segment {sequence} of lane {lane} is removed, and no setting asks for that")
    ledger.lanes[lane].removed = sequence


def check_removed(store: MessageStore, settings: Settings) -> None:
    """Behind a look at retention that met no error, the store is small enough, or nothing is left to remove."""
    if settings.retention_bytes is None or bounds_held(store) <= settings.retention_bytes:
        return
    if any(removable_count(store, index) for index in range(len(lanes_of(store)))):
        raise BrokenPromise(f"retention left {bounds_held(store)} bytes of {settings.retention_bytes}")
