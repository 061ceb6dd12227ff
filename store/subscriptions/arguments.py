"""The arguments of a subscription's calls, checked."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import InvalidMessage, StaleReceipt, shown
from .delivery import Delivery
from .settings import check_number

Int64s = npt.NDArray[np.int64]
SHOWN_RECEIPTS = 3
FEW = 64  # messages that are given out as objects, and not as columns first
MOST_MESSAGES = 1 << 20
LONGEST_WAIT_MS = int(threading.TIMEOUT_MAX) * 500
LONGEST_MS = 1 << 40


class Wanted(NamedTuple):
    """The arguments of a receive, checked."""

    messages: int
    size_bytes: int
    visibility_ms: int
    wait_s: float


def is_few(max_messages: object, wait_ms: object, visibility_ms: object) -> bool:
    """Whether the arguments of a receive are good, and it wants a few messages only."""
    return (
        type(max_messages) is type(wait_ms) is type(visibility_ms) is int
        and 0 < max_messages <= FEW
        and wait_ms >= 0 < visibility_ms <= LONGEST_MS
    )


def wanted_of(max_messages: object, wait_ms: object, visibility_ms: object, max_bytes: object) -> Wanted:
    """The arguments of a receive. Raises InvalidMessage."""
    wait = min(check_number("wait_ms", wait_ms, 0, 1 << 62), LONGEST_WAIT_MS)
    return Wanted(
        min(check_number("max_messages", max_messages, 1, 1 << 62), MOST_MESSAGES),
        check_number("max_bytes", max_bytes, 1, 1 << 62),
        check_number("visibility_timeout_ms", visibility_ms, 1, LONGEST_MS),
        wait / 1000,
    )


def receipt_of(delivery: object) -> int:
    """The receipt of a delivery, or the receipt itself. Raises InvalidMessage."""
    receipt = delivery.receipt if isinstance(delivery, Delivery) else delivery
    if type(receipt) is not int and isinstance(receipt, np.integer):
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


def stale(name: str, receipts: Sequence[int]) -> StaleReceipt:
    """The error for receipts of a subscription that are not good any more."""
    shown_ones = ", ".join(map(str, receipts[:SHOWN_RECEIPTS])) + (", .." if len(receipts) > SHOWN_RECEIPTS else "")
    return StaleReceipt(
        f"{len(receipts)} receipt(s) of the subscription {name!r} are stale ({shown_ones}): the message was "
        f"acknowledged or given back, or its visibility time-out passed and it was given to another, or removed by a "
        f"trim or by retention; nothing was done. Leave these out, or take a longer visibility_timeout_ms",
        tuple(receipts),
    )
