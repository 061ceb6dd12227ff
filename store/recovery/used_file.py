"""A segment of a lane that is in use, by its first two blocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..format.layout import CLOSED, SealRecord, SegmentHeader
from ..segment.files import SegmentFile


class UsedFile(NamedTuple):
    """A segment in use, by its first two blocks. `record` is None while it is open.

    `trace`: the record's block if it is damaged, see `evidence`; else empty.
    `is_cut`: the file ends before its first frame.
    """

    sequence: int
    path: Path
    header: SegmentHeader
    record: SealRecord | None
    trace: bytes = b""
    is_cut: bool = False

    @classmethod
    def of(cls, file: SegmentFile, header: SegmentHeader) -> UsedFile:
        """The used file of a segment file that has this header."""
        return cls(file.sequence, file.path, header, file.record, file.trace, file.is_cut)

    @property
    def is_ended(self) -> bool:
        """Is there a seal record, whole, damaged or cut off? Then all of the segment's frames were forced."""
        return self.record is not None or bool(self.trace) or self.is_cut


def is_closed(used: Sequence[UsedFile]) -> bool:
    """Does the log end in a segment that was cleanly closed?

    Then nothing was begun after it: a writer that appends to the segment again takes the record back first.
    """
    record = used[-1].record if used else None
    return record is not None and record.state == CLOSED
