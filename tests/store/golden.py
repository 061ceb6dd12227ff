"""A small store's parts with fixed contents, and the command that writes them to tests/fixtures.

Run `python -m tests.store.golden` only for a new version of the format: stores written with the old bytes
must stay readable.
"""

from __future__ import annotations

from array import array
from pathlib import Path

import numpy as np

from stratalog.store.format.applied import NO_BATCH, AppliedCommit, AppliedRecord, AppliedShard, pack_applied
from stratalog.store.format.cursors import pack_ones
from stratalog.store.format.dues import DueRange
from stratalog.store.format.extras import Extras
from stratalog.store.format.footer import FooterData, Presence
from stratalog.store.format.frame import Definition, encode_columns
from stratalog.store.format.joint import JointPlace, pack_joint
from stratalog.store.format.layout import (
    ATOMIC,
    CLOSED,
    FRAME_HEADER_BYTES,
    HAS_DUE,
    HAS_KEYS,
    HAS_PAYLOAD_CHECKSUM,
    JOINT,
    SEALED,
    FrameHeader,
    SealRecord,
    SegmentHeader,
    checksum64,
)
from stratalog.store.format.records import DELETE, TRIM, Record, StreamLow
from stratalog.store.format.shard import Manifest, Shard, pack_index
from stratalog.store.format.store_files import LaneStart, ShardCount, StoreHeader

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
STORE_ID = bytes(range(16))
TIME_MS = 1_700_000_000_123
BASE = 8192

STORE = StoreHeader(STORE_ID, 4)
SHARD_COUNT = ShardCount(300)
START = LaneStart(3, STORE_ID, 5, 123_456)
SEGMENT = SegmentHeader(3, STORE_ID, 7, 262_144, TIME_MS, 0x1122334455667788, 234_567, 70_000)
FINE_SEGMENT = SEGMENT._replace(fine=1)
CLOSED_RECORD = SealRecord(CLOSED, 7, 12_345, 0xCAFE, 17, 0, 0, 70_002)
SEALED_RECORD = SealRecord(SEALED, 7, 200_000, 0xCAFE_F00D, 1_000, 200_704, 5_000, 70_002)

BATCH = AppliedCommit("query", 9, 0x1122334455667788, 12, 2, True, ((8, 5), (6, 1 << 63)))
TRANSACTION = AppliedCommit("a transaction \xe4", NO_BATCH, 7, 3, 0, False)
SHARDS = (AppliedShard(0xFEDCBA9876543210, 17, 1 << 33), AppliedShard(1, 2, 3))
MANIFEST = Manifest(STORE_ID, "query", 9, True, (Shard("q-0-1-ab", "03-000000", 3, 17, 99, 8400, 5, 1 << 63),))

Parts = dict[str, bytes]


def make_frame(
    numbers: list[int],
    datas: list[bytes],
    offsets: list[int],
    extras: list[Extras | None] | None = None,
    defined: list[Definition] | None = None,
    flags: int = HAS_PAYLOAD_CHECKSUM,
) -> bytes:
    """A frame at the beginning of segment 7, as its bytes."""
    columns = encode_columns(numbers, datas, [len(data) for data in datas], array("q", offsets), extras, defined or [])
    payload = b"".join(datas)
    header = FrameHeader(
        columns.flags | flags, 3, FRAME_HEADER_BYTES + len(columns.packed), len(datas),
        len(payload), 5, 7, BASE, TIME_MS, 6, 4096, SEGMENT.chain, checksum64(payload),
    )  # fmt: skip
    return header.seal(columns.packed)[0] + payload


def full_frame() -> bytes:
    """Every optional column, wide numbers, narrow lengths."""
    extras: list[Extras | None] = [
        Extras(None, None, None),
        Extras(TIME_MS + 5, b"key", b'{"a":"b"}'),
        Extras(None, b"", b"{}"),
    ]
    defined = [Definition(70_000, "orders", 0), Definition(70_001, "Zürich/../x", 2_147_483_647)]
    return make_frame([70_000, 1, 70_001], [b"one", b"", b"three"], [0, 65_537, 9], extras, defined)


def plain_frame() -> bytes:
    """No optional column, narrow numbers, wide lengths."""
    return make_frame([0, 1], [b"x" * 70_000, b"y"], [1, 2])


def atomic_frame() -> bytes:
    """A transaction: two messages and a record of a subscription."""
    record = pack_ones(3, [(1, 2, 5_000_000_000)])
    return make_frame([0, 1, 9], [b"one", b"two", record], [1, 2, 70_000], flags=HAS_PAYLOAD_CHECKSUM | ATOMIC)


def joint_frame() -> bytes:
    """A part of a round of transactions over two lanes: one message, the first of its stream, with a key."""
    places = pack_joint([JointPlace(0, 1, 12_288), JointPlace(3, 7, BASE)])
    columns = encode_columns(
        [2], [b"one"], [3], array("q", [0]), [Extras(None, b"k", None)], [Definition(2, "bills", 1)]
    )
    packed = columns.packed + places
    header = FrameHeader(
        columns.flags | HAS_PAYLOAD_CHECKSUM | ATOMIC | JOINT, 3, FRAME_HEADER_BYTES + len(packed), 1, 3, 5, 7, BASE,
        TIME_MS, 6, 4096, SEGMENT.chain, checksum64(b"one"),
    )  # fmt: skip
    return header.seal(packed)[0] + b"one"


def footer_data() -> FooterData:
    """Three streams, one without messages; four messages, one lost; two frames."""
    return FooterData(
        ["orders", "Zürich/../x"],
        np.array([0, 0, 1], np.uint32),
        np.array([0, 1, 2_147_483_647], np.uint32),
        np.array([10, 5_000_000_000, 0], np.int64),
        np.array([0, 3, 3, 4], np.uint32),
        np.array([0, 0xFFFFFFFF, 3, 1], np.uint32),
        np.array([8192, 12_288], np.uint32),
        np.array([0, 2], np.uint32),
        np.array([TIME_MS, TIME_MS + 1], np.int64),
        np.array([HAS_PAYLOAD_CHECKSUM, HAS_DUE | HAS_KEYS], np.uint16),
        DueRange(TIME_MS + 7, TIME_MS + 99),
        {0: StreamLow(11, 0), 1: StreamLow(5_000_000_000, 4_999_999_999)},
        presence=Presence(np.array([0, 3, 3, 4, 5], np.uint32), np.array([5, 3, 1, 1023, 2], np.uint16)),
    )


def applied_footer() -> FooterData:
    """The same of a lane that has commits."""
    data = footer_data()
    data.applied = pack_applied({one.key: one for one in (TRANSACTION, BATCH)})
    return data


def all_parts() -> Parts:
    """Name of the fixture -> bytes; blocks without the zeros that fill them up."""
    return {
        "store": STORE.pack().rstrip(b"\0"),
        "start": START.pack().rstrip(b"\0"),
        "segment": SEGMENT.pack().rstrip(b"\0"),
        "segment-fine": FINE_SEGMENT.pack().rstrip(b"\0"),
        "closed": CLOSED_RECORD.pack().rstrip(b"\0"),
        "sealed": SEALED_RECORD.pack().rstrip(b"\0"),
        "frame-full": full_frame(),
        "frame-plain": plain_frame()[:200],
        "frame-atomic": atomic_frame(),
        "frame-joint": joint_frame(),
        "footer": footer_data().pack(7),
        "record-trim": Record(TRIM, 70_000, 5_000_000_000).pack(),
        "record-delete": Record(DELETE, 1, 17).pack(),
        "record-applied": AppliedRecord(BATCH, SHARDS).pack(),
        "footer-applied": applied_footer().pack(7),
        "shard-index": pack_index(STORE_ID, 3, 4, 20_000, 99, 5, footer_data().parts(0), [100, 200], [1 << 63, 7]),
        "manifest": MANIFEST.pack(),
        "shards": SHARD_COUNT.pack().rstrip(b"\0"),
    }


def fixture(name: str) -> bytes:
    """The kept bytes of a part."""
    return bytes.fromhex((FIXTURES / f"{name}.hex").read_text())


def main() -> None:
    """Write the fixtures, 32 bytes a line."""
    FIXTURES.mkdir(exist_ok=True)
    for name, content in all_parts().items():
        lines = [content[at : at + 32].hex() for at in range(0, len(content), 32)]
        (FIXTURES / f"{name}.hex").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
