"""The commits that a lane's durable log has, for a committer beside the writer: from where the last one has looked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..device.disk import Disk
from ..errors import StoreCorrupt
from ..format.applied import Applied, AppliedRecord, add_applied, find_packed, pack_applied, unpack_applied
from ..format.footer import Footer
from ..format.frame import Frame, frame_of
from ..format.layout import (
    DATA_START,
    HAS_STREAMS,
    SEALED,
    WIDE_NUMBERS,
    FrameHead,
    SealRecord,
    align_up,
    checksum64,
    lane_name,
)
from ..format.live_page import LaneState
from ..format.note import NO_NOTE, LaneNote
from ..format.records import RECORDS_TOPIC
from ..format.store_files import StoreHeader
from ..segment.scanner import FrameScanner
from .files import FollowedSegment, TailReader, look
from .page import LivePage

Key = tuple[str, bool]
BYTES_OF_ENTRY = 64  # of a section, about
FRAME_US = 20  # to look at the head of a frame, about
ENTRY_US = 3  # to unpack an entry of a section and pack it again
FILE_US = 100  # to write a note, however small
BYTES_A_US = 1000  # of a note that is written


class NotSure(Exception):
    """What was read does not tell the commits for sure. A store that is opened for reading says what is wrong."""


class LaneCommits:
    """Reads the heads of the frames behind the newest footer, or behind the frame of a note that holds.

    Invariants:
        * what it finds is durable: it lies below the mark of the live page, or in a sealed segment;
        * a note counts only if its frame is there, with the checksum that the note has of it;
        * `note` names a frame that is durable as a whole.

    Attributes:
        held: the note where it began; NO_NOTE if that did not hold.
        note: how far it has looked; its section is that of the beginning.
        walked: how many frames it has looked at.
        commits: how many records of commits it has found on the way.
    """

    def __init__(self, disk: Disk, folder: Path, lane: int, store_id: bytes) -> None:
        self._disk = disk
        self._folder = folder
        self._lane = lane
        self._store_id = store_id
        self._fresh: dict[Key, Applied] = {}  # of the records behind the beginning, up to the note's frame
        self._newest: dict[Key, Applied] = {}  # of those in a frame behind that, which is not durable as a whole yet
        self._chain: int | None = None  # of the newest frame; None before the log's first one
        self.held = NO_NOTE
        self.note = NO_NOTE
        self.walked = 0
        self.commits = 0

    def look(self, state: LaneState, known: LaneNote) -> None:
        """Look up to the state's mark. Raises NotSure, StoreCorrupt, OSError."""
        (last, end), sequence = state.mark, known.sequence
        if not (state.sealed < sequence <= last and self._walk(sequence, end if sequence == last else None, known)):
            self._begin(state)
            sequence = state.sealed
        for following in range(sequence + 1, last + 1):
            self._walk(following, end if following == last else None)

    def _begin(self, state: LaneState) -> None:
        """At the end of the newest sealed segment, or of nothing."""
        if not state.sealed:
            return
        found = look(self._disk, self._folder, self._lane, self._store_id, state.sealed)
        if found.header is None or found.record is None or found.record.state != SEALED:
            raise NotSure
        file = FollowedSegment(self._disk, self._folder, found.header, grows=False).data
        self._start_behind(Footer(file, str(found.path), found.record), found.record)

    def _start_behind(self, footer: Footer, record: SealRecord) -> None:
        topics = footer.topics()
        if RECORDS_TOPIC in topics:
            numbers = np.flatnonzero(footer.stream_topic == topics.index(RECORDS_TOPIC))
            self.note = self.note._replace(records=int(footer.numbers[numbers[0]]))
        self.note = self.note._replace(applied=footer.applied)
        self._chain = record.chain

    def _walk(self, sequence: int, end: int | None, known: LaneNote | None = None) -> bool:
        """Walk over the frames of a growing segment up to a position, None for all; False if a note does not hold."""
        found = look(self._disk, self._folder, self._lane, self._store_id, sequence)
        header = found.header
        if header is None:
            raise NotSure
        segment = FollowedSegment(self._disk, self._folder, header, grows=True)
        reader = TailReader(segment, None)
        reader.size_bytes = reader.file.size() if end is None else align_up(end)
        walk = _Walk(reader, self._lane, sequence, DATA_START, header.chain)
        if known is not None:
            if not walk.go_behind(known, reader.size_bytes if end is None else end):
                return False
            self.held = self.note = known
        elif header.previous_chain != self._chain and (self._chain is not None or sequence != 1):
            raise NotSure
        while (head := walk.next_head(end)) is not None:
            self._take(head, walk, end)
        self._chain = walk.chain
        return True

    def _take(self, head: FrameHead, walk: _Walk, end: int | None) -> None:
        header = head.header
        is_whole = end is None or header.end <= end
        self.walked += 1
        if header.flags & HAS_STREAMS or self._has_record(head):
            frame = frame_of(head)
            if frame is None:
                raise NotSure
            found = self._commits_in(frame, walk, end)
            add_applied(self._fresh if is_whole else self._newest, found)
            self.commits += len(found)
        if is_whole:
            self.note = self.note._replace(sequence=header.sequence, position=header.position, chain=head.checksum)

    def _has_record(self, head: FrameHead) -> bool:
        """Whether a frame has messages of the stream of records. Its other columns are not looked at."""
        kind = "<u4" if head.header.flags & WIDE_NUMBERS else "<u2"
        return bool((np.frombuffer(head.columns, kind, head.header.count) == self.note.records).any())

    def _commits_in(self, frame: Frame, walk: _Walk, end: int | None) -> list[Applied]:
        """The commits of a frame's records that are durable."""
        for number, topic, _ in frame.definitions():
            if topic == RECORDS_TOPIC:
                self.note = self.note._replace(records=number)
        starts, found = frame.starts(), []
        for at in np.flatnonzero(frame.numbers == self.note.records).tolist():
            start, length = int(starts[at]), int(frame.lengths[at])
            if end is None or start + length <= end:
                commit = AppliedRecord.unpack(walk.bytes_at(start, length, int(frame.checksums[at])))
                if commit is not None:
                    found.append(commit.entry)
        return found

    def find(self, key: Key) -> Applied | None:
        """What the log remembers under a commit's name. Raises NotSure."""
        found = self._newest.get(key) or self._fresh.get(key)
        try:
            return found or find_packed(self.note.applied, key)
        except ValueError:
            raise NotSure from None

    @property
    def has_moved(self) -> bool:
        """Whether a note of it would name another frame than the one where it began."""
        return self.note[:2] != self.held[:2]

    @property
    def noting_us(self) -> float:
        """About how long `noted` takes: all entries are packed again, if there is one more."""
        return (len(self.note.applied) / BYTES_OF_ENTRY + len(self._fresh)) * ENTRY_US if self._fresh else 0

    def noted(self) -> LaneNote:
        """The note of all that it has looked at. Raises NotSure."""
        if not self._fresh:
            return self.note
        try:
            table = unpack_applied(self.note.applied)
        except ValueError:
            raise NotSure from None
        add_applied(table, self._fresh.values())
        return self.note._replace(applied=pack_applied(table))


def notes_to_leave(lanes: Sequence[LaneCommits]) -> list[LaneNote] | None:
    """The note of each lane for the next committer, or None if it is not worth writing. Raises NotSure.

    Each committer since the last note has looked at the frames behind it, at more and more of them. A lane is noted
    anew when that has taken as long as its new note takes: so notes never take much more time than looking does, nor
    looking than notes. A lane for which that is not so keeps the note that it has, which still holds. Writing the file
    is for all lanes, and is weighed against all that are noted anew.
    """
    looks = max([1, *(lane.commits for lane in lanes)])  # each one is followed by a commit, and by its record
    looking_us = [lane.walked * FRAME_US * (looks + 1) / 2 if lane.has_moved else 0.0 for lane in lanes]
    is_new = [lane.has_moved and us >= lane.noting_us for lane, us in zip(lanes, looking_us, strict=True)]
    saved_us, size = 0.0, 0
    for lane, us, new in zip(lanes, looking_us, is_new, strict=True):
        saved_us += us - lane.noting_us if new else 0
        size += len((lane.note if new else lane.held).applied)
    if not any(is_new) or saved_us < FILE_US + size / BYTES_A_US:
        return None
    return [lane.noted() if new else lane.held for lane, new in zip(lanes, is_new, strict=True)]


class _Walk(FrameScanner):
    """Walks along the chain of a segment that grows, up to a durable position."""

    reader: TailReader

    def go_behind(self, known: LaneNote, end: int) -> bool:
        """Begin behind the frame of a note; False if that is not there."""
        for _ in range(2):
            head = self.head_at(known.position)
            if head is not None and head.checksum == known.chain and head.header.end <= end:
                self.position, self.chain = head.header.end, head.checksum
                return True
            self.reader.forget()
        return False

    def next_head(self, end: int | None) -> FrameHead | None:
        """The head of the frame that follows below the position; None at the end. Raises NotSure."""
        if self.position >= (self.reader.size_bytes if end is None else end):
            return None
        head = self._following()
        if head is None and end is not None and align_up(self.position) < end:
            self.reader.forget()
            head = self._following()
            if head is None:
                raise NotSure
        if head is not None:
            self.position, self.chain = head.header.end, head.checksum
        return head

    def _following(self) -> FrameHead | None:
        for position in dict.fromkeys((self.position, align_up(self.position))):
            head = self.head_at(position)
            if head is not None and head.header.chain == self.chain:
                return head
        return None

    def bytes_at(self, position: int, size: int, checksum: int) -> bytes:
        """The bytes of a record. Raises NotSure."""
        for _ in range(2):
            data = bytes(self.reader.view(position, size))
            if checksum64(data) & 0xFFFFFFFF == checksum:
                return data
            self.reader.forget()
        raise NotSure


def look_beside_writer(
    disk: Disk, store: Path, header: StoreHeader, known: Sequence[LaneNote]
) -> list[LaneCommits] | None:
    """What the log of each lane says, as far as the writer has told; None if that cannot be told for sure.

    `known` is what is noted of each.
    """
    try:
        page = LivePage.of(disk, store, header)
        if page is None or not page.is_current:
            return None
        found = []
        for index, note in enumerate(known):
            state = page.state(index)
            if state is None:
                return None
            lane = LaneCommits(disk, store / lane_name(index), index, header.store_id)
            lane.look(state, note)
            found.append(lane)
        return found
    except (NotSure, StoreCorrupt, OSError):
        return None
