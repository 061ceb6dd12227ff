"""Reading segments from front to back: chunks and their borders, chains, frames behind damage."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.store.device.disk import OsDisk
from stratalog.store.device.os_file import OsFile
from stratalog.store.format.layout import DATA_START, FRAME_MAGIC
from stratalog.store.segment import scanner as scanner_module
from stratalog.store.segment.scanner import (
    CHUNK_BYTES,
    ChunkBuffers,
    ChunkReader,
    FrameScanner,
    find_magic,
    open_sequential,
)

from . import golden


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(scanner_module, "CHUNK_BYTES", 1000)
    return 1000


def open_file(path: Path, content: bytes) -> OsFile:
    path.write_bytes(content)
    return OsFile(path, create=False, direct=False)


def test_views_across_chunks_are_right(tmp_path: Path, small_chunks: int) -> None:
    content = bytes(index % 251 for index in range(3500))
    reader = ChunkReader(open_file(tmp_path / "f", content), len(content))
    for position in (0, 1, 999, 1000, 1001, 2500, 3499, 500, 0):  # backwards as well
        for size in (0, 1, 2, 1000, 1001, 2600, 9999):
            assert reader.view(position, size) == content[position : position + size]
    assert len(reader.view(3500, 1)) == 0
    assert len(reader.view(9000, 1)) == 0
    reader.close()


def test_file_shorter_than_promised_gives_what_there_is(tmp_path: Path, small_chunks: int) -> None:
    reader = ChunkReader(open_file(tmp_path / "f", b"x" * 1500), 4000)
    assert reader.view(1400, 500) == b"x" * 100
    assert reader.view(900, 3000) == b"x" * 600
    assert len(reader.view(3000, 10)) == 0
    reader.close()


def place(*frames: bytes) -> bytes:
    """A segment's bytes with frames at DATA_START; the frames know that position."""
    return bytes(DATA_START) + b"".join(frames)


def test_scan_follows_the_chain_and_ends_with_it(tmp_path: Path) -> None:
    content = place(golden.full_frame(), b"rubbish")
    reader = ChunkReader(open_file(tmp_path / "f", content), len(content))
    walk = FrameScanner(reader, golden.SEGMENT.lane, 7, DATA_START, golden.SEGMENT.chain)
    found = walk.next()
    assert found is not None
    assert found.is_whole
    assert found.frame.header.position == DATA_START
    assert walk.next() is None
    assert (walk.position, walk.chain) == (len(content) - 7, found.frame.head.checksum)
    reader.close()


def test_frame_of_another_chain_sequence_or_position_is_not_followed(tmp_path: Path) -> None:
    frame = golden.full_frame()
    reader = ChunkReader(open_file(tmp_path / "f", place(frame)), DATA_START + len(frame))
    assert FrameScanner(reader, golden.SEGMENT.lane, 7, DATA_START, golden.SEGMENT.chain + 1).next() is None
    assert FrameScanner(reader, golden.SEGMENT.lane, 8, DATA_START, golden.SEGMENT.chain).next() is None
    reader.close()
    shifted = place(bytes(4096), frame)
    reader = ChunkReader(open_file(tmp_path / "g", shifted), len(shifted))
    assert FrameScanner(reader, golden.SEGMENT.lane, 7, DATA_START + 4096, golden.SEGMENT.chain).next() is None
    reader.close()


def test_later_frames_are_found_across_chunk_borders(tmp_path: Path, small_chunks: int) -> None:
    content = FRAME_MAGIC * 2000 + bytes(192) + golden.full_frame()
    assert content.index(golden.full_frame()) == DATA_START
    reader = ChunkReader(open_file(tmp_path / "f", content), len(content))
    found = FrameScanner(reader, golden.SEGMENT.lane, 7, 0, 0).find_later(0, len(content))
    assert [header.position for header in found] == [DATA_START]
    reader.close()


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=600))
def test_rubbish_is_never_a_frame(tmp_path_factory: pytest.TempPathFactory, rubbish: bytes) -> None:
    content = FRAME_MAGIC + rubbish
    reader = ChunkReader(open_file(tmp_path_factory.getbasetemp() / "rubbish", content), len(content))
    assert FrameScanner(reader, golden.SEGMENT.lane, 7, 0, 0).next() is None
    assert FrameScanner(reader, golden.SEGMENT.lane, 7, 0, 0).find_later(0, len(content)) == []
    reader.close()


def test_later_frames_are_found_wherever_a_chunk_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = place(golden.full_frame())
    for chunk in range(DATA_START - 4, DATA_START + 6):
        monkeypatch.setattr(scanner_module, "CHUNK_BYTES", chunk)
        reader = ChunkReader(open_file(tmp_path / "f", content), len(content))
        for begin in (0, 5, DATA_START):
            found = FrameScanner(reader, golden.SEGMENT.lane, 7, 0, 0).find_later(begin, len(content))
            assert [header.position for header in found] == [DATA_START], (chunk, begin)
        assert FrameScanner(reader, golden.SEGMENT.lane, 7, 0, 0).find_later(DATA_START + 1, len(content)) == []
        reader.close()


@given(st.lists(st.sampled_from([FRAME_MAGIC, b"\0", FRAME_MAGIC[:1], FRAME_MAGIC[:3], b"x"]), max_size=40))
def test_magic_is_found_as_bytes_find_it(parts: list[bytes]) -> None:
    content = b"".join(parts)
    expected = [at for at in range(len(content)) if content.startswith(FRAME_MAGIC, at)]
    assert find_magic(memoryview(content)) == expected


def test_views_that_are_kept_are_not_read_over(tmp_path: Path, small_chunks: int) -> None:
    content = bytes(index % 251 for index in range(40 * small_chunks))
    reader = ChunkReader(open_file(tmp_path / "f", content), len(content))
    kept = [reader.view(at, small_chunks) for at in range(0, len(content), small_chunks)]
    assert b"".join(kept) == content
    reader.close()


def test_buffers_are_used_again_when_nobody_looks_at_them(tmp_path: Path, small_chunks: int) -> None:
    content = bytes(200 * small_chunks)
    reader = ChunkReader(open_file(tmp_path / "f", content), len(content))
    for at in range(0, len(content), 100):
        assert reader.view(at, 100) == bytes(100)
    assert len(reader._buffers._buffers) <= 2 * (scanner_module.CHUNKS_AHEAD + scanner_module.READ_THREADS + 2)
    reader.close()


@pytest.mark.parametrize("made", [lambda view: view, lambda view: np.frombuffer(view, np.uint8)[3:], memoryview.cast])
def test_memory_is_not_used_again_while_anything_made_of_its_views_is_kept(
    monkeypatch: pytest.MonkeyPatch, made: Callable[..., Any]
) -> None:
    """However an interpreter counts references."""
    monkeypatch.setattr(sys, "getrefcount", lambda thing: 1)
    buffers = ChunkBuffers()
    kept = made(buffers.take(CHUNK_BYTES)[:1000].toreadonly(), *(["B"] if made is memoryview.cast else []))
    before = bytes(kept)
    for _ in range(3):
        buffers.take(CHUNK_BYTES)[:1000] = b"x" * 1000
    assert bytes(kept) == before
    assert len(buffers._buffers) == 2
    del kept
    for _ in range(3):
        buffers.take(CHUNK_BYTES)[:1000] = b"x" * 1000
    assert len(buffers._buffers) == 2


def test_views_can_only_be_read(tmp_path: Path, small_chunks: int) -> None:
    content = bytes(index % 251 for index in range(3 * small_chunks))
    reader = ChunkReader(open_file(tmp_path / "f", content), len(content))
    for position, size in ((0, 10), (990, 20), (2000, 1000), (0, 3000)):
        view = reader.view(position, size)
        assert view.readonly
        with pytest.raises(TypeError):
            view[0] = 1
    reader.close()


def test_direct_reads_end_where_the_file_does(tmp_path: Path) -> None:
    content = bytes(range(256)) * 40  # no whole number of blocks
    (tmp_path / "f").write_bytes(content)
    file = open_sequential(OsDisk(), tmp_path / "f")
    reader = ChunkReader(file, len(content))
    assert reader.view(0, len(content)) == content
    assert reader.view(len(content) - 3, 100) == content[-3:]
    reader.close()
    file.close()
