"""Which messages pass a filter, over the columns of a batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from ..format.arrays import Bools, Int64s
from ..format.blobs import NONE, Blobs, ExtraColumns
from .conditions import Values
from .given import PlainFilter, condition_of
from .texts import TextNumbers

ROWS_TOGETHER = 8192
MOST_PAIRS = 1 << 16  # of properties and key, whose answers are remembered
_PROPERTIES = json.JSONDecoder()


class MessageFilter:
    """Says which messages are wanted. One thread at a time.

    The properties of a message are a text, JSON. Each distinct text is decoded once, and its answer is remembered; so
    are those of pairs of properties and key, if the filter asks for the key. Properties that are not a JSON object are
    never wanted, and a value that is not a str is as if the message had no such property.
    """

    def __init__(self, checked: PlainFilter) -> None:
        """`checked` is what `check_filter` returns."""
        self._condition = condition_of(checked)
        self._has_key = None in self._condition.names
        self._properties, self._keys = TextNumbers(), TextNumbers()
        self._forget()

    def _forget(self) -> None:
        self._properties.forget()
        self._keys.forget()
        self._values: list[Values | None] = []  # by number of the properties' text; of the first ones
        self._answers = np.empty(0, np.bool_)  # of `_values`, where the key is not asked for
        self._of_pairs: dict[int, bool] = {}  # by the numbers of properties and key, see `_of_keys`

    def takes(self, properties: bytes | None, key: bytes | None = None) -> bool:
        """Whether one message with these properties, as JSON, and this key is wanted."""
        return self._is_wanted(self._decoded(properties), key)

    def mask(self, extras: ExtraColumns | None, count: int) -> Bools:
        """(n,) which of `count` messages are wanted. None: messages without key and properties."""
        keys, properties = (None, None) if extras is None else (extras.keys, extras.properties)
        if not self._has_key:
            keys = None
        if not count or (properties is None and keys is None):
            return np.full(count, self.takes(None))
        parts = zip(_parts(properties, count), _parts(keys, count), strict=True)
        return np.concatenate([self._mask(*part) for part in parts])

    def _mask(self, properties: Blobs, keys: Blobs) -> Bools:
        """(n,) which of a few thousand messages are wanted."""
        if self._properties.is_full or self._keys.is_full or len(self._of_pairs) > MOST_PAIRS:
            self._forget()
        numbers = self._properties.number_all(*properties)
        known, texts = len(self._values), self._properties.texts
        if known < len(texts):
            new = [self._decoded(text) for text in texts[known:]]
            self._values += new
            if not self._has_key:
                self._answers = np.append(self._answers, [self._is_wanted(one, None) for one in new])
        return self._of_keys(numbers, keys) if self._has_key else self._answers.take(numbers)

    def _of_keys(self, numbers: Int64s, keys: Blobs) -> Bools:
        """(n,) which messages are wanted, by the numbers of their properties, and their keys."""
        pairs, which = np.unique(numbers << 32 | self._keys.number_all(*keys), return_inverse=True)
        answers = [self._of_pair(pair) for pair in pairs.tolist()]
        return np.array(answers, np.bool_)[which]

    def _of_pair(self, pair: int) -> bool:
        found = self._of_pairs.get(pair)
        if found is None:
            key = self._keys.texts[pair & 0xFFFFFFFF]
            found = self._of_pairs[pair] = self._is_wanted(self._values[pair >> 32], key)
        return found

    def _decoded(self, properties: bytes | None) -> Values | None:
        """The values that the filter asks for; None if the properties are no JSON object."""
        if properties is None:
            return {}
        try:
            found = _PROPERTIES.decode(properties.decode())
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        names = self._condition.names
        return {name: value for name, value in found.items() if name in names and isinstance(value, str)}

    def _is_wanted(self, values: Values | None, key: bytes | None) -> bool:
        if values is None:
            return False
        if key is not None and self._has_key:
            with suppress(ValueError):  # a key that is no text is as if there was none
                values = {**values, None: key.decode()}
        return self._condition.truth(values) is True


def _parts(column: Blobs | None, count: int) -> Iterator[Blobs]:
    """The column of `count` messages in pieces of some thousand messages."""
    begin = 0
    for at in range(0, count, ROWS_TOGETHER):
        end = min(count, at + ROWS_TOGETHER)
        if column is None:
            yield Blobs(np.full(end - at, NONE), b"")
            continue
        lengths = column.lengths[at:end]
        size = int(np.maximum(lengths, 0).sum())
        yield Blobs(lengths, memoryview(column.data)[begin : begin + size])
        begin += size
