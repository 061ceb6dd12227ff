"""Messages that belong together: written and forced past the queue, and shown to readers later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

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

    They are forced whatever the store's durability is. So a crash leaves the first of their messages, or none, or all.
    The steps: `make_room` or `make_room_of`; `build`, or `build_frame` for each frame; `write`; `release`. Between
    frames, `write_ahead` makes room in the ring for the next one.

    Invariants:
        * `flusher.building` is held from the first step to the last: nothing comes after them before they are shown;
        * the ring has what was built and not written: at most a quarter of it, or one frame.
    """

    def __init__(self, flusher: Flusher) -> None:
        self._flusher = flusher
        self._lane = flusher.lane
        self._requests: list[Request] = []
        self._cost_bytes = 0  # of these
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

        self.build_frame(groups, build_all)

    def build_frame(self, requests: Sequence[Request], build: Callable[[], None]) -> None:
        """Have `build` build a frame of them, or several ones. Whatever it raises, the lane is poisoned."""
        lane, flusher = self._lane, self._flusher
        self._requests += requests
        try:
            if not lane.under_way.is_holding:  # else this is not the first frame
                lane.under_way.hold(lane.tail)
            self._cost_bytes += sum(map(cost_bytes, requests))  # now: their answers change it
            build()
            self._end = lane.tail
        except BaseException as error:  # also an interrupt: nobody knows what the lane has then
            flusher.fail(error, requests)
            raise

    def write(self) -> None:
        """Write and force them; they are durable when it returns, and not shown yet.

        Raises StorePoisoned, OSError: then only the next opening can tell which of them are durable.
        """
        lane = self._lane
        self.write_ahead()
        self.changes = lane.under_way.hidden_changes()
        assert lane.under_way.forced >= self._end, "the write's force covers all of them"

    def write_ahead(self) -> None:
        """Write and force what was built, so that another frame can be built. Raises as `write` does."""
        try:
            self._flusher.write_out(barrier=True)
        except BaseException as error:  # also an interrupt: nobody knows what is durable then
            self._flusher.fail(error, self._requests)
            raise
        if self._lane.poison is not None:
            raise copy_of(self._lane.poison)

    def release(self) -> None:
        """Call this after they were shown: wake readers, and let later frames be answered again."""
        segment = self._lane.segment
        assert segment is not None and segment.base is not None
        mark = segment.sequence, self._end - segment.base
        done = self._lane.under_way.release(segment, mark)
        mine = len(self._requests)  # they did not come through the lane's queue, so it gets nothing back for them
        self._flusher.tell(done._replace(requests=done.requests - mine, cost_bytes=done.cost_bytes - self._cost_bytes))


class OncePart:
    """The part of a commit, or of a round, in one lane, as frames: what is the same in each `LanePart` of that kind.

    Attributes:
        flusher: of the lane.
    """

    def __init__(self, flusher: Flusher) -> None:
        self.flusher = flusher
        self._once = AtOnce(flusher)

    def prepare(self) -> None:
        """Do nothing: all is in memory."""

    def standing_still(self) -> AbstractContextManager[object]:
        """A context in which the lane's builder waits."""
        return self.flusher.building

    def write(self) -> None:
        """Make the part durable. Raises as `AtOnce.write` does."""
        self._once.write()

    @property
    def changes(self) -> Sequence[Change]:
        """The changes that show it."""
        return self._once.changes

    def tell(self) -> None:
        """It is shown."""
        self._once.release()


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
