"""Parts: where messages of one stream lie in one segment; found, and not yet fetched."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain

from ..device.ring import Ring
from .open_table import CHECKSUM, LENGTH, POSITION
from .segment import Segment

# The segment; a flat table with the position, length and checksum of entry n at 3 n, 3 n + 1 and 3 n + 2; the entries,
# in log order; whether the stream's messages lie far apart; the offset of the first message. The others follow it
# without a hole. A plain tuple: a call of many segments makes one of each.
Part = tuple[Segment, Sequence[int], Sequence[int], bool, int]


def count_of(parts: Iterable[Part]) -> int:
    """How many messages some parts have."""
    return sum([len(part[2]) for part in parts])


def end_of(part: Part) -> int:
    """The offset that follows a part."""
    return part[4] + len(part[2])


def offsets_of(parts: Sequence[Part], count: int) -> Sequence[int]:
    """The offsets of all messages of some parts, of which there are `count`."""
    if not parts:
        return ()
    first, last = parts[0][4], parts[-1]
    if last[4] + len(last[2]) - first == count:  # a repair has left no hole
        return range(first, first + count)
    return list(chain.from_iterable([range(part[4], end_of(part)) for part in parts]))


def column(flat: Sequence[int], entries: Sequence[int], number: int) -> list[int]:
    """One column of some entries of a flat table."""
    if isinstance(entries, range):  # of a table that was made for this call: a list
        return list(flat[3 * entries.start + number : 3 * entries.stop : 3])
    return [flat[3 * entry + number] for entry in entries]


def positions_of(part: Part) -> list[int]:
    """Where the messages of a part lie in their segment."""
    return column(part[1], part[2], POSITION)


def lengths_of(part: Part) -> list[int]:
    """The lengths of the messages of a part."""
    return column(part[1], part[2], LENGTH)


def checksums_of(part: Part) -> list[int]:
    """The low 32 bits of the checksums of the messages of a part."""
    return column(part[1], part[2], CHECKSUM)


def piece_of(part: Part, begin: int, end: int) -> Part:
    """The messages begin .. end - 1 of a part."""
    segment, flat, entries, is_sparse, offset = part
    return segment, flat, entries[begin:end], is_sparse, offset + begin


def within(parts: list[Part], max_bytes: int) -> list[Part]:
    """The messages in front of the first one that would pass `max_bytes`, and at least one."""
    for index, part in enumerate(parts):
        lengths = lengths_of(part)
        size = sum(lengths)
        if size > max_bytes:
            count = max(bisect_right([*accumulate(lengths)], max_bytes), 0 if index else 1)
            return [*parts[:index], piece_of(part, 0, count)] if count else parts[:index]
        max_bytes -= size
    return parts


def cut_parts(ring: Ring, parts: list[Part]) -> list[Part]:
    """The parts, of which one may be cut in two where the ring begins: then each is in the ring, or out of it."""
    for index, part in enumerate(parts):
        segment, flat, entries, _, _ = part
        base = segment.base
        if base is not None:
            if base + flat[3 * entries[0]] >= ring.low:
                break  # and so are all later ones
            if base + flat[3 * entries[-1]] >= ring.low:
                older = bisect_left(entries, ring.low - base, key=lambda entry: flat[3 * entry])
                halves = piece_of(part, 0, older), piece_of(part, older, len(entries))
                return [*parts[:index], *halves, *parts[index + 1 :]]
    return parts
