"""Recovery of a lane (R10): footers where there are any, a scan of the rest, and nothing silent but what
nobody acknowledged.

A scan follows the chain of frames. Where it breaks, the log either ends (a torn tail) or is damaged. It is
damaged if anything later - a frame behind the break, a clean close, a footer - says that the lane was
durable beyond the break; then `StoreCorrupt` names the place. Otherwise the rest was never acknowledged.

What was recovered is sealed at once, so recovering again changes nothing, and later appends never mix with
the remains of a crash. Only a small segment that was cleanly closed is gone on with.

This module walks over a lane's segments and decides for each. `segment_files` has the files, `segment_scan`
the frames of one segment, `lane_streams` the streams, `rebuild` the footers made anew, `repair` the damage.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .disk import Disk
from .footer import FooterData
from .format import CLOSED, DATA_START, LOST_ENTRY, SEALED, align_up
from .lane_streams import FooterNames, LaneStreams, footer_of
from .rebuild import MOST_ENTRIES, ScanColumns, index_by_footer, index_columns, open_table
from .repair import Loss, Repair, is_healthy, whole_footer
from .scanner import ChunkReader, FrameScanner
from .sealed import SealedSegment, write_footer
from .segment import Segment
from .segment_files import LaneFiles, UsedFile
from .segment_scan import SegmentScan
from .write import OpenSegment


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
    scan_ms: float = 0.0
    losses: list[Loss] = field(default_factory=list)


class LaneRecovery:
    """Recovers one lane's folder. `run` raises StoreCorrupt unless `repair` is given."""

    def __init__(
        self, disk: Disk, folder: Path, lane: int, store_id: bytes, quarantine: Path, *, repair: bool, direct: bool
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._direct = direct
        self._repair = Repair(disk, quarantine, lane, allowed=repair)
        self._files = LaneFiles(disk, folder, lane, store_id, self._repair)
        self._streams = LaneStreams(lane, self._repair)
        self._passed: SealedSegment | None = None  # the newest footer whose streams are not loaded yet
        self._unplaced = 0  # messages noted as lost whose offsets are not known yet
        self._opened: list[Segment] = []
        self.found = Found()

    def run(self) -> Found:
        """Recover."""
        with ExitStack() as undo:
            undo.callback(self._close_opened)
            found = self._run()
            undo.pop_all()
        return found

    def _close_opened(self) -> None:
        for segment in self._opened:
            segment.close()

    def _run(self) -> Found:
        found = self.found
        files = self._files.in_use()
        for index, listed in enumerate(files):
            begin = files[index - 1].sequence + 1 if index else self._files.begins_with(listed.sequence)
            self._fill_holes(begin, listed.sequence, listed)
            file = self._files.linked(listed, found.last_chain)
            if index and file.header.previous_chain != found.last_chain and self._ends_before(files[index:]):
                break
            segment = Segment(self._disk, self._folder, file.header, direct=self._direct)
            self._opened.append(segment)
            found.segments.append((file.sequence, file.header.capacity_bytes))
            if not self._pass(segment, file):
                scan = self._recover_segment(segment, file, files[index + 1 :])
                if scan.is_torn:
                    break
        after = found.segments[-1][0] + 1 if found.segments else self._files.begins_with(1)
        self._fill_holes(after, self._files.ends_before, None)
        self._load_streams()
        found.streams, found.next_offsets = self._streams.names, self._streams.next_offsets
        found.spares, found.losses = self._files.spares, self._repair.losses
        return found

    def _pass(self, segment: Segment, file: UsedFile) -> bool:
        """Take a sealed segment as it is. False if it is not sealed, or a repair finds damage in it."""
        if file.record is None or file.record.state != SEALED:
            return False
        sealed = SealedSegment(segment, file.record)
        if self._repair.allowed and not is_healthy(sealed):
            return False
        self._passed = sealed
        self.found.sealed.append(sealed)
        self.found.last_chain = file.record.chain
        return True

    def _load_streams(self) -> None:
        """Load the streams of the newest footer passed, if that was not done: one footer in a row is enough."""
        if self._passed is not None:
            self._streams.load(self._passed.footer.data())
            self._passed = None

    def _ends_before(self, files: Sequence[UsedFile]) -> bool:
        """These segments do not continue the log. True, and they are removed, if they were never durable.

        Otherwise something before them is missing: StoreCorrupt, or False when repairing: go on with them.
        """
        for file in files:
            if self._files.vouched([file], (files[0].sequence, 0)):
                self._repair.on_damage("the segment does not continue the one before it", file.path, 0)
                return False
        self._files.discard(files[0].sequence)
        return True

    def _fill_holes(self, first: int, end: int, following: UsedFile | None) -> None:
        """Put empty segments in the place of lost ones, so that the numbers have no gap. Repair only.

        If the footer of the segment that is `following` tells what they had, that is kept free: all in the first.
        """
        if first >= end:
            return
        self._load_streams()
        if first > 1 and following is not None and not self.found.segments:
            self._load_before(footer_of(self._disk, self._folder, following))  # what retention took is no loss
        for sequence in range(first, end):
            chain = following.header.previous_chain if following is not None else self.found.last_chain
            segment = self._files.make_empty(sequence, self.found.last_chain)
            ends = self._ends(following)
            data = self._index(ScanColumns(), segment, ends)
            self._note_more(segment.path, _lost(data), exact=ends is not None)
            self.found.sealed.append(write_footer(self._disk, segment, data, DATA_START, chain, 0))
            self.found.segments.append((sequence, DATA_START))
            self.found.last_chain = chain

    def _load_before(self, footer: FooterData | None) -> None:
        """Take over the streams of the first footer that there is, if no frame was seen yet."""
        if footer is not None and not self._streams.names:
            self._streams.load_before(footer)

    def _ends(self, following: UsedFile | None) -> npt.NDArray[np.int64] | None:
        """Where each stream goes on in the segment that follows, if a whole footer tells; they are known then."""
        footer = footer_of(self._disk, self._folder, following) if following is not None else None
        if footer is None or (footer.first.sum() - sum(self._streams.next_offsets)) > MOST_ENTRIES:
            return None
        self._streams.take_over(footer)
        return footer.first

    def _recover_segment(self, segment: Segment, file: UsedFile, later: Sequence[UsedFile]) -> SegmentScan:
        """Scan a segment; seal it, or make it the one that is gone on with."""
        self._load_streams()
        before, behind = None, None
        if self._repair.allowed:
            before = whole_footer(segment, file.record)
            behind = FooterNames(self._disk, self._folder, [file, *later])
        self._load_before(before)
        end = self._log_end(segment, file)
        began = time.perf_counter()
        sequential = segment.open_sequential()
        reader = ChunkReader(sequential, end)
        scanner = FrameScanner.behind(reader, file.header)
        scan = SegmentScan(scanner, segment, file, later, self._files, self._repair, before)
        try:
            scan.run(self._streams, behind)
        finally:
            reader.close()
            sequential.close()
        self.found.scan_ms += (time.perf_counter() - began) * 1000
        self.found.scanned_bytes += min(end, align_up(scanner.position))
        if scan.is_torn and later:
            # The next segment continues the torn frame's chain, but not its messages, and was never durable. It goes
            # before this one is sealed: a crash in between must not leave the two side by side.
            self._files.discard(later[0].sequence)
            later = ()
        data = self._index_scan(scan, segment, behind, later)
        if scan.has_gaps and later:
            scanner.chain = later[0].header.previous_chain  # the next segment must be found to continue it
        self.found.last_chain = scanner.chain
        small = file.record is not None and file.record.state == CLOSED
        sound = not (self._repair.losses or self._files.foreign or scan.has_gaps or _lost(data))
        if small and sound and not later:
            opened = OpenSegment(segment, open_table(scan.columns.frames, data))
            self.found.resumable = opened, scanner.position, scanner.chain
            return scan
        entries = scan.columns.next_entry
        self.found.sealed.append(write_footer(self._disk, segment, data, scanner.position, scanner.chain, entries))
        return scan

    def _index_scan(
        self, scan: SegmentScan, segment: Segment, behind: FooterNames | None, later: Sequence[UsedFile]
    ) -> FooterData:
        """The footer of a scanned segment: its own once more, if it was found, else one made of the frames.

        What of its messages is lost, and was not noted by the scan, is noted.
        """
        columns, footer, streams = scan.columns, scan.footer, self._streams
        if footer is not None and self._is_oldest(segment):
            streams.load_before(footer)  # what its frames name are streams that began here
        if footer is not None and streams.continues_with(footer):
            data = index_by_footer(columns, footer, streams.next_offsets)
            if data is not None:
                streams.take_over(footer)
                streams.next_offsets = data.next_offsets.tolist()
                self._unplaced = 0
                self._note_more(segment.path, _lost(data) - _lost(footer) - scan.lost, exact=scan.has_gaps)
                return data
        # A lost frame may have named some; of others no frame may be left.
        streams.know(columns.streams(), behind, segment.path)
        if streams.unnamed:
            self._repair.on_damage("a stream was never defined", segment.path, DATA_START)
        follows = later[0] if later and later[0].sequence == segment.sequence + 1 else None
        ends = self._ends(follows) if self._repair.allowed else None
        data = self._index(columns, segment, ends)
        self._note_more(segment.path, _lost(data) - scan.lost, exact=ends is not None)
        return data

    def _is_oldest(self, segment: Segment) -> bool:
        """Is it the first segment that retention has left? Then nothing but its footer tells of what was before."""
        return segment.sequence == self.found.segments[0][0] > 1

    def _note_more(self, path: Path, messages: int, *, exact: bool) -> None:
        """A footer gives up so many messages more than were noted as lost in its segment; or fewer, if that is < 0:
        then nothing told yet which ones they are, and what follows leaves them out.
        """
        more = messages - self._unplaced
        self._unplaced = max(0, -more)
        self._repair.note_more(path, max(0, more), exact=exact)

    def _log_end(self, segment: Segment, file: UsedFile) -> int:
        """Where the segment's log ends at the latest."""
        size = segment.data.size()
        if file.record is None:
            return size
        if size < file.record.data_end:
            self._repair.on_damage("the segment is cut short", file.path, size)
        return min(size, file.record.data_end)

    def _index(self, columns: ScanColumns, segment: Segment, ends: npt.NDArray[np.int64] | None) -> FooterData:
        """The footer of scanned columns; the streams go on behind it."""
        streams = self._streams
        data = index_columns(columns, streams.names, streams.next_offsets, ends, self._repair, segment.path)
        streams.next_offsets = data.next_offsets.tolist()
        return data


def _lost(data: FooterData) -> int:
    """How many messages a footer has given up."""
    return int(np.count_nonzero(data.entries == LOST_ENTRY))


__all__ = ["Found", "LaneRecovery", "Loss"]
