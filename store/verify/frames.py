"""The walk over one segment's frames: it checks their chain, their checksums, and whether their heads agree."""

from __future__ import annotations

import numpy as np

from ..format.applied import AppliedCommit, AppliedRecord
from ..format.arrays import Bools, Int64s
from ..format.dues import NO_DUES
from ..format.footer import Footer, names_in
from ..format.frame import Frame
from ..format.layout import (
    ATOMIC,
    FRAME_HEADER_BYTES,
    HAS_PAYLOAD_CHECKSUM,
    JOINT,
    MORE,
    REBUILT_MS,
    REST,
    UNDECODABLE,
    FrameHeader,
    SegmentHeader,
    checksum64,
    kept_messages,
    read_frame_header,
)
from ..format.records import RECORDS_TOPIC, Record, StreamLow, add_low
from ..segment.checksums import good_messages
from ..segment.evidence import is_end
from ..segment.round_parts import end_of_part, told_end
from ..segment.scanner import ChunkReader, FrameScanner, ScannedFrame, records_in
from .marks import LaneFrames
from .report import Findings, differ


class FrameWalk:
    """The walk over one segment's frames; `numbers`, `lows` and `good` are their columns.

    `gaps`: frames are missing; `ended`: the end of the log was found; `names`: the lane's streams by number as
    known after the segment, None while they are unknown; `trimmed` and `applied`: by its records.
    """

    def __init__(
        self,
        lane: LaneFrames,
        index: int,
        reader: ChunkReader,
        footer: Footer | None,
        names: list[tuple[str, int]] | None,
        findings: Findings,
    ) -> None:
        self.lane, self.index, self.file = lane, index, lane.used[index]
        self.reader, self.footer, self.names = reader, footer, names
        self._findings = findings
        self.headers: list[FrameHeader] = []
        self.dues = NO_DUES  # the range of their delivery times
        self.numbers: list[Int64s] = []
        self.lows: list[Int64s] = []
        self.good: list[Bools] = []
        self.trimmed: dict[int, StreamLow] = {}  # by their records
        self.applied: list[AppliedCommit] = []
        self._records = next((at for at, name in enumerate(names or ()) if name[0] == RECORDS_TOPIC), None)
        self.next_entry = 0
        self.gaps, self.ended = False, True
        self._is_within = False  # as in `SegmentScan`
        # A damaged header was noted before: the frames are checked as those of a segment that a repair rebuilt.
        rebuilt = SegmentHeader(lane.number, b"", self.file.sequence, 0, REBUILT_MS, 0, fine=1)
        self.scanner = FrameScanner.after_header(reader, self.file.header or rebuilt)
        self._listed: Bools | None = None
        if footer is not None and self.file.record is not None:
            self._listed = np.zeros(self.file.record.entries, np.bool_)
            entries = footer.entries.astype(np.int64)
            self._listed[entries[entries < len(self._listed)]] = True

    def run(self) -> None:
        """Walk to the end of the log."""
        going = True
        while going:
            begin = self.scanner.position
            found = self.scanner.next()
            if found is None:
                going = self._step_over(begin)
            elif self._ends_before(found):
                going = False
            else:
                self._check_padding(begin, found.frame.header.position)
                going = self._take(found)
                self._findings.reached(self.scanner.position)

    def _damage(self, what: str, position: int) -> None:
        self._findings.damage(what, self.file.path, position)

    def _check_padding(self, begin: int, end: int) -> None:
        padding = bytes(self.reader.view(begin, end - begin))
        if any(padding):
            at = begin + differ(padding, bytes(len(padding)))
            if self.lane.vouched(self.index, at):
                self._findings.remark("the padding after a frame is not zero", self.file.path, at)

    def _step_over(self, begin: int) -> bool:
        """The chain ended at `begin`. False if the log ends there; else note the damage and go on after it."""
        record, scanner, lane = self.file.record, self.scanner, self.lane
        following = next((file.header for file in lane.used[self.index + 1 :] if file.header is not None), None)
        is_outlasted = lane.mark > (self.file.sequence, begin)
        if is_end(scanner, record, self.file.trace, following, is_outlasted=is_outlasted):
            if record is not None:
                self._check_padding(begin, record.data_end)
            return False
        if record is None and not (self._is_within or lane.vouched(self.index, begin)):
            self._note_torn(begin, begin)
            return False
        later = (head for head in lane.heads(self.file, begin) if head.first_entry >= self.next_entry)
        resumed = next(later, None)
        stop = resumed.position if resumed is not None else self.reader.size_bytes
        listed = self.footer.frame_position.astype(np.int64) if self.footer is not None else np.zeros(0)
        cut = record is not None and begin >= record.data_end  # a repair has set the last frames aside
        if self.footer is None or (stop <= begin and not cut) or np.any((listed >= begin) & (listed < stop)):
            self._damage("a frame is damaged or missing", begin)
        self.gaps, self.names = True, None
        if resumed is None:
            self.ended = False
            return False
        scanner.resume(resumed)
        self.next_entry = resumed.first_entry
        return True

    def _ends_before(self, found: ScannedFrame) -> bool:
        """Does the log end before this frame, a part of a round of transactions? As `SegmentScan` decides it."""
        header, file, lane = found.frame.header, self.file, self.lane
        if not header.flags & JOINT or self.index + 1 < len(lane.used):
            return False
        if told_end(file.record, file.trace, file.sequence) is not None:
            return False
        end_of = end_of_part(found.frame, self.scanner) if found.is_whole else None
        if end_of is not None:
            if not lane.rounds.is_lacking(found.frame, end_of):
                return False
        elif lane.vouched(self.index, header.position) or lane.rounds.is_proved(found.frame):
            return False
        self._note_torn(header.position, header.end)
        self.scanner.position, self.scanner.chain = header.position, header.chain
        return True

    def _counts(self, frame: Frame, position: int) -> bool:
        """Does anything say that this frame was durable, beyond a position in it?"""
        counts_by_first = bool(frame.header.flags & REST)  # else the log had ended before that one
        return counts_by_first or self.lane.vouched(self.index, position) or self.lane.rounds.is_proved(frame)

    def _note_torn(self, position: int, end: int) -> None:
        """The log ends at `position`; count the frames after it, and a torn one that reaches to `end`."""
        for at in self.scanner.places_from(position):
            head = read_frame_header(self.reader.view(at, FRAME_HEADER_BYTES), 0)
            if head is not None and (head.sequence, head.position) == (self.file.sequence, at):
                end = max(end, head.end)
        end = max([end, *(head.end for head in self.lane.heads(self.file, position))])
        self._findings.report.torn_bytes += max(0, min(end, self.file.size_bytes) - position)

    def _take(self, found: ScannedFrame) -> bool:
        """Check a frame on the chain. False if the log ends in it."""
        frame, header, record = found.frame, found.frame.header, self.file.record
        kept = kept_messages(record, header)
        good = np.ones(kept, np.bool_)
        if kept and (not found.is_whole or header.flags & HAS_PAYLOAD_CHECKSUM):
            good = good_messages(frame, found.payload)[:kept]
        bad = np.flatnonzero(~good & self._is_listed(header.first_entry, kept))
        goes_on = True
        if len(bad):
            whole = 0 if header.flags & ATOMIC else int(bad[0])
            position, end = frame.starts()[[bad[0], whole]].tolist()
            if record is None and not self._counts(frame, end):
                self._note_torn(end, header.end)
                self.scanner.position, kept, goes_on = end, whole, False
            else:
                one = "a message's bytes do not match their checksum"
                many = f"{len(bad)} messages do not match their checksums, the first"
                self._damage(one if len(bad) == 1 else many, position)
        elif header.flags & HAS_PAYLOAD_CHECKSUM and kept == header.count and good.all():
            self._check_payloads(found)
        self._check_head(frame, kept)
        self._is_within = bool(header.flags & MORE)
        self.headers.append(header)
        self.dues = self.dues.joined(frame.dues)
        self.numbers.append(frame.numbers[:kept].astype(np.int64))
        self.lows.append(frame.lows[:kept].astype(np.int64))
        self.good.append(good[:kept])
        self.next_entry = header.first_entry + kept
        records = self._note_records(found, good[:kept])
        self._findings.report.frames += 1
        self._findings.report.messages += int(np.count_nonzero(good[:kept])) - records
        return goes_on

    def _note_records(self, found: ScannedFrame, good: Bools) -> int:
        """Note the content of the records in a frame. Returns their number."""
        if self._records is None:
            return 0
        count = 0
        for position, data in records_in(found.frame, found.payload, self._records, good):
            count += 1
            commit = AppliedRecord.unpack(data)
            if commit is not None:
                self.applied.append(commit.entry)
                continue
            record = Record.unpack(data)
            if record is not None:
                self._know(record.number + 1)
            if record is None or (self.names is not None and record.number >= len(self.names)):
                self._damage("a record makes no sense", position)
            else:
                add_low(self.trimmed, record.number, record.effect)
        return count

    def _check_payloads(self, found: ScannedFrame) -> None:
        if checksum64(found.payload) != found.frame.header.payload_checksum:
            self._damage("a frame's payloads do not match their checksum", found.frame.payload_start)

    def _is_listed(self, first_entry: int, count: int) -> Bools:
        """(count,) False for messages that the footer leaves out, as a repair makes it."""
        listed = np.ones(count, np.bool_)
        if self._listed is not None:
            known = self._listed[first_entry : first_entry + count]
            listed[: len(known)] = known
        return listed

    def _check_head(self, frame: Frame, kept: int) -> None:
        """Check that a frame's head fits the frames before it; of a torn frame, the head of the `kept` messages."""
        header, names = frame.header, self.names
        if (header.lane, header.first_entry) != (self.lane.number, self.next_entry):
            self._damage("a frame's lane or entry number is wrong", header.position)
        try:
            defined = frame.definitions()
        except UNDECODABLE as error:
            self._damage(f"a frame's optional columns cannot be decoded ({error})", header.position)
            return
        if names is None:
            return
        for number, topic, queue_id in defined:
            self._know(number)
            if topic == RECORDS_TOPIC:
                self._records = number
            if number == len(names):
                names.append((topic, queue_id))
            elif number > len(names) or names[number] != (topic, queue_id):
                self._damage("a frame gives a stream another number or name", header.position)
        count = int(frame.numbers[:kept].max()) + 1 if kept else 0
        self._know(count)
        if count > len(names):
            self._damage("a frame's stream was never defined", header.position)

    def _know(self, count: int) -> None:
        """Take names from the footer: a repair that gives up definitions of streams writes their names there."""
        if self.names is not None and self.footer is not None and count > len(self.names):
            for number, name in zip(self.footer.numbers.tolist(), names_in(self.footer), strict=True):
                if len(self.names) == number < count:
                    self.names.append(name)
