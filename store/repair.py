"""What to do about damage: raise `StoreCorrupt`, or, in a repair, set it aside and go on without it.

Nothing that a repair gives up is gone: a copy of it is in the quarantine folder, and a `Loss` tells of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from .disk import Disk
from .errors import StoreCorrupt
from .footer import FooterData
from .format import DATA_START, LOST_ENTRY, SEALED, SealRecord
from .scanner import ChunkReader, FrameScanner, good_messages
from .sealed import SealedSegment
from .segment import Segment

COPY_BYTES = 8 << 20


class Loss(NamedTuple):
    """A range that a repair set aside."""

    file: str
    position: int
    size_bytes: int
    messages: int
    quarantined_to: str


class Repair:
    """Whether a lane may be repaired, and what the repair set aside."""

    def __init__(self, disk: Disk, quarantine: Path, lane: int, *, allowed: bool) -> None:
        self.allowed = allowed
        self.losses: list[Loss] = []
        self._disk = disk
        self._quarantine = quarantine
        self._lane = lane

    def on_damage(self, what: str, path: Path, position: int) -> None:
        """Damage was found. Raises StoreCorrupt unless a repair is allowed."""
        if not self.allowed:
            raise StoreCorrupt(what, path, position)

    def set_aside(self, path: Path, position: int, size: int, messages: int) -> None:
        """Copy a damaged range to the quarantine folder and note it; `messages` are lost with it."""
        self._disk.make_folder(self._quarantine)
        source = self._disk.open(path)
        name = f"lane-{self._lane:02d}-{path.stem}-{position}.bin"
        target = self._disk.open(self._quarantine / name, create=True)
        for at in range(position, position + size, COPY_BYTES):
            target.write([source.read(at, min(COPY_BYTES, position + size - at))], at - position)
        target.force()
        target.close()
        source.close()
        self._disk.force_folder(self._quarantine)
        self.losses.append(Loss(str(path), position, size, messages, str(self._quarantine / name)))


def is_healthy(sealed: SealedSegment) -> bool:
    """Does a sealed segment hold what its footer says, every byte of it?"""
    segment, record = sealed.segment, sealed.record
    reader = ChunkReader(segment.data, record.data_end)
    try:
        footer = sealed.footer
        footer.check_entries()
        scanner = FrameScanner(reader, segment.sequence, DATA_START, 0)
        good = np.zeros(record.entries, np.bool_)
        for position in footer.frame_position.tolist():
            frame = scanner.frame_at(position)
            if frame is None:
                return False
            payload = reader.view(frame.payload_start, frame.header.payload_bytes)
            begin = frame.header.first_entry
            kept = good_messages(frame, payload)[: record.entries - begin]
            good[begin : begin + len(kept)] = kept
        entries = footer.entries[footer.entries != LOST_ENTRY]
        return bool(good[entries].all())
    except StoreCorrupt:
        return False
    finally:
        reader.close()


def whole_footer(segment: Segment, record: SealRecord | None) -> FooterData | None:
    """The footer of a segment, if it has one and all of it is whole, whatever became of the frames."""
    if record is None or record.state != SEALED:
        return None
    try:
        footer = SealedSegment(segment, record).footer
        footer.check_entries()
        return footer.data()
    except StoreCorrupt:
        return None
