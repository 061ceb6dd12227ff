"""Streams that are gone: those of deleted topics and subscriptions, once retention has passed all of their messages.

Such a stream loses its number. The next full footer has a row without a name in its place, and the next opening does
not know the stream any more: a queue of its name begins with offset 0, under another number. Until that footer is
durable, all footers have the trim that hides the stream. So a crash brings it back as a deleted one.

A stream stays while other records name its topic: a subscription has positions in it, an index of delays has decisions
about its offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..errors import StoreCorrupt
from ..format.footer import FIRST, Footer
from ..format.hidden import hidden_parts, is_hidden
from .streams import NOT_DEFINED, Stream, StreamMap

if TYPE_CHECKING:
    from .written_lane import WrittenLane


def retire_gone(lanes: Sequence[WrittenLane], streams: StreamMap) -> int:
    """Take the numbers from the streams that are gone, and return how many there were. Raises OSError.

    For an opening, which looks at each trimmed stream anyway; nothing is appended yet. Damage keeps them all.
    """
    gone: list[Stream] = []
    for lane in lanes:
        with suppress(StoreCorrupt):
            gone += _passed(lane)
    hidden = [stream for stream in gone if is_hidden(stream.topic)]
    remembered = _topics_of(streams, {stream.topic for stream in hidden})
    users = [stream for stream in gone if not is_hidden(stream.topic) and stream.topic not in remembered]
    for stream in (*hidden, *users):
        streams.drop(stream)
    take_numbers([*hidden, *users])
    return len(hidden) + len(users)


def take_numbers(gone: Sequence[Stream]) -> None:
    """Take the numbers from these streams; no stream gets them again."""
    for stream in gone:
        stream.lane.retire(stream)
    for lane in {stream.lane for stream in gone if is_hidden(stream.topic)}:
        lane.hidden[:] = [stream for stream in lane.hidden if stream.number != NOT_DEFINED]


def _topics_of(streams: StreamMap, but_for: set[str]) -> set[str]:
    """The users' topics that hidden streams have records of. The hidden topics `but_for` are left out."""
    told = [hidden_parts(topic) for topic in streams.hidden if topic not in but_for]
    return {parts.names[0] for parts in told if parts is not None and parts.names}


def _passed(lane: WrittenLane) -> list[Stream]:
    """The deleted streams of a lane that have no message in any segment. Raises OSError."""
    sealed, offsets = lane.view.sealed, lane.offsets
    trimmed = [lane.streams[number] for number in lane.trims.lend().whole()]
    deleted = [stream for stream in trimmed if _is_unwanted(stream)]
    full = next((one for one in sealed if one.record.full), None) if deleted else None
    index = None if full is None else full.in_file()
    if full is None or index is None:
        return []
    # The log's oldest full footer says where each stream goes on, and in which segments before it is.
    before = full.segment.sequence - sealed[0].segment.sequence
    known = [stream for stream in deleted if stream.number < index.streams]
    numbers = np.array([stream.number for stream in known], np.int64)
    passed = index.footer.taken(FIRST, numbers) == [offsets[stream.number] for stream in known]
    if before:
        passed &= ~_are_before(index.footer, before, numbers)
    return [known[at] for at in np.flatnonzero(passed).tolist()]


def _is_unwanted(stream: Stream) -> bool:
    """Whether its topic was deleted; of a hidden one, whether all that it said was taken back."""
    return stream.number >= 0 and (stream.is_empty if is_hidden(stream.topic) else stream.is_deleted)


def _are_before(full: Footer, before: int, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """(n,) which streams may have messages in one of the `before` segments in front of a full footer's. Raises OSError,
    StoreCorrupt."""
    presence = full.presence
    if presence is None:
        return np.ones(len(numbers), np.bool_)
    start, steps = presence.start.astype(np.int64), presence.steps
    if (steps[start[-2] :] <= before).any():  # segments that may have messages of any stream
        return np.ones(len(numbers), np.bool_)
    found = start[numbers + 1] > start[numbers]
    found[found] = steps[start[numbers[found] + 1] - 1] <= before  # the nearest one comes last
    return found
