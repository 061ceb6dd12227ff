"""Records of message ids: which ids a topic has seen, as messages of hidden streams.

A topic has one such stream in each lane that has messages with ids of it: `hidden_topic(IDS_KIND, topic, lane)`, with
the lane as digits. A record lies in the frame of its messages, after them, and the frame is ATOMIC: so an id is durable
with its message or not at all. A record has all ids of its topic in that frame.

    magic    4 bytes  IDS_MAGIC
    version  u8       IDS_VERSION
    kind     u8       SEEN: the messages lie in this frame
                      KEPT: retention has removed the records that said so, and the ids still count
    zeros    u16
    count    u32
    zeros    u32
    stamp    i64      when they were put into the log, in ms, times 256; more where the one before is not smaller, so
                      that stamps of a topic are in the order of its ids. In a KEPT record that of the newest
    digests  n x 16   xxh3_128 of the id in UTF-8, big-endian
    queues   n x u32  } of the message: it is what an append with this id answers
    offsets  n x i64  }
    stamps   n x i64  of each id; in a KEPT record alone

The SEEN records of a stream are in the order of the log. A KEPT one comes after records that are newer than it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import xxhash

from .arrays import Int64s

IDS_MAGIC: Final = b"SLMI"
IDS_VERSION: Final = 1
SEEN: Final = 1
KEPT: Final = 2
DIGEST_BYTES: Final = 16
MAX_ID_BYTES: Final = 255
ID_BYTES: Final = DIGEST_BYTES + 12  # of a SEEN record, for each id
FEW: Final = 16  # ids of a frame: up to here a loop is quicker than the calls of numpy
STAMP_BITS: Final = 8  # of a stamp, below the time

_HEAD = struct.Struct("<4sBBHIIq")
HEAD_BYTES: Final = _HEAD.size

digest_of = xxhash.xxh3_128_digest
QueueIds: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]]


class SeenIds(NamedTuple):
    """The ids of one record, in columns, the oldest first.

    Attributes:
        kind: SEEN or KEPT.
        digests: of each id, 16 bytes.
        queue_ids, offsets: int64 (n), of the messages.
        stamps: int64 (n).
    """

    kind: int
    digests: list[bytes]
    queue_ids: Int64s
    offsets: Int64s
    stamps: Int64s

    @property
    def times_ms(self) -> Int64s:
        """(n,) when they were put into the log."""
        return self.stamps >> STAMP_BITS

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> SeenIds | None:
        """The ids, or None when the bytes are no record of this version."""
        if len(data) < HEAD_BYTES:
            return None
        magic, version, kind, zeros, count, more_zeros, stamp = _HEAD.unpack_from(data)
        if (magic, version, zeros, more_zeros) != (IDS_MAGIC, IDS_VERSION, 0, 0) or kind not in (SEEN, KEPT):
            return None
        if len(data) != HEAD_BYTES + count * (ID_BYTES + (8 if kind == KEPT else 0)):
            return None
        at = HEAD_BYTES + DIGEST_BYTES * count
        raw = bytes(data[HEAD_BYTES:at])
        digests = [raw[begin : begin + DIGEST_BYTES] for begin in range(0, len(raw), DIGEST_BYTES)]
        queue_ids = np.frombuffer(data, "<u4", count, at).astype(np.int64)
        offsets = np.frombuffer(data, "<i8", count, at + 4 * count)
        own = np.frombuffer(data, "<i8", count, at + 12 * count) if kind == KEPT else None
        stamps = np.full(count, stamp, np.int64) if own is None else own
        return cls(kind, digests, queue_ids, offsets, stamps)


def seen_bytes(count: int) -> int:
    """The bytes of a SEEN record."""
    return HEAD_BYTES + ID_BYTES * count


def pack_seen(
    packed: bytes, queue_ids: QueueIds, offsets: Sequence[int] | Int64s, stamp: int
) -> bytes:  # fmt: skip
    """The SEEN record of some messages, `seen_bytes` long; `packed` has the digests, one after the other."""
    count = len(offsets)
    head = _HEAD.pack(IDS_MAGIC, IDS_VERSION, SEEN, 0, count, 0, stamp)
    if count <= FEW:
        return head + packed + struct.pack(f"<{count}I{count}q", *queue_ids, *offsets)
    return b"".join([head, packed, np.asarray(queue_ids, "<u4").tobytes(), np.asarray(offsets, "<i8").tobytes()])


def pack_kept(
    digests: Sequence[bytes], queue_ids: npt.ArrayLike, offsets: npt.ArrayLike, stamps: Int64s, limit_bytes: int
) -> list[bytes]:
    """The KEPT records of some ids, at least one, the oldest first; each of at most `limit_bytes`."""
    step = max(1, (limit_bytes - HEAD_BYTES) // (ID_BYTES + 8))
    queues, places = np.asarray(queue_ids).astype("<u4"), np.asarray(offsets).astype("<i8")
    records = []
    for begin in range(0, len(digests), step):
        part = slice(begin, begin + step)
        mine = stamps[part]
        head = _HEAD.pack(IDS_MAGIC, IDS_VERSION, KEPT, 0, len(mine), 0, int(mine.max()))
        columns = queues[part].tobytes() + places[part].tobytes() + mine.astype("<i8").tobytes()
        records.append(head + b"".join(digests[part]) + columns)
    return records
