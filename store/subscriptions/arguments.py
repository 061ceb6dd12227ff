"""The arguments of a subscription's calls, checked."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import InvalidMessage, shown
from .delivery import Delivery

Int64s = npt.NDArray[np.int64]


class Wanted(NamedTuple):
    """The arguments of a receive, checked."""

    messages: int
    size_bytes: int
    visibility_ms: int
    wait_s: float


def receipt_of(delivery: object) -> int:
    """The receipt of a delivery, or the receipt itself. Raises InvalidMessage."""
    receipt = delivery.receipt if isinstance(delivery, Delivery) else delivery
    if isinstance(receipt, np.integer):
        receipt = int(receipt)
    if type(receipt) is not int or not 0 <= receipt < 1 << 63:
        raise InvalidMessage(f"a delivery or its receipt is wanted, not {shown(delivery)}")
    return receipt


def receipts_of(given: object) -> Int64s:
    """(n,) receipts. Raises InvalidMessage."""
    if isinstance(given, list | tuple):
        given = [one.receipt if isinstance(one, Delivery) else one for one in given]
        if not given:
            return np.empty(0, np.int64)
    try:
        found = np.asarray(given)
    except (ValueError, TypeError, OverflowError):
        found = np.empty((0, 0))
    if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer) or found.dtype == np.uint64:
        raise InvalidMessage(f"receipts are integers (n,) or a list of deliveries, not {shown(given)}")
    return found.astype(np.int64, copy=False)
