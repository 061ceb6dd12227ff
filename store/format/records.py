"""Records: what the store must remember besides messages, as messages of an internal stream of each lane.

A record is the data of a message of the stream (RECORDS_TOPIC, lane). No user can name this topic: a topic has no
control characters. So a record has the checksums, the chain and the recovery of every other message.

    magic    4 bytes  RECORD_MAGIC
    version  u8       RECORD_VERSION
    kind     u8       TRIM: the queue begins at `low` for good
                      DELETE: the same, and `topics()` and `queues()` leave the queue out until it has a message at
                      `low` or after it
    zeros    u16
    number   u32      of the stream in its lane
    low      i64      the first offset that stays; at most the stream's next offset where the record lies in the log

A record holds for good: of several of a stream, the largest numbers count.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import numpy.ma  # `numpy.unique` loads it at its first call: a seal, perhaps where no file can be opened

from .arrays import Int64s

RECORDS_TOPIC: Final = "\x01records"
RECORD_MAGIC: Final = b"SLOR"
RECORD_VERSION: Final = 1
TRIM: Final = 1
DELETE: Final = 2

_RECORD = struct.Struct("<4sBBHIq")
RECORD_BYTES: Final = _RECORD.size


class StreamLow(NamedTuple):
    """The beginning of a stream for its readers.

    Attributes:
        low: the first offset that stays.
        hidden: the stream is not listed as long as its next offset is at most this. Never above `low`.
    """

    low: int = 0
    hidden: int = 0

    def joined(self, other: StreamLow) -> StreamLow:
        """The larger low and the larger `hidden` of both."""
        return StreamLow(max(self.low, other.low), max(self.hidden, other.hidden))

    def cut(self, next_offset: int) -> StreamLow:
        """The low of a stream that ends at `next_offset`."""
        return StreamLow(min(self.low, next_offset), min(self.hidden, next_offset))


Trimmed = Mapping[int, StreamLow]  # by stream number; of the streams that were never trimmed it has nothing
NOTHING_TRIMMED: Final[Trimmed] = MappingProxyType({})
NOT_TRIMMED: Final = StreamLow()


class TrimmedColumns(Trimmed):
    """Trims as three columns, as a footer has them. Numbers ascend."""

    def __init__(self, numbers: Int64s, low: Int64s, hidden: Int64s) -> None:
        self.numbers = numbers
        self.low = low
        self.hidden = hidden

    @classmethod
    def of(cls, trimmed: Trimmed) -> TrimmedColumns:
        """The columns of any table."""
        if isinstance(trimmed, TrimmedColumns):
            return trimmed
        rows = np.array([(number, *trimmed[number]) for number in sorted(trimmed)], np.int64).reshape(-1, 3)
        return cls(*rows.T)

    def __getitem__(self, number: int) -> StreamLow:
        at = int(self.numbers.searchsorted(number))
        if at == len(self.numbers) or self.numbers[at] != number:
            raise KeyError(number)
        return StreamLow(int(self.low[at]), int(self.hidden[at]))

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers.tolist())

    def __len__(self) -> int:
        return len(self.numbers)


class LentTrims(NamedTuple):
    """The lows of a lane at one place in its log. Nothing of it changes.

    Attributes:
        before: what some full footer says.
        since: what records after that say; of a stream in both, this holds.
        turn: how many were lent before.
    """

    before: TrimmedColumns
    since: TrimmedColumns
    turn: int = 0

    def whole(self, gone: Sequence[int] = ()) -> TrimmedColumns:
        """All lows, without those of streams that are gone."""
        numbers = np.concatenate([self.since.numbers, self.before.numbers])
        numbers, at = np.unique(numbers, return_index=True)  # of a number in both, the first one: it is newer
        stays = ~np.isin(numbers, gone) if len(gone) else slice(None)
        lows = np.concatenate([self.since.low, self.before.low])[at][stays]
        return TrimmedColumns(numbers[stays], lows, np.concatenate([self.since.hidden, self.before.hidden])[at][stays])


class Record(NamedTuple):
    """A record, see the module's text."""

    kind: int
    number: int
    low: int

    @classmethod
    def of(cls, number: int, low: StreamLow) -> Record:
        """The record of a stream's new low."""
        return cls(DELETE if low.hidden else TRIM, number, low.low)

    def pack(self) -> bytes:
        return _RECORD.pack(RECORD_MAGIC, RECORD_VERSION, self.kind, 0, self.number, self.low)

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Record | None:
        """The record, or None when the bytes are not one of this version."""
        if len(data) != RECORD_BYTES:
            return None
        magic, version, kind, zeros, number, low = _RECORD.unpack(data)
        is_known = (magic, version, zeros) == (RECORD_MAGIC, RECORD_VERSION, 0) and kind in (TRIM, DELETE)
        return cls(kind, number, low) if is_known and low >= 0 else None

    @property
    def effect(self) -> StreamLow:
        """The low that the record gives its stream."""
        return StreamLow(self.low, self.low if self.kind == DELETE else 0)


def add_low(trimmed: dict[int, StreamLow], number: int, low: StreamLow) -> None:
    """Add the low of a stream, as a record or a footer has it."""
    trimmed[number] = trimmed.get(number, NOT_TRIMMED).joined(low)


def add_trimmed(trimmed: dict[int, StreamLow], more: Trimmed) -> None:
    """Add the lows of several streams."""
    for number, low in more.items():
        add_low(trimmed, number, low)


def beyond(known: Trimmed, more: Trimmed) -> Trimmed:
    """The lows of `more` that are higher than those of `known`."""
    return {
        number: low for number, low in more.items() if known.get(number, NOT_TRIMMED).joined(low) != known.get(number)
    }
