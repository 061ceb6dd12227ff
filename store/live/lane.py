"""One lane of another process's log: its segments, sealed and growing, as the readers of this process see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from ..device.disk import Disk
from ..device.shared_memory import SharedMemory
from ..errors import StoreCorrupt
from ..format.arrays import Int64s
from ..format.footer import names_in
from ..format.frame import Definition, Frame
from ..format.joint import JointPlace, joint_of
from ..format.layout import BLOCK_BYTES, GONE_TOPIC, UNKNOWN, FrameHeader, SegmentHeader, segment_name
from ..format.live_page import NO_STATE, LaneState
from ..format.mirror import WORDS_BYTES, MirrorHeader
from ..format.records import RECORDS_TOPIC, Trimmed
from ..log.lane import Lane
from ..log.sealed_log import include
from ..log.streams import Stream, StreamMap
from ..log.write import View, VisibleEntries
from ..segment.borders import offsets_after
from ..segment.evidence import SEGMENT_IS_MISSING, Mark
from ..segment.files import SegmentFile, segment_numbers
from ..segment.groups import briefly
from ..segment.round_parts import RoundParts
from ..segment.sealed import SealedSegment
from .files import FollowedSegment, SegmentIsGone, log_start, read_shared
from .followed_ring import FollowedRing
from .tail import Tail

NOTHING: Mark = (0, 0)


class FollowedLane:
    """Brings the view of a `Lane` up to what is durable. One thread at a time; readers look at the view meanwhile.

    Invariants:
        * what is shown is durable: it lies below a mark of the live page, below a mark in a frame, or in a segment
          that was closed or sealed;
        * the view only grows at its end and shrinks at its beginning, but where a growing segment is replaced by the
          same one, sealed;
        * a stream's number and name come from a durable frame or footer, in the order of the numbers;
        * a number means one stream as long as the `Lane` is the same. Where the log begins after all that is known, it
          may be a compacted one, which has other numbers: then another `Lane` takes its place, and other streams.

    Attributes:
        lane: the one that is brought up; `lanes` has it once readers may look at it.
    """

    def __init__(
        self, disk: Disk, make: Callable[[], Lane], ring: FollowedRing, store_id: bytes, lanes: list[Lane],
        streams: StreamMap,
    ) -> None:  # fmt: skip
        """`make` makes an empty lane. It is added to the `lanes` of the store, and its streams to `streams`."""
        self.ring = ring
        self._make, self._lanes = make, lanes
        self._disk, self._store_id = disk, store_id
        self._streams = self._shown = streams  # readers look at `_shown`
        self.lane = self._made()
        self._folder: Path = self.lane.folder
        lanes.append(self.lane)
        self._tails: list[Tail] = []
        self._first = 1  # of the log
        self._sealed = 0  # the newest sealed segment that is in the view, or before the log
        self._mark = NOTHING
        self._rounds = RoundParts(disk, self._folder.parent, self.lane.index, store_id)
        self.is_beyond: Callable[[JointPlace], bool] = lambda place: False  # does the page say so? See `Follower`
        self._is_under_way = False  # a look that an interrupt ended may have left half of a frame
        self.bell = 0  # of the page, in the state that was followed last
        self.learn_start()

    def _made(self) -> Lane:
        """A lane of which nothing is known."""
        return self._make()

    def learn_start(self) -> bool:
        """Learn from the folder where the log begins now; True if it has moved."""
        return self._begin_at(log_start(self._disk, self._folder, self.lane.index, self._store_id))

    def _begin_at(self, first: int) -> bool:
        """Note that the log begins with this segment, or a later one; True if that is new."""
        moved = first > self._first
        if moved:
            newest = self._tails[-1].sequence if self._tails else self._sealed
            if first > newest + 1 and self.lane.streams:
                self._begin_other_lane()
            self._first = first
        self._drop_removed()
        return moved

    def _begin_other_lane(self) -> None:
        """Begin anew: nothing is left of what is known. Readers keep their lane until the next one has segments."""
        for one in self.lane.view.sealed:  # each once: the log has none of them any more
            one.segment.removed = True
        lane, streams = self._made(), StreamMap()
        self._streams, self._tails, self.lane = streams, [], lane  # no call in between, so no interrupt

    def _show_lane(self) -> None:
        """Let readers look at this lane and at its streams from now on. It may be called again."""
        lane, fresh = self.lane, self._streams
        if fresh is self._shown or not lane.view.sealed:
            return
        self._shown.replace(lane.index, fresh)
        before, self._lanes[lane.index] = self._lanes[lane.index], lane
        self._streams = self._shown
        if before is not lane:
            before.view = View()  # last: a read that finds nothing there sees that the lane is another one

    def let_go(self) -> None:
        """Close the files of the growing segments. It is not followed any more."""
        self._tails.clear()

    def follow(self, read_state: Callable[[], LaneState | None], *, is_current: bool) -> list[VisibleEntries]:
        """Take what is new. `read_state` gives what the page says; `is_current`: nothing else needs to be asked.

        Returns what can be seen now and could not before, of the growing segments. Raises StoreCorrupt, OSError.
        """
        is_torn, self._is_under_way = self._is_under_way, True
        shown: list[VisibleEntries] = []
        try:
            while True:
                # Read anew when the log's beginning has moved: an older state may know no segment that is still there.
                state = read_state() or NO_STATE
                self.bell = state.bell
                try:
                    if is_torn:
                        shown += self._begin_anew()
                        is_torn = False
                    shown += self._follow(state, is_current=is_current)
                    break
                except SegmentIsGone as error:
                    if not self.learn_start():
                        raise StoreCorrupt(SEGMENT_IS_MISSING, str(error.filename), 0) from error
        except (StoreCorrupt, OSError):
            self._is_under_way = is_torn
            raise
        self._is_under_way = False
        return shown

    def _begin_anew(self) -> list[VisibleEntries]:
        """After an interrupt: read the newest growing segment once more, and show it. Raises StoreCorrupt, OSError."""
        sealed = self.lane.view.sealed
        if sealed:
            self._sealed = max(self._sealed, sealed[-1].segment.sequence)
        tails = [tail for tail in self._tails if tail.sequence > self._sealed]
        shown: list[VisibleEntries] = []
        if tails:
            newest = tails[-1].again()
            sequence, position = self._mark
            shown = newest.advance(position if newest.sequence == sequence else None)
            tails[-1] = newest
        self._show_tails(tails)
        return shown

    def _show_tails(self, tails: list[Tail], fresh: Sequence[SealedSegment] = ()) -> None:
        """End the view with these, after `fresh` sealed ones. The view is first: an interrupt leaves what is shown."""
        self.lane.view = self.lane.view.sealing(fresh, tuple(tail.opened for tail in tails))
        self._tails = tails

    def _follow(self, state: LaneState, *, is_current: bool) -> list[VisibleEntries]:
        self._begin_at(state.first)
        if is_current:
            self._seal(state.sealed, all_are=True)
        else:
            self._seal(max(state.sealed, self._newest_sealed()), all_are=False)
        self._show_lane()
        self._mark = max(self._mark, state.mark)
        if not is_current:
            self._mark = max(self._mark, self._proved())
        return self._grow()

    # -- sealed segments, and those that retention took ------------------------------------------------

    def _drop_removed(self) -> None:
        lane, sealed, count = self.lane, self.lane.view.sealed, 0
        while count < len(sealed) and sealed[count].segment.sequence < self._first:  # the oldest come first
            sealed[count].segment.removed = True
            count += 1
        if count:
            lane.view = lane.view.without_oldest(count)
        if self._sealed < self._first - 1:
            self._sealed = self._first - 1
            self._tails = [tail for tail in self._tails if tail.sequence > self._sealed]
            lane.view = lane.view._replace(open=tuple(tail.opened for tail in self._tails))

    def _newest_sealed(self) -> int:
        """The highest number with a seal record of its own."""
        newest = self._sealed
        for sequence in segment_numbers(self._disk, self._folder):
            if sequence > newest:
                file = self._read(sequence)
                newest = sequence if file.header is not None and file.is_sealed else newest
        return newest

    def _read(self, sequence: int) -> SegmentFile:
        return read_shared(self._disk, self._folder, self.lane.index, self._store_id, sequence)

    def _seal(self, newest: int, *, all_are: bool) -> None:
        """Take the segments up to this number as sealed ones, in place of the growing ones that they were.

        `all_are`: it is certain that they have their records. After a power cut one may be missing, if its force had
        failed and the writer could still read it: then its frames say what is durable.
        """
        fresh: list[SealedSegment] = []
        sequence = self._sealed + 1
        while sequence <= newest:
            file = self._read(sequence)
            header, record = file.header, file.record
            if header is None and all_are:
                raise StoreCorrupt("a segment's header is damaged", file.path, 0)
            if header is None or record is None or not file.is_sealed:
                if all_are:
                    raise StoreCorrupt("the segment's seal record is damaged", file.path, BLOCK_BYTES)
                break
            segment = FollowedSegment(self._disk, self._folder, header, grows=False)
            segment.base = self.ring.base_of(sequence)
            if segment.base is not None:
                self.ring.show(segment.base + record.data_end)
            fresh.append(SealedSegment(segment, record))
            sequence += 1
        if not fresh:
            return
        newest = sequence - 1
        for one in fresh:
            include(self.lane, one)
        if fresh[-1].record.streams > len(self.lane.streams):
            self._learn_names(fresh)
        full = [one for one in fresh if one.record.full][-1:]  # the small ones after it say what came since
        for one in dict.fromkeys([*full, fresh[-1]]):
            with suppress(StoreCorrupt), briefly(one):  # reads around it go on, and the next full one has the same
                self._take_lows(one.footer.trimmed)
        self._show_tails([tail for tail in self._tails if tail.sequence > newest], fresh)
        self._sealed = newest
        self._mark = max(self._mark, (newest, fresh[-1].record.data_end))

    def _learn_names(self, fresh: Sequence[SealedSegment]) -> None:
        """Learn the names in the newest full footer among these, and in the footers after it. Raises StoreCorrupt."""
        full = max((index for index, one in enumerate(fresh) if one.record.full), default=0)
        for one in fresh[full:]:
            known = len(self.lane.streams)
            if one.record.streams <= known:
                continue
            with briefly(one):
                footer = one.footer
                begin = int(footer.numbers.searchsorted(known))
                named = list(zip(footer.numbers[begin:].tolist(), names_in(footer)[begin:], strict=True))
            for number, name in named:
                if number != len(self.lane.streams):
                    raise StoreCorrupt("the table of the lane's streams is missing", one.segment.path, 0)
                self._add_stream(*name)

    def _add_stream(self, topic: str, queue_id: int) -> None:
        number = len(self.lane.streams)
        if topic == RECORDS_TOPIC:
            stream = self.lane.lows.records
            stream.number = number
        elif topic == GONE_TOPIC:
            stream = self.lane.nobody
        else:
            stream = Stream(topic, queue_id, self.lane, number)
            self._streams.add(stream)
        self.lane.streams.append(stream)

    def _take_lows(self, trimmed: Trimmed) -> None:
        """Let readers begin at these lows from now on."""
        streams, lows, nobody = self.lane.streams, self.lane.lows, self.lane.nobody
        there = [(streams[number], low) for number, low in trimmed.items() if number < len(streams)]
        changes = [(stream, low) for stream, low in there if stream is not nobody]
        if any(low.low > stream.low or low.hidden > stream.hidden for stream, low in changes):
            lows.show(changes)

    # -- growing segments -----------------------------------------------------------------------------

    def _grow(self) -> list[VisibleEntries]:
        """Take the frames up to the mark."""
        shown: list[VisibleEntries] = []
        sequence, position = self._mark
        while sequence > self._sealed:
            tail = self._tails[-1] if self._tails else None
            if tail is not None:
                is_last = tail.sequence == sequence
                self._rely_on_ring(tail, position if is_last else None)
                shown += tail.advance(position if is_last else None)
                if is_last:
                    break
            self._open_next(tail)
        return shown

    def _rely_on_ring(self, tail: Tail, position: int | None) -> None:
        """Read a segment from the ring if that reaches up to a position of it, None for its end."""
        segment, ring = tail.segment, self.ring
        base = ring.base_of(segment.sequence)
        if base is not None:
            segment.base = base
        if position is None:
            ring.show(ring.base_of(segment.sequence + 1))
        else:
            ring.show(None if base is None else base + position)

    def take_mirror(self, memory: SharedMemory, header: MirrorHeader) -> None:
        """Read the newest bytes from here, as far as they are there. Raises OSError, ValueError."""
        at = header.words_at(self.lane.index)
        words, ring = memory.map(at, WORDS_BYTES), memory.map(at + WORDS_BYTES, header.ring_bytes)
        self.ring.take(words, ring)
        view = self.lane.view
        for segment in [*(one.segment for one in view.sealed), *(one.segment for one in view.open)]:
            base = self.ring.base_of(segment.sequence)
            if base is not None:  # else it keeps one below all that the ring has now
                segment.base = base

    def _learn(self, defined: list[Definition], highest: int | None, header: FrameHeader) -> None:
        """The streams that a frame names for the first time."""
        known = self.lane.streams
        for number, topic, queue_id in defined:
            if number == len(known):
                self._add_stream(topic, queue_id)
        if highest is not None and highest >= len(known):
            path = self._folder / segment_name(header.sequence)
            raise StoreCorrupt("a stream was never defined", path, header.position)

    def _open_next(self, before: Tail | None) -> None:
        """Begin with the segment after all that is in the view. Raises StoreCorrupt, SegmentIsGone."""
        file = self._read(self._sealed + 1 if before is None else before.sequence + 1)
        if file.header is None:
            raise StoreCorrupt("a segment's header is damaged", file.path, 0)
        if not (self._continues(file.header, before) and _counts_on(file.header, before)):
            raise StoreCorrupt("the segment does not continue the one before it", file.path, 0)
        self._show_tails([*self._tails, self._tail_of(file.header, self._next_offsets(before))])

    def _tail_of(self, header: SegmentHeader, firsts: Int64s) -> Tail:
        segment = FollowedSegment(self._disk, self._folder, header, grows=True)
        return Tail(segment, self.ring, firsts, self._learn, self.lane.lows.records, self._take_lows)

    def _next_offsets(self, before: Tail | None) -> Int64s:
        if before is not None:
            return before.next_offsets(len(self.lane.streams))
        sealed = self.lane.view.sealed
        if not sealed or sealed[-1].record.full:
            return sealed[-1].footer.next_offsets.copy() if sealed else np.zeros(0, np.int64)
        found = offsets_after(sealed, len(sealed))
        if found is None:
            raise sealed[-1].damaged()
        return found

    def _continues(self, header: SegmentHeader, before: Tail | None) -> bool:
        """Does a segment continue the view?"""
        if before is not None:
            # What is read of a segment that has just come to its end may be from before.
            while header.previous_chain != before.chain and before.retry():
                before.advance(None)
            return header.previous_chain == before.chain
        sealed = self.lane.view.sealed
        if sealed:
            return header.previous_chain == sealed[-1].record.chain
        return header.sequence == 1

    # -- where no page tells, or an old one ------------------------------------------------------------

    def _proved(self) -> Mark:
        """The highest place up to which frames and records after the view say that the log is durable."""
        mark, tail, chain, joint = NOTHING, self._tails[-1] if self._tails else None, None, NOTHING
        sequence = self._sealed + 1 if tail is None else tail.sequence
        listed = set(segment_numbers(self._disk, self._folder))
        while sequence in listed:
            file = self._read(sequence)
            if file.header is None:
                break
            if tail is None or tail.sequence != sequence:
                follows = file.header.previous_chain == chain if chain is not None else None
                if follows is False or (follows is None and not self._continues(file.header, None)):
                    break
                tail = self._tail_of(file.header, np.zeros(0, np.int64))  # its frames are looked at and not taken
                mark = max(mark, joint)  # no segment is begun after a part of a round before all parts are forced
            found, chain, last = tail.proved(file.record)
            mark, joint = max(mark, found), NOTHING
            if last is not None:
                joint = sequence, last.end
                mark = max(mark, joint if self._is_forced(last.first) else NOTHING)
            sequence += 1
        return mark

    def _is_forced(self, frame: Frame) -> bool:
        """Does the page, or another lane's log, prove that all parts of a frame's round were forced?"""
        others = [place for place in joint_of(frame.head) if place.lane != self.lane.index]
        return any(map(self.is_beyond, others)) or self._rounds.is_proved(frame)


def _counts_on(header: SegmentHeader, before: Tail | None) -> bool:
    """Does a segment's header count the messages that the one before it has? Recovery may have cut off its last."""
    if before is None or UNKNOWN in (header.messages_before, before.segment.header.messages_before):
        return True
    return header.messages_before - before.segment.header.messages_before == before.table.entries
