"""A lane takes over the log that recovery has found."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import StoreCorrupt
from ..format.layout import align_up
from .room import look_at_footer
from .sealed_log import include
from .write import OpenSegment, View

if TYPE_CHECKING:
    from ..segment.sealed import SealedSegment
    from .lane import Lane


def adopt(
    lane: Lane, sealed: Sequence[SealedSegment], resumable: tuple[OpenSegment, int, int] | None, chain: int
) -> None:
    """Take over the log. Appends begin in a segment of their own, or in the resumable one (segment, end, chain)."""
    for one in sealed:
        include(lane, one)
    _count_names(lane, sealed)
    lane.view = View().sealing(sealed, ())
    lane.chain = chain
    if resumable is not None:
        opened, _, _ = resumable
        opened.segment.write_seal(None)  # from now on the log's end is unknown again
        _resume(lane, *resumable)


def _count_names(lane: Lane, sealed: Sequence[SealedSegment]) -> None:
    """Learn from the newest full footer how large the lane's part of the next one is."""
    full = next((one for one in reversed(sealed) if one.record.full), None)
    if full is not None:
        with contextlib.suppress(StoreCorrupt):  # if that is damaged, names are counted one by one
            lane.footer_room.begin(full.record.streams, full.footer.names_bytes)
    look_at_footer(lane)


def _resume(lane: Lane, opened: OpenSegment, data_end: int, chain: int) -> None:
    """Append again to a segment that was cleanly closed, from the block after its end."""
    segment, lane.table = opened
    segment.open_log()  # now: its path certainly leads to it
    lane.segment, lane.chain, segment.base = segment, chain, 0
    lane.tail = lane.issued = align_up(data_end)
    lane.ring.begin(lane.tail)
    lane.marked = (segment.sequence, data_end)
    lane.under_way.resume(lane.tail, lane.marked)
    lane.view = lane.view._replace(open=(opened,))
