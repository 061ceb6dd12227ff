"""A lane as recovery gives it: see `lane_recovery`."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..log.adoption import LaneLog
from .name_list import NameList
from .repair import Loss


@dataclass
class RecoveredLane(LaneLog):
    """The result of a lane's recovery."""

    streams: NameList = field(default_factory=NameList)
    segments: list[tuple[int, int]] = field(default_factory=list)  # (sequence, capacity) of those in use
    spares: list[tuple[int, int]] = field(default_factory=list)  # (sequence, bytes)
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
