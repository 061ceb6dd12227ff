"""The format on disk, version 1. Reader, writer and recovery share what is defined here.

All numbers are little-endian. A *checksum* is xxh3_64; a message's is its low 32 bits.

Versions
    STORE says which version of the format its folder has, and nothing else in the folder is read before that was
    looked at. A later version keeps STORE's first 40 bytes and the checksum after them as they are here, so each
    version can tell a store of another one from a damaged one. A store of an unknown version is refused and left
    as it is, also by a repair. An unknown value inside a store of a known version (a flag of a frame, a state of
    a seal record) is damage.

Folder
    STORE                    one block: which store this is and how many lanes it has
    LOCK                     locked while a process has the folder open
    LIVE, COUNTS, FIGURES    for other processes: how far each lane is durable (`live_page`), losses, `figures_page`
    lane-00/START            the first segment of the lane's log: 1, until retention removes segments (`store_files`)
    lane-00/COMPACTED        where the log began when a compaction wrote it anew, if one ever did (`store_files`)
    lane-00/000000000001.seg the segments of a lane, numbered from START's without gaps
    lane-00/RESERVE          pre-written, with any bytes; on a full disk it becomes a segment. It may be missing
    delayed/                 indexes of delayed messages, a folder a topic; made again of the log where missing
    incoming/                shards and commits on their way into the log (`shard`)
    quarantine/              ranges that a repair set aside
    compact/                 what a compaction is writing: compact/lane-00 is the new folder of the lane until the two
                             exchange their names, and the old one from then on; compact/part-* are shards
    rebuild/                 what a rebuild is writing: footers, indexes of delayed messages
    A store never reads compact/ and rebuild/. They are there while that work goes on, and after it was killed.
    The next compaction removes compact/, the next rebuild rebuild/; anybody may, while no such work goes on.

Folder of stores
    SHARDS                   one block: how many stores there are; written before the first message, and never changed
    shard-0000/ ..           the stores. Each queue is in one of them, which follows from its name and from how many
                             there are: a writer that finds another number of them than SHARDS says writes nothing
    A folder that was made before there was this file has none. Readers of the stores do not look at it.

Segment
    block 0                  segment header: lane, sequence, capacity; how many messages and streams the lane's log has
                             before it. Written with the first frames.
    block 1                  seal record: all zeros while the segment is open. "closed": a clean close wrote
                             where the log ends. "sealed": full (or recovered); says where the footer is
                             and the newest time of the frames. Segments are sealed in log order.
    8192 ..                  frames, one after the other, until `data_end`
    footer                   at the next block boundary after `data_end`, once sealed
    The header says `fine` if a frame after padding may begin at any boundary of 512 bytes, and not of 4,096 alone.
    Versions that do not know this read it as a part of the lane's number, and refuse the segment.
    A file without a header of its own is a spare: pre-written and not begun. Block 0 is zeros or, in a
    recycled file, the header of a segment of this lane that retention has removed.
    A header that a repair wrote anew has REBUILT_MS as its time. The first frame was written after
    another header, so its `chain` may be any; it must be the first by its entry number. Until the repair knows
    what comes before the segment, the header's `previous_chain` is UNLINKED.

Frame (one batch)
    header                   88 bytes, FRAME below
    numbers    n x u16|u32   stream numbers, dense in a lane, given at first use (u32 with WIDE_NUMBERS)
    lengths    n x u16|u32   payload lengths (u32 with WIDE_LENGTHS)
    lows       n x u16       low 16 bits of each message's offset in its queue: after damage, the later
                             messages still know their offsets
    checksums  n x u32       low half of xxh3_64 of each payload
    [due       n x i64]      delivery times in ms, NO_TIME for none             (HAS_DUE)
    [keys      n x u32, then the bytes; NO_BYTES as length for none]            (HAS_KEYS)
    [props     n x u32, then the bytes (JSON); NO_BYTES as length for none]     (HAS_PROPERTIES)
    [defined   u32 count, then count x (number u32, queue id u32, topic length u16, topic)] (HAS_STREAMS)
    [places    where the parts of a round of transactions lie, see `joint`]     (JOINT)
    payloads                 back to back, without gaps

    The next frame begins right after the last payload or, if zeros were filled in to end a block, at the next block
    boundary (in a `fine` segment, one of 512 bytes up to that one). `chain`, the checksum of the frame before (of the
    segment's header for the first), tells which; bytes of an earlier life of the file never have it. `durable_*` is
    how far the lane was durable when the frame was built: what is missing below the highest such mark is damage,
    whatever is missing above it was never acknowledged.
    `payload_checksum` covers all payloads at once, in frames of small messages (HAS_PAYLOAD_CHECKSUM): one call checks
    a whole frame where one a message would cost more than the bytes. With count 0 it is a mark, of `durable_*` alone.
    Of a frame that is torn at the log's end, the messages before the first torn one count. One that is ATOMIC, for it
    has a transaction, counts as a whole or not at all, and no mark points into it. JOINT, MORE, REST: it counts only
    with other frames of its lane or of other lanes, see `joint`.

Footer (block-aligned)
    The index of a sealed segment: `footer_data` describes it. A small one is of the streams in the segment alone, a
    full one of all streams of the lane. The seal record says which it is, so an opening reads the newest full one and
    the small ones after it. No older record is needed. What is trimmed is said by the newest full footer, the newest
    small one after it, and the records after that; what was committed (`applied`) by the newest footer and the
    records after it.

Cost (R8 allows 15 bytes a message): 10 bytes in a frame (14 with both WIDE flags) and 4 in a footer; per frame 88 + 18,
per stream in a segment 24 and its name, in each full footer 28 and its compressed name, 20 more if it was trimmed.

Records
    A lane has a stream whose topic no user can name (`hidden`). Its messages are what a store remembers: `records`.
"""

from __future__ import annotations

import struct
import sys
import zlib
from typing import Any, Final, NamedTuple

import xxhash

if sys.byteorder != "little":
    # Columns go to disk and come from there as they lie in memory: a store must not be written in another order.
    raise ImportError("stratalog needs a little-endian machine: its files are little-endian, and so are its columns")

FORMAT_VERSION: Final = 1
BLOCK_BYTES: Final = 4096
FINE_BLOCK_BYTES: Final = 512
DATA_START: Final = 2 * BLOCK_BYTES
SEGMENT_SUFFIX: Final = ".seg"
START_FILE: Final = "START"
RESERVE_FILE: Final = "RESERVE"
RETIRED_PREFIX: Final = "retired-"  # of files that nobody needs: the next opening removes them

# Flags of a frame.
WIDE_NUMBERS: Final = 1
WIDE_LENGTHS: Final = 2
HAS_DUE: Final = 4
HAS_KEYS: Final = 8
HAS_PROPERTIES: Final = 16
HAS_STREAMS: Final = 32
HAS_PAYLOAD_CHECKSUM: Final = 64
ATOMIC: Final = 128
JOINT: Final = 256
MORE: Final = 512
REST: Final = 1024
KNOWN_FLAGS: Final = 2047
HAS_EXTRAS: Final = HAS_DUE | HAS_KEYS | HAS_PROPERTIES

NO_TIME: Final = -(1 << 63)
NO_BYTES: Final = 0xFFFFFFFF
LOST_ENTRY: Final = 0xFFFFFFFF
MAX_LANES: Final = 64
MAX_OFFSET: Final = 1 << 62  # no queue gets so far
MAX_DATA_END: Final = 1 << 34  # a frame begins below 4 GiB, and 32 bits say how long each of its parts is
LEAST_MESSAGE_BYTES: Final = 10  # of a frame's columns
# Under 65,536: so `lows` place what follows a lost frame. After 65,536 lost messages of a queue, a footer alone does.
MAX_FRAME_MESSAGES: Final = 4096

# What decoding raises when checksums hold over bytes that make no sense.
UNDECODABLE: Final = (ValueError, struct.error, IndexError, zlib.error)

REBUILT_MS: Final = 0  # as the time of a segment header
UNKNOWN: Final = (1 << 64) - 1  # as a number of messages: a repair wrote it, and nothing was left to count by

UNLINKED: Final = (1 << 64) - 1  # as a previous chain: the repair that wrote the header was not done with it

# Seal record states.
CLOSED: Final = 1
SEALED: Final = 2

MAX_TOPIC_BYTES: Final = 255
GONE_TOPIC: Final = ""  # in a full footer, of a number whose stream is gone: no topic of users is empty
MAX_QUEUE_ID: Final = (1 << 31) - 1

SEGMENT_MAGIC: Final = b"SLOGSEGM"
SEAL_MAGIC: Final = b"SLOGSEAL"
FRAME_MAGIC: Final = b"\xf5SLf"
FOOTER_MAGIC: Final = b"SLOGFOOT"

_SEGMENT = struct.Struct("<8sIHH16sQQqQQQ")
_SEAL = struct.Struct("<8sIIQQQQQQQQq")
_FRAME = struct.Struct("<4sHHIIIIQQqQQQQ")
SUM = struct.Struct("<Q")
FRAME_HEADER_BYTES: Final = _FRAME.size + SUM.size
SEAL_BYTES: Final = _SEAL.size + SUM.size

checksum64 = xxhash.xxh3_64_intdigest


def align_up(position: int, block_bytes: int = BLOCK_BYTES) -> int:
    """The first block boundary at or after `position`."""
    return (position + block_bytes - 1) & -block_bytes


def align_down(position: int, block_bytes: int = BLOCK_BYTES) -> int:
    """The last block boundary at or before `position`."""
    return position & -block_bytes


def segment_name(sequence: int) -> str:
    """File name of a segment: twelve digits, so that names sort as sequences do."""
    return f"{sequence:012d}{SEGMENT_SUFFIX}"


def lane_name(lane: int) -> str:
    """Folder name of a lane."""
    return f"lane-{lane:02d}"


class SegmentHeader(NamedTuple):
    """Block 0 of a segment. `previous_chain` ties it to the end of the segment before.

    `messages_before` counts all messages of the lane's log before the segment, or is UNKNOWN; `streams_before`
    the streams. They tell how much is lost where frames or whole segments are. `fine`: 1 if a frame after padding may
    begin at a boundary of FINE_BLOCK_BYTES, else 0.
    """

    lane: int
    store_id: bytes
    sequence: int
    capacity_bytes: int
    created_ms: int
    previous_chain: int
    messages_before: int = 0
    streams_before: int = 0
    fine: int = 0

    @classmethod
    def _of(cls, lane: int, fine: int, *fields: Any) -> SegmentHeader:
        return cls(*(lane, *fields, fine))

    def pack(self) -> bytes:
        body = _SEGMENT.pack(
            SEGMENT_MAGIC, FORMAT_VERSION, self.lane, self.fine, self.store_id, self.sequence, self.capacity_bytes,
            self.created_ms, self.previous_chain, self.messages_before, self.streams_before,
        )  # fmt: skip
        return block_of(body)

    @property
    def block_bytes(self) -> int:
        """The least boundary at which a frame may begin after padding."""
        return FINE_BLOCK_BYTES if self.fine else BLOCK_BYTES

    @property
    def is_rebuilt(self) -> bool:
        """A repair wrote it: the frames after it were written after another one."""
        return self.created_ms == REBUILT_MS

    def stands_wrongly(self, lane: int, store_id: bytes | None, sequence: int, lowest: int) -> bool:
        """Is a file with this name and this header another segment's, moved or copied here by somebody?

        A spare may have the header of a removed segment of its lane, older than the `lowest` number of the log's:
        retention removes the oldest ones. `store_id` None is any.
        """
        if self.lane != lane or store_id not in (None, self.store_id):
            return True
        return self.sequence != sequence and self.sequence >= lowest

    @property
    def chain(self) -> int:
        """The `chain` that the first frame must have."""
        return int(SUM.unpack_from(self.pack(), _SEGMENT.size)[0])

    @classmethod
    def guess(cls, block: bytes) -> tuple[bytes, SegmentHeader, int]:
        """(magic and version, header, checksum) as a block has them, damaged or not."""
        size = _SEGMENT.size
        raw = bytes(block[: size + SUM.size]).ljust(size + SUM.size, b"\0")
        return raw[:12], cls._of(*_SEGMENT.unpack_from(raw)[2:]), SUM.unpack_from(raw, size)[0]

    @classmethod
    def unpack(cls, block: bytes) -> SegmentHeader | None:
        """The header, or None when the bytes are not one."""
        fields = fields_of(block, _SEGMENT, SEGMENT_MAGIC)
        header = None if fields is None else cls._of(*fields)
        return header if header is not None and header.fine in (0, 1) else None


class SealRecord(NamedTuple):
    """Block 1 of a segment that is closed or sealed.

    `streams` is how many the lane had when it was written; `full`: the footer has all of them. `newest_ms`: of a sealed
    one, the newest time of its frames, as ms since the epoch; 0 if it has none. So a search by time opens no footer.
    """

    state: int
    sequence: int
    data_end: int
    chain: int
    entries: int
    footer_position: int
    footer_bytes: int
    streams: int = 0
    full: int = 1
    newest_ms: int = 0

    def pack(self) -> bytes:
        body = _SEAL.pack(
            SEAL_MAGIC, FORMAT_VERSION, self.state, self.sequence, self.data_end, self.chain, self.entries,
            self.footer_position, self.footer_bytes, self.streams, self.full, self.newest_ms,
        )  # fmt: skip
        return block_of(body)

    @classmethod
    def unpack(cls, block: bytes) -> SealRecord | None:
        """The record, or None when the segment is open (or the record is torn or nonsense: then it is scanned)."""
        fields = fields_of(block, _SEAL, SEAL_MAGIC)
        record = None if fields is None else cls(*fields)
        return record if record is not None and record.is_possible else None

    @classmethod
    def guess(cls, block: bytes) -> SealRecord:
        """The fields as a block has them, damaged or not."""
        return cls(*_SEAL.unpack_from(bytes(block[: _SEAL.size]).ljust(_SEAL.size, b"\0"))[2:])

    @property
    def is_possible(self) -> bool:
        """Could these numbers have been written? Readers of the record rely on their order and their sizes.

        Whether the footer lies inside of the file is seen when it is opened.
        """
        footer = (self.footer_position, self.footer_bytes)
        ends = footer == (0, 0) if self.state == CLOSED else footer[0] == align_up(self.data_end)
        columns_end = DATA_START + LEAST_MESSAGE_BYTES * self.entries
        return (
            self.state in (CLOSED, SEALED)
            and self.full in (0, 1)
            and ends
            and columns_end <= self.data_end <= MAX_DATA_END
        )


class FrameHeader(NamedTuple):
    """The fixed part of a frame; see the module's text."""

    flags: int
    lane: int
    header_bytes: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody wants here
    payload_bytes: int
    first_entry: int
    sequence: int
    position: int
    time_ms: int
    durable_sequence: int
    durable_position: int
    chain: int
    payload_checksum: int

    @property
    def end(self) -> int:
        """Position after the last payload byte."""
        return self.position + self.header_bytes + self.payload_bytes

    @staticmethod
    def guess(raw: bytes) -> tuple[bytes, int, int, int]:
        """(magic, lane, sequence, position) as the bytes have them, damaged or not."""
        magic, *rest = _FRAME.unpack_from(bytes(raw[: _FRAME.size]).ljust(_FRAME.size, b"\0"))
        found = FrameHeader(*rest)
        return magic, found.lane, found.sequence, found.position

    def seal(self, columns: bytes) -> tuple[bytes, int]:
        """Header and columns as they go to disk, and the frame's checksum (the next one's `chain`)."""
        body = _FRAME.pack(FRAME_MAGIC, *self)
        total = checksum64(body + columns)
        return b"".join((body, SUM.pack(total), columns)), total


def kept_messages(record: SealRecord | None, header: FrameHeader) -> int:
    """The number of a frame's messages that belong to the log: recovery may have cut a torn one, the segment's last."""
    if record is None or header.end <= record.data_end:
        return header.count
    return min(header.count, max(0, record.entries - header.first_entry))


class FrameHead(NamedTuple):
    """A checked frame header with its raw columns."""

    header: FrameHeader
    columns: bytes
    checksum: int


def read_frame_header(view: memoryview | bytes, at: int) -> FrameHeader | None:
    """The header at `at` if the magic and the sizes make sense; its checksum is not looked at yet."""
    if len(view) - at < FRAME_HEADER_BYTES:
        return None
    magic, *rest = _FRAME.unpack_from(view, at)
    if magic != FRAME_MAGIC:
        return None
    header = FrameHeader(*rest)
    plain = header.count <= MAX_FRAME_MESSAGES and not header.flags & ~KNOWN_FLAGS
    return header if plain and header.header_bytes >= FRAME_HEADER_BYTES + LEAST_MESSAGE_BYTES * header.count else None


def check_frame_head(header: FrameHeader, raw: bytes) -> FrameHead | None:
    """Check the checksum of a frame's first `header_bytes`, given as `raw`. None if it does not hold."""
    if len(raw) < header.header_bytes:
        return None
    columns = raw[FRAME_HEADER_BYTES : header.header_bytes]
    total = checksum64(raw[: _FRAME.size] + columns)
    return FrameHead(header, columns, total) if total == SUM.unpack_from(raw, _FRAME.size)[0] else None


def block_of(body: bytes) -> bytes:
    """The block that begins with `body`: its checksum after it, then zeros."""
    return (body + SUM.pack(checksum64(body))).ljust(BLOCK_BYTES, b"\0")


def fields_of(block: bytes, layout: struct.Struct, magic: bytes) -> tuple[Any, ...] | None:
    """The fields of a block after its magic and version; None if it is another block, or damaged."""
    body = checked(block, layout.size)
    found, version, *fields = layout.unpack(body or bytes(layout.size))
    return tuple(fields) if (found, version) == (magic, FORMAT_VERSION) else None


def checked(block: bytes, size: int) -> bytes | None:
    """The first `size` bytes if the checksum after them holds."""
    if len(block) < size + SUM.size:
        return None
    body = bytes(block[:size])
    return body if SUM.unpack_from(block, size)[0] == checksum64(body) else None
