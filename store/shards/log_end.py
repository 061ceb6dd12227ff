"""The end of a lane's log while whole segments are added to it."""

from __future__ import annotations

from dataclasses import dataclass

from ..format.layout import UNKNOWN, SealRecord, SegmentHeader, align_up


@dataclass
class LogEnd:
    """The part of the next segment's header and footer that depends on the segments before.

    Attributes:
        sequence: the number of the next segment.
        chain: the checksum that its first frame continues.
        messages_before: in the log before it, or UNKNOWN.
        mark: (sequence, position) up to which the log is durable.
    """

    lane: int
    store_id: bytes
    sequence: int
    chain: int
    messages_before: int
    mark: tuple[int, int]

    def header(self, data_end: int, now_ms: int, streams_before: int) -> SegmentHeader:
        """The header of the next segment, whose frames end at `data_end`."""
        return SegmentHeader(
            self.lane, self.store_id, self.sequence, align_up(data_end), now_ms, self.chain, self.messages_before,
            streams_before,
        )  # fmt: skip

    def passed(self, seal: SealRecord) -> None:
        """The next segment was made, with this seal record."""
        self.sequence += 1
        self.chain = seal.chain
        self.mark = seal.sequence, seal.data_end
        if self.messages_before != UNKNOWN:
            self.messages_before += seal.entries
