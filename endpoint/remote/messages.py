"""Single messages to append, many in a frame: their arguments as columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from stratalog import MessageColumns

from .columns import NONE, Columns, blobs_of, blobs_out, columns_in, columns_out
from .frames import BrokenFrame

MOST_ROWS = 4096  # messages of a `submit`


class Given(NamedTuple):
    """The arguments of an `append`; the properties are JSON."""

    topic: str
    queue_id: int | None
    data: bytes
    deliver_at_ms: int | None = None
    key: bytes | None = None
    properties: bytes | None = None
    queues: int | None = None
    message_id: str | None = None


def given_out(messages: Sequence[Given]) -> Columns:
    """Messages as a frame."""
    streams: dict[tuple[Any, ...], int] = {}
    find = streams.setdefault
    index = [find((one[0], one[1], one[6]), len(streams)) for one in messages]
    datas = [one[2] for one in messages]
    times = [NONE if one[3] is None else one[3] for one in messages]
    columns = MessageColumns(
        list(streams),  # here a stream has a third part
        np.array(index, np.int64), np.array([len(data) for data in datas], np.int64), b"".join(datas),
        blobs_out([one[4] for one in messages]), blobs_out([one[5] for one in messages]),
        None if all([time == NONE for time in times]) else np.array(times, np.int64),
    )  # fmt: skip
    header, buffers = columns_out(columns)
    ids = [one[7] for one in messages]
    if any([one is not None for one in ids]):
        header["ids"] = ids
    return Columns(header, buffers)


def given_in(header: Mapping[str, Any], buffers: Sequence[memoryview]) -> list[Given]:
    """The messages again. Raises BrokenFrame."""
    columns = columns_in(header, buffers)
    count, names = len(columns.lengths), cast(Sequence[tuple[Any, ...]], columns.streams)
    payload = bytes(columns.payload)
    lengths = columns.lengths  # each is checked before their sum: a sum of any int64 may wrap
    if len(columns.stream_index) != count or (count and not 0 <= lengths.min() <= lengths.max() <= len(payload)):
        raise BrokenFrame("columns of messages have different lengths")
    ends = lengths.cumsum().tolist()
    if count and ends[-1] > len(payload):
        raise BrokenFrame("columns of messages have more bytes than there are")
    datas = [payload[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    ids = header.get("ids") or [None] * count
    times = [NONE] * count if columns.deliver_at_ms is None else columns.deliver_at_ms.tolist()
    try:
        rows = zip(
            columns.stream_index.tolist(), datas, times, blobs_of(columns.keys, count),
            blobs_of(columns.properties, count), ids, strict=True,
        )  # fmt: skip
        found = []
        for index, data, time, key, properties, message_id in rows:
            topic, queue_id, queues = names[index]
            found.append(
                Given(topic, queue_id, data, None if time == NONE else time, key, properties, queues, message_id)
            )
    except (IndexError, ValueError, TypeError) as error:
        raise BrokenFrame(f"columns of messages cannot be read: {error}") from None
    return found


def rows_in(buffers: Sequence[memoryview]) -> int:
    """How many messages `given_in` would make."""
    return buffers[1].nbytes // 8 if len(buffers) > 1 else 0


def properties_in(properties: bytes | None) -> dict[str, str] | None:
    """Properties of JSON. Raises BrokenFrame."""
    if properties is None:
        return None
    try:
        found: dict[str, str] = json.loads(properties)
    except ValueError as error:
        raise BrokenFrame(f"properties cannot be read: {error}") from None
    return found
