"""Applied commits: which bulk commits a lane's log has, so that none is ever applied twice.

A commit has a name and, if it is a batch of a query, a number. Of a query the newest HISTORY + 1 batches are
remembered; of a transaction, which has no number, its name. All names take MOST_BYTES at the most: beyond that the
oldest one is forgotten. A record in the log (see `records`) says what a commit is, before its messages; so do the
footer of its segment and each later one. So a lane's newest footer has all of them, whatever retention has removed.

Record (the data of a message of the lane's stream of records)
    magic    4 bytes  RECORD_MAGIC
    version  u8       RECORD_VERSION
    kind     u8       APPLIED
    zeros    u16
    entry             as in the footer
    shards   n x      u64 checksum, u64 rows, u64 bytes of payloads: those of this lane, in the order of the segments

Entry
    batch    i64      number of the batch, NO_BATCH for a transaction
    digest   u64      of all rows of the commit; equal digests are equal rows. IN_PART of a commit that a repair gave
                      up when the log had a part of it: nothing is a replay of that
    first    u64      number of the first shard's segment in this lane; the others follow it without a gap. Of a
                      commit in frames: how many messages the lane's log has when it has all of the commit's
    shards   u32      how many shards this lane got; 0 of a commit in frames
    flags    u8       KEPT: remembered for good; else only as long as its manifest may be there
                      IN_FRAMES: its messages follow the record in ordinary frames, with no other between them
    size     u8       bytes of the name
    older    u16      how many batches of the query before this one are named
    name     UTF-8
    batches  n x      i64 batch, u64 digest: the older ones, the newest of them first

Footer: a checksum (u64), then the entries back to back, the newest one at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from .layout import SUM, checksum64
from .records import RECORD_MAGIC, RECORD_VERSION

APPLIED: Final = 3  # the kind of the record
NO_BATCH: Final = -1
IN_PART: Final = 0
MAX_NAME_BYTES: Final = 255
MOST_BYTES: Final = 8 << 20  # of all entries of a lane: they are in each of its footers
HISTORY: Final = 64  # older batches of a query: a replay of one that is older still cannot be told from another one

KEPT: Final = 1
IN_FRAMES: Final = 2

_newest_checked = [0]  # the checksum of a section: all footers after the newest commit have the same one

_RECORD = struct.Struct("<4sBBH")
_ENTRY = struct.Struct("<qQQIBBH")
_BATCH = struct.Struct("<qQ")
_SHARD = struct.Struct("<QQQ")
MAX_ENTRY_BYTES: Final = _ENTRY.size + MAX_NAME_BYTES + HISTORY * _BATCH.size


class AppliedCommit(NamedTuple):
    """A lane's memory of a commit; see the module's text."""

    name: str
    batch: int
    digest: int
    first: int
    shards: int
    is_kept: bool = True
    older: tuple[tuple[int, int], ...] = ()  # (batch, digest)
    in_frames: bool = False

    @property
    def key(self) -> tuple[str, bool]:
        """Two commits with the same key are one query's, or one transaction twice."""
        return self.name, self.batch == NO_BATCH

    def pack(self) -> bytes:
        name, flags = self.name.encode(), KEPT * self.is_kept | IN_FRAMES * self.in_frames
        head = _ENTRY.pack(self.batch, self.digest, self.first, self.shards, flags, len(name), len(self.older))
        return b"".join([head, name, *(_BATCH.pack(*one) for one in self.older)])

    def behind(self, known: AppliedCommit | None) -> AppliedCommit:
        """This commit with the batches that `known` remembers, an earlier commit of its query."""
        if known is None or self.batch == NO_BATCH:
            return self
        return self._replace(older=((known.batch, known.digest), *known.older)[:HISTORY])

    @property
    def batches(self) -> dict[int, int]:
        """The digest of each batch that is remembered; of a transaction, its own."""
        return {self.batch: self.digest, **dict(self.older)}


Key: TypeAlias = tuple[str, bool]
AppliedTable = Mapping[Key, AppliedCommit]


class AppliedShard(NamedTuple):
    """A shard as the record names it."""

    checksum: int
    rows: int
    payload_bytes: int


class AppliedRecord(NamedTuple):
    """The record of a commit in one lane."""

    entry: AppliedCommit
    shards: tuple[AppliedShard, ...]

    def pack(self) -> bytes:
        head = _RECORD.pack(RECORD_MAGIC, RECORD_VERSION, APPLIED, 0)
        return b"".join([head, self.entry.pack(), *(_SHARD.pack(*shard) for shard in self.shards)])

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> AppliedRecord | None:
        """The record, or None when the bytes are not one of this kind and version."""
        if len(data) < _RECORD.size + _ENTRY.size:
            return None
        if _RECORD.unpack_from(data) != (RECORD_MAGIC, RECORD_VERSION, APPLIED, 0):
            return None
        entry, at = _entry_at(bytes(data), _RECORD.size)
        if entry is None or len(data) - at != entry.shards * _SHARD.size:
            return None
        shards = (AppliedShard(*_SHARD.unpack_from(data, at + _SHARD.size * index)) for index in range(entry.shards))
        return cls(entry, tuple(shards))


def pack_applied(table: AppliedTable) -> bytes:
    """A footer's section; nothing for an empty table. Beyond MOST_BYTES the oldest entries are left out."""
    parts = [entry.pack() for entry in table.values()]
    size, first = sum(map(len, parts)), 0
    while size > MOST_BYTES and first < len(parts) - 1:
        size, first = size - len(parts[first]), first + 1
    return packed_section(parts[first:])


def packed_section(parts: Sequence[bytes]) -> bytes:
    """A footer's section of packed entries, in their order."""
    packed = b"".join(parts)
    return SUM.pack(checksum64(packed)) + packed if packed else b""


def unpack_applied(section: bytes) -> dict[tuple[str, bool], AppliedCommit]:
    """The table of a section. Raises ValueError where the bytes are none."""
    if not section:
        return {}
    _check_sum(section)
    table: dict[tuple[str, bool], AppliedCommit] = {}
    at = SUM.size
    while at < len(section):
        entry, at = _entry_at(section, at)
        if entry is None:
            raise ValueError("an entry makes no sense")
        table[entry.key] = entry
    return table


def check_applied(section: bytes) -> None:
    """Raise ValueError where `unpack_applied` does. No table is made: that takes four times as long, and memory."""
    if not section:
        return
    checksum = _check_sum(section)
    if checksum == _newest_checked[0]:
        return
    at, size = SUM.size, len(section)
    while at < size:
        begin = at + _ENTRY.size
        if begin > size:
            raise ValueError("an entry makes no sense")
        batch, _, _, shards, flags, name_bytes, count = _ENTRY.unpack_from(section, at)
        at = begin + name_bytes + _BATCH.size * count
        if not _makes_sense(batch, shards, flags, name_bytes) or at > size:
            raise ValueError("an entry makes no sense")
        try:
            section[begin : begin + name_bytes].decode()
        except UnicodeDecodeError:
            raise ValueError("an entry makes no sense") from None
    _newest_checked[0] = checksum


def _check_sum(section: bytes) -> int:
    checksum = checksum64(section[SUM.size :])
    if len(section) < SUM.size or SUM.unpack_from(section)[0] != checksum:
        raise ValueError("the checksum does not hold")
    return checksum


def add_applied(table: dict[tuple[str, bool], AppliedCommit], entries: Iterable[AppliedCommit]) -> None:
    """Note some more commits. Of a query the later batch counts."""
    for entry in entries:
        known = table.get(entry.key)
        if known is None or known.batch <= entry.batch:
            table.pop(entry.key, None)  # the one that came last is at the end
            table[entry.key] = entry


def batches_of(entries: Iterable[AppliedCommit | None]) -> dict[int, int]:
    """The digest of each batch, from what lanes remember under one name; see `AppliedCommit.batches`.

    IN_PART where lanes do not agree: a repair has given up what one of them should have.
    """
    found: dict[int, int] = {}
    for one in entries:
        if one is not None:
            for number, digest in one.batches.items():
                found[number] = digest if found.get(number, digest) == digest else IN_PART
    return found


def batches_in(tables: Iterable[AppliedTable], name: str, batch: int) -> dict[int, int]:
    """`batches_of` what the tables of some lanes have under a commit's name."""
    return batches_of(table.get((name, batch == NO_BATCH)) for table in tables)


def _entry_at(content: bytes, at: int) -> tuple[AppliedCommit | None, int]:
    if len(content) - at < _ENTRY.size:
        return None, len(content)
    batch, digest, first, shards, flags, size, count = _ENTRY.unpack_from(content, at)
    begin, names_end = at + _ENTRY.size, at + _ENTRY.size + size
    end = names_end + _BATCH.size * count
    if end > len(content) or not _makes_sense(batch, shards, flags, size):
        return None, len(content)
    try:
        name = content[begin:names_end].decode()
    except UnicodeDecodeError:
        return None, len(content)
    older = tuple(_BATCH.iter_unpack(content[names_end:end]))
    return AppliedCommit(name, batch, digest, first, shards, bool(flags & KEPT), older, bool(flags & IN_FRAMES)), end


def _makes_sense(batch: int, shards: int, flags: int, name_bytes: int) -> bool:
    return name_bytes > 0 and batch >= NO_BATCH and flags <= KEPT | IN_FRAMES and not (flags & IN_FRAMES and shards)
