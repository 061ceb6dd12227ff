"""Frames without optional columns, as nearly all are: many of them are decoded together, in few steps.

A process that sleeps between its looks finds little of its code in the processor's caches, so each kind of step counts,
and not only their number. Small frames are decoded by `array`, which takes a third of the time of numpy then.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ..format.layout import ATOMIC, HAS_PAYLOAD_CHECKSUM, LEAST_MESSAGE_BYTES, FrameHead
from ..segment.open_table import CHECKSUM, LENGTH, POSITION, EntryRows, entry_rows

FEW_MESSAGES = 128  # of a frame, in the mean


class PlainFrames(NamedTuple):
    """The messages of some frames, back to back.

    Attributes:
        packed: the stream numbers of each frame, as it has them: u16.
        rows: position in the segment, length and checksum of each message: u32, one after the other.
        last_ends: where each message of the last frame ends, in the segment.
    """

    packed: list[bytes]
    rows: EntryRows
    last_ends: Sequence[int]

    def has(self, number: int) -> tuple[int, bool]:
        """The highest stream number, and whether this one is among them."""
        joined = b"".join(self.packed)
        if len(self.packed) * FEW_MESSAGES > len(joined) // 2:  # two bytes a message
            numbers = set(memoryview(joined).cast("H"))
            return max(numbers), number in numbers
        found = np.frombuffer(joined, np.uint16)
        highest = int(found.max())
        return highest, 0 <= number <= highest and bool((found == number).any())


def is_plain(head: FrameHead) -> bool:
    """True for a frame with messages, narrow columns and no optional ones."""
    header = head.header
    plain = not header.flags & ~(HAS_PAYLOAD_CHECKSUM | ATOMIC) and header.count > 0
    return plain and len(head.columns) == LEAST_MESSAGE_BYTES * header.count


def decode_plain(heads: Sequence[FrameHead]) -> PlainFrames | None:
    """The messages of some plain frames, at least one; None if the sizes of one do not agree."""
    total = sum([head.header.count for head in heads])
    return _decode_small(heads) if total <= FEW_MESSAGES * len(heads) else _decode_large(heads, total)


def _decode_small(heads: Sequence[FrameHead]) -> PlainFrames | None:
    rows, packed = array("I"), []
    for header, columns, _ in heads:
        count = header.count
        sizes, checksums = array("H"), array("I")
        sizes.frombytes(columns[2 * count : 4 * count])
        checksums.frombytes(columns[6 * count :])
        ends = array("I", accumulate(sizes, initial=header.position + header.header_bytes))
        if ends[-1] != header.end:
            return None
        packed.append(columns[: 2 * count])
        rows += entry_rows(ends[:-1], array("I", sizes), checksums)
    return PlainFrames(packed, rows, ends[1:])


def _decode_large(heads: Sequence[FrameHead], total: int) -> PlainFrames | None:
    """All frames as one column after the other: an array's operation costs as much for six frames as for one."""
    packed, sizes, checksums, shifts, counts, payloads = [], [], [], [], [], []
    payload_bytes = 0
    for header, columns, _ in heads:
        count = header.count
        packed.append(columns[: 2 * count])
        sizes.append(columns[2 * count : 4 * count])
        checksums.append(columns[6 * count :])
        counts.append(count)
        shifts.append(header.position + header.header_bytes - payload_bytes)
        payload_bytes += header.payload_bytes
        payloads.append(payload_bytes)
    lengths = np.frombuffer(b"".join(sizes), np.uint16)
    ends = np.add.accumulate(lengths, dtype=np.int64)
    if [ends.item(last - 1) for last in accumulate(counts)] != payloads:
        return None
    ends += np.repeat(shifts, counts)
    rows = np.empty((total, 3), np.uint32)
    rows[:, POSITION] = ends - lengths
    rows[:, LENGTH] = lengths
    rows[:, CHECKSUM] = np.frombuffer(b"".join(checksums), np.uint32)
    return PlainFrames(packed, rows.reshape(-1), ends[total - counts[-1] :].data)
