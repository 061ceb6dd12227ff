"""Messages as a table of Arrow or of pandas. The first call loads these packages; the store needs neither."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import StoreError
from ..format.blobs import ExtraColumns, gathered
from ..format.layout import NO_TIME

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # where its stubs are not installed
    import pyarrow as pa

    from .message import MessageBatch


def arrow_table(batch: MessageBatch) -> pa.Table:
    """The messages as columns named as the attributes of `Message`. Raises StoreError, see `MessageBatch.to_arrow`."""
    pa = _pyarrow()
    rows = np.arange(len(batch))
    topics = [topic for topic, _ in batch.stream_names]
    queues = np.array([queue_id for _, queue_id in batch.stream_names], np.int32)
    dues = keys = properties = None
    if batch.extras is not None:
        columns = ExtraColumns.of(batch.extras)
        times = columns.times_ms
        dues = None if times is None else pa.array(times, mask=times == NO_TIME)
        if columns.keys is not None:
            keys = [one.key for one in columns]
        if columns.properties is not None:
            properties = [None if one.properties is None else _decoded(one.properties) for one in columns]
    count, index = len(batch), batch.stream_index
    return pa.table(
        {
            "topic": pa.array(topics, pa.string()).take(pa.array(index)).dictionary_encode(),
            "queue_id": queues[index] if count else pa.array([], pa.int32()),
            "offset": batch.offsets,
            "data": _payloads(pa, batch, rows),
            "timestamp_ms": batch.times_ms,
            "deliver_at_ms": pa.nulls(count, pa.int64()) if dues is None else dues,
            "key": pa.array(keys or [None] * count, pa.binary()),
            "properties": pa.array(properties or [None] * count, pa.map_(pa.string(), pa.string())),
        }
    )


def pandas_frame(batch: MessageBatch) -> pd.DataFrame:
    """As `arrow_table`; numbers that may be missing are of pandas' nullable type. Raises StoreError."""
    try:
        import pandas as pd  # noqa: PLC0415  # see above
    except ImportError as error:
        raise StoreError("to_pandas needs pandas; install it: pip install 'stratalog[spark]'") from error
    frame = arrow_table(batch).to_pandas(
        types_mapper={_pyarrow().int64(): pd.Int64Dtype()}.get, maps_as_pydicts="strict"
    )
    assert isinstance(frame, pd.DataFrame)
    return frame


def _payloads(pa: Any, batch: MessageBatch, rows: Any) -> Any:
    """The payloads: over the batch's own buffer where they lie there back to back, else a copy."""
    ends, count = batch.positions + batch.lengths, len(batch)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(batch.lengths, out=offsets[1:])
    data: bytes | memoryview
    if count and (batch.positions[1:] == ends[:-1]).all():
        data = batch.buffer[int(batch.positions[0]) : int(ends[-1])]
    else:
        data = gathered(batch.buffer, batch.positions, batch.lengths, rows)
    return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _decoded(properties: bytes) -> list[tuple[str, str]]:
    try:
        found = list(json.loads(properties).items())
        for pair in found:
            "".join(pair).encode()  # half a surrogate pair is no text of Arrow's
    except (ValueError, AttributeError, TypeError) as error:
        raise StoreError(f"a message's properties cannot be decoded: {error}") from error
    return found


def _pyarrow() -> Any:
    try:
        import pyarrow as pa  # noqa: PLC0415  # see above
    except ImportError as error:
        raise StoreError("to_arrow needs pyarrow; install it: pip install 'stratalog[spark]'") from error
    return pa
