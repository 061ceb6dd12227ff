"""Columns of a bulk read as Arrow record batches; payloads of large frames are not copied."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..store import Blobs, ScanBatch, StoreError
from .schema import ARROW_TYPES, MOST_MS, Int64s

US_A_MS = 1000
JOINED_BYTES = 1 << 20  # small frames are joined to batches of so many bytes,
JOINED_ROWS = 16384  # or so many rows
_ROW_BYTES = 40  # of the small columns, about


def joined(batches: Iterable[ScanBatch]) -> Iterator[ScanBatch]:
    """Messages in fewer batches: a large frame alone and not copied, small ones joined."""
    group: list[ScanBatch] = []
    rows = size = 0
    for batch in batches:
        own = _size(batch)
        if group and (batch.streams is not group[0].streams or size + own > JOINED_BYTES or rows >= JOINED_ROWS):
            yield ScanBatch.joined(group)
            group, rows, size = [], 0, 0
        group.append(batch)
        rows, size = rows + len(batch), size + own
    if group:
        yield ScanBatch.joined(group)


def _size(batch: ScanBatch) -> int:
    payload = 0 if batch.payload is None else len(batch.payload)
    return payload + _ROW_BYTES * len(batch)


def record_batch(batch: ScanBatch, schema: pa.Schema, store: str) -> pa.RecordBatch:
    """The columns that a schema names. Raises StoreError for properties that are no JSON object of strings."""
    columns = [_column(batch, name, store) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def damage_batch(places: list[str], schema: pa.Schema, store: str) -> pa.RecordBatch:
    """Rows that report damage; their other columns are None."""
    known = {"damage": places, "store": [store] * len(places)}
    columns = [pa.array(known.get(name, [None] * len(places)), ARROW_TYPES[name]) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: ScanBatch, name: str, store: str) -> pa.Array:
    make = _MAKERS.get(name)
    if make is not None:
        return make(batch)
    if name == "store":
        return _named((store,), np.zeros(len(batch), np.uint32))
    return pa.nulls(len(batch), ARROW_TYPES[name])


def _topics(batch: ScanBatch) -> pa.Array:
    return _named(batch.streams.topics, batch.topic_index)


def _named(names: tuple[str, ...], index: npt.NDArray[np.uint32]) -> pa.Array:
    return _texts(names).take(_fixed(pa.uint32(), index))


@lru_cache(maxsize=4)
def _texts(names: tuple[str, ...]) -> pa.Array:
    """The topics of a segment as an Arrow column: all of its batches have the same tuple.

    It is made of buffers, as all columns of most reads: `pa.array` and `pa.scalar` import pandas, 0.3 s a worker.
    """
    encoded = [name.encode() for name in names]
    binary = binary_array(Blobs(np.array([len(one) for one in encoded], np.int64), b"".join(encoded)))
    return pa.Array.from_buffers(pa.string(), len(names), binary.buffers())


def _data(batch: ScanBatch) -> pa.Array:
    assert batch.payload is not None, "the read was told that payloads are wanted"
    return binary_array(Blobs(batch.lengths, batch.payload))


def _times(batch: ScanBatch) -> pa.Array:
    return _fixed(ARROW_TYPES["timestamp"], _us(batch.times_ms))


def _us(times_ms: Int64s) -> Int64s:
    """Times in microseconds; later times than rows can have become the last one."""
    times = np.minimum(times_ms, MOST_MS)
    times *= US_A_MS
    return times


def _fixed(kind: pa.DataType, values: npt.NDArray[np.generic]) -> pa.Array:
    """A column over an array's own memory."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))], 0)


def _keys(batch: ScanBatch) -> pa.Array:
    return pa.nulls(len(batch), pa.binary()) if batch.keys is None else binary_array(batch.keys)


def binary_array(blobs: Blobs) -> pa.Array:
    """A column of byte strings over the same buffer; the length -1 becomes null."""
    lengths, count = blobs.lengths, len(blobs.lengths)
    missing = lengths < 0
    nulls = int(np.count_nonzero(missing))
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(np.where(missing, 0, lengths) if nulls else lengths, out=ends[1:])
    valid = pa.py_buffer(np.packbits(~missing, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(pa.binary(), count, [valid, pa.py_buffer(ends), pa.py_buffer(blobs.data)], nulls)


def _delivery_times(batch: ScanBatch) -> pa.Array:
    kind = ARROW_TYPES["deliver_at"]
    times = batch.deliver_at_ms
    if times is None:
        return pa.nulls(len(batch), kind)
    missing = times < 0
    return pa.array(_us(np.where(missing, 0, times)), mask=missing).cast(kind)


def _properties(batch: ScanBatch) -> pa.Array:
    kind = ARROW_TYPES["properties"]
    blobs = batch.properties
    if blobs is None:
        return pa.nulls(len(batch), kind)
    begins, sizes = blobs.places()
    known: dict[bytes, list[tuple[str, str]]] = {}  # many messages have equal ones
    data = bytes(blobs.data)
    rows: list[Any] = []
    for row, (length, begin, size) in enumerate(
        zip(blobs.lengths.tolist(), begins.tolist(), sizes.tolist(), strict=True)
    ):
        raw = data[begin : begin + size]
        if length >= 0 and raw not in known:
            known[raw] = _pairs(raw, batch, row)
        rows.append(known[raw] if length >= 0 else None)
    return pa.array(rows, kind)


def _pairs(raw: bytes, batch: ScanBatch, row: int) -> list[tuple[str, str]]:
    try:
        found = json.loads(raw)
        return [(str(name), value if isinstance(value, str) else json.dumps(value)) for name, value in found.items()]
    except (ValueError, AttributeError, RecursionError) as error:
        topic = batch.streams.topics[int(batch.topic_index[row])]
        place = f"{topic!r}/{int(batch.queue_ids[row])} at offset {int(batch.offsets[row])}"
        raise StoreError(
            f"the properties of {place} are no JSON object; leave the column properties out to read the rest"
        ) from error


_MAKERS: dict[str, Callable[[ScanBatch], pa.Array]] = {
    "topic": _topics,
    "queue_id": lambda batch: _fixed(ARROW_TYPES["queue_id"], batch.queue_ids.astype(np.int32)),
    "offset": lambda batch: _fixed(ARROW_TYPES["offset"], batch.offsets),
    "timestamp": _times,
    "deliver_at": _delivery_times,
    "key": _keys,
    "properties": _properties,
    "data": _data,
}
