"""A plan: the parts of a bulk read. It can be pickled and carried out in other processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import StoreCorrupt
from ..format.arrays import Int64s, Integers, Uint32s
from ..read.wanted import Lows, ScanFilter, StreamTable

UNKNOWN_COUNT = -1


class LogPosition(NamedTuple):
    """A place between two messages of a lane's log.

    Attributes:
        segment: the number of a segment.
        entry: the number of messages of this segment before the place.
        messages: the number of messages of the lane's whole log before the place, with those of removed segments; -1 if
            it is not known after a repair.
    """

    segment: int
    entry: int
    messages: int = UNKNOWN_COUNT


@dataclass(frozen=True, slots=True)
class KnownFrames:
    """The plan's knowledge of frames that no footer lists, for example those of a segment that is not sealed.

    Attributes:
        positions, entries: (f,) the position of each frame, and the entry number of its first message.
        streams: the streams of the lane.
        numbers, offsets: the streams with messages here, ascending, and the first offset of each.
        data_end: the end of the frames, in bytes.
    """

    positions: Uint32s
    entries: Uint32s
    streams: StreamTable
    numbers: Int64s
    offsets: Int64s
    data_end: int


@dataclass(frozen=True, slots=True)
class ScanDamage:
    """Damage and its position: the parts of a StoreCorrupt."""

    what: str
    file: str
    position: int

    @classmethod
    def of(cls, error: StoreCorrupt) -> ScanDamage:
        """The damage of an error."""
        return cls(error.what, error.file, error.position)

    def error(self) -> StoreCorrupt:
        """The error for the damage."""
        return StoreCorrupt(self.what, self.file, self.position)


@dataclass(frozen=True, slots=True)
class FrameRange:
    """Some frames of one segment.

    Attributes:
        folder: of the lane.
        lane, sequence, store_id: the expected content of the segment file's header.
        entries: (first, end) of the wanted entry numbers. They say which frames are read, with `known` all of those: a
            repair gives frames other numbers, and entries never.
        size_bytes: bytes of the log with wanted messages, about.
        trimmed: the streams that are trimmed into the segment, or None.
        known: frames that no footer lists; None for a sealed segment.
        damaged: the reason if the range cannot be read.
        rebuilt: the damage of the segment's footer, if `known` was made from its frames.
    """

    folder: str
    lane: int
    sequence: int
    store_id: bytes
    entries: tuple[int, int]
    size_bytes: int
    trimmed: Lows | None = None
    known: KnownFrames | None = None
    damaged: ScanDamage | None = None
    rebuilt: ScanDamage | None = None


def frames_of(begins: Integers, entries: tuple[int, int]) -> tuple[int, int]:
    """(first, end) of the frames that have some entries; `begins`: the first entry of each frame."""
    first = max(0, int(begins.searchsorted(entries[0], side="right")) - 1)
    return first, max(first, int(begins.searchsorted(entries[1])))


@dataclass(frozen=True, slots=True)
class ScanPart:
    """A part of a plan: the work of one task. `read_part` gives its messages.

    Attributes:
        store: the folder of the store.
        wanted: the filter.
        ranges: the frames, in log order.
    """

    store: str
    wanted: ScanFilter
    ranges: tuple[FrameRange, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes of the log that are read, about, payloads included."""
        return sum(one.size_bytes for one in self.ranges)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """A bulk read of a store up to one fixed end.

    Attributes:
        store: the folder.
        parts: in log order, lane by lane.
        end: by lane, the end of the read: as given, or the durable end of the log when the plan was made.
    """

    store: str
    parts: list[ScanPart] = field(default_factory=list)
    end: dict[int, LogPosition] = field(default_factory=dict)

    def __iter__(self) -> Iterator[ScanPart]:
        return iter(self.parts)
