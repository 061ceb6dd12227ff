"""Opening a topic's index: its files, then what the log says behind their mark (R33)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...index import BucketTracker, TrackerDamaged
from ..format.delays import BEGIN, CHANGES, DELAYS, Changes, Mark, Place
from ..format.hidden import hidden_topic
from ..log.lane import Lane
from ..log.streams import Stream
from ..read.message import Message
from ..read.reader import Reader
from .changes import ChangedDelays, ChangesReader
from .disk_files import DiskFiles
from .parts import StoreParts
from .positions import ENTRY_BITS, MOST_ENTRY

Int64s = npt.NDArray[np.int64]
READ_MESSAGES = 1024
READ_BYTES = 16 << 20


class OpenedIndex(NamedTuple):
    """What an opening found.

    Attributes:
        changes: all that the topic's records say.
        changes_next: the offset of the next record.
        places: for each lane, the first place in the log that is not in the tracker.
        rebuilt: why the files were thrown away; None if they were taken over, or if there were none.
    """

    tracker: BucketTracker
    stream: Stream
    changes: ChangedDelays
    changes_next: int
    places: list[Place]
    rebuilt: str | None


def open_index(topic: str, parts: StoreParts) -> OpenedIndex:
    """Open the index of a topic, or make it. What lies behind `places` in the log has to be added still.

    Raises OSError, and StoreCorrupt if a record of changes is damaged.
    """
    stream = parts.hidden.find_or_make(hidden_topic(DELAYS, topic))
    reader = ChangesReader()
    end = parts.reader.finder.bounds(stream)[1]
    if end == 0:  # the topic has an index from now on, also for an opening that finds no files of it
        nothing = np.empty(0, np.int64)
        end = int(parts.hidden.append(stream, [Changes(CHANGES, 0, nothing, nothing, nothing).pack()])[-1]) + 1
    files = DiskFiles(parts.disk, parts.folder_of(topic))
    tracker, mark, rebuilt = _tracker_of(topic, parts, files, end)
    try:
        changed = _read_changes(parts, stream, reader, mark)
    except BaseException:  # also an interrupt: its files are let go
        tracker.close()
        raise
    _repeat(tracker, reader.state, changed, parts.clock.wall_ms())
    return OpenedIndex(tracker, stream, reader.state, end, list(mark.places), rebuilt)


def _read_changes(parts: StoreParts, stream: Stream, reader: ChangesReader, mark: Mark) -> list[Int64s]:
    """Give all records to the reader: the places that those behind the mark may have changed."""
    changed: list[Int64s] = []
    for record in changes_of(stream, parts.reader):
        places = reader.add(record.data)
        if record.offset >= mark.changes:
            changed.append(places)
    return changed


def changes_of(stream: Stream, reader: Reader) -> Iterator[Message]:
    """The records of changes of a topic, all that are durable now. Raises StoreCorrupt, OffsetOutOfRange, OSError."""
    at, end = reader.finder.bounds(stream)
    while at < end:
        messages = reader.read(stream, at, READ_MESSAGES, READ_BYTES)
        yield from messages
        at = messages[-1].offset + 1 if messages else end


def new_tracker(files: DiskFiles) -> BucketTracker:
    """An empty one; what is in the folder is removed."""
    files.clear()
    return _tracker(files)


def _tracker(files: DiskFiles) -> BucketTracker:
    return BucketTracker("", files=files, memory_limit_bytes=None)  # the topic looks at its limit itself


def _tracker_of(
    topic: str, parts: StoreParts, files: DiskFiles, changes_end: int
) -> tuple[BucketTracker, Mark, str | None]:
    beginning = Mark(topic, 0, [BEGIN] * len(parts.lanes))
    if not files.names():
        return _tracker(files), beginning, None
    why = "the log behind it may have been lost" if not parts.keeps else None
    if why is None:
        try:
            tracker = _tracker(files)
            mark = Mark.unpack(tracker.mark) if tracker.mark else beginning
            why = _why_wrong(mark, topic, parts, changes_end)
            if why is None and mark is not None:
                return tracker, mark, None
            tracker.close()
        except TrackerDamaged as error:
            why = str(error)
    return new_tracker(files), beginning, why


def _why_wrong(mark: Mark | None, topic: str, parts: StoreParts, changes_end: int) -> str | None:
    """Why the files do not belong to this log; None if they do."""
    if mark is None or mark.topic != topic or len(mark.places) != len(parts.lanes):
        return "its mark makes no sense"
    ends = map(end_of, parts.lanes)
    is_ahead = any(place > end for place, end in zip(mark.places, ends, strict=True))
    return "it is ahead of the log" if is_ahead or mark.changes > changes_end else None


def end_of(lane: Lane) -> Place:
    """The end of a lane's durable log."""
    view = lane.view
    if view.open:
        return Place(view.open[-1].segment.sequence, view.open[-1].table.visible)
    return Place(view.sealed[-1].segment.sequence + 1, 0) if view.sealed else Place(1, 0)


def _repeat(tracker: BucketTracker, state: ChangedDelays, changed: list[Int64s], now_ms: int) -> None:
    """Apply what changed behind the mark to what the files have: the newest change of each message alone."""
    for place in set(np.concatenate(changed).tolist()) if changed else ():
        queue_id, entry = place >> ENTRY_BITS, place & MOST_ENTRY
        tracker.cancel(queue_id, entry)
        time_ms = state.moved.get(place, now_ms)
        if time_ms > now_ms:
            tracker.add_message(queue_id, entry, time_ms)
