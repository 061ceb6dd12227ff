"""A lane's files as a crash left them: which segments are in use, which are spares, and what is missing.

A file whose first block is not its own header is a spare, unless something says that it held durable frames:
then its header is damaged. Whether anything was durable beyond a place is told by seal records and by the
marks in frames; that question, `vouched`, is what every decision about damage comes down to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from .disk import Disk
from .format import (
    BLOCK_BYTES,
    CLOSED,
    DATA_START,
    REBUILT_MS,
    RETIRED_PREFIX,
    FrameHeader,
    SealRecord,
    SegmentHeader,
    segment_name,
)
from .repair import Repair
from .scanner import ChunkReader, FrameScanner, open_sequential
from .segment import Segment

_SEGMENT_FILE = re.compile(r"[0-9]{12}\.seg")

Mark = tuple[int, int]  # (sequence, position): everything before it was durable


class UsedFile(NamedTuple):
    """A segment in use, by its first two blocks. `record` is None while it is open."""

    sequence: int
    path: Path
    header: SegmentHeader
    record: SealRecord | None


class LaneFiles:
    """The segment files of one lane.

    A file that `stands_wrongly` is no spare, nor its own segment with a damaged header: somebody has put it there.

    `spares` are the (sequence, bytes) of pre-written files behind the last one in use; they follow each other
    without a gap.
    """

    def __init__(self, disk: Disk, folder: Path, lane: int, store_id: bytes, repair: Repair) -> None:
        self._disk = disk
        self._folder = folder
        self._lane = lane
        self._store_id = store_id
        self._repair = repair
        self._begun: set[int] = set()  # files without a header that hold frames of their own sequence all the same
        self.foreign: list[int] = []  # numbers of files that are another segment's
        self.spares: list[tuple[int, int]] = []

    def in_use(self) -> list[UsedFile]:
        """The segments in use, in order; spares are noted. Raises StoreCorrupt if one is missing."""
        used: list[UsedFile] = []
        unknown: list[tuple[int, Path]] = []
        listed = self._listed()
        for sequence, path in listed:
            if self._repair.allowed:
                self._repair.make_readable(path)
            header, record = self._read_blocks(sequence, path)
            if header is None:
                unknown.append((sequence, path))
            elif header.stands_wrongly(self._lane, self._store_id, sequence, listed[0][0]):
                self._repair.on_damage("the file is another segment's", path, 0)
                self.foreign.append(sequence)
            elif header.sequence == sequence:
                used.append(UsedFile(sequence, path, header, record))
            else:
                unknown.append((sequence, path))
        last = used[-1].sequence if used else 0
        unused: list[tuple[int, Path]] = []
        for sequence, path in unknown:
            later = [file for file in used if file.sequence > sequence]
            if not later and _is_closed(used):
                unused.append((sequence, path))
            elif self._was_in_use(sequence, path, later):
                self._repair.on_damage("a segment's header is damaged", path, 0)
                used.append(self._rebuild_header(sequence, path))
                used.sort(key=lambda file: file.sequence)
                last = used[-1].sequence
            elif sequence < last:
                # Its first write, and so its header, was lost in a crash: nothing after it was acknowledged.
                self.discard(sequence)
                used = [file for file in used if file.sequence < sequence]
                break
            else:
                unused.append((sequence, path))
        highest = max(self.foreign, default=0)
        self._keep_spares([(sequence, path) for sequence, path in unused if sequence > highest])
        self._check_gaps(used)
        return used

    def _listed(self) -> list[tuple[int, Path]]:
        """(sequence, path) of the segment files; files that retention had retired are removed."""
        files = []
        for name in self._disk.list(self._folder):
            if _SEGMENT_FILE.fullmatch(name):
                files.append((int(name[:12]), self._folder / name))
            elif name.startswith(RETIRED_PREFIX):
                self._disk.remove(self._folder / name)
        return files

    def _read_blocks(self, sequence: int, path: Path) -> tuple[SegmentHeader | None, SealRecord | None]:
        """The header in a file, and the seal record if it is this segment's."""
        file = self._disk.open(path)
        try:
            head = file.read(0, DATA_START)
        finally:
            file.close()
        record = SealRecord.unpack(head[BLOCK_BYTES:])
        header = SegmentHeader.unpack(head[:BLOCK_BYTES])
        return header, record if record is not None and record.sequence == sequence else None

    @property
    def ends_before(self) -> int:
        """The first number behind the segments that are or were in use, as far as the files tell."""
        return self.spares[0][0] if self.spares else max(self.foreign, default=0) + 1

    def begins_with(self, first: int) -> int:
        """The first number of those that are or were in use, if `first` is the first that is."""
        return min([first, *self.foreign])

    def _check_gaps(self, used: list[UsedFile]) -> None:
        """Segments and spares are numbered without gaps, from 1 unless retention took the first ones."""
        sequences = [file.sequence for file in used] + [sequence for sequence, _ in self.spares]
        if not used and sequences:
            sequences.insert(0, 0)
        for before, after in pairwise(sequences):
            if after != before + 1:
                self._repair.on_damage("a segment is missing", self._folder / segment_name(before + 1), 0)

    # -- what was durable -----------------------------------------------------------------------------

    def vouched(self, files: Sequence[UsedFile], place: Mark) -> bool:
        """Does a seal record or a frame of these segments say that the lane was durable beyond `place`?"""
        if any(file.record is not None for file in files):
            return True  # a segment is sealed or closed after all before it was forced
        return any(mark > place for file in files for mark in self._marks(file))

    def _was_in_use(self, sequence: int, path: Path, later: list[UsedFile]) -> bool:
        """Was anything durable in this file, whose header is not its own?

        Its own seal record says so, or a durable mark in a frame of it or of a later segment.
        """
        file = open_sequential(self._disk, path)
        reader = ChunkReader(file, file.size())
        try:
            record = SealRecord.unpack(bytes(reader.view(BLOCK_BYTES, BLOCK_BYTES)))
            if record is not None and record.sequence == sequence:
                return True
            frames = FrameScanner(reader, self._lane, sequence, 0, 0).find_later(0, reader.size_bytes)
            if frames:
                self._begun.add(sequence)
        finally:
            reader.close()
            file.close()
        place = (sequence, 0)
        return any(mark_of(frame) > place for frame in frames) or self.vouched(later, place)

    def _marks(self, file: UsedFile) -> list[Mark]:
        """The durable marks of all frames of a segment, on the chain or not."""
        data = open_sequential(self._disk, file.path)
        reader = ChunkReader(data, data.size())
        try:
            scanner = FrameScanner(reader, self._lane, file.sequence, DATA_START, 0)
            frames = scanner.find_later(DATA_START, reader.size_bytes)
            return [mark_of(frame) for frame in frames]
        finally:
            reader.close()
            data.close()

    # -- changing files -------------------------------------------------------------------------------

    def _keep_spares(self, unused: list[tuple[int, Path]]) -> None:
        """Keep what can be used; from the first one on that cannot be, none is: there may be no gap."""
        for index, (sequence, path) in enumerate(unused):
            if not self._keep_spare(sequence, path):
                self._remove([path for _, path in unused[index:]])
                return

    def _keep_spare(self, sequence: int, path: Path) -> bool:
        file = self._disk.open(path)
        size = file.size() & -BLOCK_BYTES
        file.close()
        contiguous = not self.spares or sequence == self.spares[-1][0] + 1
        # Frames of a lost first write would fit behind a new header that happens to be the same: if the clock stands.
        kept = size >= DATA_START + BLOCK_BYTES and contiguous and sequence not in self._begun
        if kept:
            self.spares.append((sequence, size))
        return kept

    def discard(self, first: int) -> None:
        """Remove the files from a sequence on: nothing in them was acknowledged."""
        self.spares.clear()
        self._remove([path for sequence, path in self._listed() if sequence >= first])

    def _remove(self, paths: list[Path]) -> None:
        """Remove the last files of the lane, the last one first: a crash in between must leave no hole."""
        for path in reversed(paths):
            self._disk.remove(path)
            self._disk.force_folder(self._folder)

    def _rebuild_header(self, sequence: int, path: Path) -> UsedFile:
        """Put a new header before the frames of a segment; the old one is set aside."""
        self._repair.set_aside(path, 0, BLOCK_BYTES, 0)
        return self._write_header(sequence, path, 0)

    def linked(self, file: UsedFile, chain: int) -> UsedFile:
        """The file; a header that a repair wrote anew gets the chain of the segment before, now it is known."""
        wrong = self._repair.allowed and file.header.is_rebuilt and file.header.previous_chain != chain
        return self._write_header(file.sequence, file.path, chain) if wrong else file

    def _write_header(self, sequence: int, path: Path, previous_chain: int) -> UsedFile:
        file = self._disk.open(path)
        try:
            capacity = file.size() & -BLOCK_BYTES
            header = SegmentHeader(self._lane, self._store_id, sequence, capacity, REBUILT_MS, previous_chain)
            file.write([header.pack()], 0)
            file.force()
        finally:
            file.close()
        found, record = self._read_blocks(sequence, path)
        assert found == header
        return UsedFile(sequence, path, header, record)

    def make_empty(self, sequence: int, previous_chain: int) -> Segment:
        """Put an empty segment in the place of a lost one, and note the loss. It is not sealed yet."""
        header = SegmentHeader(self._lane, self._store_id, sequence, DATA_START, REBUILT_MS, previous_chain)
        segment = Segment(self._disk, self._folder, header, direct=False)
        is_there = segment.path.name in self._disk.list(self._folder)
        file = self._disk.open(segment.path, create=True)
        try:
            if is_there:
                self._repair.set_aside(segment.path, 0, file.size(), None)
                file.truncate(0)
                file.force()  # before there is a header: what stood there must not come to be its frames
            else:
                self._repair.note_missing(segment.path, None)
            file.write([header.pack(), bytes(BLOCK_BYTES)], 0)
            file.force()
        finally:
            file.close()
        self._disk.force_folder(self._folder)
        return segment


def _is_closed(used: Sequence[UsedFile]) -> bool:
    """Does the log end in a segment that was cleanly closed?

    Then nothing was begun behind it: who goes on with the segment takes the record back first.
    """
    record = used[-1].record if used else None
    return record is not None and record.state == CLOSED


def mark_of(frame: FrameHeader) -> Mark:
    """What a frame says was durable when it was written."""
    return frame.durable_sequence, frame.durable_position
