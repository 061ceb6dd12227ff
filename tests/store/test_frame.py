"""Frames: what is encoded comes back, damage to a payload costs that message alone."""

from __future__ import annotations

import struct
from array import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.store.format.blobs import ExtraColumns
from stratalog.store.format.column_frame import FrameColumns, message_checksums, narrow
from stratalog.store.format.extras import Extras
from stratalog.store.format.frame import (
    FEW_BLOBS,
    Definition,
    column_bytes_bound,
    decode_at,
    encode_columns,
    optional_of,
)
from stratalog.store.format.layout import (
    FRAME_HEADER_BYTES,
    HAS_DUE,
    HAS_KEYS,
    HAS_PAYLOAD_CHECKSUM,
    HAS_PROPERTIES,
    HAS_STREAMS,
    WIDE_LENGTHS,
    WIDE_NUMBERS,
    FrameHeader,
    check_frame_head,
    checksum64,
)
from stratalog.store.segment.checksums import good_messages, whole_messages

from . import golden

PLAIN = 10
extras_rows = st.builds(
    Extras,
    st.none() | st.integers(0, (1 << 62) - 1),
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=20),
)
rows = st.tuples(st.integers(0, 100_000), st.binary(max_size=40), st.integers(0, 1 << 40), st.none() | extras_rows)


@pytest.mark.parametrize("count", [1, FEW_BLOBS, FEW_BLOBS + 1, 1000])
def test_optional_columns_of_one_message_are_those_that_were_given(count: int) -> None:
    rows = [
        Extras(None if at % 3 else at, [None, b"", b"key %d" % at][at % 3], [b"{}", None, b"{%d}" % at, b""][at % 4])
        for at in range(count)
    ]
    datas = [b"%d" % at for at in range(count)]
    sizes = [len(data) for data in datas]
    columns = encode_columns([1] * count, datas, sizes, array("q", range(count)), rows, [])
    header = FrameHeader(
        columns.flags, 0, FRAME_HEADER_BYTES + len(columns.packed), count, sum(sizes), 0, 1, 8192, 0, 0, 0, 0, 0
    )
    head, _ = header.seal(columns.packed)
    checked, frame = check_frame_head(header, bytes(head)), decode_at(bytes(head), 0)
    assert checked is not None
    assert frame is not None
    found = optional_of(checked)
    assert found is not None
    assert [found.row(at) for at in range(count)] == frame.extras() == rows
    for at in range(FRAME_HEADER_BYTES, len(head), 97):
        damaged = bytearray(head)
        damaged[at] ^= 4
        assert check_frame_head(header, bytes(damaged)) is None


def test_every_optional_column_comes_back() -> None:
    frame = decode_at(golden.full_frame(), 0)
    assert frame is not None
    flags = WIDE_NUMBERS | HAS_DUE | HAS_KEYS | HAS_PROPERTIES | HAS_STREAMS | HAS_PAYLOAD_CHECKSUM
    assert frame.header.flags == flags
    assert frame.numbers.tolist() == [70_000, 1, 70_001]
    assert frame.lengths.tolist() == [3, 0, 5]
    assert frame.lows.tolist() == [0, 1, 9]
    assert frame.checksums.tolist() == [checksum64(data) & 0xFFFFFFFF for data in (b"one", b"", b"three")]
    assert frame.starts().tolist() == [frame.payload_start, frame.payload_start + 3, frame.payload_start + 3]
    assert frame.extras() == [
        Extras(None, None, None),
        Extras(golden.TIME_MS + 5, b"key", b'{"a":"b"}'),
        Extras(None, b"", b"{}"),
    ]
    assert frame.definitions() == [
        Definition(70_000, "orders", 0), Definition(70_001, "Zürich/../x", 2_147_483_647)
    ]  # fmt: skip


def test_wide_columns_are_used_only_where_needed() -> None:
    narrow = encode_columns([65_535], [b"x"], [65_535], array("q", [0]), None, [])
    assert narrow.flags == 0
    assert len(narrow.packed) == PLAIN
    wide = encode_columns([65_536], [b"x"], [65_536], array("q", [0]), None, [])
    assert wide.flags == WIDE_NUMBERS | WIDE_LENGTHS
    assert len(wide.packed) == PLAIN + 4


def test_frame_without_messages_is_a_mark() -> None:
    columns = encode_columns([], [], [], array("q"), None, [])
    head = FrameHeader(0, 0, FRAME_HEADER_BYTES, 0, 0, 9, 1, 8192, 0, 1, 8192, 0, 0).seal(columns.packed)[0]
    frame = decode_at(head, 0)
    assert frame is not None
    assert len(frame.numbers) == 0
    assert whole_messages(frame, memoryview(b"")) == 0


@settings(max_examples=100, deadline=None)
@given(st.lists(rows, min_size=1, max_size=20), st.booleans(), st.sampled_from([0, 70_000]))
def test_columns_become_the_bytes_that_rows_become(
    batch: list[tuple[int, bytes, int, Extras | None]], with_definitions: bool, more_bytes: int
) -> None:
    numbers, datas, offsets, extras = (list(column) for column in zip(*batch, strict=True))
    datas[-1] += bytes(more_bytes)
    defined = [Definition(number, f"t{number}", number) for number in numbers] if with_definitions else []
    sizes = [len(data) for data in datas]
    expected = encode_columns(numbers, datas, sizes, array("q", offsets), extras, defined)
    optional, lengths = ExtraColumns.of(extras), np.array(sizes, np.int64)
    columns = FrameColumns(
        narrow(np.array(numbers, np.int64)), lengths, np.array(offsets, np.int64), optional.times_ms, optional.keys,
        optional.properties, defined,
    )  # fmt: skip
    checksums = message_checksums(b"".join(datas), lengths)
    assert checksums.tolist() == expected.checksums.tolist()
    assert columns.packed(checksums) == expected.packed
    assert (columns.flags, columns.size_bytes) == (expected.flags, len(expected.packed))


@pytest.mark.parametrize("sizes", [
    [], [0], [0, 0, 0], [1] * 5, [100] * 40, [256] * 3, [257] * 3, [1023] * 2, [1024] * 2, [5000] * 2, [99, 100, 101],
    [100, 100, 101], [0, 100], [3000, 10, 0],
])  # fmt: skip
@pytest.mark.parametrize("ending", [b"", b"\0"], ids=["plain", "zeros"])
def test_each_message_has_its_own_checksum_whatever_the_others_lengths(sizes: list[int], ending: bytes) -> None:
    datas = [(b"%d" % number * size)[: max(0, size - len(ending))] + ending[:size] for number, size in enumerate(sizes)]
    payload, expected = b"".join(datas), [checksum64(data) & 0xFFFFFFFF for data in datas]
    lengths = np.array(sizes, np.int64)
    assert list(map(len, datas)) == sizes
    for buffer in (payload, memoryview(payload), memoryview(bytearray(payload))):
        assert message_checksums(buffer, lengths).tolist() == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(rows, min_size=1, max_size=20), st.booleans())
def test_any_batch_comes_back_and_its_size_was_bounded(
    batch: list[tuple[int, bytes, int, Extras | None]], with_definitions: bool
) -> None:
    numbers, datas, offsets, extras = (list(column) for column in zip(*batch, strict=True))
    defined = [Definition(number, f"t{number}", number) for number in numbers] if with_definitions else []
    given_extras = [row for row in extras if row is not None]
    content = golden.make_frame(numbers, datas, offsets, extras if given_extras else None, defined)
    frame = decode_at(content, 0)
    assert frame is not None
    assert frame.numbers.tolist() == numbers
    assert frame.lows.tolist() == [offset & 0xFFFF for offset in offsets]
    assert frame.extras() == [row or Extras(None, None, None) for row in extras]
    assert frame.definitions() == defined
    payload = memoryview(content)[frame.header.header_bytes :]
    assert whole_messages(frame, payload) == len(batch)
    assert frame.header.header_bytes <= column_bytes_bound(len(batch), given_extras, [one.topic for one in defined])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=12), st.data())
def test_damage_to_one_payload_costs_that_message_alone(datas: list[bytes], data: st.DataObject) -> None:
    content = bytearray(golden.make_frame([0] * len(datas), datas, list(range(len(datas)))))
    victim = data.draw(st.integers(0, len(datas) - 1))
    frame = decode_at(bytes(content), 0)
    assert frame is not None
    at = int(frame.starts()[victim]) - golden.BASE
    content[at] ^= 1
    payload = memoryview(content)[frame.header.header_bytes :]
    assert whole_messages(frame, payload) == victim
    assert np.flatnonzero(~good_messages(frame, payload)).tolist() == [victim]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=12), st.data())
def test_frame_cut_at_any_byte_is_worth_its_whole_messages(datas: list[bytes], data: st.DataObject) -> None:
    content = golden.make_frame([0] * len(datas), datas, list(range(len(datas))))
    frame = decode_at(content, 0)
    assert frame is not None
    kept = data.draw(st.integers(0, frame.header.payload_bytes))
    payload = memoryview(content)[frame.header.header_bytes :][:kept]
    ends = frame.lengths.cumsum().tolist()
    assert whole_messages(frame, payload) == sum(end <= kept for end in ends)


def test_lengths_that_do_not_add_up_are_rejected() -> None:
    content = bytearray(golden.make_frame([0], [b"abc"], [0]))
    header_bytes = FRAME_HEADER_BYTES + PLAIN
    content[16:20] = struct.pack("<I", 4)  # payload_bytes
    body = bytes(content[: FRAME_HEADER_BYTES - 8])
    columns = bytes(content[FRAME_HEADER_BYTES:header_bytes])
    content[FRAME_HEADER_BYTES - 8 : FRAME_HEADER_BYTES] = struct.pack("<Q", checksum64(body + columns))
    assert decode_at(bytes(content), 0) is None


def resealed(content: bytes, at: int, value: bytes) -> bytes:
    """A frame with some of its header or columns replaced, and the checksum that belongs to that."""
    changed = bytearray(content)
    changed[at : at + len(value)] = value
    (header_bytes,) = struct.unpack_from("<I", changed, 8)
    columns = bytes(changed[FRAME_HEADER_BYTES:header_bytes])
    total = checksum64(bytes(changed[: FRAME_HEADER_BYTES - 8]) + columns)
    struct.pack_into("<Q", changed, FRAME_HEADER_BYTES - 8, total)
    return bytes(changed)


def test_frame_with_any_byte_of_its_columns_forged_is_decoded_or_none() -> None:
    """Never an error of Python's: nobody who has a frame expects one."""
    content = golden.full_frame()
    frame = decode_at(content, 0)
    assert frame is not None
    none = 0
    for at in [4, *range(FRAME_HEADER_BYTES, frame.header.header_bytes)]:
        for value in (b"\0", b"\x01", b"\x7f", b"\xff", b"\xff" * 4):
            forged = decode_at(resealed(content, at, value[: frame.header.header_bytes - at]), 0)
            if forged is None:
                none += 1
                continue
            assert len(forged.extras()) == 3
            assert all(len(definition.topic) < 100 for definition in forged.definitions())
    assert none > 100


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 127), st.integers(0, 30))
def test_frame_of_any_flags_and_count_is_decoded_or_none(flags: int, count: int) -> None:
    content = resealed(golden.full_frame(), 4, struct.pack("<H", flags))
    forged = decode_at(resealed(content, 12, struct.pack("<I", count)), 0)
    if forged is not None:
        assert len(forged.extras()) == count
        forged.definitions()
