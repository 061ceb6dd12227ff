"""Compacting a closed store: its live messages in fewer and larger segments, with the offsets that they have."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ...portable import NOT_THERE
from ..compact.joining import join_lane
from ..compact.plan import LanePlan, plan_lane
from ..compact.writing import write_live
from ..delayed.parts import DELAYED_FOLDER
from ..device.clock import SYSTEM_CLOCK
from ..device.disk import Disk, OsDisk, ReadingDisk
from ..device.exchange import exchange
from ..device.folder import fixed_path
from ..errors import InvalidMessage, StoreError, StoreLocked, StoreUnusable, shown, system_errors
from ..format.layout import segment_name
from ..format.live_page import LIVE_FILE
from ..log.lane import Lane
from ..log.stopping import stopped
from ..rebuild.looking import sealed_segments
from .looking import look_into_folder
from .rebuilding import InParts, here, rebuild_delays
from .store import MessageStore

STAGING = "compact"  # in the store's folder; what a killed compaction leaves there goes with the next one
SEGMENT_BYTES = 1 << 30
MOST_SEGMENT_BYTES = 3 << 30  # positions in a segment have 32 bits
TRIES = 10  # to find the store as it was left: another program may open it in between


@dataclass(frozen=True, slots=True)
class Compacted:
    """The outcome of a compaction.

    Attributes:
        store: the folder.
        segments, size_bytes: sealed segments and the bytes of their files, of all lanes.
        segments_before, size_before_bytes: these two before the compaction.
        removed: messages that no reader could get any more, and that were left out.
    """

    store: str
    segments: int
    size_bytes: int
    segments_before: int
    size_before_bytes: int
    removed: int


def compact_store(
    path: str | Path, *, in_parts: InParts = here, segment_bytes: int = SEGMENT_BYTES
) -> Compacted:  # fmt: skip
    """Write the live messages of a closed store to fewer and larger segments, in its own folder.

    What was trimmed, and what deleted topics had, goes. All else is as it was: offsets, times, keys, properties,
    delivery times, subscriptions and what they have acknowledged, changed delays, and the names of bulk commits. A
    position of a streaming query does not count any more (`LogOvertaken`): start a new one at the offsets it had.

    Lanes are written one after the other, and each takes the place of the old one in one step. The store is locked
    meanwhile. A kill, a power cut or an error at any moment leaves each lane as it was, or compacted. While a lane is
    written, the disk holds it twice. A lane that would have as many segments, and would lose less than 1 MiB or 5 % of
    its bytes, stays.

    Args:
        path: the folder of the store.
        in_parts: how the parts of the work are done; the function and the parts can be pickled. The default does all of
            it here, one after the other.
        segment_bytes: about how large a new segment is, at most 3 GiB.

    Raises:
        StoreLocked: a process has the store open.
        StoreUnusable: the folder is not a store; a repair has left gaps between offsets (nothing has changed then); or
            the file system cannot exchange two folders.
        StoreCorrupt: a message, a frame or a footer is damaged.
        StoreFull: there is no space for a second copy of a lane.
        StoreUnreadable: the system refused to read or to write a file; try again.
        InvalidMessage: `segment_bytes` is none.
    """
    if type(segment_bytes) is not int or not 1 <= segment_bytes <= MOST_SEGMENT_BYTES:
        raise InvalidMessage(f"segment_bytes is an int from 1 to {MOST_SEGMENT_BYTES}, not {shown(segment_bytes)}")
    store = fixed_path(path)
    with system_errors(f"{store} could not be compacted", "Nothing is lost; try again."):
        done = _compact(store, in_parts, segment_bytes)
    with suppress(StoreError, OSError):  # all lanes are compacted; the next opening makes the indexes
        rebuild_delays(store, in_parts)
    return done


def _compact(store: Path, in_parts: InParts, segment_bytes: int) -> Compacted:
    for _ in range(TRIES):
        with look_into_folder(store):  # raises what is wrong with it, before anything is written
            pass
        _seal_all(store)
        with look_into_folder(store) as looked:
            if any(lane.view.open for lane in looked._lanes):
                continue  # somebody has appended since
            staging = store / STAGING
            with suppress(FileNotFoundError):
                shutil.rmtree(staging)  # of a compaction that was killed
            lanes = [flusher.lane for flusher in looked._running.flushers]
            plans = [plan_lane(lane, looked._store_id, segment_bytes) for lane in lanes]
            before = [_sizes(lane, looked._store_id) for lane in looked._lanes]
            todo = [plan for plan in plans if plan is not None and plan.is_worth_it]
            try:
                for plan in todo:
                    _replace(OsDisk(), store, plan, in_parts, staging)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
            after = [_sizes(lane, looked._store_id) for lane in looked._lanes]
            (segments, size), (segments_before, size_before) = map(_summed, (after, before))
            removed = sum(plan.removed for plan in todo)
            return Compacted(str(store), segments, size, segments_before, size_before, removed)
    raise StoreLocked(f"{store} is opened by another program again and again; stop that one first")


def _seal_all(store: Path) -> None:
    """Give each segment its footer. Raises StoreError, OSError.

    An opening tidies up in the background: it notes which copies of delayed messages are not needed any more. So
    appends end before the segments are sealed: else nearly each opening would leave an open segment again.
    """
    with MessageStore.open(store) as opened:
        running = opened._running
        upkeep = running.upkeep
        assert upkeep is not None, "it is open for writing"
        running.end_appends()
        for flusher in running.flushers:
            with stopped(flusher, upkeep.sealer):
                pass


def _replace(disk: Disk, store: Path, plan: LanePlan, in_parts: InParts, staging: Path) -> None:
    """Write a lane anew, and put it in the place of the old one. Raises StoreError, OSError."""
    fresh = staging / plan.folder.name
    disk.make_folder(staging)
    written = in_parts(partial(write_live, staging=staging), plan.parts)
    join_lane(disk, plan, written, fresh, SYSTEM_CLOCK.wall_ms())
    disk.force_folder(staging)
    for name in (DELAYED_FOLDER, LIVE_FILE):  # they name places in the old log; the next opening makes them again
        if (store / name).exists():
            disk.rename(store / name, staging / name)
    disk.force_folder(store)
    _exchange(plan.folder, fresh)
    disk.force_folder(store)
    disk.force_folder(staging)
    shutil.rmtree(staging)


def _exchange(lane: Path, fresh: Path) -> None:
    try:
        exchange(lane, fresh)
    except OSError as error:
        if error.errno in NOT_THERE:
            raise StoreUnusable(f"the file system of {lane} cannot exchange two folders; it is as it was") from error
        raise


def _sizes(lane: Lane, store_id: bytes) -> tuple[int, int]:
    """The number of sealed segments in a lane's folder, and the bytes of their files."""
    found = sealed_segments(ReadingDisk(), lane.folder, lane.index, store_id).sealed
    return len(found), sum((lane.folder / segment_name(one.sequence)).stat().st_size for one in found)


def _summed(sizes: list[tuple[int, int]]) -> tuple[int, int]:
    return sum(count for count, _ in sizes), sum(size for _, size in sizes)
