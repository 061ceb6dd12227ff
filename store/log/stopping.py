"""Stopping a lane: no frame is built, all are durable, all segments are sealed. Segments can then be put at its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..errors import StoreFull, copy_of
from .flusher import Flusher
from .sealer import PRESSED_S, Sealer
from .written_lane import WrittenLane

NAP_S = 0.0002
PATIENCE_S = 30.0  # until a segment must be sealed


@contextmanager
def stopped(flusher: Flusher, sealer: Sealer) -> Iterator[None]:
    """Stop a lane: inside the context no frame is built, and all frames are durable and in sealed segments.

    Appends wait meanwhile. Neither a flusher nor the thread that seals may call it.

    Raises StorePoisoned or OSError; StoreFull if the open segment could not be sealed in `PATIENCE_S`. The lane then
    goes on in another segment, and each further call raises StoreFull at once until the first one has its footer.
    """
    lane = flusher.lane
    with flusher.building:
        sealer.make_way(lane, most=1)
        end_segment(flusher)
        _wait_for_seals(lane, sealer)
        yield


def end_segment(flusher: Flusher) -> None:
    """The open segment takes no more frames, and all of them are durable. `building` is held.

    Raises StorePoisoned or OSError.
    """
    lane = flusher.lane
    try:
        lane.roll()
        flusher.write_out()
    except BaseException as error:  # also an interrupt: nobody knows what is durable then
        flusher.fail(error)
        raise
    if lane.poison is not None:
        raise copy_of(lane.poison)


def _wait_for_seals(lane: WrittenLane, sealer: Sealer) -> None:
    """Seal in this thread: the one that usually does it may wait for this lane, to append what retention must keep."""
    deadline = time.monotonic() + PATIENCE_S
    while lane.view.open:
        with suppress(Exception):  # as that thread does: any error is tried again
            sealer.seal_full(PRESSED_S)
        time.sleep(NAP_S)  # a flusher says that the segment is full, and nothing here tells when
        if time.monotonic() > deadline:
            raise StoreFull(f"the newest segment cannot be sealed ({sealer.why(lane)}); free some space")
