"""Messages that belong together: written and forced in one step, past the queue, and shown to readers later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..errors import StoreError, copy_of
from ..format.layout import MAX_FRAME_MESSAGES
from ..format.records import RECORDS_TOPIC
from ..segment.footer_room import share_of_frame
from .column_build import share_of
from .column_group import ColumnGroup
from .flusher import Flusher
from .request import Request
from .room import make_room
from .sizer import cost_bytes
from .together import Change

RING_SHARE = 4  # two writes may be in flight, each of a frame: a quarter of the ring is free whatever goes on
FRAME_BYTES = 4 << 20


def room_for_once(flusher: Flusher) -> int:
    """The most bytes, by `frame_bytes`, that `AtOnce` takes."""
    return flusher.lane.ring.size_bytes // RING_SHARE


def frame_bytes(groups: Sequence[ColumnGroup]) -> int:
    """An upper bound of the bytes of some groups in the log, whatever frames they become."""
    return sum([group.rows.bytes_bound() for group in groups])


class AtOnce:
    """Messages of one lane, one after the other in one segment, with no other message between them.

    They are written and forced by one call, whatever the store's durability is. So a crash leaves the first of their
    messages, or none, or all. The steps: `make_room` or `make_room_of`; `build` or `build_frame`; `write`; `release`.

    Invariant: `flusher.building` is held from the first step to the last: nothing comes after them before they are
    shown.
    """

    def __init__(self, flusher: Flusher) -> None:
        self._flusher = flusher
        self._lane = flusher.lane
        self._requests: Sequence[Request] = ()
        self._end = 0
        self.changes: Sequence[Change] = ()  # setting them shows the messages to readers of this process

    def make_room(self, groups: Sequence[ColumnGroup], record_bytes: int) -> None:
        """Have a segment with room for groups, of at most `room_for_once` bytes, and for a record before them.

        Raises as `make_room_of` does.
        """

        def share() -> int:
            of_groups = sum([share_of([group.rows for group in frame]) for frame in _frames(groups)])
            return of_groups + share_of_frame(1, [RECORDS_TOPIC])

        self.make_room_of(frame_bytes(groups) + record_bytes, share)

    def make_room_of(self, most_bytes: int, share: Callable[[], int], left_bytes: int | None = None) -> None:
        """Have a segment with room for so many bytes; `share` and `left_bytes` as for `room.make_room`.

        Raises StoreFull, StorePoisoned, OSError: nothing has changed. An interrupt poisons the lane: it may have come
        when the lane was between two segments.
        """
        if self._lane.poison is not None:
            raise copy_of(self._lane.poison)
        try:
            make_room(self._lane, most_bytes, share, left_bytes)
        except (StoreError, OSError):
            raise
        except BaseException as error:
            self._flusher.fail(error)
            raise

    def build(self, groups: Sequence[ColumnGroup], built: Callable[[], None]) -> None:
        """Build their frames; `built` is called once the first one is.

        Any change of segment is over by then, so the footer of the segment before does not have what `built` notes.
        Whatever it raises, the lane is poisoned.
        """

        def build_all() -> None:
            for at, frame in enumerate(_frames(groups)):
                self._lane.build(frame)
                if not at:
                    built()

        self._build(groups, build_all)

    def build_frame(self, requests: Sequence[Request], joint: bytes) -> None:
        """Build one frame of them, with this column: see `format.joint`. Whatever it raises, the lane is poisoned."""
        self._build(requests, partial(self._lane.build_joint, requests, joint))

    def _build(self, requests: Sequence[Request], build_all: Callable[[], None]) -> None:
        lane, flusher, self._requests = self._lane, self._flusher, requests
        try:
            lane.under_way.hold(lane.tail)
            # The queue subtracts their cost when they are answered. They did not come through it, so add the cost here.
            flusher.queue.release(-sum(map(cost_bytes, requests)), -len(requests))
            build_all()
            self._end = lane.tail
        except BaseException as error:  # also an interrupt: nobody knows what the lane has then
            flusher.fail(error, requests)
            raise

    def write(self) -> None:
        """Write and force them; they are durable when it returns, and not shown yet.

        Raises StorePoisoned, OSError: then only the next opening can tell which of them are durable.
        """
        lane, flusher = self._lane, self._flusher
        try:
            flusher.write_out(barrier=True)
        except BaseException as error:  # also an interrupt: nobody knows what is durable then
            flusher.fail(error, self._requests)
            raise
        self.changes = lane.under_way.hidden_changes()
        if lane.poison is not None:
            raise copy_of(lane.poison)
        assert lane.under_way.forced >= self._end, "the write's force covers all of them"

    def release(self) -> None:
        """Call this after they were shown: wake readers, and let later frames be answered again."""
        segment = self._lane.segment
        assert segment is not None and segment.base is not None
        mark = segment.sequence, self._end - segment.base
        self._flusher.tell(self._lane.under_way.release(segment, mark))


def _frames(groups: Sequence[ColumnGroup]) -> list[list[ColumnGroup]]:
    """The groups of each frame: as few frames as they fit into."""
    frames: list[list[ColumnGroup]] = []
    count = size = 0
    for group in groups:
        count, size = count + group.count, size + group.size_bytes
        if not frames or count > MAX_FRAME_MESSAGES or size > FRAME_BYTES:
            frames.append([])
            count, size = group.count, group.size_bytes
        frames[-1].append(group)
    return frames
