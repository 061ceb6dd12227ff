"""Facts about a segment's offsets from later segments: exact ones from a whole footer, or the low bits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..device.disk import Disk
from ..format.arrays import Int64s, Uint16s, Uint32s
from ..format.footer import FooterData
from ..format.layout import UNKNOWN, kept_messages
from .lane_streams import footer_of, frames_of, whole_before
from .placement import NO_OFFSET, WINDOW
from .used_file import UsedFile


class LaterFacts(NamedTuple):
    """Facts about a segment's end from later segments.

    footer: the first whole one of them, as a full one if that can be told; None if there is none.
    ends (streams,): each stream's next offset after the segment by this footer, too high by messages that are lost in
        between, but not above its next message. None without a footer.
    lows (some streams,): low bits of each one's next message before that footer's segment; NO_OFFSET if it has none.
    messages_before: of the log before this end, if none is lost in between; or UNKNOWN.
    is_next: nothing lies in between, so `ends` are exact.
    is_partial: `ends` are of some streams alone, NO_OFFSET for others: no later full footer has all.
    """

    footer: FooterData | None
    ends: Int64s | None
    lows: Int64s
    messages_before: int = UNKNOWN
    is_next: bool = False
    is_partial: bool = False


class _MessagesAhead:
    """The messages of some segments, stream by stream."""

    def __init__(self) -> None:
        self.counts = np.zeros(0, np.int64)
        self.lows = np.zeros(0, np.int64)

    def add(self, numbers: Uint32s, lows: Uint16s) -> None:
        """Add a frame's messages, after all that were added."""
        counts = np.bincount(numbers, minlength=len(self.counts)).astype(np.int64)
        more = len(counts) - len(self.counts)
        self.counts = np.concatenate([self.counts, np.zeros(more, np.int64)]) + counts
        self.lows = np.concatenate([self.lows, np.full(more, NO_OFFSET, np.int64)])
        streams, begins = np.unique(numbers, return_index=True)
        is_new = self.lows[streams] == NO_OFFSET
        self.lows[streams[is_new]] = lows[begins[is_new]]

    def ends_before(self, first: Int64s) -> Int64s:
        """The ends of streams before these messages, if they go on with `first` after them."""
        ends, unknown = first.copy(), first == NO_OFFSET
        known = min(len(ends), len(self.counts))
        ends[:known] -= self.counts[:known]
        lows = self.lows[:known]
        ends[:known] -= np.where(lows == NO_OFFSET, 0, (ends[:known] - lows) % WINDOW)
        ends[unknown] = NO_OFFSET
        return ends


def look_ahead(disk: Disk, folder: Path, later: Sequence[UsedFile]) -> LaterFacts:
    """Look at the segments after one, up to the first that has a whole footer."""
    found = _MessagesAhead()
    for index, file in enumerate(later):
        footer = footer_of(disk, folder, file)
        if footer is not None:
            before = file.header.messages_before
            messages = before - int(found.counts.sum()) if before != UNKNOWN else UNKNOWN
            whole = footer if footer.stream is None else whole_before(disk, folder, list(islice(later, index, None)))
            if whole is not None:
                return LaterFacts(whole, found.ends_before(whole.first), found.lows, messages, index == 0)
            first = first_told(disk, folder, list(islice(later, index, None)))
            return LaterFacts(footer, found.ends_before(first), found.lows, messages, index == 0, is_partial=True)
        _add_messages(disk, file, found)
    return LaterFacts(None, None, found.lows)


def first_told(disk: Disk, folder: Path, files: Sequence[UsedFile]) -> Int64s:
    """(streams,) the first offset of each that the small footers of some segments in a row tell of; else NO_OFFSET."""
    first = np.zeros(0, np.int64)
    for file in files:
        footer = footer_of(disk, folder, file)
        if footer is None:
            break
        numbers = footer.numbers
        more = int(numbers[-1]) + 1 - len(first) if len(numbers) else 0
        first = np.concatenate([first, np.full(max(0, more), NO_OFFSET, np.int64)])
        first[numbers] = np.where(first[numbers] == NO_OFFSET, footer.first, first[numbers])
    return first


def _add_messages(disk: Disk, file: UsedFile, found: _MessagesAhead) -> None:
    """Add what the frames of a segment have, on the chain or not."""
    for frame in frames_of(disk, file):
        kept = kept_messages(file.record, frame.header)
        found.add(frame.numbers[:kept], frame.lows[:kept])
