"""A segment that grows, as another process follows it: its frames become an open table."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..device.ring import Ring
from ..errors import StoreCorrupt
from ..format.frame import Frame
from ..format.layout import DATA_START, WIDE_NUMBERS, align_up, checksum64
from ..format.records import RECORD_BYTES, Low, Record, Trimmed, add_low
from ..log.streams import Stream
from ..log.write import OpenSegment, Shown
from ..segment.evidence import Mark, mark_of
from ..segment.open_table import OpenTable
from ..segment.scanner import FrameScanner
from .files import FollowedSegment, TailReader

BROKEN = "a frame is damaged or missing"


class Tail:
    """The frames of one segment up to a durable position, along their chain.

    Invariants:
        * no frame is looked at that does not begin below the position: its head is durable, as a message behind it is;
        * `table.visible` counts the messages that end at or below the position;
        * payloads are not read here, but those of records. Each reader compares the checksum of what it reads.
    """

    def __init__(
        self, segment: FollowedSegment, ring: Ring, firsts: npt.NDArray[np.int64], learn: Callable[[Frame], None],
        records: Stream, take_lows: Callable[[Trimmed], None],
    ) -> None:  # fmt: skip
        """A tail of which nothing is taken yet.

        Args:
            ring: what is in memory of the lane's newest bytes.
            firsts (streams,): the offset with which each stream goes on here.
            learn: is called with each frame.
            records: the lane's stream of records.
            take_lows: is called with what durable records say.
        """
        self._records = records
        self._take_lows = take_lows
        self._with_records: list[Frame] = []  # frames whose records are not all durable yet
        self.segment = segment
        self._learn = learn
        self.table = OpenTable(firsts)
        self.firsts = firsts
        self._reader = TailReader(segment, ring)
        header = segment.header
        self._scanner = FrameScanner(self._reader, header.lane, header.sequence, DATA_START, header.chain)
        self._last: tuple[int, npt.NDArray[np.int64]] = (0, np.empty(0, np.int64))  # of the newest frame

    @property
    def opened(self) -> OpenSegment:
        """The segment as readers want it."""
        return OpenSegment(self.segment, self.table)

    @property
    def sequence(self) -> int:
        """The number of the segment."""
        return self.segment.sequence

    @property
    def chain(self) -> int:
        """The checksum of the newest frame."""
        return self._scanner.chain

    def next_offsets(self, streams: int) -> npt.NDArray[np.int64]:
        """(streams,) where each stream goes on behind all that was taken here."""
        following = np.zeros(streams, np.int64)
        following[: len(self.firsts)] = self.firsts
        following += np.bincount(self.table.numbers(), minlength=streams)
        return following

    def advance(self, position: int | None) -> list[Shown]:
        """Take the frames up to a durable position, None for all that the segment has.

        Returns what can be seen now and could not before. Raises StoreCorrupt.
        """
        self._reader.size_bytes = self._reader.file.size() if position is None else align_up(position)
        end = self._reader.size_bytes if position is None else position
        while self._scanner.position < end:
            frame = self._next(end) if position is not None else self._frame()
            if frame is None:
                break
            self._take(frame)
        return self._show(end)

    def retry(self) -> bool:
        """Read what follows once more, from the device; False if there is nothing on the chain."""
        self._reader.forget()
        return self._frame() is not None

    def _frame(self) -> Frame | None:
        """The frame that follows on the chain."""
        scanner = self._scanner
        for position in (scanner.position, align_up(scanner.position)):
            frame = scanner.frame_at(position)
            if frame is not None and frame.header.chain == scanner.chain:
                return frame
        return None

    def _next(self, end: int) -> Frame | None:
        """The same below a durable position: what is missing there is damage, unless it can only be padding."""
        frame = self._frame()
        if frame is None and align_up(self._scanner.position) < end:
            self._reader.forget()
            frame = self._frame()
            if frame is None:
                raise StoreCorrupt(BROKEN, self.segment.path, self._scanner.position)
        return frame

    def _take(self, frame: Frame) -> None:
        header, table = frame.header, self.table
        if header.first_entry != table.entries:
            raise StoreCorrupt("a frame's entry number is wrong", self.segment.path, header.position)
        self._learn(frame)
        starts = frame.starts()
        rows = array("I", np.array((starts, frame.lengths, frame.checksums), np.uint32).T.tobytes())
        numbers = frame.head.columns[: (4 if header.flags & WIDE_NUMBERS else 2) * header.count]
        table.dues = table.dues.joined(frame.dues)
        table.add_frame(header.position, header.time_ms, header.flags, numbers, rows)
        self._scanner.position, self._scanner.chain = header.end, frame.head.checksum
        self._last = header.first_entry, starts + frame.lengths
        if self._records.number >= 0 and (frame.numbers == self._records.number).any():
            self._with_records.append(frame)

    def _show(self, end: int) -> list[Shown]:
        first, ends = self._last
        before = self.table.visible
        visible = first + int(ends.searchsorted(end, side="right"))
        if visible <= before:
            return []
        self.table.visible = visible
        if self._with_records:
            self._note_records(visible)
        return [(self.table, before, visible)]

    def _note_records(self, visible: int) -> None:
        """Take what the records among the first `visible` messages say. A damaged one says nothing."""
        trimmed: dict[int, Low] = {}
        for frame in self._with_records:
            good = np.arange(frame.header.count) < visible - frame.header.first_entry
            starts = frame.starts()
            for at in np.flatnonzero(good & (frame.numbers == self._records.number)).tolist():
                if frame.lengths[at] == RECORD_BYTES:  # those of commits are longer, and say nothing to readers
                    data = self._reader.view(int(starts[at]), RECORD_BYTES)
                    record = Record.unpack(data)
                    if record is not None and checksum64(data) & 0xFFFFFFFF == frame.checksums[at]:
                        add_low(trimmed, record.number, record.effect)
        self._with_records = [frame for frame in self._with_records if _end_entry(frame) > visible]
        self._take_lows(trimmed)

    def proved(self) -> tuple[Mark, int]:
        """The highest mark in the frames behind those that were taken, and the chain behind the last of them.

        They are looked at and not taken. Only for a log that nobody writes to.
        """
        self._reader.size_bytes = self._reader.file.size()
        scanner, mark = self._scanner, (0, 0)
        stood = scanner.position, scanner.chain
        try:
            while (frame := self._frame()) is not None:
                mark = max(mark, mark_of(frame.header))
                scanner.position, scanner.chain = frame.header.end, frame.head.checksum
            return mark, scanner.chain
        finally:
            scanner.position, scanner.chain = stood


def _end_entry(frame: Frame) -> int:
    return frame.header.first_entry + frame.header.count
