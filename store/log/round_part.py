"""The part of a round in one lane, step by step: one frame, or for a large transaction several ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..errors import StoreFull, copy_of
from ..format.frame import column_bytes_bound
from ..format.joint import MOST_JOINT_BYTES, JointPlace
from ..format.layout import BLOCK_BYTES, JOINT, MORE, REST
from ..segment.footer_room import share_of_frame
from .at_once import OncePart, room_for_once
from .atomic_group import AtomicGroup
from .flusher import Flusher
from .message_ids import ids_of
from .reserve import may_use_reserve
from .streams import NOT_DEFINED, Stream


class RoundPart(OncePart):
    """The part of a round in one lane: a `LanePart`.

    Invariant: its frames follow each other in one segment, which has room for all of them before the first is built.
    """

    def __init__(self, flusher: Flusher, frames: Sequence[Sequence[AtomicGroup]], joint: Callable[[], bytes]) -> None:
        """`frames` has the requests of each; `joint` gives the column, once all lanes have made room."""
        super().__init__(flusher)
        self._frames = [_RoundFrame(requests) for requests in frames]
        self._joint = joint
        self._bounds: list[int] = []  # of each frame, its most bytes in the log

    def make(self) -> None:
        """Have room for the frames, and all before them forced: then nothing but damage can hide them from a recovery.

        Records alone may take the reserve.
        """
        lane, frames = self.flusher.lane, self._frames
        self._or_fail(self.flusher.take_queued)
        self._force()  # first: it pads, and takes room
        self._bounds = [frame.bytes_bound() for frame in frames]
        most = sum(self._bounds) + BLOCK_BYTES * (len(frames) - 1)  # a write may pad

        def share() -> int:
            return sum([frame.share() for frame in frames])

        try:
            self._once.make_room_of(most, share)
        except StoreFull:
            reserve = lane.for_records
            streams = [stream for frame in frames for stream in frame.streams]
            if reserve is None or not all([may_use_reserve(stream.topic) for stream in streams]):
                raise
            self._once.make_room_of(most, share, reserve.left_by(streams[0].topic))
        self._force()  # the end of a segment, and the beginning of the next one

    def _force(self) -> None:
        """Force all that was built. The next frame begins with a block: the footer of a recovery that cuts it, which
        begins there as well, leaves nothing of its head.
        """
        lane = self.flusher.lane
        lane.fill_block()
        if lane.under_way.forced < lane.tail:
            self._or_fail(partial(self.flusher.write_out, barrier=lane.config.durability == "os"))

    def _or_fail(self, step: Callable[[], None]) -> None:
        """Take a step that writes. Raises OSError, StorePoisoned: this lane is poisoned, or another one."""
        lane, queue = self.flusher.lane, self.flusher.queue
        try:
            step()
        except BaseException as error:
            self.flusher.fail(error)
            raise
        poison = lane.poison or queue.refusal
        if poison is not None:
            raise copy_of(poison)

    @property
    def place(self) -> JointPlace:
        """Where its next frame will begin."""
        lane = self.flusher.lane
        assert lane.segment is not None and lane.segment.base is not None, "there is room"
        return JointPlace(lane.index, lane.segment.sequence, lane.tail - lane.segment.base)

    def build(self) -> None:
        """Build its first frame."""
        self._build(0, self._joint())

    def _build(self, at: int, joint: bytes = b"") -> None:
        """Build a frame; `joint` is the column of the first one."""
        place, requests = self.place, self._frames[at].requests
        flags = (REST if at else JOINT) | (MORE if at + 1 < len(self._frames) else 0)
        self._once.build_frame(requests, partial(self.flusher.lane.build_joint, requests, flags, joint))
        assert self.place[:2] == place[:2], "the frame is where the other parts say that it is"

    def write(self) -> None:
        """Write the part, and build its other frames meanwhile. Raises as `AtOnce.write` does."""
        room, built = room_for_once(self.flusher), self._bounds[0]
        for at, more in enumerate(self._bounds[1:], 1):
            if built + more > room:
                self._once.write_ahead()
                built = 0
            self._build(at)
            built += more
        self._once.write()


class _RoundFrame:
    """One frame of a part before it is built: its requests, and how much room it takes at the most.

    Attributes:
        streams: those of its messages, one a message.
    """

    def __init__(self, requests: Sequence[AtomicGroup]) -> None:
        self.requests = requests
        self.streams = [stream for request in requests for stream in request.streams]
        self._ids = [one for request in requests for one in ids_of(request)]

    @property
    def _all_streams(self) -> list[Stream]:
        """Those of its messages, and of the records of ids."""
        return self.streams + [one.target.stream for one in self._ids]

    def bytes_bound(self) -> int:
        """Its bytes in the log, at the most."""
        extras = [row for request in self.requests for row in request.row_extras if row is not None]
        size = sum([sum(request.sizes) for request in self.requests]) + sum([one.size_bytes for one in self._ids])
        streams = self._all_streams
        return column_bytes_bound(len(streams), extras, _new_topics(streams)) + size + MOST_JOINT_BYTES

    def share(self) -> int:
        """What it adds to its segment's footer, at the most."""
        streams = self._all_streams
        return share_of_frame(len(streams), _new_topics(streams))


def _new_topics(streams: Sequence[Stream]) -> list[str]:
    """The topics of streams that have no number yet, one a stream."""
    return [stream.topic for stream in set(streams) if stream.number == NOT_DEFINED]
