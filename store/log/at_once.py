"""Frames that are built, written and forced in one go, past the queue: messages that belong together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import StoreFull, again
from ..format.layout import MAX_FRAME_MESSAGES
from .column_group import ColumnGroup
from .flusher import Flusher
from .request import cost_bytes

RING_SHARE = 4  # two writes may be in flight, each of a frame: a quarter of the ring is free whatever goes on
FRAME_BYTES = 4 << 20


def room_for_once(flusher: Flusher) -> int:
    """The most bytes, by `frame_bytes`, that `append_at_once` takes."""
    return flusher.lane.ring.size_bytes // RING_SHARE


def frame_bytes(groups: Sequence[ColumnGroup]) -> int:
    """An upper bound of the bytes of some groups in the log, whatever frames they become."""
    return sum([group.rows.bytes_bound() for group in groups])


def append_at_once(
    flusher: Flusher, make: Callable[[], Sequence[ColumnGroup]], built: Callable[[Sequence[ColumnGroup]], None]
) -> None:
    """Append groups behind each other in one segment, with no other message between them; durable when it returns.

    They are written and forced by one call, whatever the store's durability is. So a crash leaves the first of their
    messages, or none, or all.

    Args:
        make: the groups, of this lane, in order; `frame_bytes` of them is at most `room_for_once`. It is called when
            nothing comes between any more.
        built: is called with them when their first frame is built. The segment before does not have what it notes.

    Raises StoreFull: nothing has changed. StorePoisoned: the next opening finds out what there is.
    """
    lane, queue = flusher.lane, flusher.queue
    with flusher.building:
        if lane.poison is not None:
            raise again(lane.poison)
        groups = make()
        try:
            lane.make_room(frame_bytes(groups))
            for at, frame in enumerate(_frames(groups)):
                lane.build(frame)
                if not at:
                    built(groups)
            # Accounted for as if they had come through the queue, which counts them out when they are answered.
            queue.release(-sum(map(cost_bytes, groups)), -len(groups))
            flusher.perform(lane.plan(follows=False, barrier=True), by_builder=False)
        except StoreFull:
            raise
        except BaseException as error:  # also an interrupt: nobody knows what is durable then
            flusher.fail(error, groups)
            raise
    for group in groups:
        group.result()  # another flusher's write may have to come back first


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
