"""Opens a topic's index: its files, then the records and messages of the log after the files' mark (R33).

An opening of the store removes all knowledge of the delays of deleted topics; then `log.gone` can forget them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import numpy as np

from ...index import BucketTracker, TrackerDamaged
from ..errors import StoreFull
from ..format.delays import BEGIN, CHANGES, COPIES, DELAYS, Changes, IndexMark, LogPlace, whole
from ..format.hidden import CURSOR_KIND, hidden_topic
from ..log.lane import Lane
from ..log.streams import Stream
from ..read.message import Message
from ..read.reader import Reader
from .changes import ChangedDelays, ChangesReader
from .parts import ENTRY_BITS, MOST_ENTRY, DiskFiles, StoreParts, topic_of

READ_MESSAGES = 1024
READ_BYTES = 16 << 20


class OpenedIndex(NamedTuple):
    """The result of an opening.

    Attributes:
        changes: all changes of the topic's records.
        changes_next: the offset of the next record.
        changed: the places that records after the files' mark may have changed.
        places: for each lane, the first place in the log that is not in the tracker.
        rebuilt: why the files were thrown away; None if they were used, or if there were none.
        is_cut: some records were of lost messages. New records, as durable as a message, leave these out.
    """

    tracker: BucketTracker
    stream: Stream
    changes: ChangedDelays
    changes_next: int
    changed: set[int]
    places: list[LogPlace]
    rebuilt: str | None
    is_cut: bool


def open_index(topic: str, parts: StoreParts) -> OpenedIndex:
    """Open the index of a topic, or make it. The caller has to add the messages of the log from `places` on.

    If the topic has an index, call this before the store takes messages: it drops changes of lost messages, also from
    the records, before other messages get their offsets.

    Raises OSError, and StoreCorrupt if a record of changes is damaged; else as an append does.
    """
    stream = parts.hidden.find_or_make(hidden_topic(DELAYS, topic))
    reader = ChangesReader(partial(parts.streams.end_at_opening, topic))
    first, end = parts.reader.finder.whole_bounds(stream)
    if first == end:  # from now on the topic has an index, even if an opening finds no files of it
        nothing = np.empty(0, np.int64)
        end = int(parts.hidden.append(stream, [Changes(CHANGES, 0, nothing, nothing, nothing).pack()])[-1]) + 1
    found = [(record.offset, reader.add(record.data)) for record in changes_of(stream, parts.reader)]
    changes_next = write_whole(topic, parts, stream, reader.state) if reader.is_cut else end
    tracker, mark, rebuilt = _tracker_of(topic, parts, end)
    changed = {place for at, places in found if at >= mark.changes for place in places.tolist()}
    now_ms = parts.clock.wall_ms()
    reader.state.came_until(now_ms)
    _repeat(tracker, reader.state, changed, now_ms)
    return OpenedIndex(tracker, stream, reader.state, changes_next, changed, list(mark.places), rebuilt, reader.is_cut)


def open_again(
    topic: str, parts: StoreParts, changes: ChangedDelays, changes_next: int, changed: Collection[int], drained_ms: int,
    *, by_files: bool,
) -> tuple[BucketTracker, list[LogPlace]]:  # fmt: skip
    """The index of a topic from its files, as after a crash, or an empty one if these are damaged. The caller has to
    add the messages of the log from the returned places on.

    Args:
        changed: the places of the changes since the last checkpoint.
        drained_ms: messages due by then were given out.

    Raises OSError; then nothing was lost.
    """
    if by_files:
        tracker, mark, rebuilt = _tracker_of(topic, parts, changes_next)
        try:
            tracker.hand_out(drained_ms, 1 << 62, lambda *_given: None)
            _repeat(tracker, changes, changed if rebuilt is None else changes.moved, drained_ms)
            return tracker, list(mark.places)
        except TrackerDamaged:
            tracker.close()
    tracker = new_tracker(parts.files_of(topic))
    _repeat(tracker, changes, changes.moved, drained_ms)  # a scan passes over segments that are due by their own times
    return tracker, [BEGIN] * len(parts.lanes)


def write_whole(topic: str, parts: StoreParts, stream: Stream, changes: ChangedDelays) -> int:
    """Write all changes again, and remove the older records. Returns the offset of the next one. Raises StoreError."""
    offsets = parts.hidden.append(stream, whole(*changes.rows(topic, parts)))
    parts.hidden.trim(stream, int(offsets[0]))
    return int(offsets[-1]) + 1


def changes_of(stream: Stream, reader: Reader) -> Iterator[Message]:
    """Yield a topic's records of changes that are durable now. Raises StoreCorrupt, OffsetOutOfRange, OSError."""
    at, end = reader.finder.whole_bounds(stream)
    while at < end:
        messages = reader.read(stream, at, READ_MESSAGES, READ_BYTES)
        yield from messages
        at = messages[-1].offset + 1 if messages else end


def new_tracker(files: DiskFiles) -> BucketTracker:
    """An empty index; files in the folder are removed."""
    files.clear()
    return _tracker(files)


def _tracker(files: DiskFiles) -> BucketTracker:
    return BucketTracker("", files=files, memory_limit_bytes=None)  # the topic checks its limit itself


def _tracker_of(topic: str, parts: StoreParts, changes_end: int) -> tuple[BucketTracker, IndexMark, str | None]:
    """The index by its files, its mark, and why the files were thrown away, if they were."""
    files, beginning = parts.files_of(topic), IndexMark(topic, 0, [BEGIN] * len(parts.lanes))
    if not files.names():
        return _tracker(files), beginning, None
    why = "the log after it may have been lost" if not parts.keeps else None
    if why is None:
        try:
            tracker = _tracker(files)
            mark = IndexMark.unpack(tracker.mark) if tracker.mark else beginning
            why = _why_wrong(mark, topic, parts, changes_end)
            if why is None and mark is not None:
                return tracker, mark, None
            tracker.close()
        except TrackerDamaged as error:
            why = str(error)
    return new_tracker(files), beginning, why


def _why_wrong(mark: IndexMark | None, topic: str, parts: StoreParts, changes_end: int) -> str | None:
    """Why the files do not belong to this log; None if they do."""
    if mark is None or mark.topic != topic or len(mark.places) != len(parts.lanes):
        return "its mark makes no sense"
    is_ahead = not all(map(_is_in, parts.lanes, mark.places))
    return "it is ahead of the log" if is_ahead or mark.changes > changes_end else None


def _is_in(lane: Lane, place: LogPlace) -> bool:
    """Whether all of the lane's log before a place exists. A sealed one goes on in the next segment."""
    sealed = lane.view.sealed
    at = bisect_left(sealed, place.sequence, key=lambda one: one.segment.sequence)
    if at < len(sealed) and sealed[at].segment.sequence == place.sequence:
        return place.entry <= sealed[at].record.entries
    return place <= end_of(lane)


def end_of(lane: Lane) -> LogPlace:
    """The end of a lane's durable log."""
    view = lane.view
    if view.open:
        return LogPlace(view.open[-1].segment.sequence, view.open[-1].table.visible)
    return LogPlace(view.sealed[-1].segment.sequence + 1, 0) if view.sealed else LogPlace(1, 0)


def _repeat(tracker: BucketTracker, state: ChangedDelays, changed: Collection[int], now_ms: int) -> None:
    """Apply changes that the files do not have yet: the newest change of each message alone."""
    for place in changed:
        queue_id, entry = place >> ENTRY_BITS, place & MOST_ENTRY
        tracker.cancel(queue_id, entry)
        time_ms = state.moved.get(place, now_ms)
        if time_ms > now_ms:
            tracker.add_message(queue_id, entry, time_ms)


def forget_deleted(parts: StoreParts) -> set[str]:
    """Remove the indexes of topics that were deleted and have no subscription. Returns the topics that have none now.

    It removes the files first, then the records: an opening in between finds records without files, and makes the index
    again. Raises OSError; else as an append does.
    """
    subscribed = {topic_of(stream) for stream in parts.hidden.of_kind(CURSOR_KIND) if not stream.is_empty}
    forgotten: set[str] = set()
    for stream in parts.hidden.of_kind(DELAYS):
        topic = topic_of(stream)
        queues = list(parts.streams.topics.get(topic, {}).values())
        if topic in subscribed or not all(queue.is_deleted for queue in queues):
            continue
        forgotten.add(topic)
        if not stream.is_empty:
            parts.files_of(topic).clear()
            parts.disk.remove_folder(parts.folder_of(topic))
            for kind in (COPIES, DELAYS):
                known = parts.hidden.find(hidden_topic(kind, topic))
                with suppress(StoreFull):  # a store opens on a full disk; the next opening removes it
                    if known is not None and not known.is_empty:
                        parts.hidden.trim(known, known.next_offset)
    return forgotten
