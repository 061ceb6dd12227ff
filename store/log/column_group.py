"""Messages that come as columns: the request that carries them, and columns made of any requests.

A frame of which at least one request has columns is built of arrays; all the others become a part of these arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ..errors import StoreError
from ..format.arrays import Indexes, Int64s
from ..format.blobs import Blobs, Buffer, ExtraColumns
from ..format.layout import FRAME_HEADER_BYTES, NO_TIME
from ..format.rows import Rows
from .batch import columns_of, extras_of, given_extras
from .request import Group, Request
from .streams import NOT_DEFINED, Stream

MESSAGE_BYTES = 30  # of a frame's columns, at the most: wide numbers and lengths, a time, two lengths of byte strings
DEFINITION_BYTES = 270


class ColumnRows(NamedTuple):
    """n messages as columns, with what a frame needs of them.

    Attributes:
        streams: a table of streams; one stream suffices if `numbers` are known.
        stream_index: (n,), each message's place in the table; None if `numbers` are known.
        numbers: (n,) stream numbers, or None as long as a stream has none.
        lengths: int64 (n), of the payloads.
        payloads: the payloads back to back, in one buffer or more. Nothing but the copy into the ring looks at them:
            a caller's buffer may change at any time.
        payload_bytes: the sum of `lengths`.
        times_ms: int64 (n), delivery times, NO_TIME for none; or None.
    """

    streams: Sequence[Stream]
    stream_index: Indexes | None
    numbers: Int64s | None
    lengths: Int64s
    payloads: Sequence[Buffer]
    payload_bytes: int
    times_ms: Int64s | None = None
    keys: Blobs | None = None
    properties: Blobs | None = None

    @classmethod
    def of(cls, streams: Sequence[Stream], rows: Rows, *, is_numbered: bool = False) -> ColumnRows:
        """Of messages whose `numbers` are the streams' own, or else places in the table.

        A stream of the table without a message is left out: a frame must not name it for the first time.
        """
        index = None
        if not is_numbered:
            used, index = np.unique(rows.numbers, return_inverse=True)
            streams = [streams[at] for at in used.tolist()]
        return cls(
            streams, index, rows.numbers if is_numbered else None, rows.lengths, [rows.payload], rows.payload.nbytes,
            rows.times_ms, rows.keys, rows.properties,
        )  # fmt: skip

    @property
    def extra_bytes(self) -> int:
        """Bytes of keys and properties."""
        return sum([memoryview(blobs.data).nbytes for blobs in (self.keys, self.properties) if blobs is not None])

    def undefined(self) -> int:
        """How many streams of the table have no number yet; one that is there twice counts twice."""
        if self.numbers is not None:
            return 0
        return [stream.number for stream in self.streams].count(NOT_DEFINED)

    def bytes_bound(self) -> int:
        """An upper bound of a frame with these messages."""
        columns = MESSAGE_BYTES * len(self.lengths) + self.extra_bytes + DEFINITION_BYTES * self.undefined()
        return FRAME_HEADER_BYTES + columns + self.payload_bytes

    def known_numbers(self) -> Int64s:
        """(n,) stream numbers; all streams have one by now."""
        if self.numbers is not None:
            return self.numbers
        assert self.stream_index is not None
        return np.array([stream.number for stream in self.streams], np.int64)[self.stream_index]


_NO_ROWS = ColumnRows((), None, None, np.empty(0, np.int64), (), 0)


class ColumnGroup(Group):
    """Messages of `append_columns`, cut to a frame's size. It holds the caller's buffer until it is answered."""

    __slots__ = ("rows",)

    def __init__(self, rows: ColumnRows) -> None:
        super().__init__(rows.streams[0], len(rows.lengths), rows.payload_bytes + rows.extra_bytes)
        self.rows = rows

    def answer(self, error: StoreError | None = None) -> None:
        self.rows = _NO_ROWS  # the ring has it all now
        super().answer(error)


def parts_of(requests: Sequence[Request]) -> list[ColumnRows]:
    """The messages of some requests, in their order, as columns."""
    parts: list[ColumnRows] = []
    for are_columns, some in groupby(requests, key=lambda request: type(request) is ColumnGroup):
        stretch = list(some)
        if are_columns:
            parts += [request.rows for request in stretch if isinstance(request, ColumnGroup)]
        elif any(request.count for request in stretch):
            parts.append(_of_plain(stretch))
    return parts


def _of_plain(requests: Sequence[Request]) -> ColumnRows:
    streams, datas, sizes = columns_of(requests, plain=False)
    rows = ColumnRows(streams, np.arange(len(sizes)), None, np.array(sizes, np.int64), datas, sum(sizes))
    if not given_extras(requests, plain=False):
        return rows
    extras = ExtraColumns.of(extras_of(requests))
    return rows._replace(times_ms=extras.times_ms, keys=extras.keys, properties=extras.properties)


def joined(parts: Sequence[ColumnRows]) -> ColumnRows:
    """One set of columns: the parts one after the other. All of their streams have numbers."""
    numbers = [part.known_numbers() for part in parts]
    if len(parts) == 1:
        return parts[0]._replace(numbers=numbers[0])
    counts = [len(part.lengths) for part in parts]
    times = None
    if any(part.times_ms is not None for part in parts):
        times = np.concatenate(
            [
                np.full(count, NO_TIME) if part.times_ms is None else part.times_ms
                for part, count in zip(parts, counts, strict=True)
            ]
        )
    return ColumnRows(
        parts[0].streams,
        None,
        np.concatenate(numbers),
        np.concatenate([part.lengths for part in parts]),
        [payload for part in parts for payload in part.payloads],
        sum([part.payload_bytes for part in parts]),
        times,
        Blobs.joined(list(zip([part.keys for part in parts], counts, strict=True))),
        Blobs.joined(list(zip([part.properties for part in parts], counts, strict=True))),
    )
