"""Where each message of a made store lies, which bytes a damage has changed, and what must therefore still be there.

Everything is told from the unharmed files. A message is

* *unhurt* if its own bytes, the head of its frame and the file's place are as they were: it must survive a repair;
* *tail* if nothing that is left on the disk says that it was ever durable: a damage at or before it may pass for the
  end of the log. Evidence is a seal record, of its own segment or of a later one, unhurt or with some flipped bits, the
  mark in the unhurt head of a frame, or a file that is too short for a segment. Such a message may vanish without a
  word, and no other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stratalog.store.format.frame import Frame
from stratalog.store.format.joint import JointPlace, joint_of
from stratalog.store.format.layout import (
    BLOCK_BYTES,
    DATA_START,
    SEAL_BYTES,
    SEALED,
    SealRecord,
    SegmentHeader,
    lane_name,
)
from stratalog.store.format.message_ids import SeenIds
from stratalog.store.format.store_files import LaneStart
from stratalog.store.log.streams import lane_of
from stratalog.store.segment.evidence import is_flipped, trace_of
from tests.store.helpers import Snapshot, frames_of, put_snapshot

from .stories import EMPTY, PREFIX, SALT, Story

SEAL_AT = slice(BLOCK_BYTES, BLOCK_BYTES + SEAL_BYTES)
HEADER_BYTES = 104  # of a segment's first block that mean something, and of its second
ENDLESS = 1 << 60
Place = tuple[int, int]  # (sequence, position) in a lane's log
Bools = npt.NDArray[np.bool_]


class FramePlace(NamedTuple):
    """A frame in a file."""

    begin: int
    payload_begin: int
    end: int
    mark: Place
    joint: tuple[JointPlace, ...] = ()  # of the first frame of a round's part: where all parts of it begin


@dataclass
class FilePlaces:
    """A segment file in use. Message i is `offsets[i]` of queue `numbers[i]`, bytes [begins[i], ends[i])."""

    name: str
    lane: int
    sequence: int
    record: SealRecord | None
    records: int = 0  # messages of the store's own
    ids: dict[bytes, list[int]] = field(default_factory=dict)  # digest of an id -> the frames with a record of it
    frames: list[FramePlace] = field(default_factory=list)
    frame_of: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


@dataclass
class Places:
    """All files in use of a story's final state, in log order, and the spares."""

    story: Story
    files: list[FilePlaces]
    spares: list[str]


def locate(story: Story, folder: Path) -> Places:
    """Find every message that the store has in the files."""
    path = put_snapshot(story.final, folder / "located")
    found = Places(story, [], [])
    left = [told.there.copy() for told in story.queues]
    numbers: dict[tuple[int, int], int] = {}  # (lane, stream) -> queue
    for file in sorted(path.glob("lane-*/*.seg")):
        name, content = str(file.relative_to(path)), file.read_bytes()
        lane, sequence = int(file.parent.name[5:]), int(file.stem)
        header = SegmentHeader.unpack(content[:BLOCK_BYTES])
        if header is None or header.sequence != sequence:
            found.spares.append(name)
            continue
        record = SealRecord.unpack(content[BLOCK_BYTES:DATA_START])
        mine = FilePlaces(name, lane, sequence, record if record and record.sequence == sequence else None)
        for frame in frames_of(file):
            _take(frame, content, mine, numbers, left)
        found.files.append(mine)
    missing = [(told.name, int(rows.sum())) for told, rows in zip(story.queues, left, strict=True) if rows.any()]
    assert not missing, f"not found in the files: {missing}"
    return found


def _take(
    frame: Frame, content: bytes, mine: FilePlaces, numbers: dict[tuple[int, int], int], left: list[Bools]
) -> None:
    header = frame.header
    mark = (header.durable_sequence, header.durable_position)
    mine.frames.append(FramePlace(header.position, frame.payload_start, header.end, mark, joint_of(frame.head)))
    begins, lengths = frame.starts().tolist(), frame.lengths.tolist()
    for stream, low, begin, length in zip(frame.numbers.tolist(), frame.lows.tolist(), begins, lengths, strict=True):
        if length:
            number, offset, salt = PREFIX.unpack_from(content, begin) if length >= PREFIX.size else (0, 0, 0)
            if salt != SALT or number >= len(left) or offset & 0xFFFF != low:
                mine.records += 1  # no message of a user's
                seen = SeenIds.unpack(content[begin : begin + length])
                for digest in () if seen is None else seen.digests:
                    mine.ids.setdefault(digest, []).append(len(mine.frames) - 1)
                continue
            numbers[mine.lane, stream] = number
        else:
            number, offset = EMPTY, low  # fewer than 65,536 of them
        if offset < len(left[number]) and left[number][offset]:
            left[number][offset] = False
            mine.frame_of.append(len(mine.frames) - 1)
            mine.numbers.append(number)
            mine.offsets.append(offset)
            mine.begins.append(begin)
            mine.ends.append(begin + length)


class Changes:
    """Which bytes of a file are not as they were; all of them if it is gone."""

    def __init__(self, before: bytes, after: bytes | None) -> None:
        old = np.frombuffer(before, np.uint8)
        new = np.frombuffer(after or b"", np.uint8)
        common = min(len(old), len(new))
        changed = np.ones(len(old), np.bool_)
        changed[:common] = old[:common] != new[:common]
        self.is_gone = after is None
        self._flipped = np.zeros(len(old), np.uint8)
        self._flipped[:common] = old[:common] ^ new[:common]
        self._sums = np.concatenate([[0], np.cumsum(changed)])

    def few(self, where: slice, bits: int) -> bool:
        """Are no more bits of these bytes changed? Only of those that are still there."""
        return int(np.unpackbits(self._flipped[where]).sum()) <= bits

    def touches(self, begin: int, end: int) -> bool:
        """Is a byte of the range changed?"""
        return bool(self.touch(np.array([begin]), np.array([end]))[0])

    def touch(self, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Bools:
        """The same of many ranges. An empty range is changed if the file ends before it."""
        last = len(self._sums) - 1
        low, high = np.minimum(begins, last), np.minimum(ends, last)
        touched: Bools = (self._sums[high] > self._sums[low]) | self.is_gone
        return touched


class Verdict:
    """What a damaged state may and may not have lost: one element a queue's offset in each array.

    Attributes:
        unhurt: must survive a repair.
        readable: must be readable after a plain opening.
        tail: may vanish without a word.
        kept_ids: digests of the ids that may not be forgotten without a word: a record of them is no tail.
        lane: the lane of each queue.
        lost_before: messages of a lane that an earlier repair gave up: where the file is gone that told of them, they
            are counted once more. The same goes for those that retention removed, where an old copy of START says that
            they are still there.
        hurt_files: names of the files that are not as they were.
        may_be_cut: the end of a lane's log may vanish without a word, also where it has no message of a user's.
        is_blind: of a lane that retention has shortened, nothing is left that has whole offsets: no START, no sealed
            segment. Frames have 16 bits of an offset, so a long queue's messages may be found 65,536 or a multiple of
            that too low; docs/how-to/repair.md says so.
    """

    def __init__(self, places: Places, damaged: Snapshot) -> None:
        story, final = places.story, places.story.final
        self.unhurt = [np.zeros(len(told.lengths), np.bool_) for told in story.queues]
        self.readable = [rows.copy() for rows in self.unhurt]
        self.tail = [rows.copy() for rows in self.unhurt]
        self._whole_frames: dict[str, int] = {}  # of each file: those before the tail
        self.lane = [lane_of(*told.name, story.plan.lanes) for told in story.queues]  # of one without messages, too
        self.hurt_files = {name for name in {*final, *damaged} if final.get(name) != damaged.get(name)}
        self.may_be_cut = False
        lanes = {file.lane for file in places.files}
        for lane in lanes:
            files = [file for file in places.files if file.lane == lane]
            self._judge(files, final, damaged)
        self._let_rounds_go(places.files, damaged)
        self.kept_ids = {
            digest
            for file in places.files
            for digest, frames in file.ids.items()
            if frames[0] < self._whole_frames[file.name]
        }
        self.is_blind = any(self._tells_no_offsets(lane, damaged) for lane in lanes)
        self.lost_before: Counter[int] = Counter()
        for told in story.queues:
            lane = self.lane[told.number]
            self.lost_before[lane] += int((~told.there[0 if story.plan.records else told.first :]).sum())
        for file in places.files:  # a loss counts them as well
            self.lost_before[file.lane] += file.records
        for lane in lanes:  # and so it counts those that were in removed segments
            if f"{lane_name(lane)}/START" in self.hurt_files & damaged.keys():
                self.lost_before[lane] += self._messages_before(lane, final)

    def _let_rounds_go(self, files: list[FilePlaces], damaged: Snapshot) -> None:
        """Where the file of a part of a lane's newest round is hurt, that lane may look as if a crash had taken the
        part; then no lane has its own: a transaction is there as a whole or not at all. Another lane's file in its
        place does not look so.
        """
        names = {(file.lane, file.sequence): file.name for file in files}
        heads = [SegmentHeader.unpack(damaged.get(file.name, b"")[:BLOCK_BYTES]) for file in files]
        foreign = {
            file.name for file, head in zip(files, heads, strict=True) if head is not None and head.lane != file.lane
        }
        newest = {file.lane: file for file in files if file.numbers}  # they are in log order
        for file in newest.values():
            first = max([at for at, frame in enumerate(file.frames) if frame.joint], default=-1)
            others = [names.get(part[:2]) for part in file.frames[first].joint] if first >= 0 else []
            if any(name is None or (name in self.hurt_files and name not in foreign) for name in others):
                self._whole_frames[file.name] = min(first, self._whole_frames[file.name])
                for number, offset, frame in zip(file.numbers, file.offsets, file.frame_of, strict=True):
                    self.tail[number][offset] |= frame >= first

    def _messages_before(self, lane: int, final: Snapshot) -> int:
        """Messages in the segments that retention removed, the store's own among them."""
        names = [name for name in final if name.startswith(f"{lane_name(lane)}/") and name.endswith(".seg")]
        header = SegmentHeader.unpack(final[min(names)][:BLOCK_BYTES]) if names else None
        return header.messages_before if header is not None else 0

    def _tells_no_offsets(self, lane: int, damaged: Snapshot) -> bool:
        folder = f"{lane_name(lane)}/"
        names = [name for name in damaged if name.startswith(folder) and name.endswith(".seg")]
        if LaneStart.unpack(damaged.get(f"{folder}START", b"")[:BLOCK_BYTES]) is not None or not names:
            return False
        records = [SealRecord.unpack(damaged[name][BLOCK_BYTES:DATA_START]) for name in names]
        return int(min(names)[-16:-4]) > 1 and not any(record and record.state == SEALED for record in records)

    def _judge(self, files: list[FilePlaces], before: Snapshot, after: Snapshot) -> None:
        changes = {
            file.name: Changes(before[file.name], after.get(file.name))
            for file in files
            if before[file.name] != after.get(file.name)
        }
        breaks, evidence = _breaks_and_evidence(files, changes, after)
        cut = min((place for place in breaks if place >= evidence), default=(ENDLESS, 0))
        self.may_be_cut |= cut < (ENDLESS, 0)
        for file in files:
            self._whole_frames[file.name] = sum((file.sequence, frame.begin) < cut for frame in file.frames)
            self._judge_file(file, changes.get(file.name), cut)

    def _judge_file(self, file: FilePlaces, change: Changes | None, cut: Place) -> None:
        if not file.numbers:
            return
        numbers, offsets = np.array(file.numbers), np.array(file.offsets)
        frame_of = np.array(file.frame_of)
        begins = np.array([frame.begin for frame in file.frames])
        unhurt, own = np.ones(len(numbers), np.bool_), True
        if change is not None:
            heads = np.array([frame.payload_begin for frame in file.frames])
            bad = change.touch(begins, heads)[frame_of]
            unhurt = ~(bad | change.touch(np.array(file.begins), np.array(file.ends)))
            index_end = file.record.footer_position + file.record.footer_bytes if file.record is not None else 0
            own = not change.touches(0, BLOCK_BYTES) and not change.touches(BLOCK_BYTES, DATA_START)
            if index_end:
                assert file.record is not None
                own = own and not change.touches(file.record.footer_position, index_end)
        tail = (file.sequence > cut[0]) | ((file.sequence == cut[0]) & (begins[frame_of] >= cut[1]))
        for number in np.unique(numbers).tolist():
            mine = numbers == number
            assert self.lane[number] == file.lane
            self.unhurt[number][offsets[mine]] = unhurt[mine]
            self.readable[number][offsets[mine]] = unhurt[mine] & own
            self.tail[number][offsets[mine]] = tail[mine]


def _breaks_and_evidence(
    files: list[FilePlaces], changes: dict[str, Changes], after: Snapshot
) -> tuple[list[Place], Place]:
    """Where a lane's log is interrupted, and up to where something unhurt says that it was durable."""
    breaks: list[Place] = []
    evidence: Place = (0, 0)
    for file in files:
        change = changes.get(file.name)
        if change is None:
            frames = file.frames
            has_record = True
        else:
            if change.touches(0, BLOCK_BYTES):
                breaks.append((file.sequence, 0))
            whole = [not change.touches(frame.begin, frame.payload_begin) for frame in file.frames]
            frames = [frame for frame, is_whole in zip(file.frames, whole, strict=True) if is_whole]
            breaks += [(file.sequence, frame.begin) for frame in file.frames if change.touches(frame.begin, frame.end)]
            has_record = not change.touches(BLOCK_BYTES, DATA_START)
            if not has_record and file.record is not None and not change.touches(0, BLOCK_BYTES):
                # Block 0 proves that the segment is in use: a record with some flipped bits still says that it ended.
                trace = trace_of((after[file.name] or b"")[BLOCK_BYTES:DATA_START])
                has_record = len(trace) == BLOCK_BYTES and is_flipped(trace, file.sequence) and change.few(SEAL_AT, 6)
            if _is_seen_cut(file, change, after, alone=len(changes) == 1):
                evidence = max(evidence, (file.sequence, ENDLESS))
        if has_record and file.record is not None:
            evidence = max(evidence, (file.sequence, file.record.data_end))
        evidence = max([evidence, *(frame.mark for frame in frames)])
    return breaks, evidence


def _is_seen_cut(file: FilePlaces, change: Changes, after: Snapshot, *, alone: bool) -> bool:
    """Does a segment's file end before its first frame, so that it is not taken for an open segment, nor for a spare?

    Without its header a later file must show that it is not the end of the log, and no record of a `closed` segment
    before it may be put back.
    """
    if len(after.get(file.name, bytes(DATA_START))) >= DATA_START:
        return False
    folder = file.name.partition("/")[0]
    later = [name for name in after if name.startswith(folder) and name.endswith(".seg") and name > file.name]
    return not change.touches(0, HEADER_BYTES) or (alone and any(len(after[name]) >= DATA_START for name in later))


def zones_of(file: FilePlaces) -> dict[str, list[tuple[int, int]]]:
    """The parts of a file in use, by kind: ranges of bytes."""
    zones: dict[str, list[tuple[int, int]]] = {
        "header": [(0, HEADER_BYTES)],
        "record": [(BLOCK_BYTES, BLOCK_BYTES + HEADER_BYTES)],
        "frame head": [(frame.begin, min(frame.begin + 88, frame.payload_begin)) for frame in file.frames],
        "columns": [
            (frame.begin + 88, frame.payload_begin) for frame in file.frames if frame.payload_begin > frame.begin + 88
        ],
        "payload": [(frame.payload_begin, frame.end) for frame in file.frames if frame.end > frame.payload_begin],
    }
    record = file.record
    if record is not None and record.state == SEALED:
        begin = record.footer_position
        zones["footer head"] = [(begin, min(begin + 150, begin + record.footer_bytes))]
        zones["footer"] = [(begin, begin + record.footer_bytes)]
    return {kind: ranges for kind, ranges in zones.items() if ranges}
