"""A plan: the parts of a bulk read. All of it can be pickled and carried out in other processes."""

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
        entry: how many messages of this segment lie before the place.
        messages: how many messages of the lane's whole log do, those of removed segments included; -1 if a repair left
            nothing to count by.
    """

    segment: int
    entry: int
    messages: int = UNKNOWN_COUNT


@dataclass(frozen=True, slots=True)
class KnownFrames:
    """What the plan knows of frames that no footer tells of: those of a segment that is not sealed, for example.

    Attributes:
        positions, entries: (f,) where each frame begins, and the entry number of its first message.
        streams: the streams of the lane.
        numbers, offsets: the streams with messages here, ascending, and the first offset of each.
        data_end: where the frames end, in bytes.
    """

    positions: Uint32s
    entries: Uint32s
    streams: StreamTable
    numbers: Int64s
    offsets: Int64s
    data_end: int


@dataclass(frozen=True, slots=True)
class ScanDamage:
    """What is damaged, and where: the parts of a StoreCorrupt."""

    what: str
    file: str
    position: int

    @classmethod
    def of(cls, error: StoreCorrupt) -> ScanDamage:
        """Of an error."""
        return cls(error.what, error.file, error.position)

    def error(self) -> StoreCorrupt:
        """As an error."""
        return StoreCorrupt(self.what, self.file, self.position)


@dataclass(frozen=True, slots=True)
class FrameRange:
    """Some frames of one segment.

    Attributes:
        folder: of the lane.
        lane, sequence, store_id: what the segment's file has to say of itself.
        entries: (first, end) of the entry numbers that are wanted. They say which frames are read, with `known` all
            of those: a repair gives frames other numbers, and entries never.
        size_bytes: about how many bytes of the log have something wanted.
        trimmed: the streams that are trimmed into the segment, or None.
        known: what no footer tells; None for a sealed segment.
        damaged: there is nothing to read, for this reason.
        rebuilt: what is wrong with the segment's footer, if `known` was made of its frames instead.
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
    """A part of a plan: what one task reads. `read_part` gives its messages.

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
        """About how many bytes of the log are read, payloads included."""
        return sum(one.size_bytes for one in self.ranges)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """A bulk read of a store up to one fixed end.

    Attributes:
        store: the folder.
        parts: what is to be read, in log order lane by lane.
        end: by lane, the end of what is read: where the log was durable when the plan was made, or what was given.
    """

    store: str
    parts: list[ScanPart] = field(default_factory=list)
    end: dict[int, LogPosition] = field(default_factory=dict)

    def __iter__(self) -> Iterator[ScanPart]:
        return iter(self.parts)
