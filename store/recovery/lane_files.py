"""A lane's files as a crash left them: which segments are in use, which are spares, and what is missing.

A file whose first block is not its own header is a spare, unless something says that it held durable frames: then its
header is damaged. Seal records and the marks in frames say whether anything was durable beyond a place. Every decision
about damage asks this question, `vouched`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..device.disk import Disk
from ..device.lane_start import read_start, write_start
from ..format.layout import (
    BLOCK_BYTES,
    DATA_START,
    REBUILT_MS,
    RETIRED_PREFIX,
    START_FILE,
    UNKNOWN,
    UNLINKED,
    FrameHeader,
    SegmentHeader,
    segment_name,
)
from ..format.store_files import LaneStart
from ..segment.begun import begun_in_order, is_begun, is_fine
from ..segment.evidence import (
    HEAD_BYTES,
    SEGMENT_IS_CUT,
    SEGMENT_IS_MISSING,
    START_IS_LOST,
    Mark,
    first_number,
    is_durable_beyond,
    is_lost,
    is_nearly_ours,
    is_of_another_store,
    is_unlinked,
    mark_of,
    missing_numbers,
)
from ..segment.files import SegmentFile, read_segment_file, segment_numbers
from ..segment.scanner import frames_in
from ..segment.segment import Segment
from .repair import Repair
from .used_file import UsedFile, is_closed


class LaneFiles:
    """The segment files of one lane.

    A file that `stands_wrongly` is no spare, nor its own segment with a damaged header: it was put there.

    `start` is where the log begins. `spares` are the (sequence, bytes) of pre-written files after the last one in use;
    they follow each other without a gap.
    """

    def __init__(self, disk: Disk, folder: Path, lane: int, store_id: bytes, repair: Repair) -> None:
        self._disk = disk
        self._folder = folder
        self._lane = lane
        self._store_id = store_id
        self._repair = repair
        self.start = LaneStart(lane, store_id)
        self._first_spare: int | None = None
        self._mark: Mark = (0, 0)  # the highest in frames of files without a header
        self._ends_at: int | None = None  # the log ends before this segment
        self._unfit: list[Path] = []  # files after the log that cannot be spares
        self._begun: set[int] = set()  # files without a header that hold frames of their own sequence all the same
        self.foreign: list[int] = []  # numbers of files that are another segment's
        self.spares: list[tuple[int, int]] = []

    def in_use(self) -> list[UsedFile]:
        """The segments in use, in order; spares are noted. Raises StoreCorrupt if one is missing."""
        used, unknown, recorded = self._sort_out()
        last = used[-1].sequence if used else 0
        unused: list[SegmentFile] = []
        behind = [file for file in unknown if file.sequence > last]
        was_closed = is_closed(used) and not any(
            file.sequence in recorded or is_begun(self._disk, file, self._lane) for file in behind
        )
        for file in unknown:
            if file.sequence < last:
                self._look_into(file)
        if not was_closed:
            self._look_into_spares(behind)
        for file in unknown:
            sequence, path = file.sequence, file.path
            later = [one for one in used if one.sequence > sequence]
            if not later and was_closed:
                unused.append(file)
            elif self._is_of_another_store(file, used) or _ends_elsewhere(file, later):
                self._repair.on_damage("the file is another segment's", path, 0)
                self.foreign.append(sequence)
            elif sequence in recorded or (later and file.is_cut) or self.vouched(later, (sequence, 0)):
                self._repair.on_damage("a segment's header is damaged", path, 0)
                used.append(self._rebuild_header(sequence, path))
                used.sort(key=lambda one: one.sequence)
                last = used[-1].sequence
            elif sequence < last:
                # Its first write, and so its header, was lost in a crash: nothing after it was acknowledged.
                self._ends_at = sequence
                used = [one for one in used if one.sequence < sequence]
                break
            else:
                unused.append(file)
        unused = [file for file in unused if file.sequence > max(self.foreign, default=0)]
        spares = [file.sequence for file in unused if was_closed or not file.is_cut]
        self._first_spare = spares[0] if spares else None
        self._check_gaps([file.sequence for file in used], spares, {file.sequence for file in unused})
        self._keep_spares(unused)
        return used

    def _sort_out(self) -> tuple[list[UsedFile], list[SegmentFile], list[int]]:
        """The files with a header of their own, those without, and which of these have a seal record of their own."""
        used: list[UsedFile] = []
        unknown: list[SegmentFile] = []
        recorded: list[int] = []
        for sequence in self._begin(self._listed()):
            if self._repair.allowed:
                self._repair.make_readable(self._path(sequence))
            file = self._read(sequence)
            if file.is_foreign:
                self._repair.on_damage(file.why_unknown, file.path, 0)
                self.foreign.append(file.sequence)
            elif file.header is not None:
                used.append(UsedFile.of(file, file.header))
            else:
                unknown.append(file)
                is_ended = file.record is not None or (
                    file.trace
                    and (
                        is_nearly_ours(file.head[:BLOCK_BYTES], self._lane, self._store_id, file.sequence)
                        or is_begun(self._disk, file, self._lane)
                    )
                )
                recorded += [file.sequence] if is_ended else []
        return used, unknown, recorded

    def _begin(self, numbers: list[int]) -> list[int]:
        """Learn from START where the log begins; the files from there on. Those that retention gave up are removed."""
        path = self._folder / START_FILE
        found = read_start(self._disk, self._folder, self._lane, self._store_id)
        if is_lost(found, numbers):
            self._repair.on_damage(START_IS_LOST, path, 0)
            if START_FILE in self._disk.list(self._folder):
                self._repair.set_aside(path, 0, DATA_START, None)
            else:
                self._repair.note_missing(path, None)
        first = first_number(found, numbers)
        self.start = found.start or LaneStart(self._lane, self._store_id, first, 0 if first == 1 else UNKNOWN)
        if not found.is_whole or min(numbers, default=first) < first:
            # A whole one too, before what it gives up is removed: its force may have failed, see `write_anew`.
            write_start(self._disk, self._folder, self.start)
        self._remove([self._path(sequence) for sequence in numbers if sequence < first])
        return [sequence for sequence in numbers if sequence >= first]

    def _listed(self) -> list[int]:
        """The numbers of the segment files; files that retention had retired are removed."""
        for name in self._disk.list(self._folder):
            if name.startswith(RETIRED_PREFIX):
                self._disk.remove(self._folder / name)
        return segment_numbers(self._disk, self._folder)

    def _path(self, sequence: int) -> Path:
        return self._folder / segment_name(sequence)

    def _read(self, sequence: int, head_bytes: int = DATA_START) -> SegmentFile:
        first = self.start.sequence
        return read_segment_file(self._disk, self._folder, sequence, self._lane, self._store_id, first, head_bytes)

    @property
    def ends_before(self) -> int:
        """The first number after the segments that are or were in use, as far as the files tell."""
        first = self.start.sequence
        known = self._first_spare or max(self.foreign, default=0) + 1
        return max(known, first + (first > 1))  # retention leaves the newest sealed segment

    def _check_gaps(self, used: list[int], spares: list[int], there: set[int]) -> None:
        for missing in missing_numbers(self.start.sequence, used, spares):
            what = SEGMENT_IS_CUT if missing.start in there else SEGMENT_IS_MISSING
            self._repair.on_damage(what, self._path(missing.start), 0)

    # -- what was durable -----------------------------------------------------------------------------

    @property
    def mark(self) -> Mark:
        """The mark in the frames of files without a header: how far the log was durable by them."""
        return self._mark

    def vouched(self, files: Sequence[UsedFile], place: Mark) -> bool:
        """Does anything say that the lane was durable beyond `place`?

        A seal record or a frame of these segments, or a frame in any file without a header.
        """
        headers = (
            frame.header
            for file in files
            for frame in frames_in(self._disk, file.path, self._lane, file.sequence, DATA_START)
        )
        return self._mark > place or is_durable_beyond(place, (file.is_ended for file in files), headers)

    def _look_into_spares(self, files: Sequence[SegmentFile]) -> None:
        """Note what the frames say in files after the last header. Segments are begun in their order."""
        for file, frames in begun_in_order(self._disk, self._lane, files, is_thorough=self._repair.allowed):
            self._note(file.sequence, frames)

    def _look_into(self, file: SegmentFile) -> None:
        """Note what the frames say in a file whose header is not its own."""
        frames = frames_in(self._disk, file.path, self._lane, file.sequence)
        self._note(file.sequence, [frame.header for frame in frames])

    def _note(self, sequence: int, frames: Sequence[FrameHeader]) -> None:
        if frames:
            self._begun.add(sequence)
        self._mark = max([self._mark, *map(mark_of, frames)])

    def _is_of_another_store(self, file: SegmentFile, used: Sequence[UsedFile]) -> bool:
        """Does what is left of a damaged header name another store?"""
        at = {one.sequence: one for one in used}
        before, following = at.get(file.sequence - 1), at.get(file.sequence + 1)
        return is_of_another_store(
            self._read(file.sequence, HEAD_BYTES).head, self._lane, self._store_id, file.sequence,
            None if before is None else before.record, None if following is None else following.header,
        )  # fmt: skip

    # -- changing files -------------------------------------------------------------------------------

    def _keep_spares(self, unused: list[SegmentFile]) -> None:
        """Keep the spares that can be used. From the first unfit one on none is kept: there may be no gap."""
        for index, one in enumerate(unused):
            if not self._keep_spare(one.sequence, one.path):
                self._unfit = [file.path for file in unused[index:]]
                return

    def _keep_spare(self, sequence: int, path: Path) -> bool:
        file = self._disk.open(path)
        try:
            size = file.size() & -BLOCK_BYTES
            if any(file.read(BLOCK_BYTES, BLOCK_BYTES)):  # of a former life; in a segment it would mean something
                file.write([bytes(BLOCK_BYTES)], BLOCK_BYTES)
                file.force()
        finally:
            file.close()
        contiguous = not self.spares or sequence == self.spares[-1][0] + 1
        # Frames of a lost first write would fit a new header that is equal by chance, as when the clock stands still.
        kept = size >= DATA_START + BLOCK_BYTES and contiguous and sequence not in self._begun
        if kept:
            self.spares.append((sequence, size))
        return kept

    def settle(self) -> None:
        """Remove what the log does not have. Called last: its frames tell how far segments before it were durable."""
        if self._ends_at is not None:
            self.discard(self._ends_at)
        there = self._disk.list(self._folder)
        self._remove([path for path in self._unfit if path.name in there])

    def discard(self, first: int) -> None:
        """Remove the files from a sequence on: nothing in them was acknowledged."""
        self.spares.clear()
        self._first_spare = None
        self._remove([self._path(sequence) for sequence in self._listed() if sequence >= first])

    def _remove(self, paths: list[Path]) -> None:
        """Remove the last files of the lane, the last one first: a crash in between must leave no hole."""
        for path in reversed(paths):
            self._disk.remove(path)
            self._disk.force_folder(self._folder)

    def _rebuild_header(self, sequence: int, path: Path) -> UsedFile:
        """Put a new header before the frames of a segment; the old one is set aside."""
        self._repair.set_aside(path, 0, BLOCK_BYTES, 0)
        fine = int(is_fine(frames_in(self._disk, path, self._lane, sequence)))
        if sequence == 1:
            return self._write_header(sequence, path, 0, 0, 0, fine)
        return self._write_header(sequence, path, UNLINKED, UNKNOWN, 0, fine)

    def linked(self, file: UsedFile, chain: int, messages: int, streams: int) -> UsedFile:
        """The file; a header that a repair wrote anew is completed, now that all before the segment is known."""
        if not (self._repair.allowed and is_unlinked(file.header)):
            return file
        return self._write_header(file.sequence, file.path, chain, messages, streams, file.header.fine)

    def _write_header(
        self, sequence: int, path: Path, previous_chain: int, messages: int, streams: int, fine: int
    ) -> UsedFile:
        file = self._disk.open(path)
        try:
            header = self._header(sequence, file.size() & -BLOCK_BYTES, previous_chain, messages, streams, fine)
            file.write([header.pack()], 0)
            file.force()
        finally:
            file.close()
        found = self._read(sequence)
        assert found.header == header
        return UsedFile.of(found, header)

    def _header(
        self, sequence: int, capacity: int, chain: int, messages: int, streams: int, fine: int = 0
    ) -> SegmentHeader:
        return SegmentHeader(
            self._lane, self._store_id, sequence, capacity, REBUILT_MS, chain, messages, streams, fine
        )  # fmt: skip

    def make_empty(self, sequence: int, previous_chain: int, messages: int, streams: int, lost: int | None) -> Segment:
        """Put an empty segment in the place of a lost one, and note the loss. It is not sealed yet."""
        header = self._header(sequence, DATA_START, previous_chain, messages, streams)
        segment = Segment(self._disk, self._folder, header, direct=False)
        self.note_lost(sequence, lost)
        self.spares = [spare for spare in self.spares if spare[0] > sequence]
        self._unfit = [path for path in self._unfit if path != segment.path]
        if self._ends_at is not None:
            self._ends_at = max(self._ends_at, sequence + 1)  # what was made here stays
        if segment.path.name in self._disk.list(self._folder):
            # Not cut to nothing: a crash may leave any part of it, and what stood there must not become its frames.
            self._remove([segment.path])
        file = self._disk.open(segment.path, create=True)
        try:
            file.write([header.pack(), bytes(BLOCK_BYTES)], 0)
            file.force()
        finally:
            file.close()
        self._disk.force_folder(self._folder)
        return segment

    def note_lost(self, sequence: int, lost: int | None) -> None:
        """Note that a segment is gone; what stands under its name is set aside."""
        path = self._path(sequence)
        if path.name in self._disk.list(self._folder):
            self._repair.set_aside(path, 0, self._read(sequence).size_bytes, lost)
        else:
            self._repair.note_missing(path, lost)

    def move_start(self, first: UsedFile, lost: int | None) -> None:
        """The log begins with this segment: those before it are lost. The first one's loss tells of all."""
        missing = range(self.start.sequence, first.sequence)
        for number in missing:
            self.note_lost(number, lost if number == missing.start or lost is None else 0)
        self.start = self.start._replace(sequence=first.sequence, messages_before=first.header.messages_before)
        write_start(self._disk, self._folder, self.start)
        self._remove([self._path(sequence) for sequence in self._listed() if sequence < first.sequence])


def _ends_elsewhere(file: SegmentFile, later: Sequence[UsedFile]) -> bool:
    """Is a file without a header sealed at an end that the next segment does not continue? Then it is not ours.

    Frames do not name their store. A sealed segment never changes, and the next one's header has its chain.
    """
    record = file.record
    if record is None or not file.is_sealed or not later or later[0].sequence != file.sequence + 1:
        return False
    return not is_unlinked(later[0].header) and later[0].header.previous_chain != record.chain
