"""The segment files of a lane's folder: their names, and what their first blocks say of them.

Recovery, verify, inspect and readers in other processes begin with these.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from ..device.disk import Disk
from ..device.log_file import LogFile
from ..format.layout import BLOCK_BYTES, DATA_START, SEALED, SealRecord, SegmentHeader, segment_name
from .evidence import trace_of

_SEGMENT_FILE = re.compile(r"[0-9]{12}\.seg")


class SegmentFile(NamedTuple):
    """A segment file by its first blocks, which are in `head`.

    Attributes:
        header: None when block 0 is not this segment's own header: the file is a spare, or damaged.
        record: None when block 1 is no seal record of this segment: it is open, or the record is damaged.
        trace: block 1 if it has a damaged seal record, see `evidence`; empty where it is zeros, or a whole record.
        is_blank: block 0 is zeros, or the header of a removed segment, as pre-written files have it.
        is_foreign: the file is another segment's.
        is_spare: it is not in use. Only the other files tell that.
    """

    sequence: int
    path: Path
    size_bytes: int
    head: bytes
    header: SegmentHeader | None
    record: SealRecord | None
    trace: bytes
    is_blank: bool
    is_foreign: bool
    is_spare: bool = False

    @property
    def is_cut(self) -> bool:
        """Does the file end before its first frame? Then somebody has cut it: see `evidence`."""
        return self.size_bytes < DATA_START

    @property
    def is_ended(self) -> bool:
        """Is there a seal record, whole, damaged or cut off? Then all of the segment's frames were forced."""
        return self.record is not None or bool(self.trace) or self.is_cut

    @property
    def is_sealed(self) -> bool:
        """Is there a whole record that says so? Only then there is a footer."""
        return self.record is not None and self.record.state == SEALED

    @property
    def state(self) -> str:
        """open, closed, sealed, spare; or damaged, when the header can't be read."""
        if self.header is None:
            return "spare" if self.is_spare else "damaged"
        if self.record is None:
            return "open"
        return "sealed" if self.is_sealed else "closed"

    @property
    def why_unknown(self) -> str:
        """The text for a file in use that has no header of its own."""
        return "the file is another segment's" if self.is_foreign else "the segment's header is damaged"

    @property
    def log_bytes(self) -> int:
        """The end of the frames: that of the log, if it is known, and never past the file's."""
        return min(self.size_bytes, self.record.data_end) if self.record is not None else self.size_bytes

    @property
    def used_bytes(self) -> int:
        """The bytes of the file that mean something, footer included."""
        footer_end = self.record.footer_position + self.record.footer_bytes if self.record is not None else 0
        return max(self.log_bytes, footer_end)


def segment_numbers(disk: Disk, folder: Path) -> list[int]:
    """The numbers of a lane's segment files, ascending. Files with other names are left out."""
    return [int(name[:12]) for name in disk.list(folder) if _SEGMENT_FILE.fullmatch(name)]


def read_segment_file(
    disk: Disk, folder: Path, sequence: int, lane: int, store_id: bytes | None, lowest: int,
    head_bytes: int = DATA_START,
) -> SegmentFile:  # fmt: skip
    """A segment's file by its first blocks. `store_id` None is any; `lowest`: the number of the log's first segment.

    Raises OSError.
    """
    path = folder / segment_name(sequence)
    file = disk.open(path)
    try:
        return first_blocks(file, path, sequence, lane, store_id, lowest, head_bytes)
    finally:
        file.close()


def first_blocks(
    file: LogFile, path: Path, sequence: int, lane: int, store_id: bytes | None, lowest: int,
    head_bytes: int = DATA_START,
) -> SegmentFile:  # fmt: skip
    """What `read_segment_file` gives, of an open file."""
    head = file.read(0, head_bytes)
    header = SegmentHeader.unpack(head[:BLOCK_BYTES])
    foreign = header is not None and header.stands_wrongly(lane, store_id, sequence, lowest)
    own = header is not None and not foreign and header.sequence == sequence
    blank = not (own or foreign) and (header is not None or not any(head[:BLOCK_BYTES]))
    block = head[BLOCK_BYTES:DATA_START]
    record = SealRecord.unpack(block)
    trace = trace_of(block) if record is None else b""
    if record is not None and record.sequence != sequence:
        record = None  # of the file's earlier life
    return SegmentFile(sequence, path, file.size(), head, header if own else None, record, trace, blank, foreign)
