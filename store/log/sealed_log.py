"""The sealed part of a lane's log: how segments belong to it, and where streams go on before and after them."""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..format.footer import Footer
from ..segment.borders import offsets_after, offsets_before
from ..segment.remade import FooterRemaker, Offsets
from ..segment.sealed import SealedSegment

if TYPE_CHECKING:
    from .lane import Lane
    from .write import View


def include(lane: Lane, sealed: SealedSegment) -> None:
    """Have a sealed segment belong to a lane: it is held in the lane's memory, and made whole by its neighbours."""
    sealed.join(lane.index_memory, lane.mapped, partial(remade_footer, lane))


def remade_footer(lane: Lane, sealed: SealedSegment) -> Footer | None:
    """The footer of a lane's segment, made again of its frames. None if its neighbours do not say enough."""
    return FooterRemaker(sealed.segment, sealed.record).footer(lane.streams, *neighbours(lane, sealed))


def neighbours(lane: Lane, sealed: SealedSegment) -> tuple[Offsets | None, Offsets | None]:
    """The offsets of a lane's streams before a sealed segment and after it, each None if it is not known.

    The offsets before it come from the file alone: of two damaged neighbours the newer one is always made again first.
    """
    view = lane.view
    segments, sequence = view.sealed, sealed.segment.sequence
    at = bisect_left(segments, sequence, key=lambda one: one.segment.sequence)
    after = at + (at < len(segments) and segments[at].segment.sequence == sequence)
    begins = np.zeros(0, np.int64) if sequence == 1 else None
    ends = None
    if at and segments[at - 1].segment.sequence == sequence - 1:
        begins = offsets_after(segments, at)
    if after == len(segments):
        ends = offsets_after_sealed(lane, view)
    elif segments[after].segment.sequence == sequence + 1:
        ends = offsets_before(segments, after, lambda: offsets_after_sealed(lane, view))
    return begins, ends


def offsets_after_sealed(lane: Lane, view: View) -> Offsets:
    """(streams,) where the streams of a lane go on after its sealed segments.

    If no segment is open, nothing was written since the opening: then it is what recovery has found.
    """
    if view.open:
        return view.open[0].table.first_offsets()
    offsets = lane.offsets.column()
    opened = lane.view.open  # a builder may have begun meanwhile
    return opened[0].table.first_offsets() if opened else offsets


def offset_after_sealed(lane: Lane, view: View, number: int) -> int:
    """Where one stream goes on after the sealed segments."""
    if view.open:
        return view.open[0].table.first_offset(number)
    offset = lane.offsets.after_log(number)
    opened = lane.view.open
    return opened[0].table.first_offset(number) if opened else offset
