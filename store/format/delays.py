"""The store's memory of a topic's delayed messages, besides the messages themselves: changes, and marks.

Changes are the messages of a hidden stream of the topic, `hidden_topic(DELAYS, topic)`. Each is

    magic    4 bytes  CHANGES_MAGIC
    version  u8       CHANGES_VERSION
    kind     u8       CHANGES: of messages that are in the log
                      WHOLE: a part of all changes that still matter. The last part (`left` is 0) takes the place of all
                      that was before; without its last part, a WHOLE says nothing
    left     u16      parts that follow, in their order; changes may lie between them, and are newer than the parts
    count    u32
    queues   n x u32  } the messages: queue ids, offsets, and the new times of delivery in ms,
    offsets  n x i64  } CANCELLED for one that is not delivered at all
    times    n x i64  }

Of several changes of a message the last one holds. A topic has an index once the stream has a message.

A mark is what the index on disk keeps with its buckets: how far in the log everything was added.

    magic    4 bytes  MARK_MAGIC
    version  u8       MARK_VERSION
    zeros    3 bytes
    changes  u64      of the hidden stream: the first offset that was not applied
    lanes    u32      then for each a u64 segment and a u64 entry: the first that was not added
    topic             the rest, UTF-8
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from .arrays import Int64s

DELAYS: Final = "delays"  # kinds of hidden streams
COPIES: Final = "copies"
CHANGES_MAGIC: Final = b"SLDC"
CHANGES_VERSION: Final = 1
CHANGES: Final = 1
WHOLE: Final = 2
CANCELLED: Final = -1
MARK_MAGIC: Final = b"SLDM"
MARK_VERSION: Final = 1
MOST_LEFT: Final = 0xFFFF  # of a WHOLE with more parts, the first ones say this
MOST_ROWS: Final = 1000  # of a message: it fits into every frame

_CHANGES = struct.Struct("<4sBBHI")
_MARK = struct.Struct("<4sB3xQI")
_PLACE = struct.Struct("<QQ")


class Changes(NamedTuple):
    """A message of changes. `queue_ids`, `offsets`, `times_ms` are int64 (n)."""

    kind: int
    left: int
    queue_ids: Int64s
    offsets: Int64s
    times_ms: Int64s

    def pack(self) -> bytes:
        """The data of the message."""
        head = _CHANGES.pack(CHANGES_MAGIC, CHANGES_VERSION, self.kind, self.left, len(self.offsets))
        columns = self.queue_ids.astype("<u4"), self.offsets.astype("<i8"), self.times_ms.astype("<i8")
        return b"".join([head, *(column.tobytes() for column in columns)])

    def follows(self, part: Changes) -> bool:
        """Whether this may be the part of a WHOLE after another one."""
        return self.left == part.left - 1 or self.left == part.left == MOST_LEFT

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Changes | None:
        """The changes, or None when the bytes are not some of this version."""
        if len(data) < _CHANGES.size:
            return None
        magic, version, kind, left, count = _CHANGES.unpack_from(data)
        if (magic, version) != (CHANGES_MAGIC, CHANGES_VERSION) or kind not in (CHANGES, WHOLE):
            return None
        if len(data) != _CHANGES.size + 20 * count:
            return None
        at = _CHANGES.size
        columns = (("<u4", at), ("<i8", at + 4 * count), ("<i8", at + 12 * count))
        found = [np.frombuffer(data, kind, count, begin).astype(np.int64) for kind, begin in columns]
        return cls(kind, left, *found)


def whole(queue_ids: Int64s, offsets: Int64s, times_ms: Int64s) -> list[bytes]:
    """The messages that take the place of all changes so far."""
    begins = range(0, max(1, len(offsets)), MOST_ROWS)
    parts = [slice(begin, begin + MOST_ROWS) for begin in begins]
    return [
        Changes(WHOLE, min(len(parts) - 1 - at, MOST_LEFT), queue_ids[part], offsets[part], times_ms[part]).pack()
        for at, part in enumerate(parts)
    ]


class LogPlace(NamedTuple):
    """A place in a lane's log: the number of a segment, and of a message in it."""

    sequence: int
    entry: int


BEGIN: Final = LogPlace(0, 0)


class IndexMark(NamedTuple):
    """A mark, see the module's text. `places` has one place a lane."""

    topic: str
    changes: int
    places: Sequence[LogPlace]

    def pack(self) -> bytes:
        """The bytes that the index keeps."""
        head = _MARK.pack(MARK_MAGIC, MARK_VERSION, self.changes, len(self.places))
        return b"".join([head, *(_PLACE.pack(*place) for place in self.places), self.topic.encode()])

    @classmethod
    def unpack(cls, data: bytes) -> IndexMark | None:
        """The mark, or None when the bytes are not one of this version."""
        if len(data) < _MARK.size:
            return None
        magic, version, changes, lanes = _MARK.unpack_from(data)
        end = _MARK.size + _PLACE.size * lanes
        if (magic, version) != (MARK_MAGIC, MARK_VERSION) or len(data) < end:
            return None
        places = [LogPlace(*_PLACE.unpack_from(data, at)) for at in range(_MARK.size, end, _PLACE.size)]
        try:
            return cls(data[end:].decode(), changes, places)
        except UnicodeDecodeError:
            return None
