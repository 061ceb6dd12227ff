"""Arrow's columns of byte strings as `append_columns` takes them. pyarrow is not imported: arrays suffice."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InvalidMessage
from ..format.blobs import NONE, Blobs, gathered

_OFFSETS = {"binary": np.int32, "string": np.int32, "large_binary": np.int64, "large_string": np.int64}
FIXED = "fixed_size_binary["


def arrow_column(array: Any) -> Blobs:
    """The (lengths, buffer) of a pyarrow array of binary or string type, fixed size included: the length -1 is null.

    The buffer is the array's own, without a copy, unless a null lies over bytes. A ChunkedArray needs
    `combine_chunks` before. Raises InvalidMessage for anything else.
    """
    try:
        kind, count, first, buffers = str(array.type), len(array), int(array.offset), array.buffers()
    except AttributeError:
        what = f"a column of bytes is a pyarrow array in one piece, not a {type(array).__name__}"
        hint = "; call its combine_chunks()" if hasattr(array, "combine_chunks") else ""
        raise InvalidMessage(what + hint) from None
    if kind in _OFFSETS:
        ends = np.zeros(1, np.int64)
        if count:
            ends = np.frombuffer(buffers[1], _OFFSETS[kind])[first : first + count + 1].astype(np.int64)
    elif kind.startswith(FIXED):
        ends = np.arange(first, first + count + 1) * int(array.type.byte_width)
    else:
        raise InvalidMessage(
            f"a column of bytes has the type binary, string, large_binary, large_string or fixed_size_binary, not "
            f"{kind}; cast it, as array.cast('large_binary')"
        )
    data = memoryview(buffers[-1]).cast("B") if count and buffers[-1] is not None else memoryview(b"")
    lengths, begins = np.diff(ends), ends[:-1]
    if not array.null_count:
        return Blobs(lengths, data[int(ends[0]) : int(ends[-1])])
    bits = np.unpackbits(np.frombuffer(buffers[0], np.uint8), bitorder="little")
    there = bits[first : first + count].astype(np.bool_)
    rows = np.flatnonzero(there)
    return Blobs(np.where(there, lengths, NONE), gathered(data, begins, lengths, rows))
