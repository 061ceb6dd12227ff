"""Receipts of messages that were removed while consumers had them."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..format.arrays import Int64s


class RemovedReceipts:
    """Remembers receipts until their visibility time-outs have passed; a few bytes for many. One thread at a time.

    Invariant: `_older` goes when the last deadline of its receipts has passed, and `_newer` takes its place.
    """

    def __init__(self) -> None:
        self._older = self._newer = BitMap64()
        self._older_ms = self._newer_ms = 0  # the last deadline

    def __contains__(self, receipt: int) -> bool:
        return receipt in self._older or receipt in self._newer

    def __bool__(self) -> bool:
        return bool(self._older) or bool(self._newer)

    def are_in(self, receipts: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) which receipts are remembered."""
        return np.fromiter(map(self.__contains__, receipts.tolist()), np.bool_, len(receipts))

    def has_between(self, begin: int, end: int) -> bool:
        """Whether one of the receipts begin .. end - 1 is remembered."""
        return self._older.range_cardinality(begin, end) + self._newer.range_cardinality(begin, end) > 0

    def add(self, receipts: Int64s, until_ms: int, now_ms: int) -> None:
        """Remember the receipts (n,) of removed messages until `until_ms`, their last deadline."""
        if now_ms >= self._older_ms:
            self._older, self._older_ms = self._newer, self._newer_ms
            self._newer, self._newer_ms = BitMap64(), 0
        self._newer.update(array("Q", receipts.tobytes()))
        self._newer.run_optimize()
        self._newer_ms = max(self._newer_ms, until_ms)
