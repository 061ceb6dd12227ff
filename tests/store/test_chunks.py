"""Chunks of whole frames: each byte is read once, and what the page cache lacks is asked for ahead."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from stratalog.store.device.os_file import OsFile
from stratalog.store.plans import chunks as chunks_module
from stratalog.store.plans.chunks import FrameChunks
from stratalog.store.segment import scanner
from stratalog.store.segment.scanner import ChunkBuffers
from tests.seeds import draw_seed

Range = tuple[int, int]


class NotedFile(OsFile):
    """Notes what is read and what is hinted; `cached_until` is the first byte that the page cache lacks."""

    def __init__(self, path: Path, cached_until: int) -> None:
        super().__init__(path, create=False, direct=False, write=False)
        self._cached_until = cached_until
        self.read_ranges = list[Range]()
        self.hints = list[Range]()

    def is_cached(self, position: int) -> bool:
        return position < self._cached_until

    def will_need(self, position: int, size: int) -> None:
        self.hints.append((position, position + size))

    def read(self, position: int, size: int) -> bytes:
        self.read_ranges.append((position, position + size))
        return super().read(position, size)

    def read_into(self, views: Sequence[memoryview], position: int) -> int:
        self.read_ranges.append((position, position + sum(map(len, views))))
        return super().read_into(views, position)


@pytest.fixture
def content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A file `f` of 50,000 bytes, and chunks of 1,000."""
    monkeypatch.setattr(chunks_module, "CHUNK_BYTES", 1_000)
    monkeypatch.setattr(chunks_module, "WINDOW_BYTES", 4_000)
    monkeypatch.setattr(scanner, "SMALL_BYTES", 0)
    monkeypatch.setattr(chunks_module, "WINDOWS_AHEAD", 3)
    data = random.Random(draw_seed()).randbytes(50_000)
    (tmp_path / "f").write_bytes(data)
    return data


def frames(seed: int, begin: int, end: int) -> list[int]:
    """Where some frames begin, small and large ones."""
    chance, found = random.Random(seed), [begin]
    while found[-1] + 5_000 < end:
        found.append(found[-1] + chance.choice([10, 300, 999, 1_001, 4_000]))
    return found


@pytest.mark.parametrize("cached_until", [0, 17_000, 50_000])
def test_each_byte_is_read_once_and_hinted_before_if_it_is_not_cached(
    tmp_path: Path, content: bytes, cached_until: int
) -> None:
    begin, end = 8_192, 49_500
    file = NotedFile(tmp_path / "f", cached_until)
    places = frames(draw_seed(), begin, end)
    reader = FrameChunks(file, places, end, ChunkBuffers())
    for position, following in zip(places, [*places[1:], end], strict=True):
        assert reader.view(position, 8) == content[position : position + 8]
        assert reader.view(position + 8, following - position - 8) == content[position + 8 : following]
        assert all(first < file.read_ranges[-1][0] + 3 * 4_000 for first, _ in file.hints), "not all at once"
    assert [first for first, _ in file.read_ranges[1:]] == [last for _, last in file.read_ranges[:-1]]
    assert (file.read_ranges[0][0], file.read_ranges[-1][1]) == (begin, end)
    hinted = [at for first, last in file.hints for at in range(first, last)]
    assert len(hinted) == len(set(hinted)) and set(hinted) >= set(range(max(begin, cached_until + 4_000), end))
    assert not hinted or (min(hinted) >= cached_until and max(hinted) < end)
    reader.close()
    file.close()


def test_chunk_that_is_kept_is_not_written_over(tmp_path: Path, content: bytes) -> None:
    file, buffers = NotedFile(tmp_path / "f", 0), ChunkBuffers()
    places = list(range(0, 50_000, 500))
    reader = FrameChunks(file, places, 50_000, buffers)
    kept = [reader.view(at, 500) for at in places]
    assert b"".join(kept) == content
    reader.close()
    file.close()


def test_memory_of_chunks_that_nobody_keeps_is_used_again(tmp_path: Path, content: bytes) -> None:
    file, buffers = NotedFile(tmp_path / "f", 0), ChunkBuffers()
    reader = FrameChunks(file, list(range(0, 50_000, 500)), 50_000, buffers)
    assert b"".join(bytes(reader.view(at, 500)) for at in range(0, 50_000, 500)) == content
    assert len(buffers._buffers) == 1
    reader.close()
    file.close()
