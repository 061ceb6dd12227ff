"""The checks of columns before they are accepted: what comes out is the store's own, except the payload's bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidMessage, shown
from ..format.arrays import Int64s
from ..format.blobs import NONE, Blobs
from ..format.layout import NO_TIME
from ..format.rows import Rows
from .checks import too_large

LATEST_MS = 1 << 62
BYTE_FORMATS = ("B", "b", "c", "<B", "<b", "<c")  # the last ones of ctypes


def check_columns(
    table: int, stream_index: object, lengths: object, payload: object, keys: object, properties: object,
    deliver_at_ms: object, limit_bytes: int,
) -> Rows:  # fmt: skip
    """The columns, checked, of messages of `table` streams; of the payload alone it is a view of the caller's buffer.

    Raises InvalidMessage or MessageTooLarge, with `row` where a row is wrong.
    """
    sizes = _integers("lengths", lengths)
    count = len(sizes)
    index = _integers("stream_index", stream_index, count)
    if not _all_below(index, table):
        what = f"stream_index is from 0 to {table - 1}, as there are {table} streams, not {{}}"
        if not table:
            what = "`streams` is empty, so no row can have stream_index {}"
        _refuse_rows(what, index, (index < 0) | (index >= table))
    if not _all_below(sizes, limit_bytes + 1):
        _refuse_rows("a length is not negative, but {} is", sizes, sizes < 0)
        _refuse_large(sizes, limit_bytes)
    key_column = None if keys is None else _blobs("keys", keys, count)
    property_column = None if properties is None else _blobs("properties", properties, count)
    view = _bytes_view("payload", payload)
    rows = Rows(index, sizes, view, key_column, property_column, None)
    whole = rows.sizes()
    if whole is not sizes and not _all_below(whole, limit_bytes + 1):
        _refuse_large(whole, limit_bytes)
    if int(sizes.sum()) != view.nbytes:
        raise InvalidMessage(f"payload has {view.nbytes} bytes, and the sum of lengths is {int(sizes.sum())}")
    if property_column is not None:
        _check_properties(property_column)
    return rows._replace(times_ms=_times(deliver_at_ms, count))


def _integers(name: str, given: object, count: int | None = None) -> Int64s:
    """A copy of an array of integers with one dimension, as int64."""
    try:
        found = np.asarray(given)
    except Exception as error:  # of what says that it is an array, anything
        raise InvalidMessage(f"{name} is an array of integers, not {shown(given)}") from error
    if found.ndim != 1:
        raise InvalidMessage(f"{name} is an array with one dimension, not with {found.ndim}")
    if found.dtype.kind not in "iu" and (len(found) or isinstance(given, np.ndarray)):
        raise InvalidMessage(f"{name} is an array of integers, not of {found.dtype}")
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise InvalidMessage(f"{name} has masked elements; fill them, or leave their rows out")
    if count is not None and len(found) != count:
        raise InvalidMessage(f"{name} has {len(found)} elements, and lengths has {count}")
    own = found.astype(np.int64)  # always a copy: another thread may change the caller's
    if found.dtype == np.uint64:
        _refuse_rows(f"{name} is below 2**63, but {{}} is not", own.view(np.uint64), own < 0)
    return own


def _all_below(values: Int64s, limit: int) -> bool:
    """Are all from 0 to limit - 1? One look at each: a negative one is large without its sign."""
    return not len(values) or int(values.view(np.uint64).max()) < limit


def _refuse_large(sizes: Int64s, limit_bytes: int) -> None:
    row = int(np.argmax(sizes > limit_bytes))
    raise too_large(int(sizes[row]), limit_bytes).in_row(row)


def _refuse_rows(what: str, values: npt.NDArray[Any], wrong: npt.NDArray[np.bool_]) -> None:
    """Raises InvalidMessage for the first row that is wrong; `what` has a place for its value."""
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidMessage(what.format(int(values[row]))).in_row(row)


def _bytes_view(name: str, given: object) -> memoryview:
    """A view of a buffer of bytes, in one dimension."""
    try:
        view = memoryview(given)  # type: ignore[arg-type]  # what is no buffer raises
    except (TypeError, ValueError, BufferError):
        what = "a memoryview that was released" if isinstance(given, memoryview) else type(given).__name__
        raise InvalidMessage(f"{name} is a buffer of bytes, not {what}") from None
    if view.format not in BYTE_FORMATS:
        raise InvalidMessage(f"{name} is a buffer of bytes, not of elements {view.format!r}; take a view as uint8")
    if not view.c_contiguous:
        raise InvalidMessage(f"{name} is not contiguous; make a copy that is")
    return view.cast("B") if view.nbytes else memoryview(b"")


def _blobs(name: str, given: object, count: int) -> Blobs:
    """A column (lengths, buffer), copied."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence) or len(given) != 2:
        raise InvalidMessage(f"{name} are (lengths, buffer), not {shown(given)}")
    lengths = _integers(f"the lengths of {name}", given[0], count)
    _refuse_rows(f"a length of {name} is -1 for none, or not negative, not {{}}", lengths, lengths < NONE)
    data = _bytes_view(f"the buffer of {name}", given[1])
    largest = int(lengths.max(initial=0))
    total = int(np.maximum(lengths, 0).sum()) if largest <= data.nbytes else largest  # a sum that fits 64 bits
    if total != data.nbytes:
        raise InvalidMessage(f"the buffer of {name} has {data.nbytes} bytes, and the sum of its lengths is {total}")
    return Blobs(lengths, data.tobytes())


def _check_properties(column: Blobs) -> None:
    """Each is JSON of an object with strings. An object that is there more than once is looked at once."""
    rows = np.flatnonzero(column.lengths != NONE)
    given = list(map(BytesIO(column.data).read, column.lengths[rows].tolist()))
    bad = {text for text in set(given) if not _is_mapping(text)}
    if bad:
        at = next(at for at, text in enumerate(given) if text in bad)
        what = f"properties are JSON of an object whose values are strings, not {shown(given[at])}"
        raise InvalidMessage(what).in_row(int(rows[at]))


def _is_mapping(text: bytes) -> bool:
    try:
        found = json.loads(text.decode())
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and all(isinstance(value, str) for value in found.values())


def _times(given: object, count: int) -> Int64s | None:
    if given is None:
        return None
    times = _integers("deliver_at_ms", given, count)
    wrong = (times < NONE) | (times >= LATEST_MS)
    _refuse_rows("deliver_at_ms is ms since the epoch, or -1 for none, not {}", times, wrong)
    return np.where(times == NONE, NO_TIME, times)
