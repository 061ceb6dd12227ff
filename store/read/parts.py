"""The parts of the log that have a stream's messages: where they lie in each segment; nothing is fetched here."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ..device.ring import Ring
from ..log.lane import Lane
from ..log.write import View
from ..segment.segment import Segment
from ..segment.windows import SPARSE_BYTES

if TYPE_CHECKING:
    pass

FEW_EMPTY = 4  # segments in a row that have nothing of a stream: then it is searched where it goes on

# Some messages of a segment: the segment, a flat table with the position, length and checksum of entry n at 3 n,
# 3 n + 1 and 3 n + 2, the entries, and whether the stream's messages lie far apart.
Part = tuple[Segment, Sequence[int], Sequence[int], bool]


def find_parts(lane: Lane, view: View, number: int, offset: int, limit: int) -> list[Part] | None:
    """Where up to `limit` messages from `offset` on lie. None if there is none, or a gap or a wrong index comes before
    the last one. Raises StoreCorrupt."""
    parts: list[Part] = []
    at, end = offset, offset + limit
    opened = len(view.open)
    while opened:  # the newest first: most reads are of what was just written
        opened -= 1
        row = view.open[opened].table.row(number)
        if row is not None and row[0] <= offset:
            break
    else:
        at = _sealed_parts(lane, view, number, at, end, parts)
        if at < 0:
            return None
    for segment, table in islice(view.open, opened, None):
        if at == end:
            break
        row = table.row(number)
        if row is None:
            continue
        if at < row[0]:
            return None  # a gap that a repair left, or damage
        entries = row[1][at - row[0] : end - row[0]]
        if entries:
            at += len(entries)
            parts.append((segment, table.flat, entries, segment.header.capacity_bytes > SPARSE_BYTES * len(row[1])))
    return parts or None


def _sealed_parts(lane: Lane, view: View, number: int, at: int, end: int, parts: list[Part]) -> int:
    """Add the parts of sealed segments; return the next offset, -1 where they do not tell it. Raises StoreCorrupt."""
    sealed, empty = view.sealed, 0
    index, count = lane.groups.where(sealed, number, at), sealed.span[2]
    while index < count:
        segment = sealed[index]
        part = segment.places(lane.ring, number, at, end)
        if part is None:
            return -1
        flat, entries, is_sparse = part
        if entries:
            parts.append((segment.segment, flat, entries, is_sparse))
            at += len(entries)
            if at == end:
                break
            empty = 0
        else:
            empty += 1
            if empty > FEW_EMPTY:
                index = max(index, lane.groups.where(sealed, number, at) - 1)
                empty = 0
        index += 1
    return at


def cut_parts(ring: Ring, parts: list[Part]) -> list[Part]:
    """The parts, of which one may be cut in two where the ring begins: then each is in the ring, or out of it."""
    for index, (segment, flat, entries, is_sparse) in enumerate(parts):
        base = segment.base
        if base is not None:
            if base + flat[3 * entries[0]] >= ring.low:
                break  # and so are all later ones
            if base + flat[3 * entries[-1]] >= ring.low:
                older = entries[: bisect_left(entries, ring.low - base, key=lambda entry: flat[3 * entry])]
                newer = entries[len(older) :]
                halves = ((segment, flat, half, is_sparse) for half in (older, newer))
                return [*parts[:index], *halves, *parts[index + 1 :]]
    return parts


def column(flat: Sequence[int], entries: Sequence[int], number: int) -> list[int]:
    """One column of some entries of a flat table."""
    if isinstance(entries, range):  # of a table that was made for this call: a list
        return list(flat[3 * entries.start + number : 3 * entries.stop : 3])
    return [flat[3 * entry + number] for entry in entries]
