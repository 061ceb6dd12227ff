"""The references give sane figures, and their files are gone afterwards."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from perf import reference
from perf.rawfile import Preparation, RawFile, read_sequential, round_up
from perf.reference import asyncio_floor, raw_device, thread_floor
from perf.threads import run_together
from perf.workload import Sizes

FILE_BYTES = 2 << 20
SECONDS = 0.05
LOOKS = 20


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the references' loops goes on by the looks at it: a machine that stalls measures as much."""
    looks = count()
    clock = SimpleNamespace(perf_counter=lambda: next(looks) * SECONDS / LOOKS)
    monkeypatch.setattr(reference, "time", clock)


@pytest.mark.usefixtures("slow_clock")
@pytest.mark.parametrize("preparation", ["prewritten", "fallocated", "growing"])
def test_raw_device_gives_a_positive_rate(tmp_path: Path, preparation: Preparation) -> None:
    rate = raw_device(tmp_path, 5000, 2, SECONDS, preparation=preparation, file_bytes=FILE_BYTES)
    assert rate.forces_per_s > 0
    assert rate.mb_per_s == pytest.approx(rate.forces_per_s * 8192 / 1e6)
    assert list(tmp_path.iterdir()) == []


def test_raw_file_writes_whole_blocks_in_a_circle(tmp_path: Path) -> None:
    file = RawFile(tmp_path / "raw", 5 * 4096)
    assert [file.write_forced(size) for size in (1, 4096, 4097, 8192)] == [4096, 4096, 8192, 8192]
    assert file.path.stat().st_size == 5 * 4096
    file.close()


@pytest.mark.usefixtures("time_for_some_writes")
@pytest.mark.parametrize("bare", [False, True])
def test_thread_floor_gives_a_positive_rate(tmp_path: Path, bare: bool) -> None:
    floor = thread_floor(tmp_path, 5, Sizes.parse("small"), SECONDS, bare=bare, file_bytes=FILE_BYTES)
    assert floor.messages_per_s > 0
    assert 1 <= floor.mean_batch <= 5
    assert floor.mb_per_s == pytest.approx(floor.messages_per_s * 550 / 1e6)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("time_for_some_writes")
def test_asyncio_floor_gives_a_positive_rate(tmp_path: Path) -> None:
    floor = asyncio_floor(tmp_path, 5, Sizes.parse("small"), SECONDS, file_bytes=FILE_BYTES)
    assert floor.messages_per_s > 0
    assert 1 <= floor.mean_batch <= 5


@pytest.mark.parametrize("direct", [False, True])
def test_sequential_read_stops_at_its_limit(tmp_path: Path, direct: bool) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        path.write_bytes(bytes(10_000))
    assert read_sequential(paths, 15_000, direct) == 15_000
    assert read_sequential(paths, 1 << 20, direct) == 20_000


def test_sizes_are_rounded_up_to_blocks() -> None:
    assert [round_up(size) for size in (0, 1, 4096, 4097)] == [4096, 4096, 4096, 8192]


def test_error_of_a_thread_reaches_the_caller() -> None:
    def fail() -> None:
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        run_together([lambda: None, fail])
