"""Records of a subscription: what it has acknowledged, as messages of its hidden stream (see `hidden`).

    magic    4 bytes  CURSOR_MAGIC
    version  u8       CURSOR_VERSION
    kind     u8       STATE, ACKS, DELETE or ATTEMPTS
    part     u16      } a STATE that is too large for one record comes in `parts` records, in their order; it counts
    parts    u16      } only if all of them are there. Records of other kinds may lie between them; no other STATE's do
    zeros    u16
    life     u32      of the name, from 1 on: which subscription of this name it is

    STATE    zlib of: u32 settings bytes, u32 n, settings (JSON), n x u32 queue ids, n x u32 eras, n x i64 marks, groups
             as in ACKS. All messages of a queue below its mark are acknowledged. A queue that was never named has the
             mark 0 in the era 0.
    ACKS     groups, one after the other: u32 queue id, u32 era, u8 form, 3 zeros, u32 bytes of what follows:
             ONE      i64 an offset
             RANGES   pairs of i64: begin, end (exclusive)
             BITMAP   a 64-bit Roaring bitmap in its portable form
    DELETE   nothing; its life is the one after the subscription's
    ATTEMPTS groups with the same head; messages that were given out, once if the form is ONE, RANGES or BITMAP:
             COUNTS   pairs of i64: an offset, how often it was given out

Within an era of a queue, records only add: the mark grows, acknowledged offsets come, and of two numbers of attempts
the larger one counts. So their order does not matter, a record may be repeated, and a snapshot is a STATE with all that
is acknowledged, and the ATTEMPTS of the others. A STATE with a later era of a queue, which a seek writes, replaces what
was there of that queue; one with a later life replaces everything. A record of an earlier era or life counts for
nothing, wherever it lies. So two threads that append records at the same time need no lock between them.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from pyroaring import BitMap64

from .arrays import Int64s

CURSOR_MAGIC: Final = b"SLCU"
CURSOR_VERSION: Final = 1
STATE: Final = 1
ACKS: Final = 2
DELETE: Final = 3
ATTEMPTS: Final = 4
KINDS: Final = (STATE, ACKS, DELETE, ATTEMPTS)
ONE: Final = 1
RANGES: Final = 2
BITMAP: Final = 3
COUNTS: Final = 4

_HEAD = struct.Struct("<4sBBHHHI")
_GROUP = struct.Struct("<IIB3xI")
_COUNTS = struct.Struct("<II")
_OFFSET = struct.Struct("<q")
_ONE = struct.Struct("<IIB3xIq")  # a group of the form ONE
_ONE_ALONE = struct.Struct("<4sBBHHHIIIB3xIq")  # with the record's head
ONE_BYTES: Final = _ONE_ALONE.size
HEAD_BYTES: Final = _HEAD.size
FEW_RANGES: Final = 8  # up to here a bitmap is not tried


class Record(NamedTuple):
    """The head of a record, and its bytes after that."""

    kind: int
    life: int
    part: int
    parts: int
    body: memoryview

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Record | None:
        """The record, or None when the bytes are not one of this version."""
        if len(data) < HEAD_BYTES:
            return None
        magic, version, kind, part, parts, zeros, life = _HEAD.unpack_from(data)
        is_known = (magic, version, zeros) == (CURSOR_MAGIC, CURSOR_VERSION, 0) and kind in KINDS
        return cls(kind, life, part, parts, memoryview(data)[HEAD_BYTES:]) if is_known and part < parts else None


class Group(NamedTuple):
    """Offsets of one queue in one era: ranges (n, 2) of begin and end, or a bitmap; or counts (n, 2) with numbers."""

    queue_id: int
    era: int
    ranges: Int64s | None
    bitmap: BitMap64 | None
    counts: Int64s | None = None


class CursorMark(NamedTuple):
    """The end of a queue's acknowledged messages, in one era of the queue."""

    era: int
    offset: int


class State(NamedTuple):
    """The content of a STATE: the settings as JSON, marks by queue id, and what is acknowledged above the marks."""

    settings: bytes
    marks: Mapping[int, CursorMark]
    groups: Sequence[Group] = ()


def _head(kind: int, life: int, part: int = 0, parts: int = 1) -> bytes:
    return _HEAD.pack(CURSOR_MAGIC, CURSOR_VERSION, kind, part, parts, 0, life)


def pack_state(life: int, state: State, limit_bytes: int) -> list[bytes]:
    """The records of a STATE, each of at most `limit_bytes`."""
    queues = sorted(state.marks)
    marks = np.array([state.marks[queue] for queue in queues], np.int64).reshape(-1, 2)
    whole = zlib.compress(
        _COUNTS.pack(len(state.settings), len(queues)) + state.settings + np.array(queues, np.uint32).tobytes()
        + marks[:, 0].astype(np.uint32).tobytes() + marks[:, 1].tobytes()
        + b"".join([_packed_bitmap(one.queue_id, one.era, one.bitmap) for one in state.groups if one.bitmap]), 1,
    )  # fmt: skip
    room = limit_bytes - HEAD_BYTES
    cuts = range(0, len(whole), room)
    return [_head(STATE, life, part, len(cuts)) + whole[at : at + room] for part, at in enumerate(cuts)]


def unpack_state(parts: Sequence[memoryview]) -> State:
    """The content of the bodies of a STATE's records, all of them in order. Raises ValueError if they make none."""
    try:
        whole = zlib.decompress(b"".join(parts))
        size, count = _COUNTS.unpack_from(whole)
    except (zlib.error, struct.error) as error:
        raise ValueError("the bytes are no state") from error
    at = _COUNTS.size + size
    queues = np.frombuffer(whole, np.uint32, count, at).tolist()
    eras = np.frombuffer(whole, np.uint32, count, at + 4 * count).tolist()
    offsets = np.frombuffer(whole, np.int64, count, at + 8 * count).tolist()
    groups = unpack_acks(memoryview(whole)[at + 16 * count :])
    return State(whole[_COUNTS.size : at], dict(zip(queues, map(CursorMark, eras, offsets), strict=True)), groups)


def pack_one(life: int, queue_id: int, era: int, offset: int) -> bytes:
    """The record of one acknowledged message, `ONE_BYTES` long: as `pack_ones`, in a third of the time."""
    return _ONE_ALONE.pack(CURSOR_MAGIC, CURSOR_VERSION, ACKS, 0, 1, 0, life, queue_id, era, ONE, _OFFSET.size, offset)


def pack_ones(life: int, places: Iterable[tuple[int, int, int]]) -> bytes:
    """The record of a few acknowledged messages anywhere: for each its queue id, its queue's era, and its offset."""
    groups = [_ONE.pack(queue_id, era, ONE, _OFFSET.size, offset) for queue_id, era, offset in places]
    return _head(ACKS, life) + b"".join(groups)


def pack_acks(life: int, groups: Iterable[tuple[int, int, Int64s]], limit_bytes: int) -> list[bytes]:
    """The records of acknowledged messages: for each queue its id, its era and offsets (n,), which ascend."""
    packed = [one for group in groups for one in _packed_offsets(*group, limit_bytes)]
    return _joined(ACKS, life, packed, limit_bytes)


def pack_attempts(life: int, groups: Iterable[tuple[int, int, Int64s, Int64s]], limit_bytes: int) -> list[bytes]:
    """The records of messages that were given out: for each queue its id, its era, offsets (n,), which ascend, and how
    often each was.
    """
    packed: list[bytes] = []
    for queue_id, era, offsets, counts in groups:
        once = offsets[counts == 1]
        if len(once):
            packed += _packed_offsets(queue_id, era, once, limit_bytes)
        rows = np.stack((offsets, counts), 1)[counts > 1]
        step = max(1, (limit_bytes - HEAD_BYTES - _GROUP.size) // 16)
        for part in (rows[at : at + step] for at in range(0, len(rows), step)):
            packed.append(_GROUP.pack(queue_id, era, COUNTS, part.nbytes) + part.tobytes())
    return _joined(ATTEMPTS, life, packed, limit_bytes)


def pack_delete(life: int) -> bytes:
    """The record of a deleted subscription; `life` is the one after its own."""
    return _head(DELETE, life)


def ranges_of(ascending: Int64s) -> Int64s:
    """(n, 2) begin and end of the stretches in ascending offsets, at least one."""
    cuts = np.flatnonzero(ascending[1:] != ascending[:-1] + 1) + 1
    found = np.empty((len(cuts) + 1, 2), np.int64)
    found[0, 0], found[-1, 1] = ascending[0], ascending[-1]
    found[1:, 0], found[:-1, 1] = ascending[cuts], ascending[cuts - 1]
    found[:, 1] += 1
    return found


def bitmap_of(ascending: Int64s) -> BitMap64:
    """The set of ascending offsets."""
    return BitMap64(array("Q", ascending.tobytes()))  # three times as fast as from a numpy array


def _packed_offsets(queue_id: int, era: int, offsets: Int64s, limit_bytes: int) -> list[bytes]:
    ranges = ranges_of(offsets)
    if len(ranges) <= FEW_RANGES:
        return [_GROUP.pack(queue_id, era, RANGES, ranges.nbytes) + ranges.tobytes()]
    data = _packed_bitmap(queue_id, era, bitmap_of(offsets))
    if len(data) <= limit_bytes - HEAD_BYTES:
        return [data]
    half = len(offsets) // 2
    halves = [_packed_offsets(queue_id, era, part, limit_bytes) for part in (offsets[:half], offsets[half:])]
    return [one for some in halves for one in some]


def _packed_bitmap(queue_id: int, era: int, bitmap: BitMap64) -> bytes:
    bitmap.run_optimize()
    data = bitmap.serialize()
    return _GROUP.pack(queue_id, era, BITMAP, len(data)) + data


def _joined(kind: int, life: int, groups: Sequence[bytes], limit_bytes: int) -> list[bytes]:
    """Records of some packed groups."""
    records: list[bytes] = []
    held: list[bytes] = []
    size = HEAD_BYTES
    for group in groups:
        if held and size + len(group) > limit_bytes:
            records.append(_head(kind, life) + b"".join(held))
            held, size = [], HEAD_BYTES
        held.append(group)
        size += len(group)
    if held:
        records.append(_head(kind, life) + b"".join(held))
    return records


def unpack_acks(body: memoryview) -> list[Group]:
    """The groups of an ACKS or ATTEMPTS record. Raises ValueError for what is none."""
    found: list[Group] = []
    at = 0
    while at < len(body):
        try:
            queue_id, era, form, size = _GROUP.unpack_from(body, at)
        except struct.error as error:
            raise ValueError("a group's head is cut") from error
        at += _GROUP.size
        data = body[at : at + size]
        at += size
        if form == BITMAP:
            found.append(Group(queue_id, era, None, BitMap64.deserialize(bytes(data))))
        elif form == RANGES and not size % 16:
            found.append(Group(queue_id, era, np.frombuffer(data, np.int64).reshape(-1, 2), None))
        elif form == ONE and size == _OFFSET.size:
            offset = _OFFSET.unpack(data)[0]
            found.append(Group(queue_id, era, np.array([[offset, offset + 1]], np.int64), None))
        elif form == COUNTS and not size % 16:
            found.append(Group(queue_id, era, None, None, np.frombuffer(data, np.int64).reshape(-1, 2)))
        else:
            raise ValueError(f"a group of form {form} with {size} bytes is not known")
    return found
