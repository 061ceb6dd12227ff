"""Makes the delayed indexes of a closed store from its log in parts: sorted runs in tasks, merged to one bucket.

Each part reads the frames with delivery times of some sealed segments (footers list them), and writes the pending
messages of each topic as the files of a tracker of its own. `join_index` merges those of a topic, with a mark of their
end in the log. An opening adds later messages, and all changed delays, by itself, as after any checkpoint: so the files
never have more than the durable log.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...index import BucketTracker, join_trackers
from ..delayed.due_scan import STEP_MESSAGES, DueRows, due_frames, sealed_rows
from ..delayed.parts import MOST_ENTRY, DiskFiles
from ..device.disk import Disk, OsDisk
from ..errors import StoreCorrupt
from ..format.arrays import Indexes, Int64s
from ..format.delays import IndexMark, LogPlace
from ..format.dues import NO_DUES
from ..format.footer import Footer
from ..live.files import sealed_in
from ..read.scan import sealed_offsets
from .looking import SegmentAt


class DuePart(NamedTuple):
    """Some segments, and the wanted messages in them: of these topics, due after a time."""

    segments: tuple[SegmentAt, ...]
    topics: tuple[str, ...]
    after_ms: int


class DueRun(NamedTuple):
    """A part's result for one topic: the folder of a tracker's files, and the number of messages in them."""

    topic: str
    folder: str
    messages: int


def gather_dues(part: DuePart, staging: Path, disk: Disk | None = None) -> list[DueRun]:
    """Write the pending messages of some segments, by topic, to new folders in `staging`, forced.

    Any process may call it, and several at once for the same part. Raises StoreCorrupt, OSError.
    """
    used, mine = disk or OsDisk(), staging / f"run-{secrets.token_hex(8)}"
    used.make_folder(mine)
    folders = {topic: mine / f"{number:06d}" for number, topic in enumerate(part.topics)}
    trackers: dict[str, BucketTracker] = {}
    try:
        for at in part.segments:
            for topic, queue_ids, rows in _topics_in(used, at, part):
                if topic not in trackers:
                    trackers[topic] = BucketTracker("", files=DiskFiles(used, folders[topic]), memory_limit_bytes=None)
                trackers[topic].add_messages(queue_ids, rows.offsets & MOST_ENTRY, rows.times_ms)
        for tracker in trackers.values():
            tracker.checkpoint()
        return [
            DueRun(topic, str(folders[topic]), tracker.number_of_delayed_messages)
            for topic, tracker in sorted(trackers.items())
        ]
    finally:
        for tracker in trackers.values():
            tracker.close()


def _topics_in(disk: Disk, at: SegmentAt, part: DuePart) -> Iterator[tuple[str, Int64s, DueRows]]:
    """The wanted messages of a segment, by topic, with their queue ids."""
    with sealed_in(disk, Path(at.folder), at.lane, at.store_id, at.sequence) as sealed:
        segment = sealed.segment
        footer = Footer(segment.data, str(segment.path), sealed.record)
        if footer.dues == NO_DUES or footer.dues.most <= part.after_ms:
            return
        footer.check_entries()
        topics = footer.topics()
        wanted = {number: topic for number, topic in enumerate(topics) if topic in part.topics}
        offsets = sealed_offsets(sealed, footer)
        for frames in _steps(footer):
            rows = sealed_rows(segment, None, footer, frames, 0, offsets)
            rows = rows._replace(numbers=footer.rows_of(rows.numbers).astype(np.int64))
            of_topic = footer.stream_topic[rows.numbers]
            for number in np.intersect1d(of_topic[rows.times_ms > part.after_ms], list(wanted)).tolist():
                mine = (of_topic == number) & (rows.times_ms > part.after_ms)
                found = DueRows(*(column[mine] for column in rows))
                yield wanted[number], footer.stream_queue[found.numbers].astype(np.int64), found


def _steps(footer: Footer) -> Iterator[Indexes]:
    """Yield the frames of a segment that have delivery times, some at a time."""
    begins, low, due = footer.frame_entry, 0, due_frames(footer)
    while low < len(begins):
        high = max(low + 1, int(begins.searchsorted(int(begins[low]) + STEP_MESSAGES)))
        yield due[slice(*due.searchsorted((low, high)))]
        low = high


def join_index(disk: Disk, topic: str, runs: Sequence[DueRun], places: Sequence[LogPlace], to: Path) -> int:
    """Merge the runs of a topic to the files of its index, in a new folder. Returns the number of pending messages.

    `places`: the end of the runs in each lane. Raises StoreCorrupt if a run is not as it was written.
    """
    sources = [DiskFiles(disk, Path(run.folder)) for run in runs]
    files = DiskFiles(disk, to)
    try:
        # No change counts as applied: an opening repeats each of them, which does no harm.
        count = join_trackers(sources, files, IndexMark(topic, 0, places).pack())
    finally:
        for one in (*sources, files):
            one.close()
    if count != sum(run.messages for run in runs):
        raise StoreCorrupt("a part of a delayed index has another number of messages", to, 0)
    return count
