"""A batch of Arrow rows as columns for a store's shard writers, over the batch's own buffers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..store import Blobs, InvalidMessage, MessageColumns, arrow_column, store_of
from .errors import BadOption
from .schema import Int64s

NONE = -1
MANY_ROWS = 8  # of each stream
NEEDED = ("topic", "queue_id", "data")
# The types that a column may have, by Spark's names.
TYPES = {
    "topic": ("string",),
    "queue_id": ("int", "bigint", "smallint", "tinyint"),
    "data": ("binary", "string"),
    "key": ("binary", "string"),
    "properties": ("map<string,string>",),
    "deliver_at": ("timestamp", "bigint"),
}
IGNORED = ("offset", "timestamp", "store")  # a read has them, and a store gives its own


def check_columns(schema: Any) -> None:
    """Raise BadOption if rows with this schema, a StructType, cannot be messages."""
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    missing = [name for name in NEEDED if name not in found]
    if missing:
        raise BadOption(f"rows have the columns {', '.join(NEEDED)}, and {', '.join(missing)} is missing")
    for name, kind in found.items():
        if name in IGNORED:
            continue
        if name not in TYPES:
            raise BadOption(f"there is no column {name!r} of messages; drop it. The columns are {', '.join(TYPES)}")
        if kind not in TYPES[name]:
            raise BadOption(f"the column {name} is of type {' or '.join(TYPES[name])}, not {kind}; cast it")


def columns_of(batch: pa.RecordBatch) -> MessageColumns:
    """The messages of a batch. Raises InvalidMessage for a null where a value is needed."""
    given = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
    for name in NEEDED:
        if given[name].null_count:
            row = int(np.flatnonzero(pc.is_null(given[name]).to_numpy(zero_copy_only=False))[0])
            raise InvalidMessage(f"row {row} of a batch has no {name}; each message has one")
    streams, index = _streams(given["topic"], given["queue_id"])
    data = arrow_column(given["data"])
    key = given.get("key")
    properties = given.get("properties")
    return MessageColumns(
        streams, index, data.lengths, data.data,
        None if key is None or key.null_count == len(key) else arrow_column(key),
        None if properties is None or properties.null_count == len(properties) else _json(properties),
        _times(given.get("deliver_at")),
    )  # fmt: skip


def _streams(topics: Any, queue_ids: Any) -> tuple[Sequence[tuple[str, int]], Int64s]:
    """(streams of the rows, perhaps some without a row; each row's index among them)."""
    names, topic = _numbered(topics)
    queues = queue_ids.to_numpy(zero_copy_only=False).astype(np.int64)
    wrong = (queues < 0) | (queues >= 1 << 31)
    if wrong.any():
        raise InvalidMessage(f"a queue id is from 0 to {(1 << 31) - 1}, not {int(queues[wrong][0])}")
    span = int(queues.max(initial=0)) + 1
    if len(names) * span * MANY_ROWS <= len(queues):  # sorting would take longer than all other steps
        return _table(tuple(names), span), topic * span + queues
    codes = (topic << 31) | queues
    found, index = np.unique(codes, return_inverse=True)
    return [(names[code >> 31], code & (1 << 31) - 1) for code in found.tolist()], index


def _numbered(topics: Any) -> tuple[list[str], Int64s]:
    """(the different topics; the index of each row's topic among them)."""
    if len(topics) and topics[0] == topics[-1] and pc.all(pc.equal(topics, topics[0])).as_py():
        return [topics[0].as_py()], np.zeros(len(topics), np.int64)  # takes a third of the time
    encoded = topics.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


@lru_cache(1)
def _table(topics: tuple[str, ...], queues: int) -> tuple[tuple[str, int], ...]:
    """All queues of some topics. The next batch gets the same object, whose names a writer has checked already."""
    return tuple([(topic, queue) for topic in topics for queue in range(queues)])


def _json(properties: Any) -> Blobs:
    """A column of maps as JSON texts."""
    rows = [None if row is None else dict(row) for row in properties.to_pylist()]
    for number, row in enumerate(rows):
        if row is not None and None in row.values():
            name = next(name for name, value in row.items() if value is None)
            raise InvalidMessage(f"row {number} of a batch has a property {name!r} without a value; leave it out")
    texts = [None if row is None else json.dumps(row, sort_keys=True).encode() for row in rows]
    lengths = np.array([NONE if text is None else len(text) for text in texts], np.int64)
    return Blobs(lengths, b"".join([text for text in texts if text is not None]))


def _times(column: Any) -> Int64s | None:
    if column is None or column.null_count == len(column):
        return None
    is_timestamp = pa.types.is_timestamp(column.type)
    if is_timestamp:
        column = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    _check_times(column)
    if is_timestamp:
        column = pc.divide(column, 1000)  # toward zero, which is down
    times: Int64s = pc.fill_null(column, NONE).to_numpy(zero_copy_only=False).astype(np.int64)
    return times


def _check_times(column: Any) -> None:
    """Raise InvalidMessage for a time before 1970: the store would take it for none, or refuse it without a row."""
    least = pc.min(column).as_py()
    if least is not None and least < 0:
        row = pc.index(pc.less(column, 0), True).as_py()
        raise InvalidMessage(f"row {row} of a batch has a deliver_at before 1970; leave it null to deliver at once")


def by_store(streams: Sequence[tuple[str, int]], index: npt.NDArray[np.integer], stores: int) -> list[tuple[int, Any]]:
    """The stores that get rows, each with its rows; None for all rows."""
    if stores == 1:
        return [(0, None)]
    table = np.array([store_of(topic, queue_id, stores) for topic, queue_id in streams], np.int64)
    of_row = table[index]
    return [(store, np.flatnonzero(of_row == store)) for store in np.unique(of_row).tolist()]
