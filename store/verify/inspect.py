"""Describes a closed store without changing it: segments, totals, names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

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
    GONE_TOPIC,
    JOINT,
    REST,
    SegmentHeader,
)
from ..format.records import NOT_TRIMMED, RECORDS_TOPIC, Record, StreamLow, add_low, add_trimmed
from ..format.store_files import StoreHeader
from ..segment.checksums import whole_messages
from ..segment.evidence import LANE_IS_MISSING
from ..segment.files import SegmentFile
from ..segment.round_parts import RoundParts, end_of_part, told_end
from ..segment.scanner import FrameScanner, PieceReader, records_in
from .described import Row, Totals, describe_sealed, description, segment_row
from .listing import LaneNames, Listing
from .marks import LaneFrames
from .refusal import refusal
from .report import Damage


class _LaneQueues:
    """The queues of a lane and their bounds, from its segments one after another.

    `known`: the bounds are right. They are not after damage, or if the oldest segment's first offsets are unknown.
    """

    def __init__(self) -> None:
        self.all_names: dict[int, tuple[str, int]] = {}  # by stream number, with the lane's stream of records
        self.records: int | None = None  # its number
        self.trimmed: dict[int, StreamLow] = {}
        self.known = True
        self._first = np.zeros(0, np.int64)  # by number, -1 where unknown
        self._next = np.zeros(0, np.int64)
        self._lane_names = LaneNames()

    def seal(self, footer: Footer) -> None:
        """Add a sealed segment."""
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
        """Add the name of a stream."""
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
        """Add a segment without a footer: `messages` has the number of messages by stream number."""
        self.known = self.known and (len(self._next) > 0 or sequence == 1)
        self._grow(max(messages, default=-1) + 1)
        for number, count in messages.items():
            self._first[number] = max(0, self._first[number])
            self._next[number] = max(0, self._next[number]) + count

    def rows(self) -> list[Row]:
        """JSON-ready rows; None for unknown values."""
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


def inspect_folder(path: str | Path) -> Row:
    """Describe a closed store: see `api.beside.inspect_folder`, also for the errors. It changes no file but LOCK.

    Raises StoreLocked if the store is open.
    """
    folder, disk = fixed_path(path), ReadingDisk()
    with looking_at(disk, folder):
        header = read_header(disk, folder)
        assert header is not None, "the folder was looked at"
        return _describe(disk, folder, header)


def _describe(disk: Disk, folder: Path, header: StoreHeader) -> Row:
    lanes: dict[int, list[Row]] = {}
    queues: list[Row] = []
    topics: dict[str, None] = {}
    totals = Totals()
    problems: list[Damage] = []
    opens = True
    for lane in range(header.lanes):
        frames, found = LaneFrames(disk, folder, lane, header.store_id, is_thorough=False), _LaneQueues()
        listing = frames.listing
        used = {file.sequence for file in frames.used}
        segments = [file._replace(is_spare=file.sequence not in used) for file in frames.files]
        missing = list(_missing(disk, listing, segments))
        if missing:
            totals.add(messages=None, payload_bytes=None)
        newest = max((file.sequence for file in segments if file.record is not None), default=0)
        lanes[lane] = [
            _segment(disk, file, found, totals, frames.rounds, is_sealed_behind=file.sequence < newest)
            for file in segments
        ]  # fmt: skip
        damages = [*missing, *(row["problem"] for row in lanes[lane] if row["problem"] is not None)]
        is_there = listing.folder.name in disk.list(folder)
        refused = refusal(listing.folder, lane, header.store_id) if is_there else missing[0]
        opens = opens and refused is None
        if not damages and refused is not None:
            damages.append(refused)
        found.known = found.known and not damages
        problems += damages
        queues += found.rows()
        topics.update(dict.fromkeys(topic for _, (topic, _) in sorted(found.names.items())))
    verdict = "needs repair" if not opens else "damaged" if problems else "healthy"
    return description(header.store_id, verdict, lanes, totals, queues, list(topics), problems)


def _missing(disk: Disk, listing: Listing, segments: Sequence[SegmentFile]) -> Iterator[Damage]:
    """Yield what is missing in a lane: all of it, its start, or segments."""
    if listing.folder.name not in disk.list(listing.folder.parent):
        yield Damage(LANE_IS_MISSING, str(listing.folder), 0)
        return
    if listing.start_damage is not None:
        yield listing.start_damage
    yield from listing.missing([file for file in segments if not file.is_spare])


def _segment(
    disk: Disk, file: SegmentFile, queues: _LaneQueues, totals: Totals, rounds: RoundParts, *, is_sealed_behind: bool
) -> Row:  # fmt: skip
    """A segment's row, its `problem` still a Damage; its content is added to `totals` and `queues`."""
    header = file.header
    capacity = file.size_bytes if header is None else header.capacity_bytes
    row = segment_row(file.path, file.sequence, file.state, capacity, None if header is None else file.record)
    payload_bytes: int | None = 0
    messages: int | None = 0
    if header is not None:
        payload_bytes, messages = _content(disk, file, header, row, queues, rounds)
        # Segments are sealed in order, so a later record proves that this one existed.
        if file.record is None and (file.trace or is_sealed_behind):
            row["problem"] = Damage("the segment's seal record is damaged", str(file.path), BLOCK_BYTES)
    elif not file.is_spare:
        row["problem"] = Damage(file.why_unknown, str(file.path), 0)
        payload_bytes = messages = None
    totals.add(messages=messages, payload_bytes=payload_bytes, disk_bytes=file.size_bytes)
    return row


def _content(
    disk: Disk, file: SegmentFile, header: SegmentHeader, row: Row, queues: _LaneQueues, rounds: RoundParts
) -> tuple[int | None, int | None]:
    """Payload bytes and messages of a segment in use; None for unknown values."""
    data = disk.open(file.path)
    try:
        if file.record is None or not file.is_sealed:
            return _walked(data, file, header, row, queues, rounds)
        footer = Footer(data, str(file.path), file.record)
        footer.check_entries()
        queues.seal(footer)
        return describe_sealed(row, footer, file.record, queues.records, data.read, file.path)
    except StoreCorrupt as error:
        row["problem"] = Damage(error.what, error.file, error.position)
        return None, None
    finally:
        data.close()


def _walked(
    data: LogFile, file: SegmentFile, header: SegmentHeader, row: Row, queues: _LaneQueues, rounds: RoundParts
) -> tuple[int | None, int | None]:
    """Describe an open or closed segment by its frames' heads, along their chain."""
    scanner = FrameScanner.after_header(PieceReader(data, file.log_bytes), header)
    times: list[int] = []
    messages: Counter[int] = Counter()
    payload_bytes = entries = 0
    while (frame := scanner.next_frame()) is not None:
        if frame.header.flags & JOINT and _is_cut(scanner, frame, file, rounds):
            scanner.position = frame.header.position
            break
        for number, topic, queue_id in frame.definitions():
            queues.name(number, (topic, queue_id))
        times.append(frame.header.time_ms)
        messages.update(frame.numbers.tolist())
        _note_records(data, frame, queues)
        payload_bytes += frame.header.payload_bytes
        entries += frame.header.count
    if file.record is None:
        row["data_end"], row["entries"] = scanner.position, entries
    elif (
        scanner.padded < file.record.data_end and scanner.chain != file.record.chain
    ) or entries != file.record.entries:
        row["problem"] = Damage("a frame is damaged or missing", str(file.path), scanner.position)
        return None, None
    queues.append(messages, file.sequence)
    records = messages.pop(queues.records, 0) if queues.records is not None else 0
    row["frames"], row["streams"] = len(times), len(messages)
    if times:
        row["time_min_ms"], row["time_max_ms"] = min(times), max(times)
    return payload_bytes, entries - records


def _is_cut(scanner: FrameScanner, frame: Frame, file: SegmentFile, rounds: RoundParts) -> bool:
    """Does the log end before this frame, a part of a round of transactions?"""
    if told_end(file.record, file.trace, file.sequence) is not None:
        return False
    payload = scanner.reader.view(frame.payload_start, frame.header.payload_bytes)
    is_whole = whole_messages(frame, payload) == frame.header.count
    end = end_of_part(frame, scanner) if is_whole else None
    if end is not None:
        return rounds.is_lacking(frame, end)
    goes_on = any(not later.flags & REST for later in scanner.find_later(scanner.position, scanner.reader.size_bytes))
    return not goes_on and not rounds.is_proved(frame)


def _note_records(data: LogFile, frame: Frame, queues: _LaneQueues) -> None:
    """Note the content of the records in a frame."""
    if queues.records is None or not (frame.numbers == queues.records).any():
        return
    payload = memoryview(data.read(frame.payload_start, frame.header.payload_bytes))
    every = np.ones(frame.header.count, np.bool_)
    for _, content in records_in(frame, payload, queues.records, every):
        record = Record.unpack(content)
        if record is not None:
            add_low(queues.trimmed, record.number, record.effect)
