"""Columns of integers: checked, and in a stable order."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int64s: TypeAlias = npt.NDArray[np.int64]

DIGIT_BITS = 16  # numpy sorts integers of 16 bits by radix


def stable_order(values: Int64s) -> npt.NDArray[np.intp] | None:
    """The order that sorts the values and leaves equal ones as they are; None if they are in order.

    It sorts by radix, 16 bits at a time: numpy's own stable sort of 64-bit numbers takes five times as long.
    """
    if len(values) < 2 or bool((values[1:] >= values[:-1]).all()):
        return None
    least = values.min()
    spread = int(values.max()) - int(least)
    offsets = values.astype(np.uint64) - least.astype(np.uint64)  # modulo 2**64: right for any two of 64 bits
    order = np.argsort(offsets.astype(np.uint16), kind="stable")
    shift = DIGIT_BITS
    while spread >> shift:
        digit = (offsets >> np.uint64(shift)).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
        shift += DIGIT_BITS
    return order


def as_int64(values: npt.ArrayLike, what: str) -> Int64s:
    """The values as one row of int64. Raises TypeError for other numbers, ValueError for a number that is too large."""
    given = np.asarray(values)
    if given.ndim != 1:
        raise ValueError(f"{what} are an array of one dimension, not of {given.ndim}")
    if not given.size:
        return np.empty(0, np.int64)
    if given.dtype.kind not in "iu":
        raise TypeError(f"{what} are integers, not {given.dtype}")
    if given.dtype.kind == "u" and int(given.max()) > np.iinfo(np.int64).max:
        raise ValueError(f"{what} are below 2**63, not {int(given.max())}")
    return given.astype(np.int64, copy=False)
