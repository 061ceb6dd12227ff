"""Recovery of a lane (R10): it reads footers where there are any and scans the rest.

A scan follows the chain of frames. Where it breaks, the log either ends (a torn tail) or is damaged. It is
damaged if anything later - a frame after the break, a clean close, a footer - says that the lane was
durable beyond the break; then `StoreCorrupt` names the place. Otherwise the rest was never acknowledged, and
recovery cuts it off.

Recovery seals a scanned segment at once. So a second recovery changes nothing, and later appends never mix with
the remains of a crash. Only a small segment that was cleanly closed is continued.

This module walks over a lane's segments and decides for each. `lane_files` has the files, `segment_scan` the
frames of one segment, `lane_streams` the streams, `lane_index` the new footers, `repair` the damage.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from ..device.disk import Disk
from ..device.lane_start import read_compacted, write_compacted
from ..errors import StoreCorrupt
from ..format.arrays import Int64s
from ..format.footer import Footer, FooterData
from ..format.layout import BLOCK_BYTES, CLOSED, DATA_START, SEALED, UNKNOWN, align_up, segment_name
from ..format.store_files import COMPACTED_FILE
from ..log.write import OpenSegment
from ..segment.borders import grown
from ..segment.evidence import SEGMENT_IS_CUT, SEGMENT_IS_MISSING, is_unlinked
from ..segment.present import Present, streams_in
from ..segment.round_parts import RoundParts
from ..segment.scanner import ChunkReader, FrameScanner
from ..segment.sealed import SealedSegment
from ..segment.sealing import write_footer
from ..segment.segment import Segment
from .lane_files import LaneFiles
from .lane_index import LaneIndex
from .lane_streams import LaneStreams, LaterNames, whole_before
from .recovered_lane import RecoveredLane
from .reindex import lost_count, open_table
from .repair import Repair, is_healthy, whole_footer
from .segment_scan import SegmentScan, write_anew
from .tally import MessageTally
from .used_file import UsedFile


class LaneRecovery:
    """Recovers one lane's folder. `run` raises StoreCorrupt unless `repair` is given."""

    def __init__(
        self, disk: Disk, folder: Path, lane: int, store_id: bytes, quarantine: Path, *, repair: bool, direct: bool,
        damaged: Collection[int] = (),
    ) -> None:  # fmt: skip
        """`damaged`: lanes in which this repair has found losses."""
        self._disk = disk
        self._folder = folder
        self._direct = direct
        self._repair = Repair(disk, quarantine, lane, allowed=repair)
        self._files = LaneFiles(disk, folder, lane, store_id, self._repair)
        self._streams = LaneStreams(lane, self._repair)
        self._passed: list[SealedSegment] = []  # the newest full footer and those after it, while not loaded
        self._present: Present | None = None  # after the newest full footer, if it is known
        self._tally = MessageTally(self._repair)
        self._index = LaneIndex(disk, folder, self._files, self._streams, self._tally, self._repair)
        self._opened: list[Segment] = []
        # What counts by a part in another lane is durable before this lane is sealed with its own.
        keep = partial(write_anew, disk)
        self._rounds = RoundParts(disk, folder.parent, lane, store_id, damaged=damaged, keep=keep)
        self.found = RecoveredLane()

    def run(self) -> RecoveredLane:
        """Recover."""
        with ExitStack() as undo:
            undo.callback(self._close_opened)
            found = self._run()
            undo.pop_all()
        return found

    def _close_opened(self) -> None:
        for segment in self._opened:
            segment.close()

    def _run(self) -> RecoveredLane:
        found = self.found
        later = deque(self._begin())  # and the segment at hand: a list's slices would cost their square
        before: UsedFile | None = None
        while later:
            listed = later[0]
            if before is not None:
                self._fill_holes(before.sequence + 1, listed.sequence, later)
            tally, streams = self._tally, self._streams
            file = self._files.linked(listed, found.last_chain, tally.next_total, self._known_streams)
            goes_on = before is None or file.header.previous_chain == found.last_chain
            if not goes_on and self._ends_before(later):
                break
            before = later.popleft()
            if not is_unlinked(listed.header):  # what is put into that was counted here
                tally.reach(file.header.messages_before)
            if not file.header.is_rebuilt:
                streams.are_before(file.header.streams_before)
            segment = Segment(self._disk, self._folder, file.header, direct=self._direct)
            self._opened.append(segment)
            found.segments.append((file.sequence, file.header.capacity_bytes))
            if not self._pass(segment, file, later):
                scan = self._recover_segment(segment, file, later)
                if scan.is_torn:
                    break
        after = found.segments[-1][0] + 1 if found.segments else self._files.start.sequence
        self._fill_holes(after, self._files.ends_before, ())
        self._load_streams()
        self._files.settle()
        self._finish()
        return found

    def _begin(self) -> list[UsedFile]:
        """The segments in use. If the first ones are lost, the log begins after them."""
        files, start = self._files.in_use(), self._files.start
        newest = files[-1].record if files else None
        self.found.was_closed = newest is not None and newest.state == CLOSED
        self._tally.begin(start.sequence, start.messages_before)
        if start.sequence > 1:
            self._streams.begin_anywhere()
        if files and files[0].sequence > start.sequence:
            self._repair.on_damage(SEGMENT_IS_MISSING, self._folder / segment_name(start.sequence), 0)
            self._files.move_start(files[0], self._tally.missing_before(files[0].header.messages_before))
            self._streams.is_complete = False
        return files

    def _finish(self) -> None:
        found, streams, tally = self.found, self._streams, self._tally
        if self._repair.allowed:
            self._mend_compacted()
        self._repair.tell_all()
        tally.finish(has_all_streams=streams.has_all)
        found.streams, found.next_offsets, found.trimmed = streams.names, streams.next_offsets, streams.trimmed
        found.settled, found.present = streams.settled, self._present
        found.spares, found.losses, found.applied = self._files.spares, self._repair.losses, streams.applied
        total = tally.end_total
        found.messages = sum(streams.next_offsets) if total is None else total

    def _mend_compacted(self) -> None:
        """Make a damaged COMPACTED again: the log begins where it said or later, so no old position passes."""
        start, path = self._files.start, self._folder / COMPACTED_FILE
        if COMPACTED_FILE not in self._disk.list(self._folder):
            return
        self._repair.make_readable(path)
        try:
            read_compacted(self._disk, self._folder, start.lane, start.store_id)
        except StoreCorrupt:
            self._repair.set_aside(path, 0, BLOCK_BYTES, 0)
            write_compacted(self._disk, self._folder, start)

    @property
    def _known_streams(self) -> int:
        return max(len(self._streams.names), self._streams.told)

    def _pass(self, segment: Segment, file: UsedFile, later: Sequence[UsedFile]) -> bool:
        """Take a sealed segment as it is. False if it is not sealed, or a repair finds damage in it or after it."""
        if file.record is None or file.record.state != SEALED:
            return False
        sealed = SealedSegment(segment, file.record)
        if self._repair.allowed:
            if not (is_healthy(sealed) and self._goes_on(file.record.chain, file, later)):
                return False
            if not (file.record.full or self._passed or self._knows_before(sealed, [file, *later])):
                return False  # its footer is made a full one
            if self._index.leaves_a_gap(self._ends(sealed), file, later):
                return False
        if not later or later[0].record is None:
            # The newest one: its writer may have died before the record was forced, and more is built on it from here
            # on. Retention, for one, leaves only this segment. A later record says that this one was forced.
            write_anew(self._disk, file.path, BLOCK_BYTES, DATA_START)
        self._passed = [*([] if file.record.full else self._passed), sealed]
        self.found.sealed.append(sealed)
        self.found.last_chain = file.record.chain
        is_exact = not self._repair.allowed or len(sealed.footer.entries) == file.record.entries
        self._tally.keep(file.record.entries, is_exact=is_exact)
        self._streams.are_told(file.record.streams)
        return True

    def _goes_on(self, chain: int, file: UsedFile, later: Sequence[UsedFile]) -> bool:
        """Does the next segment continue a segment that ends like this? True if there is none, or it is not known yet.

        A next segment that was never durable is removed.
        """
        if not later or later[0].sequence != file.sequence + 1 or is_unlinked(later[0].header):
            return True
        return later[0].header.previous_chain == chain or not self._files.vouched(later, (later[0].sequence, 0))

    def _load_streams(self) -> None:
        """Load the streams of the newest footer passed, if that was not done: one footer in a row is enough."""
        if not self._passed:
            return
        passed, self._passed = self._passed, []
        for one in passed:
            footer, is_newest = self._footer_of(one), one is passed[-1]
            if footer.is_full:
                self._streams.load(footer.data(), is_newest=is_newest)
                self._present = Present.since(one.segment.sequence)
            else:
                self._streams.follow(footer, one.segment.path, is_newest=is_newest)
                if self._present is not None:
                    self._present = self._present.with_segment(one.segment.sequence, streams_in(footer))
        if passed[0].record.full:
            self._tally.is_settled()

    def _footer_of(self, one: SealedSegment) -> Footer:
        """A footer in a file that is closed at once: a group has many. Raises StoreCorrupt."""
        file = self._disk.open_to_read(one.segment.path)
        try:
            return Footer(file, str(one.segment.path), one.record)
        finally:
            file.close()

    def _knows_before(self, sealed: SealedSegment, files: Sequence[UsedFile]) -> bool:
        """Are the streams known before the first of these segments, except those that its small footer names?"""
        if not self._streams.names:
            before = whole_before(self._disk, self._folder, files)
            if before is not None:
                self._streams.load_before(before)
        known, numbers = len(self._streams.names), sealed.footer.numbers
        return known > 0 and int((numbers >= known).sum()) >= sealed.record.streams - known

    def _ends(self, sealed: SealedSegment) -> Int64s:
        """(streams,) the next offsets after a segment, as far as they are known."""
        footer = sealed.footer
        if footer.is_full:
            return footer.next_offsets
        self._load_streams()
        ends = grown(np.array(self._streams.next_offsets, np.int64), sealed.record.streams)
        ends[footer.stream] = footer.next_offsets
        return ends

    def _ends_before(self, files: Sequence[UsedFile]) -> bool:
        """These segments do not continue the log. True, and they are removed, if they were never durable.

        Otherwise something before them is missing: StoreCorrupt, or False when repairing: go on with them.
        """
        for file in files:
            if self._files.vouched([file], (files[0].sequence, 0)):
                self._repair.on_break("the segment does not continue the one before it", file.path, 0)
                return False
        self._files.discard(files[0].sequence)
        return True

    def _fill_holes(self, first: int, end: int, later: Sequence[UsedFile]) -> None:
        """Put empty segments in the place of lost ones, so that the numbers have no gap. Repair only.

        If the footer of the first `later` segment tells how many offsets they had, these stay free, spread over all of
        them: one footer cannot leave out any number of messages.
        """
        if first >= end:
            return
        following = later[0] if later else None
        self._load_streams()
        tally = self._tally
        lost = None if following is None else tally.missing_before(following.header.messages_before)
        behind = UNKNOWN if lost is None or following is None else following.header.messages_before
        chain = self._chain_into(later, self.found.last_chain)
        for sequence in range(first, end):
            streams = self._known_streams
            segment = self._files.make_empty(sequence, self.found.last_chain, behind, streams, lost)
            self._streams.is_complete = False
            data = self._index.of_lost(segment, later, end - sequence)
            if self._present is not None:
                data.presence = self._present.columns(len(data.first), sequence)
            self._present = Present.since(sequence)
            self._write(segment, data, DATA_START, chain, 0)
            self.found.segments.append((sequence, DATA_START))
            self.found.last_chain = chain
            lost = lost and 0  # the first one's loss tells of all

    def _chain_into(self, later: Sequence[UsedFile], chain: int) -> int:
        """The chain to end a segment with, so that the next one is found to continue it; `chain` if any will do."""
        return chain if not later or is_unlinked(later[0].header) else later[0].header.previous_chain

    def _load_before(self, footer: FooterData | None, files: Sequence[UsedFile]) -> None:
        """Take over the streams of the first footer that there is, if no frame was seen yet."""
        if footer is None or self._streams.names:
            return
        before = footer if footer.stream is None else whole_before(self._disk, self._folder, files)
        if before is not None:
            self._streams.load_before(before)

    def _recover_segment(self, segment: Segment, file: UsedFile, later: Sequence[UsedFile]) -> SegmentScan:
        """Scan a segment; seal it, or make it the one to append to."""
        self._load_streams()
        before, behind = None, None
        if self._repair.allowed:
            before = whole_footer(segment, file.record)
            behind = LaterNames(self._disk, self._folder, [file, *later])
        self._load_before(before, [file, *later])
        noted = len(self._repair.losses)
        scan, scanner = self._scan(segment, file, later, before, behind)
        if scan.is_torn and later:
            # The next segment continues the torn frame's chain, but not its messages, and was never durable. It goes
            # before this one is sealed: a crash in between must not leave the two side by side.
            self._files.discard(later[0].sequence)
            later = ()
        if self._repair.allowed and not scan.has_gaps and not self._goes_on(scanner.chain, file, later):
            scan.note_lost_end()
        self._tally.keep(scan.kept, is_exact=scan.is_counted)
        if len(self._repair.losses) == noted:
            self._note_made_again(file, later)
        is_oldest = segment.sequence == self.found.segments[0][0] > 1
        data = self._index.of_scan(scan, segment, file, behind, later, is_oldest=is_oldest)
        if scan.has_gaps and later:
            scanner.chain = self._chain_into(later, scanner.chain)
        self.found.last_chain = scanner.chain
        small = file.record is not None and file.record.state == CLOSED
        sound = not (self._repair.is_needed or self._files.foreign or scan.has_gaps or lost_count(data))
        if small and sound and not later:
            opened = OpenSegment(segment, open_table(scan.columns.frames, data))
            self.found.resumable = opened, scanner.position, scanner.chain
            return scan
        if file.record is None and not self._files.vouched(later, (segment.sequence, scanner.position)):
            write_anew(self._disk, segment.path, scan.durable_end, scanner.position)
        entries = scan.columns.next_entry
        if self._present is not None:
            data.presence = self._present.columns(len(data.first), segment.sequence)
        self._present = Present.since(segment.sequence)
        self._write(segment, data, scanner.position, scanner.chain, entries)
        return scan

    def _write(self, segment: Segment, data: FooterData, data_end: int, chain: int, entries: int) -> None:
        """Write a segment's footer, a full one."""
        self.found.sealed.append(write_footer(self._disk, segment, data, data_end, chain, entries))
        self._streams.settled = dict(data.trimmed)

    def _scan(
        self, segment: Segment, file: UsedFile, later: Sequence[UsedFile],
        before: FooterData | None, behind: LaterNames | None,
    ) -> tuple[SegmentScan, FrameScanner]:  # fmt: skip
        """Scan a segment's frames to the end of the log or of the segment."""
        end = self._log_end(segment, file)
        began = time.perf_counter()
        sequential = segment.open_sequential()
        reader = ChunkReader(sequential, end)
        scanner = FrameScanner.after_header(reader, file.header)
        scan = SegmentScan(
            scanner, segment, file, later, self._files, self._repair, before, file.header.messages_before,
            self._rounds,
        )  # fmt: skip
        try:
            scan.run(self._streams, behind)
        finally:
            reader.close()
            sequential.close()
        self.found.scan_ms += (time.perf_counter() - began) * 1000
        self.found.scanned_bytes += min(end, align_up(scanner.position))
        if file.record is not None and (file.record.state == SEALED or not later):
            self._streams.are_told(file.record.streams)
        return scan, scanner

    def _note_made_again(self, file: UsedFile, later: Sequence[UsedFile]) -> None:
        """Note a footer or a seal record that a repair makes again, although no message is lost."""
        record, repair = file.record, self._repair
        if not repair.allowed:
            return
        if record is not None and record.state == SEALED:
            repair.set_aside(file.path, record.footer_position, record.footer_bytes, 0)
        elif record is None and (file.trace or any(other.record for other in later)):
            repair.set_aside(file.path, BLOCK_BYTES, BLOCK_BYTES, 0)

    def _log_end(self, segment: Segment, file: UsedFile) -> int:
        """The last position at which the segment's log can end."""
        size = segment.data.size()
        if size < (DATA_START if file.record is None else file.record.data_end):
            self._repair.on_damage(SEGMENT_IS_CUT, file.path, size)
        return size if file.record is None else min(size, file.record.data_end)
