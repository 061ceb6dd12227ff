"""Footers: what is packed comes back, and damage is found before it can mislead."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from store.disk import OsFile
from store.errors import StoreCorrupt
from store.footer import HEADER_BYTES, Footer, FooterData
from store.format import SEALED, SealRecord

from . import golden

AT = 4096


def open_footer(folder: Path, content: bytes, size: int | None = None) -> Footer:
    """A file that holds a footer behind its first block."""
    path = folder / "file"
    path.write_bytes(bytes(AT) + content)
    record = SealRecord(SEALED, 7, AT, 0, 4, AT, len(content) if size is None else size)
    file = OsFile(path, create=False, direct=False)
    try:
        return Footer(file, str(path), record)  # a mapping outlives its file
    finally:
        file.close()


def same(one: FooterData, other: FooterData) -> bool:
    return all(np.array_equal(getattr(one, field.name), getattr(other, field.name)) for field in fields(FooterData))


def test_everything_comes_back(tmp_path: Path) -> None:
    footer = open_footer(tmp_path, golden.fixture("footer"))
    footer.check_entries()
    assert same(footer.data(), golden.footer_data())
    assert footer.topics() == ["orders", "Zürich/../x"]
    assert (footer.time_min_ms, footer.time_max_ms) == (golden.TIME_MS, golden.TIME_MS + 1)
    assert footer.due_max_ms == golden.TIME_MS + 99


def test_rows_are_found_by_stream_number(tmp_path: Path) -> None:
    footer = open_footer(tmp_path, golden.fixture("footer"))
    assert footer.row(0) == (10, 0, 3)
    assert footer.row(1) == (5_000_000_000, 3, 3)
    assert footer.row(2) == (0, 3, 4)
    assert footer.row(3) == (0, 0, 0)  # a stream that the segment did not know yet


def test_counts_and_next_offsets_follow() -> None:
    data = golden.footer_data()
    assert data.counts.tolist() == [3, 0, 1]
    assert data.next_offsets.tolist() == [13, 5_000_000_000, 1]


def test_footer_of_nothing_comes_back(tmp_path: Path) -> None:
    none, no_times = np.empty(0, np.uint32), np.empty(0, np.int64)
    empty = FooterData([], none, none, no_times, np.zeros(1, np.uint32), none, none, none, no_times)
    footer = open_footer(tmp_path, empty.pack(1))
    assert same(footer.data(), replace(empty))


def test_every_flipped_bit_is_reported(tmp_path: Path) -> None:
    content = golden.fixture("footer")
    unseen = []
    for bit in range(8 * len(content)):
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
