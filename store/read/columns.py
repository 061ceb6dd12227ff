"""Many messages as columns: what `append_columns` takes and what a batch that was read gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import InvalidMessage
from ..format.arrays import Int64s
from ..format.blobs import NONE, Blobs, Buffer, ExtraColumns, gathered
from ..format.extras import Extras
from ..format.layout import NO_TIME
from ..format.rows import Rows


class MessageColumns(NamedTuple):
    """n messages as the arguments of `append_columns`, in its order: `store.append_columns(*batch.columns())`.

    `_replace` gives them other streams, keys or times, as `columns._replace(streams=[("copy", 0)], stream_index=..)`.

    Attributes:
        streams: (topic, queue id) pairs; some may have no message.
        stream_index: int64 (n), each message's index into `streams`.
        lengths: int64 (n), bytes of each payload.
        payload: the payloads back to back.
        keys, properties: None, or (lengths, buffer) as the payloads; the length -1 is none. Properties are JSON.
        deliver_at_ms: None, or int64 (n), ms since the epoch; -1 is none.
    """

    streams: Sequence[tuple[str, int]]
    stream_index: npt.NDArray[np.integer]
    lengths: Int64s
    payload: Buffer
    keys: Blobs | None = None
    properties: Blobs | None = None
    deliver_at_ms: Int64s | None = None

    def take(self, rows: npt.ArrayLike) -> MessageColumns:
        """The messages of some rows, as numbers or as a mask (n): a copy, or views where they lie back to back.

        Raises InvalidMessage if `rows` are neither.
        """
        numbers = _row_numbers(rows, len(self.lengths))
        keys, properties = [None if one is None else Blobs(*one) for one in (self.keys, self.properties)]
        payload = memoryview(self.payload)
        index = np.asarray(self.stream_index)
        whole = Rows(index, self.lengths, payload, keys, properties, self.deliver_at_ms)
        return MessageColumns(self.streams, *whole.take(numbers))


def _row_numbers(rows: npt.ArrayLike, count: int) -> npt.NDArray[np.intp]:
    given = np.asarray(rows)
    if given.ndim == 1 and given.dtype == np.bool_ and len(given) == count:
        return np.flatnonzero(given)
    if given.ndim == 1 and (np.issubdtype(given.dtype, np.integer) or not len(given)):
        numbers: npt.NDArray[np.intp] = given.astype(np.intp)
        if not len(numbers) or (numbers.min() >= 0 and numbers.max() < count):
            return numbers
    raise InvalidMessage(f"rows are numbers from 0 to {count - 1}, or a mask of {count} bools")


def columns_of_batch(
    streams: Sequence[tuple[str, int]],
    stream_index: npt.NDArray[np.integer],
    positions: Int64s,
    lengths: Int64s,
    buffer: memoryview,
    extras: Sequence[Extras] | None,
) -> MessageColumns:
    """The columns of messages that lie at `positions` of a buffer; without a copy where they lie back to back."""
    payload = gathered(buffer, positions, lengths, np.arange(len(lengths)))
    columns = MessageColumns(streams, stream_index, lengths, payload)
    if extras is None:
        return columns
    optional = ExtraColumns.of(extras)
    times = optional.times_ms
    due = None if times is None else np.where(times == NO_TIME, NONE, times)
    return columns._replace(keys=optional.keys, properties=optional.properties, deliver_at_ms=due)
