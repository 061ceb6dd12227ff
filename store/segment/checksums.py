"""Which messages of a frame have their right bytes."""

from __future__ import annotations

import numpy as np

from ..format.arrays import Bools, Indexes
from ..format.frame import Frame
from ..format.layout import ATOMIC, HAS_PAYLOAD_CHECKSUM, FrameHeader, checksum64

_NONE = np.empty(0, np.intp)


def whole_messages(frame: Frame, payload: memoryview) -> int:
    """How many messages, from the first, have their right bytes in `payload`: of an atomic frame all or none."""
    if are_whole(frame.header, payload):
        return frame.header.count
    begin = 0
    rows = zip(frame.lengths.tolist(), frame.checksums.tolist(), strict=True)
    for index, (length, checksum) in enumerate(rows):
        end = begin + length
        if end > len(payload) or checksum64(payload[begin:end]) & 0xFFFFFFFF != checksum:
            return 0 if frame.header.flags & ATOMIC else index
        begin = end
    return frame.header.count


def are_whole(header: FrameHeader, payload: memoryview) -> bool:
    """Does the frame's one checksum of all payloads say that these are right? False where it has none."""
    has_all = header.flags & HAS_PAYLOAD_CHECKSUM and len(payload) == header.payload_bytes
    return bool(has_all) and checksum64(payload) == header.payload_checksum


def good_messages(frame: Frame, payload: memoryview) -> Bools:
    """For each message: are its bytes, in `payload`, the right ones? Those of an empty one always are."""
    ends = frame.lengths.cumsum(dtype=np.int64).tolist()
    begins = [0, *ends][:-1]
    sums = np.fromiter(
        [checksum64(payload[begin:end]) for begin, end in zip(begins, ends, strict=True)],
        np.uint64,
        len(ends),
    ).astype(np.uint32)
    is_there = (np.array(ends, np.int64) <= len(payload)) | (frame.lengths == 0)
    right: Bools = (sums == frame.checksums) & is_there
    return right


def wrong_messages(frame: Frame, payload: memoryview, rows: Indexes | None = None) -> Indexes:
    """Which messages of a frame have wrong bytes in `payload`, of these rows or of all, in their order."""
    if are_whole(frame.header, payload):
        return _NONE
    wrong = ~good_messages(frame, payload)
    return np.flatnonzero(wrong) if rows is None else rows[wrong[rows]]
