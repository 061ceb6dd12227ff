"""The durable messages that the message cache has not seen yet: columns over the ring of recent frames (R14).

The columns are those of the lane's own tables, taken a few hundred messages at a time; the payloads are copied from
the ring, so that nothing of this is on the way of an append.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import NamedTuple, TypeVar

import numpy as np

from ...cache import Batch, first_of_each, grown
from ..format.arrays import Int64s
from ..log.lane import Lane
from ..log.write import OpenSegment
from ..log.written_lane import WrittenLane
from ..segment.open_table import CHECKSUM, LENGTH, POSITION, OpenTable

LOW_32 = 0xFFFFFFFF
STREAM_FACTOR = 0x45D9F3B  # odd, and less than 2**31: a product of 32 bits and one of these fits int64

Number = TypeVar("Number", int, Int64s)


def key_of(lane: Lane, lanes: int, number: Number) -> Number:
    """The number in the caches of a lane's stream, or of many: unique over all `lanes`."""
    return number * lanes + lane.index


def tag_of_stream(key: Number) -> Number:
    """The part of a message's tag that is its stream's, `key` as `key_of` gives it: 32 bits, well mixed."""
    mixed = (key + 1) * STREAM_FACTOR & LOW_32
    return (mixed ^ mixed >> 15) * STREAM_FACTOR & LOW_32


def tags_of(keys: Int64s, offsets: Int64s, checksums: Int64s) -> Int64s:
    """(n,) what a cache gives back with each message, of its checksum, its stream and its offset.

    The bytes of one message do not fit the place of another: in the same queue never (within 2**32 messages), in
    another one by a chance of one in 2**32.
    """
    return (checksums ^ tag_of_stream(keys) ^ offsets) & LOW_32


class Fed(NamedTuple):
    """Messages for the cache.

    Attributes:
        batch: their columns; the payload is the ring's memory.
        positions: (n,) where each begins in its segment.
        low: the lane position of the first byte: intact while the ring's `low` is not above it.
    """

    batch: Batch
    positions: Int64s
    low: int


class Followed(NamedTuple):
    """What the feed keeps of a segment. Not its file: retention may remove a segment before the feed gets to it.

    Attributes:
        base: the lane position of the segment's position 0.
    """

    base: int
    table: OpenTable


def _followed(opened: OpenSegment) -> Followed:
    base = opened.segment.base
    assert base is not None  # the writer's own segments have theirs before they take frames
    return Followed(base, opened.table)


class LaneFeed:
    """Follows one lane from where it stands now. Not safe for threads.

    A stream's number for the cache is unique over all lanes: see `key_of`.

    Invariants:
        * messages come in log order, each once, and only when they are durable;
        * `_next[number]` is the offset of the stream's next message that was not handed out.

    Attributes:
        wake_above: for a thread that sleeps until the lane is durable beyond this lane position.
    """

    def __init__(self, lane: WrittenLane, lanes: int) -> None:
        self.lane = lane
        self.wake_above = 0
        self._lanes = lanes
        self._segments = deque(map(_followed, lane.view.open))
        self._frame = 0  # of the first segment here: the next one
        self._taken = 0  # entries of that segment that were handed out
        if self._segments:  # resumed: what it has already is on the device, and no longer in memory
            _, table = self._segments[0]
            self._frame, self._taken = len(table.frame_entry), table.entries
        self._next = lane.offsets.column()
        lane.on_segment = self._follow

    def take(self, most: int) -> list[Fed]:
        """The next whole frames, of `most` messages or one frame; empty if there are none.

        Several parts where a message lies across the ring's end: that one is a part of its own, copied together.
        """
        found = self._next_frames(most)
        if found is None:
            return []
        (base, table), low, high, begin, end = found
        rows = table.columns(begin, end)
        positions = rows[:, POSITION].astype(np.int64)
        lengths = rows[:, LENGTH].astype(np.int64)
        numbers = table.numbers(low, high).astype(np.int64)
        places = positions + base
        ring = self.lane.ring
        origin, size, _ = ring.shape
        keys, offsets = key_of(self.lane, self._lanes, numbers), self._offsets(numbers)
        batch = Batch(
            keys, offsets, lengths, (places - origin) % size,
            tags_of(keys, offsets, rows[:, CHECKSUM].astype(np.int64)), ring.memory,
        )  # fmt: skip
        return list(self._parts(batch, positions, places, size))

    def stop(self) -> None:
        """Follow the lane no longer, and let go of its tables."""
        self.lane.on_segment = None
        self._segments.clear()

    def waiting_bytes(self) -> int:
        """Bytes of the log between what was taken and what is durable; 0 if no message is there."""
        durable = self.lane.durable
        return max(0, durable - self.taken_until(durable))

    def taken_until(self, durable: int | None = None) -> int:
        """The lane position of the next message that can be taken; what is durable, if there is none."""
        frame = self._frame
        for base, table in list(self._segments):
            begins = table.frame_entry
            if frame < len(begins) and begins[frame] < table.visible:
                return base + table.frame_position[frame]
            frame = 0
        return self.lane.durable if durable is None else durable

    def _follow(self, opened: OpenSegment) -> None:
        self._segments.append(_followed(opened))

    def _next_frames(self, most: int) -> tuple[Followed, int, int, int, int] | None:
        """(segment, frames low .. high - 1, entries begin .. end - 1)."""
        while self._segments:
            opened = self._segments[0]
            _, table = opened
            # Asked before the look at its frames, which then are all that it will ever have.
            is_full = len(self._segments) > 1 and table.visible == table.entries
            begins, low, (whole, end) = table.frame_entry, self._frame, table.whole_frames()
            if low < whole:
                begin = begins[low]
                high = max(low + 1, bisect_right(begins, begin + most, low, whole) - 1)
                if high < whole:
                    end = begins[high]
                self._hand_out(begin, end)
                self._frame = high
                if end > begin:
                    return opened, low, high, begin, end
            elif is_full:
                self._hand_out(table.entries, 0)
                self._segments.popleft()
                self._frame = 0
            else:
                return None
        return None

    def _hand_out(self, begin: int, end: int) -> None:
        """The entries begin .. end - 1 of a segment come next. All rests on this: a gap would shift every offset."""
        if begin != self._taken:
            raise RuntimeError(f"the feed of a lane skipped entries {self._taken} to {begin}")
        self._taken = end

    def _offsets(self, numbers: Int64s) -> Int64s:
        """(n,) each message's offset: the streams' own count, since a queue's offsets have no gaps."""
        self._next = grown(self._next, int(numbers.max()), 0)
        order = numbers.argsort(kind="stable")
        sorted_numbers = numbers[order]
        first = first_of_each(sorted_numbers)
        begins = np.flatnonzero(first)
        ranks = np.arange(len(numbers)) - begins[first.cumsum() - 1]
        offsets = np.empty(len(numbers), np.int64)
        offsets[order] = self._next[sorted_numbers] + ranks
        self._next[sorted_numbers[begins]] += np.diff(begins, append=len(numbers))
        return offsets

    def _parts(self, batch: Batch, positions: Int64s, places: Int64s, ring_bytes: int) -> list[Fed]:
        ring = self.lane.ring
        across = np.flatnonzero(batch.starts + batch.lengths > ring_bytes).tolist()
        parts: list[Fed] = []
        begin = 0
        for index in [*across, len(batch)]:
            if begin < index:
                cut = slice(begin, index)
                parts.append(Fed(batch.part(cut), positions[cut], int(places[begin])))
            if index < len(batch):
                one = batch.part(slice(index, index + 1))
                whole = memoryview(ring.copy(int(places[index]), int(batch.lengths[index])))
                alone = Batch(one.streams, one.offsets, one.lengths, np.zeros(1, np.int64), one.tags, whole)
                parts.append(Fed(alone, positions[index : index + 1], int(places[index])))
            begin = index + 1
        return parts
