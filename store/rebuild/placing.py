"""Between the two passes: with which offset each stream begins in each segment that has lost its footer.

A footer is made again only where nothing has to be guessed: the segment goes on from the one before by the chain of
frames, and what that one ends with is known, by its footer or because it was placed itself; and where the next one has
its footer, it goes on from here. All others stay as they are, for an opening, which makes them again in memory if that
can be done, or for a repair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..device.disk import Disk
from ..errors import StoreCorrupt
from ..format.footer import FooterData
from ..format.records import Low
from ..recovery.lane_files import UsedFile
from ..recovery.lane_streams import LaneStreams, Name, footer_of, names_in
from ..recovery.repair import Repair
from ..segment.evidence import is_unlinked
from .looking import LaneSegments, SegmentAt, SegmentLook

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FooterPart:
    """A footer that is to be made: what `make_footer` works on.

    Attributes:
        look: at its segment.
        names: the lane's streams by number.
        first, following: int64 (streams) the offsets with which they begin here, and go on behind.
        trimmed, applied: of the lane, up to the segment's end.
    """

    look: SegmentLook
    names: tuple[Name, ...]
    first: Int64s
    following: Int64s
    trimmed: dict[int, Low]
    applied: bytes


@dataclass(frozen=True, slots=True)
class LeftFooter:
    """A lost footer that is not made again, and why."""

    at: SegmentAt
    why: str


def place_lane(
    disk: Disk, lane: LaneSegments, looks: Sequence[SegmentLook]
) -> tuple[list[FooterPart], list[LeftFooter]]:  # fmt: skip
    """The footers of one lane that can be made, and those that cannot; `looks` are at all sealed segments, in order."""
    placing = _Placing(disk, lane)
    for at, one in enumerate(looks):
        placing.take(one, looks[at + 1 :])
    return placing.parts, placing.left


class _Placing:
    """Goes from segment to segment. `_streams`: what is known where the next one begins, or None."""

    def __init__(self, disk: Disk, lane: LaneSegments) -> None:
        self._disk, self._lane = disk, lane
        self._before: SegmentLook | None = None
        self._streams: LaneStreams | None = None
        self.parts: list[FooterPart] = []
        self.left: list[LeftFooter] = []

    def take(self, one: SegmentLook, later: Sequence[SegmentLook]) -> None:
        """The next segment, and those behind it."""
        if not one.is_whole:
            why = one.problem or self._begin(one) or self._place(one, later)
            if why is not None:
                self.left.append(LeftFooter(one.at, why))
                self._streams = None
        self._before = one

    def _new_streams(self, lane: int) -> LaneStreams:
        return LaneStreams(lane, Repair(self._disk, Path(), lane, allowed=False))

    def _begin(self, one: SegmentLook) -> str | None:
        """Know what is before the segment; else why not."""
        before, sequence = self._before, one.at.sequence
        if before is None:
            self._streams = self._new_streams(one.at.lane) if sequence == self._lane.begins_at == 1 else None
            return None if self._streams is not None else "nothing tells what comes before it"
        if before.at.sequence + 1 != sequence or is_unlinked(one.header):
            return "the segment before it is missing"
        if before.record.chain != one.header.previous_chain:
            return "it does not continue the segment before it"
        if before.is_whole:
            footer = self._footer(before)
            self._streams = self._new_streams(one.at.lane)
            self._streams.load(footer)
        return None if self._streams is not None else "nothing tells what comes before it"

    def _footer(self, one: SegmentLook) -> FooterData:
        folder = Path(one.at.folder)
        found = footer_of(self._disk, folder, UsedFile(one.at.sequence, folder, one.header, one.record))
        if found is None:
            raise StoreCorrupt("a footer was whole a moment ago", folder, one.record.footer_position)
        return found

    def _place(self, one: SegmentLook, later: Sequence[SegmentLook]) -> str | None:
        """Note the part of a segment; else why not."""
        streams = self._streams
        assert streams is not None, "what is before it is known"
        for number, topic, queue_id in one.names:
            if number > len(streams.names):
                return "the name of a stream is missing"
            streams.define(number, (topic, queue_id))
        if len(one.numbers) and int(one.numbers[-1]) >= len(streams.names):
            return "the name of a stream is missing"
        if not all(streams.note_record(data) for number, data in one.records if number == streams.records):
            return "a record makes no sense"
        first = np.array(streams.next_offsets, np.int64)
        ends = first.copy()
        ends[one.numbers] += one.counts
        following = later[0] if later else None
        if following is not None and following.is_whole and following.header.previous_chain == one.record.chain:
            begins = self._footer(following).first
            if len(begins) < len(ends) or (begins[: len(ends)] != ends).any() or begins[len(ends) :].any():
                return "the segment behind it begins with other offsets"
        streams.next_offsets = ends.tolist()
        trimmed = streams.trimmed_at(ends)
        names = [*streams.names, *self._names_behind(len(streams.names), one.record.streams, later)]
        more = np.zeros(len(names) - len(ends), np.int64)
        first, ends = np.concatenate([first, more]), np.concatenate([ends, more])
        self.parts.append(FooterPart(one, tuple(names), first, ends, trimmed, streams.applied))
        return None

    def _names_behind(self, known: int, count: int, later: Sequence[SegmentLook]) -> list[Name]:
        """The names from `known` to `count`: a footer has also the streams that came while it was made."""
        found: list[Name] = []
        for one in later:
            if known + len(found) >= count:
                break
            if one.is_whole:
                found = names_in(self._footer(one))[known:]
            else:
                found += [(topic, queue) for number, topic, queue in one.names if number >= known + len(found)]
        return found[: max(0, count - known)]
