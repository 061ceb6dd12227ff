"""Between the two passes: finds the first offset of each stream in each segment that has lost its footer.

A footer is made again only if nothing has to be guessed: the segment continues the one before by the chain of frames;
the end of that one is known, by its footer or because it was placed itself; and if the next one has its footer, it
continues this one. All other segments stay as they are: an opening makes their footers again in memory if it can, or a
repair deals with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..device.disk import Disk
from ..errors import StoreCorrupt
from ..format.arrays import Int64s
from ..format.footer import FooterData, Presence, names_in
from ..format.footer_data import begins_at
from ..format.records import StreamLow
from ..recovery.lane_streams import LaneStreams, footer_of
from ..recovery.name_list import Name
from ..recovery.repair import Repair
from ..recovery.used_file import UsedFile
from ..segment.evidence import is_unlinked
from ..segment.present import Present, streams_in
from .looking import LaneSegments, SegmentAt, SegmentLook


@dataclass(frozen=True, slots=True)
class FooterPart:
    """A footer to be made: the work of `make_footer`.

    Attributes:
        look: at its segment.
        names: the lane's streams by number.
        first, following: int64 (streams) each one's first offset here, and the next one after the segment.
        trimmed, applied: of the lane, up to the segment's end.
        presence: of the footer; None if a segment of its group is not known.
    """

    look: SegmentLook
    names: tuple[Name, ...]
    first: Int64s
    following: Int64s
    trimmed: dict[int, StreamLow]
    applied: bytes
    presence: Presence | None = None


@dataclass(frozen=True, slots=True)
class LeftFooter:
    """A lost footer that is not made again, and why."""

    at: SegmentAt
    why: str


def place_lane(
    disk: Disk, lane: LaneSegments, looks: Sequence[SegmentLook]
) -> tuple[list[FooterPart], list[LeftFooter]]:  # fmt: skip
    """(footers of one lane that can be made, footers that cannot); `looks` are at all sealed segments, in order."""
    placing = _Placing(disk, lane)
    for at, one in enumerate(looks):
        placing.take(one, looks[at + 1 :])
    return placing.parts, placing.left


class _Placing:
    """Goes from segment to segment. `_streams`: the known streams at the start of the next one, or None."""

    def __init__(self, disk: Disk, lane: LaneSegments) -> None:
        self._disk, self._lane = disk, lane
        self._before: SegmentLook | None = None
        self._streams: LaneStreams | None = None
        self._behind: list[SegmentLook] = []  # the newest whole full footer, and the small ones after it
        self.parts: list[FooterPart] = []
        self.left: list[LeftFooter] = []

    def take(self, one: SegmentLook, later: Sequence[SegmentLook]) -> None:
        """Place the next segment; `later` are the segments after it."""
        if not one.is_whole:
            why = one.problem or self._begin(one) or self._place(one, later)
            if why is not None:
                self.left.append(LeftFooter(one.at, why))
                self._streams = None
        elif one.record.full:
            self._behind = [one]
        else:
            self._behind.append(one)
        if not one.is_whole:
            self._behind = []
        self._before = one

    def _new_streams(self, lane: int) -> LaneStreams:
        return LaneStreams(lane, Repair(self._disk, Path(), lane, allowed=False))

    def _begin(self, one: SegmentLook) -> str | None:
        """Load the streams before the segment. Returns why that is not possible, or None."""
        before, sequence = self._before, one.at.sequence
        if before is None:
            self._streams = self._new_streams(one.at.lane) if sequence == self._lane.begins_at == 1 else None
            return None if self._streams is not None else "nothing tells what comes before it"
        if before.at.sequence + 1 != sequence or is_unlinked(one.header):
            return "the segment before it is missing"
        if before.record.chain != one.header.previous_chain:
            return "it does not continue the segment before it"
        if self._behind and self._behind[0].record.full:
            self._streams = self._new_streams(one.at.lane)
        if self._streams is not None:
            for known in self._behind:
                footer, is_newest = self._footer(known), known is self._behind[-1]
                if footer.stream is None:
                    self._streams.load(footer, is_newest=is_newest)
                else:
                    self._streams.follow(footer, Path(known.at.folder), is_newest=is_newest)
        return None if self._streams is not None else "nothing tells what comes before it"

    def _footer(self, one: SegmentLook) -> FooterData:
        folder = Path(one.at.folder)
        found = footer_of(self._disk, folder, UsedFile(one.at.sequence, folder, one.header, one.record))
        if found is None:
            raise StoreCorrupt("a footer was whole a moment ago", folder, one.record.footer_position)
        return found

    def _place(self, one: SegmentLook, later: Sequence[SegmentLook]) -> str | None:
        """Note the footer of a segment. Returns why that is not possible, or None."""
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
            footer = self._footer(following)
            if not begins_at(footer.numbers, footer.first, ends, is_full=footer.stream is None):
                return "the segment after it begins with other offsets"
        streams.next_offsets = ends.tolist()
        trimmed = streams.trimmed_at(ends)
        names = [*streams.names, *self._names_behind(len(streams.names), one.record.streams, later)]
        more = np.zeros(len(names) - len(ends), np.int64)
        first, ends = np.concatenate([first, more]), np.concatenate([ends, more])
        self.parts.append(
            FooterPart(one, tuple(names), first, ends, trimmed, streams.applied, self._presence(one, len(names)))
        )
        return None

    def _presence(self, one: SegmentLook, streams: int) -> Presence | None:
        """The segments of its group in which the streams have messages; a group begins with a full footer."""
        before = self._before
        if before is None:
            return None
        known = self._behind if before.is_whole else [before]  # a footer that is made again is full
        if not known or (before.is_whole and not known[0].record.full):
            return None
        present = Present.since(known[0].at.sequence)
        for small in known[1:]:
            present = present.behind(small.at.sequence, streams_in(self._footer(small)))
        return present.columns(streams, one.at.sequence)

    def _names_behind(self, known: int, count: int, later: Sequence[SegmentLook]) -> list[Name]:
        """The names from `known` to `count`: a footer also has streams that came while it was made."""
        found: list[Name] = []
        for one in later:
            if known + len(found) >= count:
                break
            if one.is_whole:
                footer = self._footer(one)
                for number, name in zip(footer.numbers.tolist(), names_in(footer), strict=True):
                    if number == known + len(found):
                        found.append(name)
            else:
                found += [(topic, queue) for number, topic, queue in one.names if number >= known + len(found)]
        return found[: max(0, count - known)]
