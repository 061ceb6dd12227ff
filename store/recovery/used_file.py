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
    """

    sequence: int
    path: Path
    header: SegmentHeader
    record: SealRecord | None
    trace: bytes = b""

    @classmethod
    def of(cls, file: SegmentFile, header: SegmentHeader) -> UsedFile:
        """The used file of a segment file that has this header."""
        return cls(file.sequence, file.path, header, file.record, file.trace)

    @property
    def is_ended(self) -> bool:
        """Is there a seal record, whole or damaged? Then all of the segment's frames were forced."""
        return self.record is not None or bool(self.trace)


def is_closed(used: Sequence[UsedFile]) -> bool:
    """Does the log end in a segment that was cleanly closed?

    Then nothing was begun after it: a writer that appends to the segment again takes the record back first.
    """
    record = used[-1].record if used else None
    return record is not None and record.state == CLOSED
