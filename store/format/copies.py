"""Copies of messages that a subscription still wants when retention removes their segments, in a hidden stream.

The stream is `hidden_topic(COPIES, topic)`. A copy has the data and the properties of the message. Its delivery time is
the message's own; it has none if the message has none. Its key is

    magic      4 bytes  COPY_MAGIC
    version    u8       COPY_VERSION
    has_key    u8       1 if the message has a key
    zeros      u16
    queue      u32      } what the message is called: it keeps that
    offset     i64      }
    time       i64      when it was put into the log, in ms
    key                 the rest: the message's key
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

COPY_MAGIC: Final = b"SLDP"
COPY_VERSION: Final = 1
_HEAD = struct.Struct("<4sBBHIqq")


class CopyHead(NamedTuple):
    """The queue id, offset, time and key of a copied message."""

    queue_id: int
    offset: int
    timestamp_ms: int
    key: bytes | None

    def pack(self) -> bytes:
        """The key of the copy."""
        head = _HEAD.pack(
            COPY_MAGIC, COPY_VERSION, self.key is not None, 0, self.queue_id, self.offset, self.timestamp_ms
        )
        return head + (self.key or b"")

    @classmethod
    def unpack(cls, data: bytes | None) -> CopyHead | None:
        """The head in the key of a copy; None when it is not one of this version."""
        if data is None or len(data) < _HEAD.size:
            return None
        magic, version, has_key, zeros, queue_id, offset, time_ms = _HEAD.unpack_from(data)
        if (magic, version, zeros) != (COPY_MAGIC, COPY_VERSION, 0):
            return None
        return cls(queue_id, offset, time_ms, data[_HEAD.size :] if has_key else None)
