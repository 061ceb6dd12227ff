"""Footers: what is packed comes back, and damage is found before it can mislead."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from stratalog.store.device.os_file import OsFile
from stratalog.store.errors import StoreCorrupt
from stratalog.store.format.footer import HEADER_BYTES, Footer, FooterData, Presence
from stratalog.store.format.layout import LOST_ENTRY, SEALED, SealRecord, checksum64
from stratalog.store.segment.index import Index

from ..seeds import draw_seed
from . import golden

AT = 4096


def open_footer(folder: Path, content: bytes, size: int | None = None) -> Footer:
    """A file that holds a footer behind its first block."""
    path = folder / "file"
    path.write_bytes(bytes(AT) + content)
    record = SealRecord(SEALED, 7, 1 << 20, 0, 4, AT, len(content) if size is None else size)
    file = OsFile(path, create=False, direct=False)
    try:
        return Footer(file, str(path), record)  # a mapping outlives its file
    finally:
        file.close()


def same(one: FooterData, other: FooterData) -> bool:
    names = [field.name for field in fields(FooterData) if field.name != "presence"]
    told = [() if data.presence is None else tuple(part.tolist() for part in data.presence) for data in (one, other)]
    return told[0] == told[1] and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def test_everything_comes_back(tmp_path: Path) -> None:
    footer = open_footer(tmp_path, golden.fixture("footer"))
    footer.check_entries()
    assert same(footer.data(), golden.footer_data())
    assert footer.topics() == ["orders", "Zürich/../x"]
    assert (footer.time_min_ms, footer.time_max_ms) == (golden.TIME_MS, golden.TIME_MS + 1)
    assert footer.dues == (golden.TIME_MS + 7, golden.TIME_MS + 99)


def test_counts_and_next_offsets_follow() -> None:
    data = golden.footer_data()
    assert data.counts.tolist() == [3, 0, 1]
    assert data.next_offsets.tolist() == [13, 5_000_000_000, 1]


def test_footer_of_nothing_comes_back(tmp_path: Path) -> None:
    none, no_times = np.empty(0, np.uint32), np.empty(0, np.int64)
    no_flags = np.empty(0, np.uint16)
    empty = FooterData([], none, none, no_times, np.zeros(1, np.uint32), none, none, none, no_times, no_flags)
    footer = open_footer(tmp_path, empty.pack(7))
    assert same(footer.data(), empty)


def test_every_flipped_bit_is_reported(tmp_path: Path) -> None:
    content = golden.fixture("footer")
    unseen = []
    for bit in range(draw_seed() % 3, 8 * len(content), 3):  # one of three, in each byte
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StoreCorrupt) as caught:
            footer = open_footer(tmp_path, bytes(changed))
            footer.topics()
            footer.check_entries()
            unseen.append(bit)
        assert caught.value.file == str(tmp_path / "file")
        assert AT <= caught.value.position < AT + len(content)
    assert not unseen


@pytest.mark.parametrize("kept", [0, 1, HEADER_BYTES - 1])
def test_footer_cut_in_its_header_is_reported(tmp_path: Path, kept: int) -> None:
    content = golden.fixture("footer")
    with pytest.raises(StoreCorrupt):
        open_footer(tmp_path, content[:kept], len(content))


def test_footer_cut_anywhere_is_reported(tmp_path: Path) -> None:
    content = golden.fixture("footer")
    for kept in range(0, len(content), 7):
        with pytest.raises(StoreCorrupt):
            open_footer(tmp_path, content[:kept], len(content))


# -- what no writer writes, with checksums that hold --------------------------------------------------


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("stream_topic", [0, 0, 2]), ("first", [10, -1, 0]), ("first", [10, (1 << 62) + 1, 0]),
        ("start", [0, 3, 2, 4]), ("start", [1, 3, 3, 4]), ("start", [0, 3, 3, 3]), ("start", [0, 3, 3, 5]),
        ("frame_position", [12_288, 8192]), ("frame_position", [8191, 12_288]), ("frame_position", [8192, 1 << 20]),
        ("frame_entry", [2, 0]), ("frame_entry", [0, 5]),
    ],
)  # fmt: skip
def test_tables_that_make_no_sense_are_damage(tmp_path: Path, column: str, values: list[int]) -> None:
    changed = golden.footer_data()
    setattr(changed, column, np.array(values, getattr(changed, column).dtype))
    with pytest.raises(StoreCorrupt, match="makes no sense") as caught:
        open_footer(tmp_path, changed.pack(7))
    assert (caught.value.file, caught.value.position) == (str(tmp_path / "file"), AT)


@pytest.mark.parametrize(
    ("start", "steps"),
    [
        ([0, 2, 2, 3, 2], [5, 3, 1]), ([1, 2, 2, 3, 3], [5, 3, 1]), ([0, 2, 2, 3, 3], [3, 5, 1]),
        ([0, 2, 2, 3, 3], [3, 3, 1]), ([0, 2, 2, 2, 2], [5, 3, 1]),
    ],
)  # fmt: skip
def test_a_table_of_segments_that_makes_no_sense_is_damage(tmp_path: Path, start: list[int], steps: list[int]) -> None:
    presence = Presence(np.array(start, np.uint32), np.array(steps, np.uint16))
    with pytest.raises(StoreCorrupt, match="table of segments makes no sense"):
        open_footer(tmp_path, replace(golden.footer_data(), presence=presence).pack(7))


def test_a_footer_that_does_not_tell_where_streams_are_comes_back(tmp_path: Path) -> None:
    footer = open_footer(tmp_path, replace(golden.footer_data(), presence=None).pack(7))
    assert footer.presence is None and Index(footer, {}, is_remade=False).segments_before(0) is None


def test_a_footer_tells_where_streams_are() -> None:
    content = golden.footer_data().pack(7)
    footer = Footer(None, "file", SealRecord(SEALED, 7, 1 << 20, 0, 4, AT, len(content)), content)
    told = [Index(footer, {}, is_remade=False).segments_before(number) for number in range(4)]
    lists = [None if one is None else (list(one[0]), list(one[1])) for one in told]
    assert lists == [([5, 3, 1], [2]), ([], [2]), ([1023], [2]), ([], [2])]


def test_an_entry_that_the_segment_does_not_have_is_damage_for_who_takes_all(tmp_path: Path) -> None:
    changed = replace(golden.footer_data(), entries=np.array([0, LOST_ENTRY, 4, 1], np.uint32))
    footer = open_footer(tmp_path, changed.pack(7))
    with pytest.raises(StoreCorrupt, match="entries"):
        footer.check_entries()


@pytest.mark.parametrize("field", range(5))
@pytest.mark.parametrize("value", [0, 1, 0x7FFF_FFFF, 0xFFFF_FFFF])
def test_sizes_that_do_not_add_up_are_damage(tmp_path: Path, field: int, value: int) -> None:
    content = bytearray(golden.fixture("footer"))
    struct.pack_into("<I", content, 16 + 4 * field, value)
    struct.pack_into("<Q", content, HEADER_BYTES - 8, checksum64(bytes(content[: HEADER_BYTES - 8])))
    with pytest.raises(StoreCorrupt):
        open_footer(tmp_path, bytes(content)).topics()


@pytest.mark.parametrize(
    "packed",
    [b"", b"no zlib", zlib.compress(b"\xff\0x"), zlib.compress(b"one"), zlib.compress(b"one\0two\0three"),
     zlib.compress(bytes(50 << 20))],
    ids=["nothing", "no zlib", "no UTF-8", "too few", "too many", "too large"],
)  # fmt: skip
def test_names_that_cannot_be_decoded_are_damage(tmp_path: Path, packed: bytes) -> None:
    footer = open_footer(tmp_path, replace(golden.footer_data(), packed_names=packed).pack(7))
    for check in (footer.topics, footer.check_entries):
        tracemalloc.start()
        try:
            with pytest.raises(StoreCorrupt, match="names cannot be decoded"):
                check()
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("size", [1, 1 << 33, (1 << 64) - 1])
def test_a_footer_that_ends_behind_its_file_is_damage(tmp_path: Path, size: int) -> None:
    content = golden.fixture("footer")
    with pytest.raises(StoreCorrupt, match="cut short"):
        open_footer(tmp_path, content, len(content) + size)
