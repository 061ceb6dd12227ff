"""The format's exact bytes, and that no flipped bit of a header goes unseen."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash

from stratalog.store import MessageStore, StoreCorrupt, StoreUnusable, verify_folder
from stratalog.store.format.frame import decode_at
from stratalog.store.format.layout import (
    BLOCK_BYTES,
    CLOSED,
    DATA_START,
    FRAME_HEADER_BYTES,
    SealRecord,
    SegmentHeader,
    align_down,
    align_up,
    checksum64,
    lane_name,
    read_frame_header,
    segment_name,
)
from stratalog.store.format.store_files import LaneStart, ShardCount, StoreHeader

from . import golden
from .helpers import run_child, tiny

Unpack = Callable[[bytes], object]
BLOCKS: list[tuple[str, object, Unpack]] = [
    ("store", golden.STORE, StoreHeader.unpack),
    ("start", golden.START, LaneStart.unpack),
    ("shards", golden.SHARD_COUNT, ShardCount.unpack),
    ("segment", golden.SEGMENT, SegmentHeader.unpack),
    ("segment-fine", golden.FINE_SEGMENT, SegmentHeader.unpack),
    ("closed", golden.CLOSED_RECORD, SealRecord.unpack),
    ("sealed", golden.SEALED_RECORD, SealRecord.unpack),
]


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("name", golden.all_parts())
def test_bytes_are_the_golden_ones(name: str) -> None:
    assert golden.all_parts()[name] == golden.fixture(name)


@pytest.mark.parametrize(("name", "value", "unpack"), BLOCKS)
def test_golden_block_unpacks_to_its_value(name: str, value: object, unpack: Unpack) -> None:
    assert unpack(golden.fixture(name).ljust(BLOCK_BYTES, b"\0")) == value


@pytest.mark.parametrize(("name", "value", "unpack"), BLOCKS)
def test_block_with_any_flipped_bit_is_rejected(name: str, value: object, unpack: Unpack) -> None:
    content = golden.fixture(name).ljust(BLOCK_BYTES, b"\0")
    for bit in range(8 * len(golden.fixture(name))):
        assert unpack(flipped(content, bit)) is None, f"bit {bit} of {name}"


@pytest.mark.parametrize(("name", "value", "unpack"), BLOCKS)
def test_block_that_is_cut_short_is_rejected(name: str, value: object, unpack: Unpack) -> None:
    content = golden.fixture(name)
    for size in range(len(content.rstrip(b"\0"))):
        assert unpack(content[:size]) is None


@pytest.mark.parametrize(("name", "value", "unpack"), BLOCKS)
def test_block_of_another_version_is_rejected(name: str, value: object, unpack: Unpack) -> None:
    content = bytearray(golden.fixture(name))
    content[8] += 1
    content[-8:] = struct.pack("<Q", checksum64(bytes(content[:-8])))
    assert unpack(bytes(content).ljust(BLOCK_BYTES, b"\0")) is None


@pytest.mark.parametrize("repair", [False, True])
def test_store_of_another_version_is_refused_and_left_as_it_is(tmp_path: Path, repair: bool) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"x")
    block = bytearray((tmp_path / "STORE").read_bytes())
    size = len(golden.fixture("store"))
    block[8] = 2
    block[size - 8 : size] = struct.pack("<Q", checksum64(bytes(block[: size - 8])))
    (tmp_path / "STORE").write_bytes(block)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "LOCK"}
    for look in (lambda: MessageStore.open(tmp_path, repair=repair), lambda: verify_folder(tmp_path)):
        with pytest.raises(StoreUnusable, match="a store of format 2, and this version of stratalog reads format 1"):
            look()
    assert {path: path.read_bytes() for path in before} == before


def test_damaged_version_is_damage_and_not_another_version(tmp_path: Path) -> None:
    MessageStore.open(tmp_path, tiny()).close()
    (tmp_path / "STORE").write_bytes(flipped((tmp_path / "STORE").read_bytes(), 8 * 8 + 1))
    with pytest.raises(StoreCorrupt, match="header is damaged"):
        MessageStore.open(tmp_path)


def test_seal_record_of_an_unknown_state_is_rejected() -> None:
    assert SealRecord.unpack(golden.CLOSED_RECORD._replace(state=3).pack()) is None


@pytest.mark.parametrize(
    "changes",
    [{"data_end": 8191}, {"data_end": 1 << 63}, {"entries": 19_181}, {"entries": 1 << 62}, {"footer_position": 200_000},
     {"footer_position": 204_800}, {"footer_position": 0}, {"state": CLOSED}],
    ids=str,
)  # fmt: skip
def test_seal_record_that_nobody_could_have_written_is_rejected(changes: dict[str, int]) -> None:
    assert SealRecord.unpack(golden.SEALED_RECORD._replace(entries=19_180).pack()) is not None
    assert SealRecord.unpack(golden.SEALED_RECORD._replace(**changes).pack()) is None


@pytest.mark.parametrize("lanes", [0, 65, 1 << 31])
def test_store_of_impossibly_many_lanes_is_rejected(lanes: int) -> None:
    assert StoreHeader.unpack(golden.STORE._replace(lanes=64).pack()) is not None
    assert StoreHeader.unpack(golden.STORE._replace(lanes=lanes).pack()) is None


def test_frame_with_any_flipped_bit_before_its_payloads_is_rejected() -> None:
    content = golden.fixture("frame-full")
    frame = decode_at(content, 0)
    assert frame is not None
    for bit in range(8 * frame.header.header_bytes):
        assert decode_at(flipped(content, bit), 0) is None, f"bit {bit}"


def test_frame_header_that_is_cut_short_is_none() -> None:
    content = golden.fixture("frame-full")
    frame = decode_at(content, 0)
    assert frame is not None
    assert all(read_frame_header(content[:size], 0) is None for size in range(FRAME_HEADER_BYTES))
    assert all(decode_at(content[:size], 0) is None for size in range(frame.header.header_bytes))


def test_checksum_is_xxh3_64() -> None:
    assert checksum64(b"abc") == xxhash.xxh3_64(b"abc").intdigest() == 0x78AF5F94892F3950


def test_chain_of_a_segment_is_its_headers_checksum() -> None:
    assert golden.SEGMENT.chain == checksum64(golden.fixture("segment")[:-8])


@pytest.mark.parametrize(
    ("position", "down", "up"),
    [(0, 0, 0), (1, 0, 4096), (4095, 0, 4096), (4096, 4096, 4096), (4097, 4096, 8192)],
)
def test_alignment_is_to_blocks(position: int, down: int, up: int) -> None:
    assert (align_down(position), align_up(position)) == (down, up)


def test_file_names_sort_as_their_numbers() -> None:
    names = [segment_name(sequence) for sequence in (1, 2, 10, 999, 123_456_789_012)]
    assert names == sorted(names)
    assert names[0] == "000000000001.seg"
    assert lane_name(3) == "lane-03"
    assert DATA_START == 2 * BLOCK_BYTES


def test_machine_of_the_other_byte_order_is_refused() -> None:
    done = run_child("import sys, numpy, xxhash; sys.byteorder = 'big'; from stratalog import MessageStore")
    assert done.returncode != 0
    assert "ImportError: stratalog needs a little-endian machine" in done.stderr


def test_footer_of_columns_in_the_other_byte_order_is_written_little_endian() -> None:
    data = golden.footer_data()
    data.first, data.entries = data.first.astype(">i8"), data.entries.astype(">u4")
    assert data.pack(7) == golden.fixture("footer")
