"""The references' files: what they are asked to write reaches the system, whole and forced, in one call."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from stratalog.perf.references.rawfile import RWF_DSYNC, Preparation, RawFile, read_sequential, round_up

from .recorder import Recorder

MIB = 1 << 20


@pytest.mark.parametrize("preparation", ["prewritten", "fallocated", "growing"])
def test_forced_write_is_one_call_with_the_flag_and_all_of_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preparation: Preparation
) -> None:
    recorder = Recorder(monkeypatch)
    file = RawFile(tmp_path / "raw", 20 * MIB, preparation)
    recorder.forget()
    sizes = [1, 4096, 4097, 5 * MIB, 9 * MIB + 1]
    assert [file.write_forced(size) for size in sizes] == [round_up(size) for size in sizes]
    assert recorder.sizes == [round_up(size) for size in sizes]
    assert recorder.flags == [RWF_DSYNC] * len(sizes)
    assert recorder.syncs == (0 if RWF_DSYNC else len(sizes))
    written = sum(map(round_up, sizes))
    content = (tmp_path / "raw").read_bytes()[:written]
    assert len(content) == written
    assert not any(content[at : at + 4096] == bytes(4096) for at in range(0, written, 4096))
    file.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL], ids=errno.errorcode.get)
def test_kernel_without_the_flag_gets_a_write_and_a_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    recorder = Recorder(monkeypatch, refuse=number)
    file = RawFile(tmp_path / "raw", MIB)
    recorder.forget()
    assert file.write_forced(5000) == 8192
    assert (recorder.sizes, recorder.flags, recorder.syncs) == ([8192], [0], 1)
    assert "fdatasync" in file.call
    file.close()


def test_file_is_written_in_a_circle(tmp_path: Path) -> None:
    file = RawFile(tmp_path / "raw", 5 * 4096)
    for size in (1, 4096, 4097, 8192):
        file.write_forced(size)
    assert file.path.stat().st_size == 5 * 4096
    file.close()


def test_write_that_is_larger_than_the_file_is_refused_and_not_cut(tmp_path: Path) -> None:
    file = RawFile(tmp_path / "raw", 5 * 4096)
    with pytest.raises(ValueError, match="24,576 bytes to a file of 20,480"):
        file.write_forced(5 * 4096 + 1)
    file.close()


def test_short_write_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RawFile(tmp_path / "raw", 5 * 4096)
    monkeypatch.setattr(os, "pwritev", lambda *_arguments: 4096)
    with pytest.raises(OSError, match="4096 of 8192 bytes"):
        file.write_forced(8192)
    file.close()


@pytest.mark.parametrize("direct", [False, True])
def test_sequential_read_stops_at_its_limit(tmp_path: Path, direct: bool) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        path.write_bytes(bytes(10_000))
    assert read_sequential(paths, 15_000, direct) == 15_000
    assert read_sequential(paths, 1 << 20, direct) == 20_000


def test_sizes_are_rounded_up_to_blocks() -> None:
    assert [round_up(size) for size in (0, 1, 4096, 4097)] == [4096, 4096, 4096, 8192]
