"""The columns of a frame made of arrays: no step a message but its checksum, which one C loop makes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO

import numpy as np

from .arrays import Int64s, Numbers, Uint32s
from .blobs import NONE, Blobs
from .frame import Definition, encode_definitions
from .layout import (
    HAS_DUE,
    HAS_KEYS,
    HAS_PROPERTIES,
    HAS_STREAMS,
    NO_TIME,
    WIDE_LENGTHS,
    WIDE_NUMBERS,
    checksum64,
)

NARROW = 0xFFFF
CHECKSUM_BYTES = 4
WHOLE_CHECKSUM_BELOW_BYTES = 2048  # on average: such a frame has a checksum of all payloads, too
SMALL_BYTES = 1024  # messages below it are hashed as copies, which cost less than views of them
ALIKE_BYTES = 256  # messages of one length up to it are copied all at once, in a fifth less time; above it out of cache


def narrow(numbers: Int64s | Numbers) -> Numbers:
    """Stream numbers, of 16 bits if they all fit: these are sorted in a quarter of the time."""
    return numbers.astype(np.uint16 if not len(numbers) or int(numbers.max()) <= NARROW else np.uint32)


class FrameColumns:
    """The packed columns of n messages: all but the checksums, which follow when the payloads are in their place.

    Attributes:
        flags: of the frame.
        size_bytes: of all columns.
    """

    def __init__(
        self,
        numbers: Numbers,  # as `narrow` makes them
        lengths: Int64s,
        offsets: Int64s,
        times_ms: Int64s | None,
        keys: Blobs | None,
        properties: Blobs | None,
        defined: Sequence[Definition],
    ) -> None:
        self.flags = 0
        wide_numbers = numbers.dtype != np.uint16
        wide_lengths = bool(len(lengths)) and int(lengths.max()) > NARROW
        self.flags |= WIDE_NUMBERS * wide_numbers | WIDE_LENGTHS * wide_lengths
        self._before = [
            numbers.tobytes(),
            lengths.astype("<u4" if wide_lengths else "<u2").tobytes(),
            offsets.astype("<u2").tobytes(),  # the low bits
        ]
        self._after: list[bytes | memoryview] = []
        if times_ms is not None and (times_ms != NO_TIME).any():
            self.flags |= HAS_DUE
            self._after.append(times_ms.astype("<i8").tobytes())
        for flag, blobs in ((HAS_KEYS, keys), (HAS_PROPERTIES, properties)):
            if blobs is not None and (blobs.lengths != NONE).any():
                self.flags |= flag
                self._after += [blobs.lengths.astype("<u4").tobytes(), blobs.data]  # -1 becomes NO_BYTES
        if defined:
            self.flags |= HAS_STREAMS
            self._after.append(encode_definitions(defined))
        sizes = [memoryview(part).nbytes for part in (*self._before, *self._after)]
        self.size_bytes = sum(sizes) + CHECKSUM_BYTES * len(numbers)

    def packed(self, checksums: Uint32s) -> bytes:
        """The columns as they go to disk."""
        return b"".join([*self._before, checksums.tobytes(), *self._after])


def message_checksums(payload: bytes | memoryview, lengths: Int64s) -> Uint32s:
    """uint32 (n), the checksum of each of the messages that lie back to back in `payload`, bytes in one piece."""
    count = len(lengths)
    return np.fromiter(map(checksum64, _messages(payload, lengths)), np.uint64, count).astype(np.uint32)


def _messages(payload: bytes | memoryview, lengths: Int64s) -> Iterable[bytes | memoryview]:
    """Each of the messages; copies where these cost less than views."""
    count, size = len(lengths), len(payload)
    if size >= SMALL_BYTES * count:
        view, ends = memoryview(payload), lengths.cumsum()
        begins = (ends - lengths).tolist()
        return [view[begin:end] for begin, end in zip(begins, ends.tolist(), strict=True)]
    if 0 < size <= ALIKE_BYTES * count and bool((lengths == lengths[0]).all()):
        alike: list[bytes] = np.frombuffer(payload, np.dtype((np.void, int(lengths[0])))).tolist()
        return alike
    return map(BytesIO(payload).read, lengths.tolist())
