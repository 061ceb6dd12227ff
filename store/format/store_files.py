"""STORE and START: the two small files that say which store a folder is, and where each lane's log begins.

A lane's folder has a third one, COMPACTED, if its log was ever compacted.

START
    Two blocks, each a copy of the same record: the first segment of the log, and how many messages the log
    had before it. The first copy is forced before the second is written, and both before a segment is
    removed. So one copy is whole after any crash, and the larger number counts: a segment below it was being
    removed, and a first segment above it is missing.

COMPACTED
    One block, a copy of START's record as the newest compaction of the lane wrote it. It is forced before the new
    folder gets the lane's name, and never changes there. The new log's numbers lie above every position in the old
    one, so a lower number that a reader has kept is of a log that is gone. A lane is compacted for itself: some lanes
    of a store may have the file and others not, or have it of different compactions. Offsets and what records say are
    the same on both sides of a compaction, so each mix of old and new lanes is a whole store. Stream numbers are not:
    those of streams that are gone are left out. So a number means a stream of the log of one compaction; no file but
    the lane's own has one.

A folder of stores that share the queues of topics has a file of its own, SHARDS: how many stores that are.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from .layout import FORMAT_VERSION, MAX_LANES, block_of, checked, fields_of

STORE_MAGIC: Final = b"SLOGSTOR"
START_MAGIC: Final = b"SLOGSTRT"
COMPACTED_FILE: Final = "COMPACTED"  # in a lane's folder: its START when compaction wrote the log anew
SHARDS_MAGIC: Final = b"SLOGPART"
SHARDS_FILE: Final = "SHARDS"  # beside the stores of a folder, none of which has it

_STORE = struct.Struct("<8sI16sI")
_START = struct.Struct("<8sII16sQQ")
_SHARDS = struct.Struct("<8sII")


class StoreHeader(NamedTuple):
    """The STORE file."""

    store_id: bytes
    lanes: int

    def pack(self) -> bytes:
        body = _STORE.pack(STORE_MAGIC, FORMAT_VERSION, self.store_id, self.lanes)
        return block_of(body)

    @classmethod
    def unpack(cls, block: bytes) -> StoreHeader | None:
        """The header, or None when the bytes are not one (wrong magic, version or checksum, or no such store)."""
        fields = fields_of(block, _STORE, STORE_MAGIC)
        header = None if fields is None else cls(*fields)
        return header if header is not None and 1 <= header.lanes <= MAX_LANES else None


def version_in(block: bytes) -> int | None:
    """The format of the store whose STORE file this is; None where the bytes are no such file."""
    body = checked(block, _STORE.size)
    magic, version, *_ = _STORE.unpack(body or bytes(_STORE.size))
    return int(version) if magic == STORE_MAGIC else None


class LaneStart(NamedTuple):
    """One copy of a lane's START: the first segment of the log, and the messages of the log before it or UNKNOWN."""

    lane: int
    store_id: bytes
    sequence: int = 1
    messages_before: int = 0

    def pack(self) -> bytes:
        body = _START.pack(START_MAGIC, FORMAT_VERSION, *self)
        return block_of(body)

    @classmethod
    def unpack(cls, block: bytes) -> LaneStart | None:
        """The record, or None when the bytes are not one."""
        fields = fields_of(block, _START, START_MAGIC)
        start = None if fields is None else cls(*fields)
        return start if start is not None and start.sequence >= 1 else None


class ShardCount(NamedTuple):
    """The SHARDS file of a folder of stores: how many there are, from 1 on."""

    stores: int

    def pack(self) -> bytes:
        return block_of(_SHARDS.pack(SHARDS_MAGIC, FORMAT_VERSION, self.stores))

    @classmethod
    def unpack(cls, block: bytes) -> ShardCount | None:
        """The record, or None when the bytes are not one."""
        fields = fields_of(block, _SHARDS, SHARDS_MAGIC)
        count = None if fields is None else cls(*fields)
        return count if count is not None and count.stores >= 1 else None
