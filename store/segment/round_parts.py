"""A log that ends with a part of a round of transactions: does the part count, or does the log end before it?

A part counts if each other lane of its round has its part, or ever went on after it. `format.joint` has the places of
all parts. When a round began, all before them was forced in each lane, and their lanes went on only when all parts were
forced. So for a part at the end of its lane's log, a place in another lane says one of these:

* PROVED: that log goes on after the place, by a later frame or segment, by a seal record, or because it begins later.
  Then all parts were forced.
* HIDDEN: damage of that lane keeps it from being known. It proves nothing, and nothing else is cut for it.
* THERE: the part is there, whole, and ends that log as well.
* LACKING: there is nothing, or a torn frame, or a recovery has cut the part already. Then nobody was answered, or what
  was there is damaged.

A part of several frames is whole if all of them are: `end_of_part` walks over them. What is said here of a part is said
of all of its frames: it is THERE from the first to the last one, LACKING if one of them is, and a REST frame after a
place proves nothing.

With one PROVED place all parts count, and one that is not whole is damage. Else, with one LACKING place, the part is
cut in all lanes; by each lane's own recovery, in any order: a lane that was cut and sealed is LACKING for the others.
Where all count, those that are THERE have to be forced before any lane is sealed: else a power cut could take one of
them after that, see `LaneRecovery`.

What is not noticed: the loss of a whole part with its head at the end of its log, as by zeros. Nothing in that lane
says that the log was longer, as with any last frame. The other parts stay if another lane has gone on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from enum import Enum
from pathlib import Path

from ..device.disk import Disk
from ..device.lane_start import read_start
from ..format.frame import Frame
from ..format.joint import JointPlace, joint_of
from ..format.layout import BLOCK_BYTES, JOINT, MORE, REST, SealRecord, lane_name, segment_name
from .checksums import whole_messages
from .evidence import first_number, is_flipped
from .files import SegmentFile, read_segment_file, segment_numbers
from .scanner import FrameScanner, PieceReader, frames_in

PIECE_BYTES = 4096
Keep = Callable[[Path, int, int], object]


class Found(Enum):
    """What a place in another lane says."""

    PROVED = "the log goes on after it"
    HIDDEN = "damage hides it"
    THERE = "the log ends with it"
    LACKING = "it is not there"


def told_end(record: SealRecord | None, trace: bytes, sequence: int) -> int | None:
    """Where a segment's frames end by its seal record; None if that was never written whole.

    `trace`: the record if it is damaged. One that a power cut has torn may be that of a recovery, and says nothing.
    """
    if record is None and trace and is_flipped(trace, sequence):
        record = SealRecord.guess(trace)
    return None if record is None else record.data_end


def end_of_part(frame: Frame, scanner: FrameScanner) -> FrameScanner | None:
    """A scanner that stands after the last frame of a part; None if a frame of the part is missing or torn.

    `frame` is its first one, which is whole; `scanner` stands after that, and does not move.
    """
    if not frame.header.flags & MORE:
        return scanner
    walk, flags = copy(scanner), frame.header.flags
    while flags & MORE:
        found = walk.next()
        if found is None or not found.is_whole or not found.frame.header.flags & REST:
            return None
        flags = found.frame.header.flags
    return walk


def _nothing(path: Path, begin: int, end: int) -> None:
    """Of a look that makes nothing durable."""


class RoundParts:
    """The other lanes of a store, as the recovery of one lane asks for them. It changes nothing by itself."""

    def __init__(
        self, disk: Disk, store: Path, lane: int, store_id: bytes | None, *,
        damaged: Collection[int] = (), keep: Keep = _nothing,
    ) -> None:  # fmt: skip
        """`damaged`: lanes in which a repair has found losses. `keep` gets the ranges of parts that count and may not
        be durable.
        """
        self._disk = disk
        self._store = store
        self._lane = lane
        self._store_id = store_id
        self._damaged = damaged
        self._keep = keep

    def is_lacking(self, frame: Frame, scanner: FrameScanner) -> bool:
        """Does a log end before this frame, the first one of its last part? `scanner` stands after the whole part."""
        if not frame.header.flags & JOINT or scanner.following() is not None:
            return False
        found = self._found(frame)
        states = {state for state, _, _ in found}
        if Found.LACKING in states and Found.PROVED not in states:
            return True
        for state, place, end in found:
            if state is Found.THERE:
                self._keep(self._path(place), place.position, end)
        return False

    def is_proved(self, frame: Frame) -> bool:
        """Is this a part, whole or not, and does another lane prove that all parts of its round were forced?"""
        return bool(frame.header.flags & JOINT) and any(state is Found.PROVED for state, _, _ in self._found(frame))

    def _found(self, frame: Frame) -> list[tuple[Found, JointPlace, int]]:
        """What the other lanes say, with the end of each part that is there."""
        places = joint_of(frame.head)
        found = []
        for place in places:
            if place.lane != self._lane:
                try:
                    found.append(self._look_at(place, places))
                except OSError:  # a block that cannot be read; that lane's own recovery reports it
                    found.append((Found.HIDDEN, place, 0))
        return found

    def _path(self, place: JointPlace) -> Path:
        return self._store / lane_name(place.lane) / segment_name(place.sequence)

    def _look_at(self, place: JointPlace, places: tuple[JointPlace, ...]) -> tuple[Found, JointPlace, int]:
        if place.lane in self._damaged or not (self._store / lane_name(place.lane)).is_dir():
            return Found.HIDDEN, place, 0
        folder = self._store / lane_name(place.lane)
        numbers = segment_numbers(self._disk, folder)
        start = read_start(self._disk, folder, place.lane, self._store_id)
        first = first_number(start, numbers)
        if first > place.sequence:
            return Found.HIDDEN if start.start is None else Found.PROVED, place, 0
        if place.sequence + 1 in numbers:
            following = self._file(place.lane, place.sequence + 1, first)
            if following.header is not None or following.is_ended or following.is_foreign:
                return Found.HIDDEN if following.header is None else Found.PROVED, place, 0
        if place.sequence not in numbers:
            # A lane before this one was recovered before: it removes a spare that it cannot use. Else it is damage.
            return Found.LACKING if place.lane < self._lane else Found.HIDDEN, place, 0
        return self._told_by(self._file(place.lane, place.sequence, first), place, places)

    def _told_by(
        self, file: SegmentFile, place: JointPlace, places: tuple[JointPlace, ...]
    ) -> tuple[Found, JointPlace, int]:
        """What the file of a place says of it."""
        if file.is_foreign or file.is_cut:  # in its place there is another lane's file, or none: that says nothing
            return Found.HIDDEN, place, 0
        end = told_end(file.record, file.trace, place.sequence)
        if end is not None:
            beyond = Found.PROVED if file.record is not None else Found.HIDDEN
            return Found.LACKING if end <= place.position else beyond, place, 0
        return self._look_into(file, place, places)

    def _file(self, lane: int, sequence: int, first: int) -> SegmentFile:
        return read_segment_file(self._disk, self._store / lane_name(lane), sequence, lane, self._store_id, first)

    def _look_into(
        self, file: SegmentFile, place: JointPlace, places: tuple[JointPlace, ...]
    ) -> tuple[Found, JointPlace, int]:
        """What an unsealed segment says of a place in it."""
        data = self._disk.open_to_read(file.path)
        try:
            reader = PieceReader(data, file.size_bytes, PIECE_BYTES)
            blocks = BLOCK_BYTES if file.header is None else file.header.block_bytes
            scanner = FrameScanner(reader, place.lane, place.sequence, place.position, 0, blocks)
            frame = scanner.frame_at(place.position)
            if frame is not None and file.header is not None and joint_of(frame.head) == places:
                payload = reader.view(frame.payload_start, frame.header.payload_bytes)
                if whole_messages(frame, payload) == frame.header.count:
                    scanner.step(frame.head)
                    end = end_of_part(frame, scanner)
                    if end is not None:
                        state = Found.THERE if end.following() is None else Found.PROVED
                        return state, place, end.position
            # Where a recovery has sealed a log before the part, its footer follows, and no frame, damaged or not.
            if file.trace and scanner.is_like_ours(place.position):
                return Found.HIDDEN, place, 0
        finally:
            data.close()
        frames = frames_in(self._disk, file.path, place.lane, place.sequence, place.position + 1)
        later = (frame for frame in frames if not frame.header.flags & REST)
        return Found.LACKING if next(later, None) is None else Found.PROVED, place, 0
