"""Shards and manifests: bulk data on its way into a store, in the folder `incoming` beside the lanes.

    incoming/LOCK                           held to commit, or to remove shards
    incoming/QUESTION                       what a committer asks the process that has the store open, and
    incoming/ANSWER                         the answer
    incoming/<staging>/00-000001.shard      what one task has written: lane, number
    incoming/<staging>/00-000001.index      what the shard is; its checksum is the shard's
    incoming/000000000001-<hash>.manifest   a commit that is durable and not yet attached
    incoming/000000000001-<hash>.refused    one that cannot be attached: it replays another and differs from it, or it
                                            is damaged and a repair gave it up. The shards that it names stay with it

A staging folder is named <transaction>-<partition>-<attempt>-<random>, so no two tasks, attempts or runs share one.
A shard that no manifest names was never committed: it is never read, and is removed when it is old.

Shard
    Two empty blocks, where header and seal record of the segment will stand, then frames as in a segment (`layout`),
    always with WIDE_NUMBERS. They count from 0 by themselves: `sequence` 0, streams numbered by the shard. The low bits
    of offsets are 0: attaching gives them. The first frame's `chain` is 0. No frame defines streams, or has a mark.

Index
    header      magic, version, store id, lane, frames, rows, where the frames end, bytes of the payloads, the sum of
                the rows' hashes, bytes of the footer; then its checksum
    footer      a segment's footer, of the shard's own streams and offsets; sequence 0
    heads       f x u32   header_bytes of each frame
    sums        f x u64   checksum of what attaching leaves as it is of each frame's head: all columns but the
                          numbers and the low bits of offsets
    The checksum of all these bytes stands in the manifest. It covers `sums`; these cover the checksums of the messages,
    and these the payloads. So whatever happens to a staged shard is found, and no payload is read for it.

Manifest
    JSON in one line: the store's id, the commit's name and batch, whether the name is kept for good, and the shards in
    order, each with folder, file, lane, rows, bytes and checksum. If other commits wait, `before` is the last one of
    them: the file of its manifest, its name, batch and rows. So the loss of a manifest is noticed by the next one. In a
    second line the checksum of the first. It is written under another name, forced, renamed, and the folder is forced:
    then the commit is done, and attaching it cannot be refused any more.

Question, answer
    JSON in one line and its checksum in a second one, as a manifest has them. A question has a number, which is drawn
    anew each time, and the name and batch of the commit that is to be made; its answer has the same number, and the
    batch and digest of each commit that the log has under that name, or why that cannot be told. They are not forced.

Attaching a small commit
    The lane's log gets the commit's record and after it, in ordinary frames, the messages of its shards, in their
    order. The record says how many messages the log has then. If a crash has left fewer, the next opening
    appends the rest.

Attaching a large commit
    The lane's open segment is sealed. In the heads of the shard's frames, numbers and low bits of offsets, lane,
    sequence and chain are replaced by the log's; header, footer and seal record are written around them; nothing
    else of the file is touched. It then is a segment like any other, and gets the name of the lane's next one. Before
    the shards' segments comes a small one with the commit's record (`applied`) and the names of streams that are new.
    Until all names are durable the shard keeps its old name as well, and the manifest stays. A crash in between leaves
    a manifest: the next opening attaches the rest. The record says which segments the shards
    become; those that are there are done. The others are made again of the index, which attaching never changes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from .applied import MAX_NAME_BYTES, NO_BATCH
from .footer import Footer
from .layout import FORMAT_VERSION, SEALED, SUM, SealRecord, align_up, checksum64

INCOMING: Final = "incoming"
SHARD_SUFFIX: Final = ".shard"
INDEX_SUFFIX: Final = ".index"
MANIFEST_SUFFIX: Final = ".manifest"
REFUSED_SUFFIX: Final = ".refused"
QUESTION: Final = "QUESTION"
ANSWER: Final = "ANSWER"
SHARD_MAGIC: Final = b"SLOGSHRD"
SHARD_CHAIN: Final = 0  # of a shard's first frame

_HEAD = struct.Struct("<8sI16sII4xQQQQQ")
_U64 = (1 << 64) - 1


class Shard(NamedTuple):
    """A staged shard as a manifest names it. It can be pickled, and is JSON's as a dict.

    Attributes:
        folder, file: in `incoming`; the file's name without its suffix.
        rows_sum: the sum of the hashes of its rows, whatever their order.
        checksum: of the index.
    """

    folder: str
    file: str
    lane: int
    rows: int
    payload_bytes: int
    file_bytes: int
    rows_sum: int
    checksum: int


class CommitBefore(NamedTuple):
    """The commit before another one, as that one's manifest names it."""

    file: str
    name: str
    batch: int
    rows: int

    @property
    def shown(self) -> str:
        """The commit as an error's text names it."""
        return _shown(self.name, self.batch)


class Manifest(NamedTuple):
    """A commit; see the module's text. `batch` is NO_BATCH for a transaction."""

    store_id: bytes
    name: str
    batch: int
    is_kept: bool
    shards: tuple[Shard, ...]
    before: CommitBefore | None = None

    @property
    def digest(self) -> int:
        """A number that is the same for commits of the same rows, however they are cut into shards."""
        return rows_digest(self.shards)

    @property
    def shown(self) -> str:
        """The commit as an error's text names it."""
        return _shown(self.name, self.batch)

    def pack(self) -> bytes:
        fields = {
            "version": FORMAT_VERSION, "store": self.store_id.hex(), "name": self.name, "batch": self.batch,
            "kept": self.is_kept, "shards": [shard._asdict() for shard in self.shards],
        }  # fmt: skip
        if self.before is not None:
            fields["before"] = self.before._asdict()
        return pack_line(fields)

    @classmethod
    def unpack(cls, content: bytes) -> Manifest | None:
        """The manifest, or None when the bytes are not one."""
        fields = unpack_line(content)
        if fields is None:
            return None
        try:
            shards = tuple(Shard(**shard) for shard in fields["shards"])
            name, batch, version = fields["name"], fields["batch"], fields["version"]
            before = CommitBefore(**fields["before"]) if "before" in fields else None
            found = cls(bytes.fromhex(fields["store"]), name, batch, fields["kept"], shards, before)
        except (ValueError, KeyError, TypeError):
            return None
        return found if version == FORMAT_VERSION and 0 < len(name.encode()) <= MAX_NAME_BYTES else None


def pack_line(fields: dict[str, Any]) -> bytes:
    """Fields as JSON in one line, and its checksum in a second one."""
    line = json.dumps(fields, separators=(",", ":")).encode()
    return b"%s\n%016x\n" % (line, checksum64(line))


def unpack_line(content: bytes) -> dict[str, Any] | None:
    """The fields that `pack_line` has packed; None when the bytes are not whole."""
    line, _, rest = content.partition(b"\n")
    if rest != b"%016x\n" % checksum64(line):
        return None
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _shown(name: str, batch: int) -> str:
    return f"transaction {name!r}" if batch == NO_BATCH else f"batch {batch} of query {name!r}"


def rows_digest(shards: Sequence[Shard]) -> int:
    """The digest of the rows of some shards."""
    rows, size = sum(shard.rows for shard in shards), sum(shard.payload_bytes for shard in shards)
    return checksum64(struct.pack("<QQQ", rows, size, sum(shard.rows_sum for shard in shards) & _U64))


class ShardIndex(NamedTuple):
    """The index of a shard. `head_bytes` and `sums` (frames,); see the module's text."""

    store_id: bytes
    lane: int
    rows: int
    data_end: int
    payload_bytes: int
    rows_sum: int
    footer: Footer
    head_bytes: npt.NDArray[np.uint32]
    sums: npt.NDArray[np.uint64]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """(streams,) messages of each of the shard's streams."""
        ends = self.footer.start.astype(np.int64)
        return np.asarray(ends[1:] - ends[:-1], np.int64)

    @classmethod
    def unpack(cls, content: bytes, path: str) -> ShardIndex | None:
        """The index, None when the bytes are not one. Raises StoreCorrupt where its footer is none."""
        size = _HEAD.size + SUM.size
        if len(content) < size or SUM.unpack_from(content, _HEAD.size)[0] != checksum64(content[: _HEAD.size]):
            return None
        fields = _HEAD.unpack_from(content)
        magic, version, store_id, lane, frames, rows, data_end, payload_bytes, rows_sum, footer_bytes = fields
        if (magic, version) != (SHARD_MAGIC, FORMAT_VERSION) or len(content) != size + footer_bytes + 12 * frames:
            return None
        record = SealRecord(SEALED, 0, data_end, SHARD_CHAIN, rows, align_up(data_end), footer_bytes)
        footer = Footer(None, path, record, content[size : size + footer_bytes])
        heads = np.frombuffer(content, "<u4", frames, size + footer_bytes)
        sums = np.frombuffer(content, "<u8", frames, size + footer_bytes + 4 * frames)
        return cls(store_id, lane, rows, data_end, payload_bytes, rows_sum, footer, heads, sums)


def pack_index(
    store_id: bytes, lane: int, rows: int, data_end: int, payload_bytes: int, rows_sum: int,
    footer: Sequence[bytes | memoryview], head_bytes: Sequence[int], sums: Sequence[int],
) -> bytes:  # fmt: skip
    """The bytes of an index; `footer` as `FooterData.parts` makes it."""
    footer_bytes = sum(map(len, footer))
    head = _HEAD.pack(
        SHARD_MAGIC, FORMAT_VERSION, store_id, lane, len(sums), rows, data_end, payload_bytes, rows_sum & _U64,
        footer_bytes,
    )  # fmt: skip
    heads = np.array(head_bytes, "<u4").tobytes(), np.array(sums, "<u8").tobytes()
    return b"".join([head, SUM.pack(checksum64(head)), *footer, *heads])
