"""The messages that compaction keeps in a lane: of each stream all from its low on.

Messages that `trim`, `delete_topic` and the records of subscriptions have released are below the stream's low. So the
staying messages have offsets without a gap. The new log is like one that retention has cut: it begins later, and each
stream begins with its own offset.

Numbers of gone streams (`log.gone`) are left out: the staying streams get the numbers 0, 1, 2 .. in their old order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import StoreUnusable
from ..format.arrays import Bools, Int64s
from ..format.footer import Footer
from ..format.footer_data import begins_at
from ..format.layout import DATA_START, GONE_TOPIC, LOST_ENTRY, UNKNOWN
from ..format.records import StreamLow, Trimmed, TrimmedColumns
from ..log.lane import Lane
from ..log.streams import NOT_DEFINED, Stream
from ..log.written_lane import WrittenLane
from ..segment.borders import grown, offsets_before
from ..segment.sealed import SealedSegment

# A reader that has read all of the old log stands at the number after its last segment. The new log begins after that
# number, so no number has two meanings.
SKIPPED_NUMBERS = 2
LEAST_GAIN = 0.05  # of a lane's bytes; a smaller gain counts only with fewer segments
LEAST_GAIN_BYTES = 1 << 20  # at least: the new log has one more small segment, which the next compaction would drop


class LivePart(NamedTuple):
    """Some segments of a lane that become one: the work of a task.

    Attributes:
        sequences: their numbers, ascending.
        numbers, lows: int64 (n) the trimmed streams, ascending, by their numbers in the old log, and the first offset
            of each that stays.
    """

    folder: str
    lane: int
    store_id: bytes
    sequences: tuple[int, ...]
    numbers: Int64s
    lows: Int64s


@dataclass(frozen=True, slots=True)
class LanePlan:
    """A lane before and after its compaction. Streams have their numbers in the new log, except in the parts.

    Attributes:
        streams: those that stay, by number, with the lane's stream of records.
        known: the number of streams that the old log names.
        records: the number of the stream of records.
        firsts, nexts: int64 (streams) the first offset of each in the new log, and the next one after it.
        trimmed, applied: of the old log; they hold in the new one.
        chain, messages: of the old log's end; the messages are counted, or UNKNOWN.
        last_time_ms: the time of its newest frame.
        sequence: of the new log's first segment.
        parts: of the new log, in order.
        segments: the number of segments of the old log.
        removed: the number of messages left out.
        is_worth_it: there will be fewer segments, or clearly fewer bytes.
    """

    lane: int
    store_id: bytes
    folder: Path
    streams: tuple[Stream, ...]
    known: int
    records: int
    firsts: Int64s
    nexts: Int64s
    trimmed: Trimmed
    applied: bytes
    chain: int
    messages: int
    last_time_ms: int
    sequence: int
    parts: tuple[LivePart, ...]
    segments: int
    removed: int
    is_worth_it: bool

    @property
    def messages_before(self) -> int:
        """The messages that the new log counts before its first segment: all that are in none of its segments."""
        return UNKNOWN if self.messages == UNKNOWN else self.messages - int((self.nexts - self.firsts).sum())


def plan_lane(lane: WrittenLane, store_id: bytes, segment_bytes: int) -> LanePlan | None:
    """The plan of a lane that was opened for reading, with all segments sealed; None if it has none.

    Raises StoreCorrupt: a footer is damaged. StoreUnusable: a repair has left gaps between offsets, or a stream that is
    gone has messages.
    """
    sealed = lane.view.sealed
    if not sealed:
        return None
    streams = list(lane.streams)
    records = lane.lows.records
    number = records.number
    known = len(streams)
    if number == NOT_DEFINED:
        number = known
        streams.append(records)
    nexts = np.zeros(len(streams), np.int64)
    ends = lane.offsets.column()[:known]
    nexts[: len(ends)] = ends
    trimmed = dict(lane.trims.lend().whole())
    begins = np.zeros(len(streams), np.int64)
    if sealed[0].record.full:
        with _footer(sealed[0]) as footer:
            begins[: len(footer.first)] = footer.first
    else:
        before = offsets_before(sealed, 0, lambda: None)
        if before is None:
            raise sealed[0].damaged()
        begins[: len(before)] = before[: len(begins)]
    records_go = {number: StreamLow(int(nexts[number]))}  # the footers have the content of the records
    firsts = _firsts(begins, {**trimmed, **records_go}, nexts)
    found = _footer_figures(lane.folder, sealed, firsts, begins)
    parts = tuple(_part(lane, store_id, group, firsts) for group in _groups(sealed, found.live, segment_bytes))
    gain = sum(found.sizes) - sum(found.live)
    stay = _staying_streams(lane.folder, streams, firsts, nexts)
    return LanePlan(
        lane.index, store_id, lane.folder, tuple(streams[one] for one in stay.tolist()),
        int(stay.searchsorted(known)), int(stay.searchsorted(number)), firsts[stay], nexts[stay],
        _renumbered(trimmed, stay), lane.commits.packed, lane.chain, lane.messages_before, found.last_time_ms,
        sealed[-1].segment.sequence + SKIPPED_NUMBERS, parts, len(sealed),
        found.messages - int((nexts - firsts).sum()),
        1 + len(parts) < len(sealed) or gain > max(LEAST_GAIN * sum(found.sizes), LEAST_GAIN_BYTES),
    )  # fmt: skip


def _staying_streams(folder: Path, streams: Sequence[Stream], firsts: Int64s, nexts: Int64s) -> Int64s:
    """The old numbers of the streams that stay, ascending: all but gone ones.

    Raises StoreUnusable if a gone stream has messages: they would be nobody's.
    """
    gone = np.array([stream.topic == GONE_TOPIC for stream in streams], np.bool_)
    if (firsts < nexts)[gone].any():
        raise StoreUnusable(
            f"{folder} has messages of a queue that is gone, and compaction would lose them. `stratalog verify` says "
            f"what is wrong with the store; restore it from a copy"
        )
    return np.flatnonzero(~gone).astype(np.int64)


def _renumbered(trimmed: Trimmed, stay: Int64s) -> Trimmed:
    """The trims of the streams that stay, by their new numbers. `stay`: their old ones."""
    columns = TrimmedColumns.of(trimmed)
    kept = np.isin(columns.numbers, stay)
    return TrimmedColumns(stay.searchsorted(columns.numbers[kept]), columns.low[kept], columns.hidden[kept])


@contextmanager
def _footer(sealed: SealedSegment) -> Iterator[Footer]:
    """A segment's footer, mapped while the context lasts: a lane may have more footers than a process may map."""
    index = sealed.index
    try:
        if index.is_remade:
            raise sealed.damaged()
        yield index.footer
    finally:
        sealed.let_go()


def _firsts(begins: Int64s, trimmed: Trimmed, nexts: Int64s) -> Int64s:
    """(streams,) the first offset of each that stays; `begins`: the first offset in the log."""
    firsts = begins.copy()
    for number, low in trimmed.items():
        firsts[number] = max(int(firsts[number]), low.low)
    return np.minimum(firsts, nexts)


class _FooterFigures(NamedTuple):
    """Figures of a lane's footers.

    Attributes:
        sizes, live: for each segment the bytes of its frames, and how many of them stay, about: 0 only if none does.
        messages: of the whole log.
        last_time_ms: of the newest frame.
    """

    sizes: list[int]
    live: list[int]
    messages: int
    last_time_ms: int


def _footer_figures(folder: Path, sealed: Sequence[SealedSegment], firsts: Int64s, begins: Int64s) -> _FooterFigures:
    """Read one footer after another and keep only numbers: a log may have thousands, each with a million streams.

    Raises StoreUnusable for gaps after the first message that stays, StoreCorrupt.
    """
    sizes: list[int] = []
    live: list[int] = []
    messages = last_time_ms = 0
    before: Int64s | None = None
    for one in sealed:
        with _footer(one) as footer:
            ends = footer.next_offsets
            if before is not None:
                if not begins_at(footer.numbers, footer.first, before, is_full=footer.is_full):
                    raise _holes(folder)
            elif not footer.is_full:
                before = begins[: one.record.streams].copy()
            _check_lost(folder, footer, firsts)
            sizes.append(one.record.data_end - DATA_START)
            live.append(_live(one, footer, ends, firsts))
            messages += int((ends - footer.first).sum())
            if len(footer.frame_time):
                last_time_ms = max(last_time_ms, footer.time_max_ms)
            if before is None or footer.is_full:
                before = ends
            else:
                before = before if len(before) >= one.record.streams else grown(before, one.record.streams)
                before[footer.numbers] = ends
    return _FooterFigures(sizes, live, messages, last_time_ms)


def _check_lost(folder: Path, footer: Footer, firsts: Int64s) -> None:
    """Raise StoreUnusable if a repair gave up a message that stays."""
    lost = np.flatnonzero(footer.entries == LOST_ENTRY)
    starts = footer.start.astype(np.int64)
    rows = starts.searchsorted(lost, side="right") - 1
    if (footer.first[rows] + lost - starts[rows] >= firsts[footer.numbers[rows]]).any():
        raise _holes(folder)


def _holes(folder: Path) -> StoreUnusable:
    """The error for offsets whose messages a repair has given up."""
    return StoreUnusable(
        f"{folder} has offsets without a message: a repair gave them up. Compaction keeps offsets, and cannot keep "
        f"such gaps. `trim` the queue past them, or write a new store with `stratalog spark reshard`"
    )


def _live(sealed: SealedSegment, footer: Footer, ends: Int64s, firsts: Int64s) -> int:
    """The bytes of a segment that stay, about; 0 only if no message stays. `ends`: its streams' next offsets."""
    counts = np.maximum(ends - np.maximum(footer.first, firsts[footer.numbers]), 0)
    if not counts.any():
        return 0
    if counts.sum() == (ends - footer.first).sum():
        return sealed.record.data_end - DATA_START
    return max(1, _live_bytes(sealed, footer, firsts))


def _live_bytes(sealed: SealedSegment, footer: Footer, firsts: Int64s) -> int:
    """The bytes of a segment's staying messages, with equal lengths within a frame assumed. Raises StoreCorrupt."""
    footer.check_entries()
    record = sealed.record
    before = np.concatenate([[0], staying(footer, record.entries, firsts[footer.numbers]).cumsum()])
    begins = footer.frame_entry.astype(np.int64)
    ends = np.append(begins[1:], record.entries)
    sizes = np.diff(footer.frame_position.astype(np.int64), append=record.data_end)
    return int((sizes * (before[ends] - before[begins]) / np.maximum(1, ends - begins)).sum())


def staying(footer: Footer, entries: int, lows: Int64s) -> Bools:
    """(entries,) which messages of a segment stay. `lows`: the first offset of each row's stream that stays."""
    begins = footer.start[:-1].astype(np.int64)
    first = begins + np.maximum(lows - footer.first, 0)
    kept = np.arange(len(footer.entries)) >= first.repeat(np.diff(footer.start.astype(np.int64)))
    stays = np.zeros(entries, np.bool_)
    stays[footer.entries[kept & (footer.entries != LOST_ENTRY)]] = True
    return stays


def _groups(sealed: Sequence[SealedSegment], sizes: Sequence[int], segment_bytes: int) -> list[list[int]]:
    """Groups of segment numbers, each to become one segment of about `segment_bytes`; empty ones are left out."""
    groups: list[list[int]] = []
    filled = segment_bytes
    for one, size in zip(sealed, sizes, strict=True):
        if not size:
            continue
        if filled + size > segment_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(one.segment.sequence)
        filled += size
    return groups


def _part(lane: Lane, store_id: bytes, group: list[int], firsts: Int64s) -> LivePart:
    numbers = np.flatnonzero(firsts).astype(np.int64)
    return LivePart(str(lane.folder), lane.index, store_id, tuple(group), numbers, firsts[numbers])
