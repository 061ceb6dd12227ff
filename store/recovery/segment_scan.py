"""The scan of one segment in recovery: along its chain of frames, to the end of the log or to damage.

Where the chain breaks, the log ends, unless something later says that the lane was durable beyond the break: then it is
damage. A repair sets the damaged range aside and goes on with the next frame after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..device.disk import Disk
from ..errors import StoreCorrupt
from ..format.arrays import Bools, Int64s
from ..format.footer import FooterData
from ..format.layout import (
    JOINT,
    LOST_ENTRY,
    MORE,
    REST,
    SEALED,
    UNKNOWN,
    FrameHeader,
    SegmentHeader,
    align_down,
    align_up,
    kept_messages,
)
from ..segment.checksums import good_messages
from ..segment.evidence import is_end, mark_of
from ..segment.round_parts import RoundParts, end_of_part, told_end
from ..segment.scanner import FrameScanner, ScannedFrame
from ..segment.segment import Segment
from .lane_files import LaneFiles
from .lane_streams import LaneStreams, LaterNames
from .reindex import ScanColumns
from .repair import Repair, footer_behind
from .used_file import UsedFile

ANEW_BYTES = 8 << 20


class SegmentScan:
    """Scans one segment; `later` are the segments in use after it.

    After `run`, the scanner stands at the end of the log, `columns` has all messages before it, and
    `has_gaps` says that a repair left some out; `is_torn` that the log ends inside the last frame. `footer` is the
    segment's own, if all of it is whole.
    """

    def __init__(
        self,
        scanner: FrameScanner,
        segment: Segment,
        file: UsedFile,
        later: Sequence[UsedFile],
        files: LaneFiles,
        repair: Repair,
        footer: FooterData | None,
        messages_before: int,
        rounds: RoundParts,
    ) -> None:
        self.sequence = file.sequence
        self._scanner = scanner
        self._segment = segment
        self._file = file
        self._later = later
        self._files = files
        self._repair = repair
        self.columns = ScanColumns()
        self.has_gaps = False
        self.is_torn = False
        self._lost = 0  # messages noted as lost, without those after the last one
        self.end_is_lost = False
        self.footer = footer
        self._before = messages_before
        self._rounds = rounds
        self._part_begin: int | None = None  # of the part of a round that is gone through: it counts

    def run(self, streams: LaneStreams, behind: LaterNames | None) -> None:
        """Scan; streams are learned on the way. Raises StoreCorrupt for damage, unless repairing."""
        going, self._streams, self._behind = True, streams, behind
        while going:
            begin = self._scanner.position
            found = self._scanner.next()
            if found is None:
                going = self._step_over(begin)
            elif found.frame.header.flags & JOINT and self._ends_before(found):
                going = False
            else:
                streams.learn(found.frame, behind, self._file.path)
                going = self._take(found)

    def _step_over(self, begin: int) -> bool:
        """The chain ended at `begin`. False if the log ends there; a repair steps over damage: True."""
        scanner, file, next_entry = self._scanner, self._file, self.columns.next_entry
        sealed = self._is_sealed_at(begin, next_entry)
        if self._is_end(begin) or (self._part_begin is None and not self._durable_beyond(begin)):
            return False
        if sealed:
            self.has_gaps = True
            return False
        self._repair.on_damage("a frame is damaged or missing", file.path, begin)
        self.has_gaps = True
        resumed = next(filter(self._may_count, scanner.find_from(next_entry)), None)
        if resumed is None:
            end = None if self._is_outlasted(begin) else self.end_entry
            self._give_up(begin, scanner.reader.size_bytes, None if end is None else np.arange(next_entry, end))
            return False
        if resumed.position > begin or resumed.first_entry > next_entry:
            self._lost += self._give_up(begin, resumed.position, np.arange(next_entry, resumed.first_entry)) or 0
        scanner.resume(resumed)
        self.columns.next_entry = resumed.first_entry
        return True

    def _may_count(self, header: FrameHeader) -> bool:
        """Whether the scan may go on with a frame after a gap: not with a later one of a round's part, unless the part
        counted. A part does so as a whole or not at all.

        If the lane has gone on after the part, something says that it was durable beyond. Where the log was cut before
        the part, nothing is left of it: the segment was sealed, and its file ends with the footer.
        """
        if not header.flags & REST:
            return True
        if self._part_begin is not None and mark_of(header) <= (self._file.sequence, self._part_begin):
            return True  # it is of the part that is gone through, which counts
        return self._durable_beyond(header.position)

    def _is_end(self, begin: int) -> bool:
        file = self._file
        is_outlasted = self._is_outlasted(begin)
        return is_end(self._scanner, file.record, file.trace, self._following, is_outlasted=is_outlasted)

    def _is_outlasted(self, position: int) -> bool:
        """Does a frame in a file without a header say that the log was durable beyond this place?"""
        return self._files.mark > (self._file.sequence, position)

    def _take(self, found: ScannedFrame) -> bool:
        """Take a frame on the chain. False if the log ends in it; a repair keeps its good messages: True."""
        frame, header, record = found.frame, found.frame.header, self._file.record
        kept = kept_messages(record, header)
        if record is not None and kept < header.count:
            self._scanner.position = record.data_end  # a torn frame, cut there by recovery
        if found.whole >= kept:
            self._add(found, kept)
            return True
        position = int(frame.starts()[found.whole])
        if self._is_sealed_at(position, header.first_entry + found.whole):
            self._scanner.position = position
            self._add(found, found.whole)
            return False
        # A torn tail counts as well in a repair: the segment is sealed then, and not appended to again.
        self.has_gaps = self.has_gaps or self._repair.allowed
        if not (header.flags & REST or self._durable_beyond(position) or self._rounds.is_proved(frame)):
            self._scanner.position = position
            self._add(found, found.whole)
            self.is_torn = True
            return False
        self._repair.on_damage("a message's bytes do not match their checksum", self._file.path, position)
        if record is None and self._goes_on_after(header.first_entry + found.whole):
            self._repair.set_aside(self._file.path, position, header.end - position, 0)
            self._scanner.position = position
            self._add(found, found.whole)
            return False
        good = good_messages(frame, found.payload)[:kept]
        lost = self._not_given_up(np.flatnonzero(~good) + header.first_entry)
        if len(lost):
            self._repair.set_aside(self._file.path, header.position, header.end - header.position, len(lost))
            self._lost += len(lost)
        self._add(found, kept, good)
        return True

    def _goes_on_after(self, entries: int) -> bool:
        """Does the next segment say that this one has so many messages? Then the log was cut there once, and what comes
        after it in the file was never durable.
        """
        following = self._following
        return (
            following is not None
            and UNKNOWN not in (self._before, following.messages_before)
            and (following.messages_before - self._before == entries)
        )

    def _ends_before(self, found: ScannedFrame) -> bool:
        """Does the log end before this frame, which counts only with the rest of its part, and with the parts of its
        round in other lanes?

        Then the scanner stands before it, and nothing of it is learned: its streams have no numbers.
        """
        header, file = found.frame.header, self._file
        if file.record is not None:
            return False
        end = end_of_part(found.frame, self._scanner) if found.is_whole else None
        if end is not None:
            is_ended = told_end(None, file.trace, file.sequence) is not None
            if is_ended or self._later or not self._rounds.is_lacking(found.frame, end):
                return False
        elif not self._is_sealed_at(header.position, header.first_entry) and (
            self._durable_beyond(header.position) or self._rounds.is_proved(found.frame)
        ):
            return False
        self._scanner.position, self._scanner.chain = header.position, header.chain
        self.is_torn = True
        # As with any torn tail: the segment is sealed after a repair, and not appended to again.
        self.has_gaps = self.has_gaps or self._repair.allowed
        return True

    def _give_up(self, begin: int, end: int, entries: Int64s | None) -> int | None:
        """Set a range of frames aside with these messages, unless an earlier repair has done that; how many it has."""
        lost = None if entries is None else len(self._not_given_up(entries))
        known = () if self.footer is None else self.footer.frame_position.tolist()
        if self.footer is None or lost != 0 or any(begin <= position < end for position in known):
            self._repair.set_aside(self._file.path, begin, end - begin, lost)
            self._streams.is_complete = False
        return lost

    def _not_given_up(self, entries: Int64s) -> Int64s:
        """The messages among these that the segment's footer still has."""
        return entries if self.footer is None else entries[np.isin(entries, self.footer.entries)]

    @property
    def kept(self) -> int:
        """The segment's messages up to the end of the scan, without those noted as lost."""
        return self.columns.next_entry - self._lost

    @property
    def is_counted(self) -> bool:
        """Are these all of its messages but the noted ones? Not if an earlier repair gave up others, after its end."""
        entries = self._file.record.entries if self._file.record is not None else self.columns.next_entry
        return self.footer is None or len(self.footer.entries) == entries

    @property
    def durable_end(self) -> int:
        """How far the segment was durable, as its frames say: what follows may be in memory alone."""
        marks = (mark_of(frame.header) for frame in self.columns.frames)
        return max((position for sequence, position in marks if sequence == self.sequence), default=0)

    @property
    def _following(self) -> SegmentHeader | None:
        return self._later[0].header if self._later else None

    @property
    def end_entry(self) -> int | None:
        """How many messages the segment had, and those of missing ones after it, as far as that is known."""
        record, following = self._file.record, self._following
        if record is not None and (record.state == SEALED or following is None):
            return record.entries
        return self.entry_before(following.messages_before) if following is not None else None

    def entry_before(self, messages: int) -> int | None:
        """The entry number after `messages` messages of the log, as if all were in this segment. None if unknown."""
        return None if UNKNOWN in (self._before, messages) else max(self.columns.next_entry, messages - self._before)

    def note_lost_end(self) -> None:
        """The segment's end is lost: the next one does not continue what is left."""
        following, record = self._following, self._file.record
        end = self.entry_before(following.messages_before) if following is not None else None
        known = max(self.columns.next_entry, record.entries if record is not None else 0)
        messages = None if end is None else max(0, end - known)
        self._repair.set_aside(self._file.path, self._scanner.position, 0, messages)
        self._streams.is_complete = False
        self.has_gaps = self.end_is_lost = True

    def _add(self, found: ScannedFrame, count: int, good: Bools | None = None) -> None:
        header = found.frame.header
        if not header.flags & MORE:
            self._part_begin = None
        elif header.flags & JOINT or self._part_begin is None:
            self._part_begin = header.position
        if header.first_entry != self.columns.next_entry:
            raise StoreCorrupt("a frame's entry number is wrong", self._file.path, header.position)
        if self._streams.records is not None:
            kept = np.ones(count, np.bool_) if good is None else good[:count]
            self._streams.note_records(found, kept, self._behind, self._file.path)
        self.columns.add(found.frame, count, good)

    def _is_sealed_at(self, position: int, entries: int) -> bool:
        """Is the seal record lost, while the footer stands after `position` and knows `entries` messages before it?

        Then the log was cut there once, although the rest of a torn frame or of a gap was never durable. Repaired
        segments alone have lost messages, also at their end.
        """
        if self._file.record is not None:
            return False
        footer = footer_behind(self._segment, position)
        if footer is None:
            return False
        kept = footer.entries[footer.entries != LOST_ENTRY]
        known = int(kept.max()) + 1 if len(kept) else 0
        if known != entries and (len(kept) == len(footer.entries) or known > entries):
            return False
        self.footer = footer
        return True

    def _durable_beyond(self, position: int) -> bool:
        """Does anything say that the lane was durable beyond `position` of this segment?"""
        if self._file.is_ended:
            return True
        place = (self._file.sequence, position)
        frames = self._scanner.find_later(position, self._scanner.reader.size_bytes)
        return any(mark_of(frame) > place for frame in frames) or self._files.vouched(self._later, place)


def write_anew(disk: Disk, path: Path, begin: int, end: int) -> None:
    """Write a range of a file once more, with the bytes that it has, and force it.

    A force may have failed, and the process have died of that. Then the kernel takes these blocks for clean: it gives
    them to readers, and no force brings them to the device, unless they are written again.
    """
    file = disk.open(path)
    try:
        for at in range(align_down(begin), align_up(end), ANEW_BYTES):
            found = file.read(at, min(ANEW_BYTES, align_up(end) - at))
            if found:
                file.write([found], at)
        file.force()
    finally:
        file.close()
