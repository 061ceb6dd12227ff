"""One contract for every tier, and what is special about each."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stratalog.cache import tier as tiers
from stratalog.cache.errors import CacheUnusable
from stratalog.cache.tier import PAGE_BYTES, Tier

Maker = Callable[[int], Tier]
SIZE_BYTES = 1 << 20
TIERS = ["heap", "off-heap", "private-file", "persistent"]
FILE_TIERS = ["private-file", "persistent"]


@pytest.fixture(params=TIERS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    return lambda size: Tier(request.param, size, tmp_path)


def test_a_new_tier_is_zero_and_as_large_as_asked_for(make: Maker) -> None:
    tier = make(SIZE_BYTES)
    assert tier.name in TIERS and tier.kind != "off"
    assert len(tier.memory) == len(tier.view) == tier.size_bytes == SIZE_BYTES
    assert bytes(tier.memory[0:SIZE_BYTES]) == bytes(SIZE_BYTES)


def test_what_is_written_is_read_and_a_copy_is_a_copy(make: Maker) -> None:
    tier = make(SIZE_BYTES)
    tier.view[100:105] = b"first"
    tier.view[-3:] = b"end"
    copy = bytes(tier.memory[100:105])
    tier.view[100:105] = b"other"
    assert copy == b"first" and bytes(tier.memory[100:105]) == b"other"
    assert bytes(tier.memory[SIZE_BYTES - 3 : SIZE_BYTES]) == b"end"


def test_every_byte_can_be_written(make: Maker) -> None:
    tier = make(3 * PAGE_BYTES + 17)
    pattern = bytes(i * 7 % 251 for i in range(tier.size_bytes))
    tier.view[:] = pattern
    assert bytes(tier.memory[0 : tier.size_bytes]) == pattern


def test_size_zero_turns_a_tier_off(make: Maker) -> None:
    tier = make(0)
    assert tier.kind == "off" and tier.size_bytes == 0 and len(tier.memory) == len(tier.view) == 0
    tier.close()


@pytest.mark.parametrize("size", [1 << 59, 1 << 70])
def test_more_than_there_is_is_an_error_at_open(make: Maker, size: int) -> None:
    with pytest.raises(CacheUnusable, match="cannot have"):
        make(size)


def test_memory_that_the_machine_does_not_have_is_an_error_and_no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratalog.cache.tier.available_bytes", lambda: 20 << 20)
    for name in ("heap", "off-heap"):
        with pytest.raises(CacheUnusable, match="only 20,971,520 bytes are available"):
            Tier(name, 21 << 20)
        Tier(name, 19 << 20).close()


def test_closing_gives_the_memory_up_and_leaves_a_reader_alive(make: Maker) -> None:
    tier = make(SIZE_BYTES)
    tier.view[0:4] = b"here"
    memory = tier.memory
    tier.close()
    assert len(bytes(memory[0:4])) == 4  # whatever it is: no crash
    assert tier.size_bytes == 0 and tier.kind == "off"
    tier.close()


@pytest.mark.parametrize("name", FILE_TIERS)
def test_a_missing_folder_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(CacheUnusable, match=r"missing.*no such folder"):
        Tier(name, SIZE_BYTES, tmp_path / "missing")
    Tier(name, 0, tmp_path / "missing")  # a tier that is off needs none


@pytest.mark.parametrize("name", FILE_TIERS)
def test_a_full_disk_is_an_error_at_open_that_leaves_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for call in ("posix_fallocate", "pwrite"):
        monkeypatch.setattr(os, call, full)
    with pytest.raises(CacheUnusable, match="No space left"):
        Tier(name, SIZE_BYTES, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", FILE_TIERS)
def test_a_file_may_take_all_the_space_there_is_and_no_byte_more(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = SimpleNamespace(f_bavail=SIZE_BYTES // 4096, f_frsize=4096)
    monkeypatch.setattr(os, "fstatvfs", lambda _file: free)
    Tier(name, SIZE_BYTES, tmp_path).close()
    with pytest.raises(CacheUnusable, match="bytes are free there"):
        Tier(name, SIZE_BYTES + 4096, tmp_path)


@pytest.mark.parametrize("name", FILE_TIERS)
def test_the_file_has_its_space_and_no_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[int] = []
    really = tiers.reserve

    def look(file: int, size_bytes: int) -> None:
        really(file, size_bytes)
        blocks.append(os.fstat(file).st_blocks * 512)

    monkeypatch.setattr(tiers, "reserve", look)
    tier = Tier(name, SIZE_BYTES, tmp_path)
    assert blocks[-1] >= SIZE_BYTES and not list(tmp_path.iterdir())
    assert tier.kind in ("private", "map-sync", "shared")


@pytest.mark.linux
def test_persistent_memory_falls_back_to_a_shared_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = mmap.mmap

    def without_dax(file: int, size: int, flags: int) -> mmap.mmap:
        asked.append(flags)
        if flags != mmap.MAP_SHARED:
            raise OSError(errno.EOPNOTSUPP, "no DAX here")
        return real(file, size, flags=flags)

    monkeypatch.setattr("stratalog.cache.tier.mmap.mmap", without_dax)
    assert Tier("persistent", SIZE_BYTES, tmp_path).kind == "shared"
    assert asked == [0x80003, mmap.MAP_SHARED]


@pytest.mark.linux
def test_persistent_memory_says_when_map_sync_is_active(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = mmap.mmap
    monkeypatch.setattr("stratalog.cache.tier.mmap.mmap", lambda file, size, flags: real(file, size))
    assert Tier("persistent", SIZE_BYTES, tmp_path).kind == "map-sync"


def test_mappings_begin_at_a_page(tmp_path: Path) -> None:
    for tier in (Tier("off-heap", SIZE_BYTES), Tier("private-file", SIZE_BYTES, tmp_path)):
        assert np.frombuffer(tier.view, np.uint8).ctypes.data % PAGE_BYTES == 0
