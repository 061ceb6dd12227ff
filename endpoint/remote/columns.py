"""Messages as the buffers of a frame, and back: no object a message on the way, unless it has a key or the like."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stratalog import Delivery, DeliveryBatch, Extras, Message, MessageBatch, MessageColumns
from stratalog.bulk import Blobs

from .frames import BrokenFrame, Buffer

Int64s = npt.NDArray[np.int64]
NONE = -1  # as a length: no byte string; as a time: none


class Columns(NamedTuple):
    """The header and the buffers of some messages."""

    header: dict[str, Any]
    buffers: list[Buffer]


def columns_out(columns: MessageColumns) -> Columns:
    """The columns of `append_columns`, which may be any integers, as int64 and bytes."""
    header: dict[str, Any] = {"streams": [list(one) for one in columns.streams]}
    buffers: list[Buffer] = [np.ascontiguousarray(columns.stream_index, np.int64), columns.lengths, columns.payload]
    for name, blobs in (("keys", columns.keys), ("properties", columns.properties)):
        if blobs is not None:
            header[name] = len(buffers)
            buffers += [np.ascontiguousarray(blobs[0], np.int64), blobs[1]]
    if columns.deliver_at_ms is not None:
        header["times"] = len(buffers)
        buffers.append(np.ascontiguousarray(columns.deliver_at_ms, np.int64))
    return Columns(header, buffers)


def columns_in(header: Mapping[str, Any], buffers: Sequence[memoryview]) -> MessageColumns:
    """The columns again. Raises BrokenFrame."""
    try:
        streams = tuple([tuple(one) for one in header["streams"]])
        index, lengths, payload = numbers_in(buffers[0]), numbers_in(buffers[1]), buffers[2]
        keys, properties = _blobs_in(header.get("keys"), buffers), _blobs_in(header.get("properties"), buffers)
        at = header.get("times")
        return MessageColumns(
            streams, index, lengths, payload, keys, properties,
            None if at is None else numbers_in(buffers[at]),
        )  # fmt: skip
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise BrokenFrame(f"columns cannot be read: {error}") from None


def numbers_in(buffer: memoryview) -> Int64s:
    """int64 (n) of a buffer. Raises BrokenFrame."""
    if buffer.nbytes % 8:
        raise BrokenFrame("a column of numbers is cut")
    return np.frombuffer(buffer, np.int64)


def _blobs_in(at: int | None, buffers: Sequence[memoryview]) -> Blobs | None:
    return None if at is None else Blobs(numbers_in(buffers[at]), buffers[at + 1])


def batch_out(batch: MessageBatch) -> Columns:
    """A batch that was read or received. Names of streams without a message stay behind."""
    columns = batch.columns()
    if len(batch.stream_names) > 1:
        used, index = np.unique(batch.stream_index, return_inverse=True)
        columns = columns._replace(streams=[batch.stream_names[one] for one in used.tolist()], stream_index=index)
    header, buffers = columns_out(columns)
    header["batch"] = len(buffers)
    buffers += [np.ascontiguousarray(batch.offsets), np.ascontiguousarray(batch.times_ms)]
    if isinstance(batch, DeliveryBatch):
        header["subscription"] = batch.subscription
        buffers += [np.ascontiguousarray(batch.receipts), np.ascontiguousarray(batch.attempts)]
    return Columns(header, buffers)


def batch_in(header: Mapping[str, Any], buffers: Sequence[memoryview]) -> MessageBatch:
    """The batch again, over the buffers. Raises BrokenFrame."""
    columns = columns_in(header, buffers)
    at, lengths = int(header["batch"]), columns.lengths
    return MessageBatch(
        memoryview(columns.payload), lengths.cumsum() - lengths, lengths, numbers_in(buffers[at]),
        numbers_in(buffers[at + 1]), columns.stream_index.astype(np.uint32), columns.streams, _extras_of(columns),
    )  # fmt: skip


def deliveries_in(header: Mapping[str, Any], buffers: Sequence[memoryview]) -> DeliveryBatch:
    """The batch of a receive again; empty if there is none."""
    if "batch" not in header:
        return DeliveryBatch.empty()
    at = int(header["batch"])
    batch = batch_in(header, buffers)
    return DeliveryBatch(batch, numbers_in(buffers[at + 2]), numbers_in(buffers[at + 3]), str(header["subscription"]))


def _extras_of(columns: MessageColumns) -> list[Extras] | None:
    if columns.keys is None and columns.properties is None and columns.deliver_at_ms is None:
        return None
    count = len(columns.lengths)
    times = [NONE] * count if columns.deliver_at_ms is None else columns.deliver_at_ms.tolist()
    rows = zip(times, blobs_of(columns.keys, count), blobs_of(columns.properties, count), strict=True)
    return [Extras(None if time == NONE else time, key, properties) for time, key, properties in rows]


def blobs_of(blobs: Any, count: int) -> list[bytes | None]:
    """The byte strings of a column, each its own; None where there is none."""
    if blobs is None:
        return [None] * count
    lengths, data = blobs
    found: list[bytes | None] = []
    at = 0
    for length in lengths.tolist():
        found.append(None if length < 0 else bytes(data[at : at + length]))
        at += max(length, 0)
    return found


def messages_out(messages: Sequence[Message]) -> Columns:
    """Messages that were read one by one."""
    streams: dict[tuple[str, int], int] = {}
    index = [streams.setdefault((one.topic, one.queue_id), len(streams)) for one in messages]
    keys = blobs_out([one.key for one in messages])
    properties = blobs_out([properties_out(one.properties) for one in messages])
    times = [NONE if one.deliver_at_ms is None else one.deliver_at_ms for one in messages]
    columns = MessageColumns(
        list(streams), np.array(index, np.int64), np.array([len(one.data) for one in messages], np.int64),
        b"".join([one.data for one in messages]), keys, properties,
        None if all(time == NONE for time in times) else np.array(times, np.int64),
    )  # fmt: skip
    header, buffers = columns_out(columns)
    header["batch"] = len(buffers)
    buffers += [
        np.array([one.offset for one in messages], np.int64), np.array([one.timestamp_ms for one in messages], np.int64)
    ]  # fmt: skip
    return Columns(header, buffers)


def deliveries_out(deliveries: Sequence[Delivery]) -> Columns:
    """Messages that were received one by one."""
    header, buffers = messages_out([one.message for one in deliveries])
    header["subscription"] = deliveries[0].subscription
    buffers += [
        np.array([one.receipt for one in deliveries], np.int64), np.array([one.attempt for one in deliveries], np.int64)
    ]  # fmt: skip
    return Columns(header, buffers)


def blobs_out(strings: Sequence[bytes | None]) -> Blobs | None:
    """Byte strings as a column; None if there is none of them."""
    if not any([one is not None for one in strings]):
        return None
    lengths = np.array([NONE if one is None else len(one) for one in strings], np.int64)
    return Blobs(lengths, b"".join([one for one in strings if one]))


def properties_out(properties: Mapping[str, str] | None) -> bytes | None:
    """Properties as JSON."""
    return None if properties is None else json.dumps(dict(properties), separators=(",", ":")).encode()


def receipts_out(receipts: Any) -> Any:
    """Receipts or deliveries as numbers, in one array where they are ints; else as they are: the store refuses them."""
    if isinstance(receipts, Sequence) and not isinstance(receipts, str | bytes):
        receipts = [one.receipt if isinstance(one, Delivery) else one for one in receipts]
    found = receipts if isinstance(receipts, np.ndarray) else None
    if found is None and receipts and all(type(one) is int and 0 <= one < 1 << 63 for one in receipts):
        found = np.array(receipts, np.int64)
    if found is not None and found.ndim == 1 and np.issubdtype(found.dtype, np.integer) and found.dtype != np.uint64:
        return found.astype(np.int64)
    return receipts
