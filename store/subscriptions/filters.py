"""Filters by properties, over the columns of a batch: each distinct text of properties is decoded once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..format.arrays import Bools, Int64s
from ..format.blobs import Blobs

MOST_KNOWN = 10_000  # sets of properties whose answer is remembered
MATRIX_BYTES = 1 << 18  # of texts that are sorted at once


class PropertyFilter:
    """Says which messages have, for each named property, one of the wanted values.

    The properties of a message are JSON. Equal texts are found by sorting; each distinct text is decoded once, and its
    answer is remembered.
    """

    def __init__(self, wanted: Mapping[str, Sequence[str]]) -> None:
        self._wanted = {name: frozenset(values) for name, values in wanted.items()}
        self._known: dict[bytes, bool] = {}

    def takes(self, properties: bytes | None) -> bool:
        """Whether a message with these properties is wanted. A text that is not a JSON object is not."""
        if properties is None:
            return False
        known = self._known.get(properties)
        if known is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            known = self._known[properties] = self._look(properties)
        return known

    def _look(self, properties: bytes) -> bool:
        try:
            found = json.loads(properties)
        except (ValueError, RecursionError):
            return False
        if not isinstance(found, dict):
            return False
        return all(name in found and _is_among(found[name], values) for name, values in self._wanted.items())

    def mask(self, properties: Blobs | None, count: int) -> Bools:
        """(n,) which of `count` messages are wanted."""
        wanted = np.zeros(count, np.bool_)
        if properties is None:
            return wanted
        data = np.frombuffer(properties.data, np.uint8)
        begins, _ = properties.places()
        for length in np.unique(properties.lengths).tolist():
            if length > 0:  # else it has no properties
                rows = np.flatnonzero(properties.lengths == length)
                step = max(1, MATRIX_BYTES // length)
                for at in range(0, len(rows), step):
                    part = rows[at : at + step]
                    wanted[part] = self._answers(data, begins[part], length)
        return wanted

    def _answers(self, data: npt.NDArray[np.uint8], begins: Int64s, length: int) -> Bools:
        """(n,) whether each of the texts, all of one length, is wanted."""
        texts = data[begins[:, None] + np.arange(length)]
        distinct, which = np.unique(texts.view(f"V{length}").ravel(), return_inverse=True)
        return np.array([self.takes(text.tobytes()) for text in distinct], np.bool_)[which]


def _is_among(value: object, values: frozenset[str]) -> bool:
    return isinstance(value, str) and value in values
