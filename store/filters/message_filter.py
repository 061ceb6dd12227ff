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


class _Remembered:
    """What is known of some texts; replaced as a whole.

    Attributes:
        properties, keys: the texts by number.
        answers: by number of the properties, of the first ones, where the key is not asked for.
        values: by number of the properties, of the first ones, where it is.
        of_pairs: the answers then, by the numbers of properties and key, see `MessageFilter._of_keys`.
    """

    def __init__(self) -> None:
        self.properties, self.keys = TextNumbers(), TextNumbers()
        self.answers = np.empty(0, np.bool_)
        self.values: list[Values | None] = []
        self.of_pairs: dict[int, bool] = {}

    @property
    def is_full(self) -> bool:
        """Whether it is time to forget."""
        return self.properties.is_full or self.keys.is_full or len(self.of_pairs) > MOST_PAIRS


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
        self._known = _Remembered()

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
        if self._known.is_full:
            self._known = _Remembered()
        known = self._known
        numbers = known.properties.number_all(*properties)
        if self._has_key:
            known.values += [self._decoded(text) for text in known.properties.texts[len(known.values) :]]
            return self._of_keys(numbers, known.keys.number_all(*keys))
        new = [self.takes(text) for text in known.properties.texts[len(known.answers) :]]
        if new:
            known.answers = np.append(known.answers, new)
        return known.answers.take(numbers)

    def _of_keys(self, properties: Int64s, keys: Int64s) -> Bools:
        """(n,) which messages are wanted, by the numbers of their properties and keys."""
        pairs, which = np.unique(properties << 32 | keys, return_inverse=True)
        answers = [self._of_pair(pair) for pair in pairs.tolist()]
        return np.array(answers, np.bool_)[which]

    def _of_pair(self, pair: int) -> bool:
        known = self._known
        found = known.of_pairs.get(pair)
        if found is None:
            values, key = known.values[pair >> 32], known.keys.texts[pair & 0xFFFFFFFF]
            found = known.of_pairs[pair] = self._is_wanted(values, key)
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
