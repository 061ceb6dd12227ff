"""Sealing: a segment that takes no more frames gets its footer.

Sealing runs while producers append, and every step of it that holds the interpreter lock stalls them all. So what does
not change from segment to segment is kept, what is new is added in short steps with a pause in between, and the rest is
done by numpy in operations that release the lock.
"""

from __future__ import annotations

import copy
import time
from array import array
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..device.disk import Disk
from ..format.footer import STREAM_BYTES, TRIM_BYTES, Footer, FooterData, by_stream, pack_names
from ..format.layout import SEALED, SealRecord, align_up
from ..format.records import NOTHING_TRIMMED, LentTrims, Trimmed
from .groups import GROUP_SEGMENTS
from .index import sealed_places
from .names import NamedStream, names_of
from .open_table import OpenTable
from .postings import Row
from .present import Numbers, Present
from .sealed import SealedSegment
from .segment import Segment

STEP_STREAMS = 512
FEW_STREAMS = 256  # of a lane: its footers are full ones, which take less than two blocks more
SMALL_SHARE = 2  # rows of a full footer to one of those in small ones, before the next full one
PAUSE_S = 50e-6  # really asleep: a bare release of the lock may be taken back before anybody has woken up


class FullSegment(NamedTuple):
    """A segment that will take no more frames, with what its footer and seal record need."""

    segment: Segment
    table: OpenTable
    data_end: int
    chain: int
    trimmed: LentTrims
    applied: bytes = b""  # the commits that the lane has, as a footer has them


class StreamNames:
    """The names of a lane's streams as a footer has them, kept from segment to segment: streams only join."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self._packed = pack_names([])
        self._packed_topics = 0
        self._topic = array("I")
        self._queue = array("I")

    def add(self, streams: Sequence[NamedStream], pause: Callable[[], None]) -> None:
        """Take on the streams that are new; `streams` are all of the lane's, by number.

        An error anywhere in it leaves a part that the next call completes.
        """
        count = len(streams)
        while len(self._queue) < count:
            known = len(self._queue)
            del self._topic[known:]
            for stream in streams[known : min(count, known + STEP_STREAMS)]:
                self._topic.append(self.topics.setdefault(stream.topic, len(self.topics)))
                self._queue.append(stream.queue_id)
            pause()

    @property
    def packed(self) -> bytes:
        """The section of their topics."""
        if len(self.topics) > self._packed_topics:
            self._packed = pack_names(self.topics)
            self._packed_topics = len(self.topics)
        return self._packed

    def copy(self) -> StreamNames:
        """A copy, to be added to apart from these."""
        return copy.deepcopy(self)

    def columns(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        """Topic (index) and queue id of each stream, as they are now."""
        return np.array(self._topic, np.uint32), np.array(self._queue, np.uint32)


class FooterNames:
    """The names of a lane's streams for the next footers: a small footer costs by its rows alone.

    Attributes:
        made: of all streams, once a full footer has wanted that.
    """

    def __init__(self, kept: StreamNames, streams: Sequence[NamedStream], fresh: Sequence[NamedStream] = ()) -> None:
        """`kept` is not changed; `streams` are the lane's, by number, and `fresh` those that are to follow."""
        self._kept = kept
        self._streams = streams
        self._known = len(streams)
        self._fresh = fresh
        self.made: StreamNames | None = None

    def whole(self) -> StreamNames:
        """The names of all streams."""
        if self.made is None:
            made = self._kept.copy()
            made.add([*self._streams[: self._known], *self._fresh], lambda: None)
            self.made = made
        return self.made

    def of(self, rows: Numbers) -> tuple[list[str], npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        """The names for a small footer: its topics, and of each row the topic's index and the queue id."""
        known = self._known
        return names_of([self._streams[one] if one < known else self._fresh[one - known] for one in rows.tolist()])


class NewestFooters(NamedTuple):
    """The contents of a lane's newest footers, for the next one.

    Attributes:
        full: the segment of the newest full footer.
        present: the streams of the small ones after it.
        streams: how many all of them know.
        named: streams that every footer names: of the lane's records, if there is one.
        is_due: the next one is to be full.
    """

    full: int
    present: Present
    streams: int
    named: tuple[int, ...] = ()
    is_due: bool = False

    def small_rows(
        self, sequence: int, there: npt.NDArray[np.integer], count: int, trimmed: LentTrims
    ) -> Numbers | None:
        """The streams that the small footer of the segment `sequence` has, ascending; None: a full one is due.

        Those in the segment, and those that no footer names yet, of `count` in the lane. A full one is due with each
        1,024th, and where the small ones together have half as many rows as a full one, or as many bytes of trims as it
        has in all: what all footers take then follows from what their segments hold. A lane of few streams has full
        ones alone.
        """
        fresh = np.arange(self.streams, count)
        rows = np.union1d(np.union1d(there, fresh), np.array(self.named, np.int64)).astype(np.uint32)
        is_near = sequence - self.full < GROUP_SEGMENTS and not self.is_due
        trims = TRIM_BYTES * len(trimmed.since)
        is_near = is_near and (sequence - self.full) * trims <= STREAM_BYTES * count + TRIM_BYTES * len(trimmed.before)
        if not is_near or count <= FEW_STREAMS or SMALL_SHARE * (self.present.rows + len(rows)) > count:
            return None
        return rows


def with_footer(
    before: NewestFooters | None, sequence: int, there: Numbers, count: int, named: tuple[int, ...], *, is_full: bool
) -> NewestFooters:
    """The newest footers, with one more: `there` are the streams with messages in it, of `count`."""
    if before is None or is_full:
        return NewestFooters(sequence, Present.since(sequence), count, named)
    return before._replace(present=before.present.with_segment(sequence, there), streams=count, named=named)


class FooterEnd(NamedTuple):
    """The part of the footer before that the next one needs: where each stream goes on."""

    next_offsets: npt.NDArray[np.int64]


def make_footer(
    table: OpenTable,
    names: StreamNames,
    before: FooterData | Footer | FooterEnd | None,
    trimmed: Trimmed = NOTHING_TRIMMED,
) -> FooterData:
    """The footer of a segment.

    Made of the stream numbers in log order, by a few long operations that release the interpreter lock; the
    table's rows say the same, but are an object a stream, and may never have been made.

    Args:
        table: the segment's index; every message is in it, none was lost.
        names: the lane's streams, at least all of those that the segment knows.
        before: the footer of the segment before; None for a lane's first.
        trimmed: the lane's trimmed streams, as its log says them up to the segment's end.
    """
    topics, queues = names.columns()
    first = np.zeros(len(queues), np.int64)
    if before is not None:
        ended = before.next_offsets
        first[: len(ended)] = ended
    numbers = table.numbers()
    assert len(numbers) == table.entries
    order = by_stream(numbers)
    start = np.zeros(len(queues) + 1, np.uint32)
    # `bincount` would be shorter, and hold the interpreter lock.
    start[1:] = numbers[order].searchsorted(np.arange(len(queues), dtype=np.uint32), side="right")
    return FooterData(
        list(names.topics), topics, queues, first, start, order.astype(np.uint32),
        np.frombuffer(table.frame_position, np.uint32), np.frombuffer(table.frame_entry, np.uint32),
        np.frombuffer(table.frame_time, np.int64), np.frombuffer(table.frame_flags, np.uint16), table.dues,
        trimmed=trimmed, packed_names=names.packed,
    )  # fmt: skip


def small_footer(
    full: FullSegment,
    streams: Sequence[NamedStream],
    newest: NewestFooters,
    there: npt.NDArray[np.unsignedinteger],
    count: int,
) -> FooterData | None:
    """A footer of the streams in the segment alone, and of those that no footer names yet; None: a full one is due."""
    rows = newest.small_rows(full.segment.sequence, there, count, full.trimmed)
    if rows is None:
        return None
    table = full.table
    numbers = table.numbers()
    order = by_stream(numbers)
    start = np.zeros(len(rows) + 1, np.uint32)
    start[1:] = numbers[order].searchsorted(rows, side="right")
    listed = rows.tolist()
    topics, index, queues = names_of([streams[number] for number in listed])
    return FooterData(
        topics=topics,
        stream_topic=index,
        stream_queue=queues,
        first=np.array([table.first_offset(number) for number in listed], np.int64),
        start=start, entries=order.astype(np.uint32),
        frame_position=np.frombuffer(table.frame_position, np.uint32),
        frame_entry=np.frombuffer(table.frame_entry, np.uint32),
        frame_time=np.frombuffer(table.frame_time, np.int64), frame_flags=np.frombuffer(table.frame_flags, np.uint16),
        dues=table.dues, trimmed=full.trimmed.since, stream=rows,
    )  # fmt: skip


def seal(
    disk: Disk,
    full: FullSegment,
    streams: Sequence[NamedStream],
    names: StreamNames,
    newest: NewestFooters | None = None,
) -> SealedSegment:
    """Write the footer, force it, then the seal record. The segment's frames must be forced already.

    `streams` are the lane's, by number; `names` is what was kept of them for full footers. `newest`: what the lane's
    newest footers say; without it the footer is a full one.
    Raises OSError; the segment then stays open, and is scanned at the next opening.
    """
    count = len(streams)
    there = np.unique(full.table.numbers()).astype(np.uint32)
    data = None if newest is None else small_footer(full, streams, newest, there, count)
    if data is None:
        names.add(streams, _pause)
        data = make_footer(full.table, names, FooterEnd(full.table.first_offsets()), full.trimmed.whole())
        count = len(data.first)
        if newest is not None:
            data.presence = newest.present.columns(count, full.segment.sequence)
    data.applied = full.applied
    sealed = write_footer(disk, full.segment, data, full.data_end, full.chain, full.table.entries, count)
    sealed.keep(sealed_places(data, full.table))
    sealed.fresh = None if sealed.record.full else there
    return sealed


def rows_of(table: OpenTable) -> list[list[Row]]:
    """The rows that readers have had made, to be given to `let_go` when the table itself is gone."""
    rows = iter(list(table.rows.by_number.values()))
    parts: list[list[Row]] = []
    while part := list(islice(rows, STEP_STREAMS)):
        parts.append(part)
        _pause()
    return parts


def let_go(parts: list[list[Row]]) -> None:
    """Free rows in short steps: together they would be freed in one call, an object or two a stream."""
    while parts:
        parts.pop()
        _pause()


def _pause() -> None:
    """Let the producers have the interpreter lock."""
    time.sleep(PAUSE_S)


def write_footer(
    disk: Disk, segment: Segment, data: FooterData, data_end: int, chain: int, entries: int, streams: int | None = None
) -> SealedSegment:
    """Footer to disk and forced, then the record that points to it. `streams`: of the lane; None: all are in it."""
    parts = data.parts(segment.sequence)
    size = sum(map(len, parts))
    position = align_up(data_end)
    segment.writer.end_zeros()
    segment.writer.take_back_seal()
    file = disk.open(segment.path)
    try:
        file.write(parts, position)
        file.truncate(position + size)  # one sealed early gives back what it did not use
        file.force()
    finally:
        file.close()
    count, full = len(data.first) if streams is None else streams, int(data.stream is None)
    record = SealRecord(SEALED, segment.sequence, data_end, chain, entries, position, size, count, full, data.newest_ms)
    segment.writer.write_seal(record)
    segment.stop_writing()
    return SealedSegment(segment, record)
