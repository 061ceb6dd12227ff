"""Recovery of a lane (R10): footers where there are any, a scan of the rest, and nothing silent but what
nobody acknowledged.

A scan follows the chain of frames. Where it breaks, the log either ends (a torn tail) or is damaged. It is
damaged if anything later - a frame behind the break, a clean close, a footer - says that the lane was
durable beyond the break; then `StoreCorrupt` names the place. Otherwise the rest was never acknowledged.

What was recovered is sealed at once, so recovering again changes nothing, and later appends never mix with
the remains of a crash. Only a small segment that was cleanly closed is gone on with.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .disk import Disk
from .errors import StoreCorrupt
from .footer import FooterData
from .format import (
    BLOCK_BYTES,
    CLOSED,
    DATA_START,
    LOST_ENTRY,
    SEALED,
    SealRecord,
    SegmentHeader,
    align_up,
    segment_name,
)
from .lane import OpenSegment
from .scanner import ChunkReader, FrameScanner, Scanned, good_messages
from .sealed import SealedSegment, write_footer
from .segment import Segment
from .table import OpenTable

_SEGMENT_FILE = re.compile(r"[0-9]{12}\.seg")

Mark = tuple[int, int]  # (sequence, position): everything before it was durable


class Loss(NamedTuple):
    """A range that a repair set aside."""

    file: str
    position: int
    size_bytes: int
    messages: int
    quarantined_to: str


@dataclass
class Found:
    """What recovery found in a lane."""

    sealed: list[SealedSegment] = field(default_factory=list)
    resumable: tuple[OpenSegment, int, int] | None = None  # with its data end and chain
    streams: list[tuple[str, int]] = field(default_factory=list)  # by number
    next_offsets: list[int] = field(default_factory=list)  # by number
    segments: list[tuple[int, int]] = field(default_factory=list)  # (sequence, capacity) of those in use
    spares: list[tuple[int, int]] = field(default_factory=list)  # (sequence, bytes)
    last_chain: int = 0
    scanned_bytes: int = 0
    losses: list[Loss] = field(default_factory=list)


class _File(NamedTuple):
    sequence: int
    path: Path
    header: SegmentHeader
    record: SealRecord | None


@dataclass
class _Scan:
    """The columns of a scanned segment, in log order; one list element a frame."""

    numbers: list[npt.NDArray[np.uint32]] = field(default_factory=list)
    lows: list[npt.NDArray[np.uint16]] = field(default_factory=list)
    entries: list[npt.NDArray[np.uint32]] = field(default_factory=list)
    frames: list[Scanned] = field(default_factory=list)
    next_entry: int = 0
    has_gaps: bool = False


class LaneRecovery:
    """Recovers one lane's folder. `run` raises StoreCorrupt unless `repair` is given."""

    def __init__(
        self, disk: Disk, folder: Path, lane: int, store_id: bytes, quarantine: Path, *, repair: bool, direct: bool
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._lane = lane
        self._store_id = store_id
        self._quarantine = quarantine
        self._repair = repair
        self._direct = direct
        self._rebuilt: set[int] = set()  # sequences of segments whose header a repair wrote anew
        self.found = Found()

    def run(self) -> Found:
        """Recover."""
        found = self.found
        files = self._files()
        stale: SealedSegment | None = None  # its footer holds the stream table that is not loaded yet
        for index, file in enumerate(files):
            if index and file.sequence > files[index - 1].sequence + 1:
                self._use(stale)
                stale = None
                self._fill_holes(files[index - 1].sequence + 1, file.sequence, file.header.previous_chain)
            if file.sequence in self._rebuilt:
                file = self._write_header(file.sequence, file.path, found.last_chain)  # noqa: PLW2901
            if index and file.header.previous_chain != found.last_chain and self._ends_before(files[index:]):
                break
            segment = Segment(self._disk, self._folder, file.header, direct=self._direct)
            found.segments.append((file.sequence, file.header.capacity_bytes))
            if file.record is not None and file.record.state == SEALED:
                sealed = SealedSegment(segment, file.record)
                if not self._repair or self._is_healthy(sealed):
                    stale = sealed
                    found.sealed.append(sealed)
                    found.last_chain = file.record.chain
                    continue
            self._use(stale)
            stale = None
            self._recover_segment(segment, file, files[index + 1 :])
        self._use(stale)
        if found.spares:
            self._fill_holes(found.segments[-1][0] + 1 if files else 1, found.spares[0][0], found.last_chain)
        return found

    def _use(self, stale: SealedSegment | None) -> None:
        """Load the stream table of the newest footer passed, if that was not done."""
        if stale is not None:
            self._load_streams(stale.footer.data())

    # -- files ----------------------------------------------------------------------------------------

    def _files(self) -> list[_File]:
        """The segments in use, in order; spares are noted. Raises StoreCorrupt if one is missing."""
        used: list[_File] = []
        unknown: list[tuple[int, Path]] = []
        for sequence, path in self._segment_files():
            file = self._read_blocks(sequence, path)
            if file is None:
                unknown.append((sequence, path))
            else:
                used.append(file)
        last = used[-1].sequence if used else 0
        for sequence, path in unknown:
            later = [file for file in used if file.sequence > sequence]
            if self._was_in_use(sequence, path, later):
                if not self._repair:
                    raise StoreCorrupt("a segment's header is damaged", path, 0)
                used.append(self._rebuild_header(sequence, path))
                used.sort(key=lambda file: file.sequence)
                last = used[-1].sequence
            elif sequence < last:
                # Its first write, and so its header, was lost in a crash: nothing after it was acknowledged.
                self._discard(sequence)
                used = [file for file in used if file.sequence < sequence]
                break
            else:
                self._keep_spare(sequence, path)
        self._check_gaps(used)
        return used

    def _segment_files(self) -> list[tuple[int, Path]]:
        """(sequence, path) of the segment files; files that retention had retired are removed."""
        files = []
        for name in self._disk.list(self._folder):
            if _SEGMENT_FILE.fullmatch(name):
                files.append((int(name[:12]), self._folder / name))
            elif name.startswith("retired-"):
                self._disk.remove(self._folder / name)
        return files

    def _check_gaps(self, used: list[_File]) -> None:
        """Segments and spares are numbered without gaps, from 1 unless retention took the first ones."""
        sequences = [file.sequence for file in used] + [sequence for sequence, _ in self.found.spares]
        if not used and sequences:
            sequences.insert(0, 0)
        for before, after in pairwise(sequences):
            if after != before + 1 and not self._repair:
                raise StoreCorrupt("a segment is missing", self._folder / segment_name(before + 1), 0)

    def _read_blocks(self, sequence: int, path: Path) -> _File | None:
        file = self._disk.open(path)
        try:
            head = file.read(0, DATA_START)
        finally:
            file.close()
        header = SegmentHeader.unpack(head[:BLOCK_BYTES])
        if header is None or (header.sequence, header.lane, header.store_id) != (sequence, self._lane, self._store_id):
            return None
        record = SealRecord.unpack(head[BLOCK_BYTES:])
        return _File(sequence, path, header, record if record and record.sequence == sequence else None)

    def _was_in_use(self, sequence: int, path: Path, later: list[_File]) -> bool:
        """Was anything durable in this file, whose header is not its own?

        Its own seal record says so, or a durable mark in a frame of it or of a later segment.
        """
        file = self._disk.open(path)
        reader = ChunkReader(file, file.size())
        try:
            record = SealRecord.unpack(bytes(reader.view(BLOCK_BYTES, BLOCK_BYTES)))
            if record is not None and record.sequence == sequence:
                return True
            frames = FrameScanner(reader, sequence, 0, 0).find_later(0, reader.size_bytes)
        finally:
            reader.close()
            file.close()
        marks = [(frame.durable_sequence, frame.durable_position) for frame in frames]
        for other in later:
            if other.record is not None:
                return True
            marks += self._marks(other, DATA_START)
        return any(mark > (sequence, 0) for mark in marks)

    def _keep_spare(self, sequence: int, path: Path) -> None:
        file = self._disk.open(path)
        size = file.size() & -BLOCK_BYTES
        file.close()
        contiguous = not self.found.spares or sequence == self.found.spares[-1][0] + 1
        if size >= DATA_START + BLOCK_BYTES and contiguous:
            self.found.spares.append((sequence, size))
        else:
            self._disk.remove(path)

    def _ends_before(self, files: list[_File]) -> bool:
        """These segments do not continue the log. True, and they are removed, if they were never durable.

        Otherwise something before them is missing: StoreCorrupt, or False when repairing: go on with them.
        """
        for file in files:
            marks = self._marks(file, DATA_START)
            if file.record is not None or any(mark > (file.sequence, 0) for mark in marks):
                if not self._repair:
                    raise StoreCorrupt("the segment does not continue the one before it", file.path, 0)
                return False
        self._discard(files[0].sequence)
        return True

    def _discard(self, first: int) -> None:
        """Remove the files from a sequence on: nothing in them was acknowledged."""
        self.found.spares.clear()
        for sequence, path in self._segment_files():
            if sequence >= first:
                self._disk.remove(path)
        self._disk.force_folder(self._folder)

    def _rebuild_header(self, sequence: int, path: Path) -> _File:
        """Put a new header before the frames of a segment; the old one is set aside."""
        self._set_aside(path, 0, BLOCK_BYTES, 0)
        self._rebuilt.add(sequence)
        return self._write_header(sequence, path, 0)

    def _write_header(self, sequence: int, path: Path, previous_chain: int) -> _File:
        file = self._disk.open(path)
        try:
            capacity = file.size() & -BLOCK_BYTES
            header = SegmentHeader(self._lane, self._store_id, sequence, capacity, 0, previous_chain)
            file.write([header.pack()], 0)
            file.force()
        finally:
            file.close()
        found = self._read_blocks(sequence, path)
        assert found is not None
        return found

    def _fill_holes(self, first: int, end: int, chain: int) -> None:
        """Put empty segments in the place of lost ones, so that the numbers have no gap. Repair only."""
        for sequence in range(first, end):
            header = SegmentHeader(self._lane, self._store_id, sequence, DATA_START, 0, self.found.last_chain)
            segment = Segment(self._disk, self._folder, header, direct=False)
            file = self._disk.open(segment.path, create=True)
            file.write([header.pack(), bytes(BLOCK_BYTES)], 0)
            file.force()
            file.close()
            self._disk.force_folder(self._folder)
            self._set_aside(segment.path, 0, 0, 0)
            data = self._index(_Scan(), segment.path, None)
            self.found.sealed.append(write_footer(self._disk, segment, data, DATA_START, chain, 0))
            self.found.segments.append((sequence, DATA_START))
            self.found.last_chain = chain

    def _is_healthy(self, sealed: SealedSegment) -> bool:
        """Does a sealed segment hold what its footer says, every byte of it?"""
        segment, record = sealed.segment, sealed.record
        reader = ChunkReader(segment.data, record.data_end)
        try:
            footer = sealed.footer
            footer.check_entries()
            scanner = FrameScanner(reader, segment.sequence, DATA_START, 0)
            good = np.zeros(record.entries, np.bool_)
            for position in footer.frame_position.tolist():
                frame = scanner.frame_at(position)
                if frame is None:
                    return False
                payload = reader.view(frame.payload_start, frame.header.payload_bytes)
                begin = frame.header.first_entry
                kept = good_messages(frame, payload)[: record.entries - begin]
                good[begin : begin + len(kept)] = kept
            entries = footer.entries[footer.entries != LOST_ENTRY]
            return bool(good[entries].all())
        except StoreCorrupt:
            return False
        finally:
            reader.close()

    def _marks(self, file: _File, begin: int) -> list[Mark]:
        """The durable marks of all frames of a segment from `begin` on."""
        data = self._disk.open(file.path)
        reader = ChunkReader(data, data.size())
        try:
            later = FrameScanner(reader, file.sequence, begin, 0).find_later(begin, reader.size_bytes)
            return [(frame.durable_sequence, frame.durable_position) for frame in later]
        finally:
            reader.close()
            data.close()

    # -- one segment ----------------------------------------------------------------------------------

    def _recover_segment(self, segment: Segment, file: _File, later: list[_File]) -> None:
        end = segment.data.size()
        if file.record is not None:
            end = file.record.data_end
            if segment.data.size() < end:
                if not self._repair:
                    raise StoreCorrupt("the segment is cut short", file.path, segment.data.size())
                end = segment.data.size()
        reader = ChunkReader(segment.data, end)
        scanner = FrameScanner(reader, file.sequence, DATA_START, file.header.chain)
        before = _footer_of(segment, file) if self._repair else None
        if before is not None and not self.found.streams:
            self._load_streams(before)
            self.found.next_offsets = before.first.tolist()
        try:
            scan = self._scan(scanner, file, later)
        finally:
            reader.close()
        self.found.scanned_bytes += min(end, align_up(scanner.position))
        data = self._index(scan, segment.path, before)
        if scan.has_gaps and later:
            scanner.chain = later[0].header.previous_chain  # the next segment must be found to continue it
        self.found.last_chain = scanner.chain
        small = file.record is not None and file.record.state == CLOSED
        if small and not later and not self.found.losses and not scan.has_gaps:
            self._resume(segment, scan, data, scanner)
            return
        entries = scan.next_entry
        sealed = write_footer(self._disk, segment, data, scanner.position, scanner.chain, entries)
        self.found.sealed.append(sealed)

    def _scan(self, scanner: FrameScanner, file: _File, later: list[_File]) -> _Scan:
        scan = _Scan()
        while True:
            begin = scanner.position
            found = scanner.next()
            if found is None:
                if not self._goes_on(scanner, file, later, begin, scan):
                    return scan
                continue
            self._learn_streams(found)
            if found.is_whole or self._torn_here(scanner, file, later, found, scan):
                self._take(scan, found, None)
                if not found.is_whole:
                    return scan

    def _goes_on(self, scanner: FrameScanner, file: _File, later: list[_File], begin: int, scan: _Scan) -> bool:
        """The chain ended at `begin`. False if the log ends there; a repair steps over damage: True."""
        ends = [file.record.chain] if file.record is not None else []
        ends += [other.header.previous_chain for other in later[:1]]
        if scanner.chain in ends or not self._durable_beyond(scanner, file, later, begin):
            return False
        if not self._repair:
            raise StoreCorrupt("a frame is damaged or missing", file.path, begin)
        scan.has_gaps = True
        following = scanner.find_later(begin, scanner.reader.size_bytes)
        resumed = next((header for header in following if header.first_entry >= scan.next_entry), None)
        stop = resumed.position if resumed is not None else scanner.reader.size_bytes
        lost = resumed.first_entry - scan.next_entry if resumed is not None else 0
        if stop > begin or resumed is None:
            self._set_aside(file.path, begin, max(0, stop - begin), lost)
        if resumed is None:
            return False
        frame = scanner.frame_at(resumed.position)
        assert frame is not None
        scanner.position, scanner.chain = resumed.position, resumed.chain
        scan.next_entry = resumed.first_entry
        return True

    def _torn_here(
        self, scanner: FrameScanner, file: _File, later: list[_File], found: Scanned, scan: _Scan
    ) -> bool:
        """A frame's messages are not all whole. True if the log ends in it; a repair keeps the good ones."""
        frame = found.frame
        scan.has_gaps = scan.has_gaps or self._repair
        position = int(frame.starts()[found.whole])
        if not self._durable_beyond(scanner, file, later, position):
            scanner.position = position
            return True
        if not self._repair:
            raise StoreCorrupt("a message's bytes do not match their checksum", file.path, position)
        good = good_messages(frame, found.payload)
        self._set_aside(
            file.path, frame.header.position, frame.header.end - frame.header.position, int((~good).sum())
        )
        self._take(scan, found, good)
        return False

    def _durable_beyond(self, scanner: FrameScanner, file: _File, later: list[_File], position: int) -> bool:
        """Does anything say that the lane was durable beyond `position` of this segment?"""
        place = (file.sequence, position)
        if file.record is not None or any(other.record is not None for other in later):
            return True
        marks = [
            (frame.durable_sequence, frame.durable_position)
            for frame in scanner.find_later(position, scanner.reader.size_bytes)
        ]
        for other in later:
            marks += self._marks(other, DATA_START)
        return any(mark > place for mark in marks)

    def _take(self, scan: _Scan, found: Scanned, good: npt.NDArray[np.bool_] | None) -> None:
        frame = found.frame
        count = frame.header.count if good is not None else found.whole
        if frame.header.first_entry != scan.next_entry:
            raise StoreCorrupt("a frame's entry number is wrong", self._folder, frame.header.position)
        entries = np.arange(scan.next_entry, scan.next_entry + count, dtype=np.uint32)
        if good is not None:
            entries[~good] = LOST_ENTRY
        scan.numbers.append(frame.numbers[:count])
        scan.lows.append(frame.lows[:count])
        scan.entries.append(entries)
        scan.frames.append(Scanned(frame, memoryview(b""), found.whole))
        scan.next_entry += count

    # -- streams and their rows -----------------------------------------------------------------------

    def _load_streams(self, footer: FooterData) -> None:
        names = [footer.topics[index] for index in footer.stream_topic.tolist()]
        self.found.streams = list(zip(names, footer.stream_queue.tolist(), strict=True))
        self.found.next_offsets = footer.next_offsets.tolist()

    def _learn_streams(self, found: Scanned) -> None:
        for number, topic, queue_id in found.frame.definitions():
            self._know(number)
            self.found.streams[number] = (topic, queue_id)
        if len(found.frame.numbers):
            self._know(int(found.frame.numbers.max()))

    def _know(self, number: int) -> None:
        while len(self.found.streams) <= number:
            # Its definition was in a frame that a repair gave up: keep its messages under a name of ours.
            self.found.streams.append((f"lost-name-{self._lane}", len(self.found.streams)))
            self.found.next_offsets.append(0)

    def _index(self, scan: _Scan, path: Path, before: FooterData | None) -> FooterData:
        """Sort a scan's messages by stream; the footer of the segment. Offsets go on from the state.

        `before` is the segment's old footer, if it is whole: where each stream must end.
        """
        streams = len(self.found.streams)
        numbers = np.concatenate(scan.numbers) if scan.numbers else np.empty(0, np.uint32)
        lows = np.concatenate(scan.lows) if scan.lows else np.empty(0, np.uint16)
        entries = np.concatenate(scan.entries) if scan.entries else np.empty(0, np.uint32)
        order = np.argsort(numbers, kind="stable")
        counts = np.bincount(numbers, minlength=streams)
        start = np.zeros(streams + 1, np.int64)
        np.cumsum(counts, out=start[1:])
        first = np.array(self.found.next_offsets, np.int64)
        sorted_entries = entries[order]
        expected = np.repeat(first - start[:-1], counts) + np.arange(len(order))
        jumps = bool(np.any((expected & 0xFFFF) != lows[order]))
        if jumps and not self._repair:
            raise StoreCorrupt("an offset does not follow the one before", path, DATA_START)
        if jumps or before is not None:
            ends = first.copy()
            if before is not None:
                ends[: len(before.first)] = before.next_offsets
            sorted_entries, counts = _fill_gaps(sorted_entries, lows[order], start, first, ends)
            np.cumsum(counts, out=start[1:])
        self.found.next_offsets = (first + counts).tolist()
        return self._footer_data(scan, first, start, sorted_entries)

    def _footer_data(
        self,
        scan: _Scan,
        first: npt.NDArray[np.int64],
        start: npt.NDArray[np.int64],
        entries: npt.NDArray[np.uint32],
    ) -> FooterData:
        names = self.found.streams
        topics = {topic: index for index, topic in enumerate(dict.fromkeys(topic for topic, _ in names))}
        headers = [found.frame.header for found in scan.frames]
        return FooterData(
            list(topics),
            np.array([topics[topic] for topic, _ in names], np.uint32),
            np.array([queue_id for _, queue_id in names], np.uint32),
            first,
            start.astype(np.uint32),
            entries,
            np.array([header.position for header in headers], np.uint32),
            np.array([header.first_entry for header in headers], np.uint32),
            np.array([header.time_ms for header in headers], np.int64),
        )

    def _resume(self, segment: Segment, scan: _Scan, data: FooterData, scanner: FrameScanner) -> None:
        """Make the open table of a segment that is gone on with."""
        table = OpenTable()
        for found in scan.frames:
            frame, header = found.frame, found.frame.header
            table.add_frame(
                header.position, header.time_ms, header.flags, frame.lengths, frame.checksums, frame.payload_start
            )
        table.visible = table.entries
        for number in np.flatnonzero(data.counts).tolist():
            part = data.entries[data.start[number] : data.start[number + 1]]
            table.rows[number] = (int(data.first[number]), _uint_array(part))
        self.found.resumable = OpenSegment(segment, table), scanner.position, scanner.chain

    # -- repair ---------------------------------------------------------------------------------------

    def _set_aside(self, path: Path, position: int, size: int, messages: int) -> None:
        """Copy a damaged range to the quarantine folder and note it."""
        self._disk.make_folder(self._quarantine)
        source = self._disk.open(path)
        name = f"lane-{self._lane:02d}-{path.stem}-{position}.bin"
        target = self._disk.open(self._quarantine / name, create=True)
        step = 8 << 20
        for at in range(position, position + size, step):
            target.write([source.read(at, min(step, position + size - at))], at - position)
        target.force()
        target.close()
        source.close()
        self._disk.force_folder(self._quarantine)
        self.found.losses.append(Loss(str(path), position, size, messages, str(self._quarantine / name)))


def _footer_of(segment: Segment, file: _File) -> FooterData | None:
    """The footer of a segment, if it has one and it is whole."""
    if file.record is None or file.record.state != SEALED:
        return None
    try:
        footer = SealedSegment(segment, file.record).footer
        footer.check_entries()
        return footer.data()
    except StoreCorrupt:
        return None


def _uint_array(values: npt.NDArray[np.uint32]) -> array[int]:
    made: array[int] = array("I")
    made.frombytes(values.tobytes())
    return made


def _fill_gaps(
    entries: npt.NDArray[np.uint32],
    lows: npt.NDArray[np.uint16],
    start: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Put LOST_ENTRY where a queue's offsets jump, or end before `ends`; entries and count of each stream."""
    filled: list[int] = []
    counts = np.zeros(len(first), np.int64)
    for number in range(len(first)):
        offset, before = int(first[number]), len(filled)
        for at in range(int(start[number]), int(start[number + 1])):
            gap = (int(lows[at]) - offset) & 0xFFFF
            filled.extend([LOST_ENTRY] * gap)
            filled.append(int(entries[at]))
            offset += gap + 1
        filled.extend([LOST_ENTRY] * (int(ends[number]) - offset))
        counts[number] = len(filled) - before
    return np.array(filled, np.uint32), counts
