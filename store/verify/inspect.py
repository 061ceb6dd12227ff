"""Describing a closed store without changing it: segments, totals, names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ...cache import plan_memory
from ..device.disk import Disk, ReadingDisk
from ..device.folder import fixed_path, looking_at, read_header
from ..device.log_file import LogFile
from ..errors import StoreCorrupt
from ..format.arrays import Int64s
from ..format.footer import Footer
from ..format.frame import Frame
from ..format.hidden import is_hidden
from ..format.layout import (
    BLOCK_BYTES,
    FORMAT_VERSION,
    GONE_TOPIC,
    LOST_ENTRY,
    SealRecord,
    SegmentHeader,
    align_up,
    read_frame_header,
)
from ..format.records import NOT_TRIMMED, RECORDS_TOPIC, Low, Record, add_low, add_trimmed
from ..format.store_files import StoreHeader
from ..segment.evidence import LANE_IS_MISSING
from ..segment.files import SegmentFile
from ..segment.scanner import FrameScanner, PieceReader, records_in
from .listing import LaneNames, Listing
from .marks import LaneFrames
from .refusal import refusal
from .report import Damage

TOPICS_SHOWN = 20
_Row = dict[str, Any]


class _LaneQueues:
    """The queues of a lane and their bounds, as its segments tell them one after the other.

    `known`: the bounds are right. They are not when a part is damaged, or when nothing says where the queues of the
    oldest segment begin.
    """

    def __init__(self) -> None:
        self.all_names: dict[int, tuple[str, int]] = {}  # by stream number, with the lane's stream of records
        self.records: int | None = None  # its number
        self.trimmed: dict[int, Low] = {}
        self.known = True
        self._first = np.zeros(0, np.int64)  # by number, -1 where it is not known
        self._next = np.zeros(0, np.int64)
        self._lane_names = LaneNames()

    def seal(self, footer: Footer) -> None:
        """A sealed segment."""
        names = self._lane_names.of(footer)
        for number in range(self._lane_names.fresh, len(names)):
            self.name(number, names[number])
        add_trimmed(self.trimmed, footer.trimmed)
        numbers = footer.numbers
        self._grow(int(numbers[-1]) + 1 if len(numbers) else 0)
        self._next[numbers] = footer.next_offsets
        self._first[numbers] = np.where(self._first[numbers] < 0, footer.first, self._first[numbers])

    def _grow(self, count: int) -> None:
        if count <= len(self._first):
            return
        more = np.full(count - len(self._first), -1, np.int64)
        self._first, self._next = np.append(self._first, more), np.append(self._next, more)

    def name(self, number: int, name: tuple[str, int]) -> None:
        """A stream of the lane."""
        self.all_names[number] = name
        if name[0] == RECORDS_TOPIC:
            self.records = number

    @property
    def names(self) -> dict[int, tuple[str, int]]:
        """The queues by stream number, without those of deleted topics."""
        return {
            number: name
            for number, name in self.all_names.items()
            if not is_hidden(name[0])
            and name[0] != GONE_TOPIC
            and not (number in self.trimmed and (self._end_of(number) or 0) <= self.trimmed[number].hidden > 0)
        }

    def append(self, messages: Counter[int], sequence: int) -> None:
        """A segment without a footer: so many messages by stream number."""
        self.known = self.known and (len(self._next) > 0 or sequence == 1)
        self._grow(max(messages, default=-1) + 1)
        for number, count in messages.items():
            self._first[number] = max(0, self._first[number])
            self._next[number] = max(0, self._next[number]) + count

    def rows(self) -> list[_Row]:
        """JSON-ready; None for what can't be known."""
        return [
            {
                "topic": topic,
                "queue": queue_id,
                "first": self._first_of(number) if self.known else None,
                "next_offset": self._end_of(number) if self.known else None,
            }
            for number, (topic, queue_id) in self.names.items()
        ]

    def _first_of(self, number: int) -> int | None:
        first = _known_of(self._first, number)
        return None if first is None else max(first, self.trimmed.get(number, NOT_TRIMMED).low)

    def _end_of(self, number: int) -> int | None:
        return _known_of(self._next, number)


def _known_of(column: Int64s, number: int) -> int | None:
    return int(column[number]) if number < len(column) and column[number] >= 0 else None


def inspect_folder(path: str | Path) -> dict[str, Any]:
    """Describe a closed store, ready for JSON. It changes no file but LOCK, and checks no payload.

    A figure that damage hides is None; `verify_folder` finds all damage. Messages that a repair gave up are not
    counted. The figures of a crashed store's unsealed segments come from frame headers and include a torn tail.

    Returns a dict:
        store_id (hex), format_version.
        verdict: "healthy"; "damaged": the store opens, and reads of damaged messages raise StoreCorrupt; or "needs
            repair": `MessageStore.open` raises StoreCorrupt.
        lanes: for each its `lane` number and its `segments`: `file`, `sequence`, `state`, `capacity_bytes`, `data_end`
            (bytes), `entries` (messages), `frames`, `streams` (queues with messages in it), `time_min_ms` and
            `time_max_ms` (since the epoch), `footer_bytes`, `problem`. `entries` has records of the store's own, too.
        totals: `messages` (trimmed ones as well, until their segment is removed), `payload_bytes`, `disk_bytes`.
        streams: the number of queues. topics: the first 20.
        queues: for each `topic`, `queue`, `first`, `next_offset`.
        problems: for each `what`, `file`, `position` (bytes).
        memory_plan: the sizes, in bytes, of a store with default settings on this machine now.

    Raises:
        StoreUnusable: the folder is not a store, or the store has another format version.
        StoreLocked: the store is open.
        StoreCorrupt: the file STORE is damaged.
    """
    folder, disk = fixed_path(path), ReadingDisk()
    with looking_at(disk, folder):
        header = read_header(disk, folder)
        assert header is not None, "the folder was looked at"
        return _describe(disk, folder, header)


def _describe(disk: Disk, folder: Path, header: StoreHeader) -> dict[str, Any]:
    lanes: list[_Row] = []
    queues: list[_Row] = []
    topics: dict[str, None] = {}
    totals: dict[str, int | None] = {"messages": 0, "payload_bytes": 0, "disk_bytes": 0}
    problems: list[Damage] = []
    opens = True
    for lane in range(header.lanes):
        frames, found = LaneFrames(disk, folder, lane, header.store_id, is_thorough=False), _LaneQueues()
        listing = frames.listing
        used = {file.sequence for file in frames.used}
        segments = [file._replace(is_spare=file.sequence not in used) for file in frames.files]
        missing = list(_missing(disk, listing, segments))
        if missing:
            totals["messages"] = totals["payload_bytes"] = None
        newest = max((file.sequence for file in segments if file.record is not None), default=0)
        rows = [
            _segment(disk, file, found, totals, is_sealed_behind=file.sequence < newest) for file in segments
        ]  # fmt: skip
        damages = [*missing, *(row["problem"] for row in rows if row["problem"] is not None)]
        is_there = listing.folder.name in disk.list(folder)
        refused = refusal(listing.folder, lane, header.store_id) if is_there else missing[0]
        opens = opens and refused is None
        if not damages and refused is not None:
            damages.append(refused)
        found.known = found.known and not damages
        problems += damages
        for row in rows:
            row["problem"] = str(row["problem"]) if row["problem"] is not None else None
        lanes.append({"lane": lane, "segments": rows})
        queues += found.rows()
        topics.update(dict.fromkeys(topic for _, (topic, _) in sorted(found.names.items())))
    return {
        "store_id": header.store_id.hex(),
        "format_version": FORMAT_VERSION,
        "verdict": "needs repair" if not opens else "damaged" if problems else "healthy",
        "lanes": lanes,
        "totals": totals,
        "streams": len(queues),
        "topics": list(topics)[:TOPICS_SHOWN],
        "queues": sorted(queues, key=lambda row: (row["topic"], row["queue"])),
        "problems": [asdict(problem) for problem in problems],
        "memory_plan": plan_memory().as_dict(),
    }


def _missing(disk: Disk, listing: Listing, segments: Sequence[SegmentFile]) -> Iterator[Damage]:
    """What of a lane is not there: all of it, where it begins, or segments."""
    if listing.folder.name not in disk.list(listing.folder.parent):
        yield Damage(LANE_IS_MISSING, str(listing.folder), 0)
        return
    if listing.start_damage is not None:
        yield listing.start_damage
    yield from listing.missing([file for file in segments if not file.is_spare])


def _segment(
    disk: Disk, file: SegmentFile, queues: _LaneQueues, totals: dict[str, int | None], *, is_sealed_behind: bool
) -> _Row:
    """A segment's row, its `problem` still a Damage; what it holds is added to `totals` and `queues`."""
    header, record = file.header, file.record
    row: _Row = {
        "file": str(Path(file.path.parent.name) / file.path.name),
        "sequence": file.sequence,
        "state": file.state,
        "capacity_bytes": header.capacity_bytes if header is not None else file.size_bytes,
        "data_end": record.data_end if header is not None and record is not None else None,
        "entries": record.entries if header is not None and record is not None else None,
        "frames": None,
        "streams": None,
        "time_min_ms": None,
        "time_max_ms": None,
        "footer_bytes": record.footer_bytes if header is not None and record is not None else 0,
        "problem": None,
    }
    payload_bytes: int | None = 0
    messages: int | None = 0
    if header is not None:
        payload_bytes, messages = _content(disk, file, header, row, queues)
        # Segments are sealed in order, so a later record vouches for this one's.
        if record is None and (file.trace or is_sealed_behind):
            row["problem"] = Damage("the segment's seal record is damaged", str(file.path), BLOCK_BYTES)
    elif not file.is_spare:
        row["problem"] = Damage(file.why_unknown, str(file.path), 0)
        payload_bytes = messages = None
    for name, value in (("messages", messages), ("payload_bytes", payload_bytes), ("disk_bytes", file.size_bytes)):
        before = totals[name]
        totals[name] = None if before is None or value is None else before + value
    return row


def _content(
    disk: Disk, file: SegmentFile, header: SegmentHeader, row: _Row, queues: _LaneQueues
) -> tuple[int | None, int | None]:
    """Payload bytes and messages of a segment in use; None for what can't be known."""
    data = disk.open(file.path)
    try:
        if file.record is None or not file.is_sealed:
            return _walked(data, file, header, row, queues)
        return _sealed(data, file, file.record, row, queues)
    except StoreCorrupt as error:
        row["problem"] = Damage(error.what, error.file, error.position)
        return None, None
    finally:
        data.close()


def _sealed(
    data: LogFile, file: SegmentFile, record: SealRecord, row: _Row, queues: _LaneQueues
) -> tuple[int | None, int | None]:
    """A sealed segment by its footer; the payload bytes by the frames' fixed headers."""
    footer = Footer(data, str(file.path), record)
    footer.check_entries()
    queues.seal(footer)
    row["frames"] = len(footer.frame_position)
    counts = np.diff(footer.start.astype(np.int64))
    at = -1 if queues.records is None else footer.row_of(queues.records)
    records = int(counts[at]) if at >= 0 else 0
    row["streams"] = int(np.count_nonzero(counts)) - (records > 0)
    if len(footer.frame_position):
        row["time_min_ms"], row["time_max_ms"] = footer.time_min_ms, footer.time_max_ms
    payload_bytes: int | None = 0
    for position in footer.frame_position.tolist():
        frame = read_frame_header(data.read(position, 128), 0)
        if frame is None or frame.position != position or payload_bytes is None:
            payload_bytes = None
            row["problem"] = row["problem"] or Damage("a frame's header is damaged", str(file.path), position)
        else:
            payload_bytes += min(frame.end, record.data_end) - position - frame.header_bytes
    return payload_bytes, int(np.count_nonzero(footer.entries != LOST_ENTRY)) - records


def _walked(
    data: LogFile, file: SegmentFile, header: SegmentHeader, row: _Row, queues: _LaneQueues
) -> tuple[int | None, int | None]:
    """An open or closed segment by its frames' heads, along their chain."""
    scanner = FrameScanner.behind(PieceReader(data, file.log_bytes), header)
    times: list[int] = []
    messages: Counter[int] = Counter()
    payload_bytes = entries = 0
    while (frame := scanner.next_frame()) is not None:
        for number, topic, queue_id in frame.definitions():
            queues.name(number, (topic, queue_id))
        times.append(frame.header.time_ms)
        messages.update(frame.numbers.tolist())
        _note_records(data, frame, queues)
        payload_bytes += frame.header.payload_bytes
        entries += frame.header.count
    if file.record is None:
        row["data_end"], row["entries"] = scanner.position, entries
    elif align_up(scanner.position) < file.record.data_end or entries != file.record.entries:
        row["problem"] = Damage("a frame is damaged or missing", str(file.path), scanner.position)
        return None, None
    queues.append(messages, file.sequence)
    records = messages.pop(queues.records, 0) if queues.records is not None else 0
    row["frames"], row["streams"] = len(times), len(messages)
    if times:
        row["time_min_ms"], row["time_max_ms"] = min(times), max(times)
    return payload_bytes, entries - records


def _note_records(data: LogFile, frame: Frame, queues: _LaneQueues) -> None:
    """Take what the records in a frame say."""
    if queues.records is None or not (frame.numbers == queues.records).any():
        return
    payload = memoryview(data.read(frame.payload_start, frame.header.payload_bytes))
    every = np.ones(frame.header.count, np.bool_)
    for _, content in records_in(frame, payload, queues.records, every):
        record = Record.unpack(content)
        if record is not None:
            add_low(queues.trimmed, record.number, record.effect)
