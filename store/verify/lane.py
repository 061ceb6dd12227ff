"""Checks a lane: the links between its segments, their first blocks, and offsets from one to the next."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..device.disk import Disk
from ..device.lane_start import read_compacted
from ..errors import StoreCorrupt
from ..format.arrays import Int64s
from ..format.footer import Footer, names_in
from ..format.layout import BLOCK_BYTES, DATA_START, LOST_ENTRY, START_FILE, SealRecord, align_up
from ..format.records import StreamLow, Trimmed, add_trimmed, beyond
from ..format.store_files import COMPACTED_FILE
from ..recovery.placement import NO_OFFSET
from ..segment.borders import grown
from ..segment.evidence import SEGMENT_IS_CUT
from ..segment.files import SegmentFile
from ..segment.scanner import ChunkReader
from .footer import disagreements, sound_footer
from .frames import FrameWalk
from .listing import LaneNames
from .marks import LaneFrames
from .refusal import refusal
from .report import Findings, differ


class LaneCheck:
    """The check of one lane; making it reads the first blocks of its files and may raise OSError.

    The next segment must continue `chain`, `names` and `next_offsets`; each is None while it is unknown, after damage
    and after segments that retention removed.
    """

    def __init__(self, disk: Disk, store: Path, number: int, store_id: bytes | None, findings: Findings) -> None:
        self._disk = disk
        self._findings = findings
        self._frames = LaneFrames(disk, store, number, store_id, is_thorough=True)
        self.files, self.used = self._frames.files, self._frames.used
        self._store_id = store_id
        self._lane_names = LaneNames()
        ended = [index for index, file in enumerate(self.used) if file.record is not None]
        self._last_ended = max(ended, default=-1)
        begins = bool(self.used) and self.used[0].sequence == 1
        self.chain: int | None = 0 if begins else None
        self.names: list[tuple[str, int]] | None = [] if begins else None
        self.next_offsets: Int64s | None = np.zeros(0, np.int64) if begins else None
        self.trimmed: dict[int, StreamLow] = {}  # of the trimmed streams, if known
        self.since: dict[int, StreamLow] = {}  # trims by records after the newest full footer
        self.settled: Trimmed = {}  # trims in that footer

    def run(self) -> None:
        """Check the segments in order, up to the end of the log."""
        findings, places = self._findings, self._findings.report.places
        known = len(places)
        listing = self._frames.listing
        places += [damage for damage in [listing.start_damage] if damage is not None]
        places += listing.missing(self.used)
        if not listing.found.is_whole and listing.start_damage is None:
            findings.remark("the two copies of where the log begins are not whole", listing.folder / START_FILE, 0)
        used = {file.sequence for file in self.used}
        for file in self.files:
            if file.sequence not in used and not file.is_blank:
                findings.remark("a file that is not in use yet has something else than zeros", file.path, 0)
        self._walk()
        if len(places) == known and self._store_id is not None and listing.folder.is_dir():
            places += [damage for damage in [refusal(listing.folder, self._frames.number, self._store_id)] if damage]
        self._check_compacted(listing.folder)

    def _check_compacted(self, folder: Path) -> None:
        """Check the file by itself: no opening reads it."""
        try:
            read_compacted(self._disk, folder, self._frames.number, self._store_id)
        except StoreCorrupt as error:
            self._findings.damage(error.what, Path(error.file), error.position)
        except OSError as error:
            self._findings.damage(f"cannot be read ({error})", folder / COMPACTED_FILE, 0)

    def _walk(self) -> None:
        """Go from segment to segment."""
        frames, findings = self._frames, self._findings
        for index, file in enumerate(self.used):
            if index and file.sequence != self.used[index - 1].sequence + 1:
                self._forget()
            header = file.header
            if file.is_foreign:
                findings.damage(file.why_unknown, file.path, 0)
                self._forget()
                continue
            if header is None or self.chain not in (None, header.previous_chain):
                if not frames.vouched(index, 0):
                    for rest in self.used[index:]:
                        findings.report.torn_bytes += max((head.end for head in frames.heads(rest)), default=0)
                    return
                unlinked = "the log does not reach this segment"
                findings.damage(unlinked if header is not None else file.why_unknown, file.path, 0)
                if header is not None:
                    self._forget()
            try:
                self._check(index, file)
            except OSError as error:
                findings.damage(f"cannot be read ({error})", file.path, 0)
                self._forget()
            findings.done_bytes += file.used_bytes
            findings.reached(0)

    def _forget(self) -> None:
        """Forget the values that the next segment must continue: they are not known any more."""
        self.chain = self.names = self.next_offsets = None
        self.trimmed, self.since, self.settled = {}, {}, {}

    def _check(self, index: int, file: SegmentFile) -> None:
        findings, record = self._findings, file.record
        findings.report.segments += 1
        self._check_blocks(index, file)
        data = self._disk.open(file.path)
        reader = ChunkReader(data, file.log_bytes)
        try:
            footer = sound_footer(data, file, self._lane_names, findings)
            walk = FrameWalk(self._frames, index, reader, footer, self.names, findings)
            walk.run()
            self.names = walk.names
        finally:
            reader.close()
            data.close()
        self._note_unknown(file, footer)
        if record is not None and walk.ended and walk.next_entry != record.entries:
            findings.damage("the seal record's number of messages is wrong", file.path, BLOCK_BYTES)
        if footer is not None and record is not None and record.newest_ms != footer.time_max_ms:
            findings.damage("the seal record's newest time is not the footer's", file.path, BLOCK_BYTES)
        add_trimmed(self.trimmed, walk.trimmed)
        add_trimmed(self.since, beyond(self.settled, walk.trimmed))
        if footer is not None and record is not None:
            named = self._lane_names.of(footer)
            trimmed = self.trimmed if footer.is_full else self.since
            for what in disagreements(footer, walk, record.entries, named, self.names, self.next_offsets, trimmed):
                findings.damage(what, file.path, record.footer_position)
            given_up = int(np.count_nonzero(footer.entries == LOST_ENTRY))
            if given_up:
                findings.remark(f"{given_up} messages that a repair gave up", file.path, record.footer_position)
            self._go_on(footer, record, named)
            if footer.is_full:
                self.trimmed, self.since, self.settled = dict(footer.trimmed), {}, footer.trimmed
            add_trimmed(self.trimmed, footer.trimmed)
        elif walk.gaps:
            self.next_offsets = None
        else:
            self._follow_offsets(walk)
        self.chain = record.chain if record is not None else walk.scanner.chain if walk.ended else None
        footer_bytes = record.footer_bytes if record is not None else 0
        findings.report.bytes += align_up(walk.scanner.position) + footer_bytes

    def _go_on(self, footer: Footer, record: SealRecord, named: list[tuple[str, int]]) -> None:
        """Set the values that the next segment must continue, from a sound footer."""
        if footer.is_full:
            self.names, self.next_offsets = named.copy(), footer.next_offsets
            return
        for number, name in zip(footer.numbers.tolist(), names_in(footer), strict=True):
            if self.names is not None and number == len(self.names):
                self.names.append(name)
        if self.next_offsets is not None:
            if len(self.next_offsets) < record.streams:
                self.next_offsets = grown(self.next_offsets, record.streams)
            self.next_offsets[footer.numbers] = footer.next_offsets

    def _note_unknown(self, file: SegmentFile, footer: Footer | None) -> None:
        """Note streams that the lane had before this segment and that are unknown: a repair lost all of their names.

        If retention has removed segments, nobody knows where these streams begin.
        """
        header = file.header
        if self.next_offsets is None or header is None or self._frames.listing.first == 1:
            return
        streams = header.streams_before
        if footer is not None:
            known = len(footer.first) if footer.is_full or file.record is None else file.record.streams
            streams = known if header.is_rebuilt else min(streams, known)
        unknown = np.full(max(0, streams - len(self.next_offsets)), NO_OFFSET, np.int64)
        self.next_offsets = np.concatenate([self.next_offsets, unknown])

    def _check_blocks(self, index: int, file: SegmentFile) -> None:
        """Check the first two blocks, to their last byte."""
        for name, begin, known in (("header", 0, file.header), ("seal record", BLOCK_BYTES, file.record)):
            block = file.head[begin : begin + BLOCK_BYTES]
            if known is not None and block != known.pack():
                at = begin + differ(block, known.pack())
                self._findings.remark(f"the segment's {name} is not filled up with zeros", file.path, at)
        # Segments are sealed in order, so a later record proves that this one existed.
        sealed_behind = index < self._last_ended
        if file.record is None and (file.trace or sealed_behind):
            self._findings.damage("the segment's seal record is damaged", file.path, BLOCK_BYTES)
        if file.size_bytes < (DATA_START if file.record is None else file.record.data_end):
            self._findings.damage(SEGMENT_IS_CUT, file.path, file.size_bytes)

    def _follow_offsets(self, walk: FrameWalk) -> None:
        """Without a footer: each message's low bits must follow those of the message before it in its queue."""
        numbers = np.concatenate([np.zeros(0, np.int64), *walk.numbers])
        order = np.argsort(numbers, kind="stable")
        lows = np.concatenate([np.zeros(0, np.int64), *walk.lows])[order]
        first = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        expected = np.roll(lows, 1) + 1
        expected[first] = lows[first]
        if self.next_offsets is not None:
            known = np.zeros(max(len(self.next_offsets), int(numbers.max(initial=-1)) + 1), np.int64)
            known[: len(self.next_offsets)] = self.next_offsets
            begins = known[numbers[order][first]]
            expected[first] = np.where(begins == NO_OFFSET, lows[first], begins)
            counts = np.bincount(numbers, minlength=len(known))
            self.next_offsets = np.where(known == NO_OFFSET, NO_OFFSET, known + counts)
        wrong = order[(expected - lows) & 0xFFFF != 0]
        if len(wrong):
            positions = np.repeat([head.position for head in walk.headers], list(map(len, walk.numbers)))
            path, position = walk.file.path, int(positions[wrong.min()])
            self._findings.damage("an offset does not follow the one before", path, position)
