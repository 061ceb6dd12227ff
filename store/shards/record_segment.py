"""The segment before a commit's shards: it has the commit's record, and the names of new streams."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ..device.disk import Disk
from ..format.frame import Definition, encode_columns
from ..format.layout import (
    DATA_START,
    FRAME_HEADER_BYTES,
    HAS_PAYLOAD_CHECKSUM,
    MAX_FRAME_MESSAGES,
    FrameHeader,
    SealRecord,
    checksum64,
)
from .rewriting import SegmentPlace, finish_segment, lane_footer, placed


def write_record_segment(
    disk: Disk, path: Path, record: bytes, number: int, offset: int, defined: Sequence[Definition],
    place_of: Callable[[int], SegmentPlace], time_ms: int,
) -> tuple[SegmentPlace, SealRecord]:  # fmt: skip
    """Write and force a segment with the record; in several frames, with copies of it, if there are many new streams.

    Args:
        number, offset: of the lane's stream of records: its number, and its next offset.
        place_of: gives the place of a segment whose frames end at a position.

    Raises OSError.
    """
    parts = [defined[at : at + MAX_FRAME_MESSAGES] for at in range(0, max(1, len(defined)), MAX_FRAME_MESSAGES)]
    columns = [
        encode_columns([number], [record], [len(record)], array("q", [offset + at]), None, part)
        for at, part in enumerate(parts)
    ]
    data_end = DATA_START + sum(FRAME_HEADER_BYTES + len(one.packed) + len(record) for one in columns)
    place = place_of(data_end)
    chain, position, positions, content = place.header.chain, DATA_START, [], []
    for entry, one in enumerate(columns):
        flags = one.flags | HAS_PAYLOAD_CHECKSUM
        header = FrameHeader(
            flags, 0, FRAME_HEADER_BYTES + len(one.packed), 1, len(record), entry, 0, position, time_ms, 0, 0, 0,
            checksum64(record),
        )  # fmt: skip
        head, chain = placed(header, place, chain).seal(one.packed)
        content += [head, record]
        positions.append(position)
        position = header.end
    count = len(columns)
    entries = np.arange(count, dtype=np.uint32)
    data = lane_footer(
        place, np.array([number], np.uint32), np.array([count], np.int64), entries, np.array(positions, np.uint32),
        entries, np.full(count, time_ms, np.int64),
        np.array([one.flags | HAS_PAYLOAD_CHECKSUM for one in columns], np.uint16),
    )  # fmt: skip
    file = disk.open(path, create=True)
    try:
        file.write([b"".join(content)], DATA_START)
        sealed = finish_segment(file, place, data, data_end, chain)
        file.force()
    finally:
        file.close()
    return place, sealed
