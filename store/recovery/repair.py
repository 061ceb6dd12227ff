"""The treatment of damage: raise `StoreCorrupt`, or, in a repair, set it aside and go on without it.

A repair copies each damaged range to the quarantine folder and reports it as a `Loss`.
"""

from __future__ import annotations

import errno
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..device.disk import Disk
from ..device.log_file import LogFile
from ..errors import StoreCorrupt
from ..format.footer import Footer, FooterData
from ..format.layout import (
    BLOCK_BYTES,
    DATA_START,
    LEAST_MESSAGE_BYTES,
    LOST_ENTRY,
    RETIRED_PREFIX,
    SEALED,
    UNDECODABLE,
    SealRecord,
    align_up,
    kept_messages,
)
from ..segment.checksums import good_messages
from ..segment.scanner import ChunkReader, FrameScanner
from ..segment.sealed import SealedSegment
from ..segment.segment import Segment

COPY_BYTES = 8 << 20


class Loss(NamedTuple):
    """One place that a repair found damaged or missing, and left out.

    Attributes:
        file: the path of the file, or of the lane's folder if that is missing; of a bulk commit that was given up, its
            manifest's.
        position: where in the file the damage begins, in bytes.
        size_bytes: the bytes that were set aside; 0 if there were none (the file, or the rest of it, is missing).
        messages: the number of lost messages. 0: everything could be made again. None: nothing proves the number.
            If only the sum of several losses is proved, the first of them has the sum.
        quarantined_to: the path of the copy of the bytes, or of the manifest; None if there were none.
        offsets_may_repeat: True if an acknowledged offset may be given to another message.
            False is proved by a whole footer after the damage, which says how far each queue had got; or by the number
            of lost messages, of which each queue then skips so many offsets. True means that neither is there: no
            whole footer is left and retention has removed segments, lost frames may have named queues, `messages` is
            None, or 65,536 messages in a row are lost and no footer tells their queues.
    """

    file: str
    position: int
    size_bytes: int
    messages: int | None
    quarantined_to: str | None
    offsets_may_repeat: bool = False


class Repair:
    """Whether a lane may be repaired, and what the repair set aside."""

    def __init__(self, disk: Disk, quarantine: Path, lane: int, *, allowed: bool) -> None:
        self.allowed = allowed
        self.losses: list[Loss] = []
        self._damages: dict[Path, int] = {}  # where each file that has damage has the first of it
        self._disk = disk
        self._quarantine = quarantine
        self._lane = lane

    def on_damage(self, what: str, path: Path, position: int) -> None:
        """Damage was found. Raises StoreCorrupt unless a repair is allowed."""
        if not self.allowed:
            raise StoreCorrupt(what, path, position)
        self._damages.setdefault(path, position)

    def on_break(self, what: str, path: Path, position: int) -> None:
        """The log does not continue here: damage of its own, unless losses before it explain it."""
        if not self.losses:
            self.on_damage(what, path, position)

    @property
    def is_needed(self) -> bool:
        """Was damage found, whether or not anything is lost by it?"""
        return bool(self._damages or self.losses)

    def tell_all(self) -> None:
        """Report also damage by which nothing is lost."""
        told = {loss.file for loss in self.losses}
        untold = [(path, position) for path, position in self._damages.items() if str(path) not in told]
        self.losses += [Loss(str(path), position, 0, 0, None) for path, position in untold]

    def set_aside(self, path: Path, position: int, size: int, messages: int | None) -> None:
        """Copy what there is of a damaged range to the quarantine folder and note it; `messages` are lost with it."""
        source = self._disk.open(path)
        try:
            size = max(0, min(size, source.size() - position))
            stem = f"lane-{self._lane:02d}-{path.stem}-{position}"
            copy = str(self._copy(source, stem, position, size)) if size else None
        finally:
            source.close()
        self.losses.append(Loss(str(path), position, size, messages, copy))

    def _copy(self, source: LogFile, stem: str, position: int, size: int) -> Path:
        """The copy of a range, under a name that no earlier repair has used."""
        self._disk.make_folder(self._quarantine)
        taken = self._disk.list(self._quarantine)
        names = (f"{stem}.bin" if number == 1 else f"{stem}-{number}.bin" for number in count(1))
        path = self._quarantine / next(name for name in names if name not in taken)
        target = self._disk.open(path, create=True)
        try:
            for at in range(position, position + size, COPY_BYTES):
                target.write([source.read(at, min(COPY_BYTES, position + size - at))], at - position)
            target.force()
        finally:
            target.close()
        self._disk.force_folder(self._quarantine)
        return path

    def note_missing(self, path: Path, messages: int | None) -> None:
        """Note the loss of messages of which no byte is left."""
        self.losses.append(Loss(str(path), 0, 0, messages, None))

    def sum_up(self, since: int, messages: int, path: Path | None = None) -> None:
        """Note that the losses from `since` on have `messages` messages together.

        What was not noted is missing from `path`. Of those that had no count, the first one has the sum. If the counts
        make more than the sum, some messages were counted twice or were never durable: it is not known which.
        """
        losses = self.losses[since:]
        rest = messages - sum(loss.messages or 0 for loss in losses)
        for index, loss in enumerate(losses, since):
            if rest < 0 and loss.messages:
                self.losses[index] = loss._replace(messages=None)
            elif rest >= 0 and loss.messages is None:
                self.losses[index] = loss._replace(messages=rest)
                rest = 0
        if rest > 0 and path is not None:
            self.note_missing(path, rest)

    def may_repeat(self, since: int) -> None:
        """Note that it is unknown how far the queues had got after the losses from `since` on.

        The losses of messages say so. If there are none, all do: what was known of the queues is lost.
        """
        since = min(since, len(self.losses) - 1)
        is_any = not any(loss.messages != 0 for loss in self.losses[since:])
        for index, loss in enumerate(self.losses[since:], since):
            if is_any or loss.messages != 0:
                self.losses[index] = loss._replace(offsets_may_repeat=True)

    def make_readable(self, path: Path) -> None:
        """Put a copy in the place of a file that the device refuses to read in places, with zeros there.

        Recovery then finds them damaged, if they had anything; and readers find the rest.
        """
        source = self._disk.open(path)
        try:
            size = source.size()
            places = [(at, min(COPY_BYTES, size - at)) for at in range(0, size, COPY_BYTES)]
            if all(_is_readable(source, *place) for place in places):
                return
            fresh = path.with_name(RETIRED_PREFIX + path.stem)
            target = self._disk.open(fresh, create=True)
            try:
                for place in places:
                    target.write([_readable(source, *place)], place[0])
                target.force()
            finally:
                target.close()
        finally:
            source.close()
        self._disk.rename(fresh, path)
        self._disk.force_folder(path.parent)


def _is_readable(file: LogFile, position: int, size: int) -> bool:
    try:
        file.read(position, size)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return False
    return True


def _readable(file: LogFile, position: int, size: int) -> bytes:
    """A range of a file, with zeros for the blocks that the device refuses to read."""
    if _is_readable(file, position, size):
        return file.read(position, size)
    if size <= BLOCK_BYTES:
        return bytes(size)
    half = align_up(size // 2)
    if half == size:  # of two blocks, the second one not whole
        half -= BLOCK_BYTES
    return _readable(file, position, half) + _readable(file, position + half, size - half)


def is_healthy(sealed: SealedSegment) -> bool:
    """Does a sealed segment hold what its footer says, every byte of it?"""
    segment, record = sealed.segment, sealed.record
    reader = ChunkReader(segment.data, record.data_end)
    try:
        footer = sealed.footer
        footer.check_entries()
        topics = len(footer.topics())
        if len(footer.stream_topic) and int(footer.stream_topic.max()) >= topics:
            return False
        scanner = FrameScanner(reader, segment.header.lane, segment.sequence, DATA_START, 0)
        good = np.zeros(record.entries, np.bool_)
        for position in footer.frame_position.tolist():
            frame = scanner.frame_at(position)
            if frame is None:
                return False
            payload = reader.view(frame.payload_start, frame.header.payload_bytes)
            begin = frame.header.first_entry
            kept = good_messages(frame, payload)[: kept_messages(record, frame.header)]
            good[begin : begin + len(kept)] = kept
        entries = footer.entries[footer.entries != LOST_ENTRY]
        return bool(good[entries].all())
    except (StoreCorrupt, *UNDECODABLE):
        return False
    finally:
        reader.close()
        segment.let_go()  # a log has many


def whole_footer(segment: Segment, record: SealRecord | None) -> FooterData | None:
    """The footer of a segment, if it has one and all of it is whole, even if its frames are damaged."""
    footer = readable_footer(segment, record)
    if footer is None:
        return None
    try:
        footer.check_entries()
        return footer.data()
    except (StoreCorrupt, *UNDECODABLE):
        return None


def readable_footer(segment: Segment, record: SealRecord | None) -> Footer | None:
    """The footer of a segment, if it has one and its header and tables are whole; its entries may be damaged."""
    if record is None or record.state != SEALED:
        return None
    try:
        footer = SealedSegment(segment, record).footer
        return footer if footer.sequence == segment.sequence else None
    except (StoreCorrupt, *UNDECODABLE):
        return None


def footer_behind(segment: Segment, position: int) -> FooterData | None:
    """The segment's footer, if it stands right after `position` as one does: from there to the file's end.

    So the log was once decided to end there, also if no seal record says so.
    """
    begin = align_up(position)
    size = segment.data.size() - begin
    most = (position - DATA_START) // LEAST_MESSAGE_BYTES  # entries: only the footer knows how many
    record = SealRecord(SEALED, segment.sequence, position, 0, most, begin, size)
    return whole_footer(segment, record) if size > 0 else None
