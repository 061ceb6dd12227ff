"""Checking a closed store: every frame of every segment, every checksum, and that all parts agree.

The rule for what is damage is recovery's. Where the chain of frames breaks and nothing later - a mark in a
later frame, a seal record - says that the lane was durable beyond, the rest was never acknowledged: a torn
tail, normal after a crash. Everything else is damage; it is noted, and the walk goes on behind it. What a
footer leaves out between the frames that it lists was given up by a repair, and is not damage any more.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .disk import LogFile, OsDisk
from .errors import StoreCorrupt
from .folder import STORE_FILE, enter_folder
from .footer import Footer
from .format import (
    BLOCK_BYTES,
    DATA_START,
    FRAME_HEADER_BYTES,
    HAS_PAYLOAD_CHECKSUM,
    LOST_ENTRY,
    SEALED,
    FrameHeader,
    SealRecord,
    StoreHeader,
    align_up,
    checksum64,
    lane_name,
    read_frame_header,
    segment_name,
)
from .frame import Frame
from .inspect import SegmentFile, list_segments, stream_names
from .scanner import ChunkReader, FrameScanner, Scanned, good_messages

HEADER_DAMAGED = "the segment's header is damaged"
_UNDECODABLE = (ValueError, struct.error, IndexError, zlib.error)
_Progress = Callable[[int, int], None]


@dataclass
class VerifyReport:
    """What a check of a whole store found.

    Attributes:
        frames: frames whose head is right.
        messages: messages in them whose bytes are right.
        bytes: bytes of the log and its footers, blocks of headers included.
        segments: segments in use; pre-written spares are not.
        torn_bytes: bytes of frames behind the end of a crashed store's log, which nobody acknowledged.
        damages: what is damaged, each with its file and byte position.
    """

    frames: int = 0
    messages: int = 0
    bytes: int = 0
    segments: int = 0
    torn_bytes: int = 0
    damages: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing is damaged."""
        return not self.damages


def verify_folder(path: str | Path, progress: _Progress | None = None) -> VerifyReport:
    """Read all of a closed store and check it. Changes no file but LOCK, and never raises for damage.

    `progress` is called with the bytes that are done and the bytes in all.
    Raises StoreUnusable if the folder is no store, StoreLocked if it is open.
    """
    folder = Path(path)
    lock = enter_folder(OsDisk(), folder, create=False)
    try:
        return _Run(folder, progress).run()
    finally:
        lock.release()


class _Run:
    """One check of one folder: the report, and how far it is."""

    def __init__(self, folder: Path, progress: _Progress | None) -> None:
        self.disk = OsDisk()
        self.folder = folder
        self.report = VerifyReport()
        self._progress = progress
        self.total_bytes = self.done_bytes = 0

    def damage(self, what: str, path: Path, position: int) -> None:
        """Note a damage, in the words of `StoreCorrupt`."""
        self.report.damages.append(f"{what} in {path} at byte {position}")

    def reached(self, position: int) -> None:
        """Tell how far the current segment is."""
        if self._progress is not None:
            self._progress(min(self.done_bytes + position, self.total_bytes), self.total_bytes)

    def run(self) -> VerifyReport:
        """Check the STORE file, then lane after lane."""
        header = self._store_header()
        names = self.disk.list(self.folder)
        found = [int(name[5:]) for name in names if name.startswith("lane-") and name[5:].isdecimal()]
        store_id = header.store_id if header is not None else None
        lanes: list[_Lane] = []
        for number in range(header.lanes) if header is not None else found:
            try:
                lanes.append(_Lane(self, number, store_id))
            except OSError as error:
                self.damage(f"cannot be read ({error})", self.folder / lane_name(number), 0)
        if header is not None and any(lane.files for lane in lanes):
            for number in sorted({*range(header.lanes)} - {*found}):  # all are made before the first segment
                self.damage("a lane is missing", self.folder / lane_name(number), 0)
        self.total_bytes = sum(file.used_bytes for lane in lanes for file in lane.used)
        for lane in lanes:
            lane.run()
        return self.report

    def _store_header(self) -> StoreHeader | None:
        path = self.folder / STORE_FILE
        try:
            block = path.read_bytes()
        except OSError as error:
            self.damage(f"cannot be read ({error})", path, 0)
            return None
        header = StoreHeader.unpack(block)
        if header is None:
            self.damage("the store's header is damaged or of a newer version", path, 0)
        elif block != header.pack():
            self.damage("the store's header is not filled up with zeros", path, _differ(block, header.pack()))
        return header


class _Lane:
    """One lane: the links between its segments, and what its frames say about how far it was durable.

    `chain`, `names` and `next_offsets` are what the next segment must go on from; the first two are None
    while that is unknown, behind damage and behind what retention took.
    """

    def __init__(self, run: _Run, number: int, store_id: bytes | None) -> None:
        self.work = run
        self.number = number
        self.folder = run.folder / lane_name(number)
        self._heads: dict[int, list[FrameHeader]] = {}
        self.files = list_segments(run.disk, self.folder, number, store_id)
        self.used = [file for file in self.files if not file.is_spare or self._was_used(file)]
        begins = bool(self.used) and self.used[0].sequence == 1
        self.chain: int | None = 0 if begins else None
        self.names: list[tuple[str, int]] | None = [] if begins else None
        self.next_offsets: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def run(self) -> None:
        """Check the segments in order, up to the end of the log."""
        sequences = [file.sequence for file in self.files]
        for before, after in pairwise(sequences if self.used else [0, *sequences]):
            if after != before + 1:
                self.work.damage("a segment is missing", self.folder / segment_name(before + 1), 0)
        for index, file in enumerate(self.used):
            if index and file.sequence != self.used[index - 1].sequence + 1:
                self.chain = self.names = None
            header = file.header
            if header is None or self.chain not in (None, header.previous_chain):
                if (header is not None or file.is_blank) and not self.vouched(index, 0):
                    for rest in self.used[index:]:
                        self.work.report.torn_bytes += max((head.end for head in self.heads(rest)), default=0)
                    return
                unlinked = "the log does not reach this segment"
                self.work.damage(unlinked if header is not None else HEADER_DAMAGED, file.path, 0)
                self.names = self.names if header is None else None
            try:
                self._check(index, file)
            except OSError as error:
                self.work.damage(f"cannot be read ({error})", file.path, 0)
                self.chain = self.names = None
            self.work.done_bytes += file.used_bytes
            self.work.reached(0)

    def _was_used(self, file: SegmentFile) -> bool:
        """Was anything durable in a file that looks like a spare? Its record or its frames' marks say so."""
        if file.record is not None:
            return True
        return any(_mark(head) > (file.sequence, 0) for head in self.heads(file))

    def heads(self, file: SegmentFile, begin: int = DATA_START) -> list[FrameHeader]:
        """Headers of the segment's frames from `begin` on, on the chain or not; read once."""
        if file.sequence not in self._heads:
            data = self.work.disk.open(file.path)
            reader = ChunkReader(data, file.log_bytes)
            try:
                found = FrameScanner(reader, file.sequence, begin, 0).find_later(begin, file.log_bytes)
            finally:
                reader.close()
                data.close()
            self._heads[file.sequence] = found
        return [head for head in self._heads[file.sequence] if head.position >= begin]

    def vouched(self, index: int, position: int) -> bool:
        """Does anything say that the lane was durable beyond `position` of the segment?"""
        rest = self.used[index:]
        if any(file.record is not None for file in rest):
            return True
        place = (rest[0].sequence, position)
        begins = [max(position, DATA_START)] + [DATA_START] * (len(rest) - 1)
        pairs = zip(rest, begins, strict=True)
        return any(_mark(head) > place for file, begin in pairs for head in self.heads(file, begin))

    def _check(self, index: int, file: SegmentFile) -> None:
        work, record = self.work, file.record
        work.report.segments += 1
        self._check_blocks(index, file)
        data = work.disk.open(file.path)
        reader = ChunkReader(data, file.log_bytes)
        try:
            footer = self._footer(data, file)
            walk = _Walk(self, index, reader, footer)
            walk.run()
        finally:
            reader.close()
            data.close()
        if record is not None and walk.ended and walk.next_entry != record.entries:
            work.damage("the seal record's number of messages is wrong", file.path, BLOCK_BYTES)
        if footer is not None and record is not None:
            for what in _disagreements(footer, walk, record.entries, self.names, self.next_offsets):
                work.damage(what, file.path, record.footer_position)
            self.names = stream_names(footer)
            start = footer.start.astype(np.int64)
            self.next_offsets = footer.first.astype(np.int64) + start[1:] - start[:-1]
        elif not walk.gaps:
            self._follow_offsets(walk)
        self.chain = record.chain if record is not None else walk.scanner.chain if walk.ended else None
        footer_bytes = record.footer_bytes if record is not None else 0
        work.report.bytes += align_up(walk.scanner.position) + footer_bytes

    def _check_blocks(self, index: int, file: SegmentFile) -> None:
        """The first two blocks, to their last byte."""
        for name, begin, known in (("header", 0, file.header), ("seal record", BLOCK_BYTES, file.record)):
            block = file.head[begin : begin + BLOCK_BYTES]
            if known is not None and block != known.pack():
                at = begin + _differ(block, known.pack())
                self.work.damage(f"the segment's {name} is not filled up with zeros", file.path, at)
        block = file.head[BLOCK_BYTES:]
        torn = any(block) and SealRecord.unpack(block) is None
        # Segments are sealed in order, so a later record vouches for this one's.
        sealed_behind = any(later.record is not None for later in self.used[index + 1 :])
        if file.record is None and (torn or sealed_behind):
            self.work.damage("the segment's seal record is damaged", file.path, BLOCK_BYTES)
        if file.record is not None and file.size_bytes < file.record.data_end:
            self.work.damage("the segment is cut short", file.path, file.size_bytes)

    def _footer(self, data: LogFile, file: SegmentFile) -> Footer | None:
        """The footer, if the segment has one and all of it is sound."""
        record = file.record
        if record is None or record.state != SEALED:
            return None
        try:
            data.read(record.footer_position, record.footer_bytes)  # so a bad sector is an OSError
            footer = Footer(data, str(file.path), record)
            footer.check_entries()
            start = footer.start.astype(np.int64)
            if np.all(np.diff(start) >= 0) and (start[0], start[-1]) == (0, len(footer.entries)):
                stream_names(footer)
                return footer
            what, position = "the footer's table of streams makes no sense", record.footer_position
        except StoreCorrupt as error:
            what, position = error.what, error.position
        except _UNDECODABLE as error:
            what, position = f"the footer cannot be decoded ({error})", record.footer_position
        self.work.damage(what, file.path, position)
        return None

    def _follow_offsets(self, walk: _Walk) -> None:
        """Without a footer: each message's low bits must follow those before it in its queue."""
        numbers = np.concatenate([np.zeros(0, np.int64), *walk.numbers])
        order = np.argsort(numbers, kind="stable")
        lows = np.concatenate([np.zeros(0, np.int64), *walk.lows])[order]
        first = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        expected = np.roll(lows, 1) + 1
        expected[first] = lows[first]
        if self.names is not None:
            known = np.zeros(max(len(self.names), int(numbers.max(initial=-1)) + 1), np.int64)
            known[: len(self.next_offsets)] = self.next_offsets
            expected[first] = known[numbers[order][first]]
            self.next_offsets = known + np.bincount(numbers, minlength=len(known))
        wrong = order[(expected - lows) & 0xFFFF != 0]
        if len(wrong):
            positions = np.repeat([head.position for head in walk.headers], list(map(len, walk.numbers)))
            path, position = walk.file.path, int(positions[wrong.min()])
            self.work.damage("an offset does not follow the one before", path, position)


class _Walk:
    """The walk over one segment's frames; `numbers`, `lows` and `good` are their columns.

    `gaps`: frames are missing; `ended`: the end of the log was found.
    """

    def __init__(self, lane: _Lane, index: int, reader: ChunkReader, footer: Footer | None) -> None:
        self.lane, self.index, self.file = lane, index, lane.used[index]
        self.reader, self.footer = reader, footer
        self.headers: list[FrameHeader] = []
        self.numbers: list[npt.NDArray[np.int64]] = []
        self.lows: list[npt.NDArray[np.int64]] = []
        self.good: list[npt.NDArray[np.bool_]] = []
        self.next_entry = 0
        self.gaps, self.ended = False, True
        self.scanner = FrameScanner(reader, self.file.sequence, DATA_START, 0)
        first = self.scanner.frame_at(DATA_START)
        if self.file.header is not None:
            self.scanner.chain = self.file.header.chain
        elif first is not None:
            self.scanner.chain = first.header.chain  # the header's damage is noted already
        self._listed: npt.NDArray[np.bool_] | None = None
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
            else:
                self._check_padding(begin, found.frame.header.position)
                going = self._take(found)
                self.lane.work.reached(self.scanner.position)

    def _damage(self, what: str, position: int) -> None:
        self.lane.work.damage(what, self.file.path, position)

    def _check_padding(self, begin: int, end: int) -> None:
        padding = bytes(self.reader.view(begin, end - begin))
        if any(padding):
            at = begin + _differ(padding, bytes(len(padding)))
            if self.lane.vouched(self.index, at):
                self._damage("the padding behind a frame is not zero", at)

    def _step_over(self, begin: int) -> bool:
        """The chain ended at `begin`. False if the log does; else note the damage and go on behind it."""
        record, scanner, lane = self.file.record, self.scanner, self.lane
        if record is not None and scanner.chain == record.chain:
            self._check_padding(begin, record.data_end)
            return False
        if record is None:
            follower = lane.used[self.index + 1].header if self.index + 1 < len(lane.used) else None
            if follower is not None and follower.previous_chain == scanner.chain:
                return False
            if not lane.vouched(self.index, begin):
                self._note_torn(begin, begin)
                return False
        later = (head for head in lane.heads(self.file, begin) if head.first_entry >= self.next_entry)
        resumed = next(later, None)
        stop = resumed.position if resumed is not None else self.reader.size_bytes
        listed = self.footer.frame_position.astype(np.int64) if self.footer is not None else np.zeros(0)
        if self.footer is None or stop <= begin or np.any((listed >= begin) & (listed < stop)):
            self._damage("a frame is damaged or missing", begin)
        self.gaps, lane.names = True, None
        if resumed is None:
            self.ended = False
            return False
        scanner.position, scanner.chain = resumed.position, resumed.chain
        self.next_entry = resumed.first_entry
        return True

    def _note_torn(self, position: int, end: int) -> None:
        """The log ends at `position`; count the frames behind it, and a torn one that reaches to `end`."""
        for at in (position, align_up(position)):
            head = read_frame_header(self.reader.view(at, FRAME_HEADER_BYTES), 0)
            if head is not None and (head.sequence, head.position) == (self.file.sequence, at):
                end = max(end, head.end)
        end = max([end, *(head.end for head in self.lane.heads(self.file, position))])
        self.lane.work.report.torn_bytes += max(0, min(end, self.file.size_bytes) - position)

    def _take(self, found: Scanned) -> bool:
        """Check a frame on the chain. False if the log ends in it."""
        frame, header, record = found.frame, found.frame.header, self.file.record
        kept = header.count
        if record is not None and header.end > record.data_end:  # torn, and cut by recovery
            kept = min(kept, max(0, record.entries - header.first_entry))
        good = np.ones(kept, np.bool_)
        if kept and (not found.is_whole or header.flags & HAS_PAYLOAD_CHECKSUM):
            good = good_messages(frame, found.payload)[:kept]
        bad = np.flatnonzero(~good & self._is_listed(header.first_entry, kept))
        goes_on = True
        if len(bad):
            position = int(frame.starts()[bad[0]])
            if record is None and not self.lane.vouched(self.index, position):
                self._note_torn(position, header.end)
                self.scanner.position, kept, goes_on = position, int(bad[0]), False
            else:
                one = "a message's bytes do not match their checksum"
                many = f"{len(bad)} messages do not match their checksums, the first"
                self._damage(one if len(bad) == 1 else many, position)
        elif header.flags & HAS_PAYLOAD_CHECKSUM and kept == header.count and good.all():
            self._check_payloads(found)
        self._check_head(frame)
        self.headers.append(header)
        self.numbers.append(frame.numbers[:kept].astype(np.int64))
        self.lows.append(frame.lows[:kept].astype(np.int64))
        self.good.append(good[:kept])
        self.next_entry = header.first_entry + kept
        self.lane.work.report.frames += 1
        self.lane.work.report.messages += int(np.count_nonzero(good[:kept]))
        return goes_on

    def _check_payloads(self, found: Scanned) -> None:
        if checksum64(found.payload) != found.frame.header.payload_checksum:
            self._damage("a frame's payloads do not match their checksum", found.frame.payload_start)

    def _is_listed(self, first_entry: int, count: int) -> npt.NDArray[np.bool_]:
        """False for messages that the footer leaves out, as a repair makes it."""
        listed = np.ones(count, np.bool_)
        if self._listed is not None:
            known = self._listed[first_entry : first_entry + count]
            listed[: len(known)] = known
        return listed

    def _check_head(self, frame: Frame) -> None:
        """What a frame's head says must fit to what came before."""
        header, names = frame.header, self.lane.names
        if (header.lane, header.first_entry) != (self.lane.number, self.next_entry):
            self._damage("a frame's lane or entry number is wrong", header.position)
        try:
            defined = frame.definitions()
        except _UNDECODABLE as error:
            self._damage(f"a frame's optional columns cannot be decoded ({error})", header.position)
            return
        if names is None:
            return
        for number, topic, queue_id in defined:
            if number == len(names):
                names.append((topic, queue_id))
            elif number > len(names) or names[number] != (topic, queue_id):
                self._damage("a frame gives a stream another number or name", header.position)
        if header.count and int(frame.numbers.max()) >= len(names):
            self._damage("a frame's stream was never defined", header.position)


def _disagreements(
    footer: Footer,
    walk: _Walk,
    entry_count: int,
    names: list[tuple[str, int]] | None,
    next_offsets: npt.NDArray[np.int64],
) -> Iterator[str]:
    """What a sound footer says otherwise than the frames."""
    columns = (footer.frame_position, footer.frame_entry, footer.frame_time)
    listed = {*zip(*(column.tolist() for column in columns), strict=True)}
    walked = {(head.position, head.first_entry, head.time_ms) for head in walk.headers}
    if walked - listed or (listed - walked and not walk.gaps):
        yield "the footer's frame table does not agree with the frames"
    times = footer.frame_time.tolist() or [0]
    if (footer.time_min_ms, footer.time_max_ms) != (min(times), max(times)):
        yield "the footer's time range does not agree with the frames"
    if names is not None:
        if stream_names(footer)[: len(names)] != names:
            yield "the footer's streams do not agree with the frames"
        known = np.zeros(max(len(footer.first), len(next_offsets)), np.int64)
        known[: len(next_offsets)] = next_offsets
        if not np.array_equal(footer.first, known):
            yield "the footer's first offsets do not follow the segment before"
    if _entries_disagree(footer, walk, entry_count):
        yield "the footer's entries do not agree with the frames"


def _entries_disagree(footer: Footer, walk: _Walk, entry_count: int) -> bool:
    stream_of, low_of = np.full(entry_count, -1, np.int64), np.zeros(entry_count, np.int64)
    unseen = np.zeros(entry_count, np.bool_)  # whole messages that the footer has not named yet
    for head, numbers, lows, good in zip(walk.headers, walk.numbers, walk.lows, walk.good, strict=True):
        part = slice(head.first_entry, head.first_entry + len(numbers))
        if part.stop > entry_count:
            return True
        stream_of[part], low_of[part], unseen[part] = numbers, lows, good
    start = footer.start.astype(np.int64)
    numbers = np.repeat(np.arange(len(start) - 1), np.diff(start))
    offsets = np.repeat(footer.first.astype(np.int64) - start[:-1], np.diff(start)) + np.arange(len(numbers))
    kept = footer.entries != LOST_ENTRY
    entries, numbers, lows = footer.entries[kept].astype(np.int64), numbers[kept], offsets[kept] & 0xFFFF
    if np.any(entries >= entry_count) or np.any((np.diff(entries) <= 0) & (np.diff(numbers) == 0)):
        return True
    unseen[entries] = False
    same = (stream_of[entries] == numbers) & (low_of[entries] == lows)
    return bool(np.any(unseen) or np.any(~same & ((stream_of[entries] >= 0) | (not walk.gaps))))


def _mark(head: FrameHeader) -> tuple[int, int]:
    return head.durable_sequence, head.durable_position


def _differ(block: bytes, expected: bytes) -> int:
    """Where two blocks differ first."""
    pairs = enumerate(zip(block, expected, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(block), len(expected)))
