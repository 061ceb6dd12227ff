"""A lane as recovery gives it: see `lane_recovery`."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..format.records import Trimmed
from ..log.write import OpenSegment
from ..segment.present import Present
from ..segment.sealed import SealedSegment
from .name_list import NameList
from .repair import Loss


@dataclass
class RecoveredLane:
    """The result of a lane's recovery."""

    sealed: list[SealedSegment] = field(default_factory=list)
    resumable: tuple[OpenSegment, int, int] | None = None  # with its data end and chain
    streams: NameList = field(default_factory=NameList)
    next_offsets: list[int] = field(default_factory=list)  # by number
    trimmed: Trimmed = field(default_factory=dict)  # of those that were trimmed
    settled: Trimmed = field(default_factory=dict)  # what the newest full footer says of them
    applied: bytes = b""  # the commits that the log has, as a footer has them
    segments: list[tuple[int, int]] = field(default_factory=list)  # (sequence, capacity) of those in use
    spares: list[tuple[int, int]] = field(default_factory=list)  # (sequence, bytes)
    last_chain: int = 0
    messages: int = 0  # of the log, lost ones included, or UNKNOWN
    present: Present | None = None  # after the newest full footer, if that is known
    scanned_bytes: int = 0
    scan_ms: float = 0.0
    losses: list[Loss] = field(default_factory=list)
    was_closed: bool = False  # cleanly: nothing of it is lost

    def close(self) -> None:
        """Let go of the files, if nothing takes it over."""
        for sealed in self.sealed:
            sealed.close()
        if self.resumable is not None:
            self.resumable[0].segment.close()
