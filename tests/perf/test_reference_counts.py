"""What the references count is what they have written: bytes are taken from the system's account of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from perf import reference
from perf.rawfile import RawFile
from perf.reference import Flusher, asyncio_floor, raw_device, thread_floor
from perf.threads import run_together
from perf.workload import Sizes

FILE_BYTES = 2 << 20
TOOK_S = 2.0  # what the clock says that a measurement took
OTHERS_BYTES = 200_000  # what the test's own output may add


class Account:
    """Forces, the bytes asked of each, and those that went to the system meanwhile; messages handed over."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.writes: list[tuple[int, int]] = []  # bytes asked for, and bytes that the file says it wrote
        self.system_bytes = 0
        self.handed: list[int] = []


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    """Counts beside the references, and makes their clock say `TOOK_S`."""
    made, write_forced, add = Account(), RawFile.write_forced, Flusher.add
    process = psutil.Process()

    def counted(file: RawFile, size_bytes: int) -> int:
        with made.lock:  # one at a time: the system's account is the process's
            before = process.io_counters().write_chars
            written = write_forced(file, size_bytes)
            made.system_bytes += process.io_counters().write_chars - before
            made.writes.append((size_bytes, written))
        return written

    def handed(flusher: Flusher[Any], waiter: Any, size_bytes: int) -> None:
        add(flusher, waiter, size_bytes)
        made.handed.append(size_bytes)

    def timed(jobs: Any) -> float:
        run_together(jobs)
        return TOOK_S

    monkeypatch.setattr(RawFile, "write_forced", counted)
    monkeypatch.setattr(Flusher, "add", handed)
    monkeypatch.setattr(reference, "run_together", timed)
    return made


def clock(looks: int) -> SimpleNamespace:
    """It stands still for some looks, and is at `TOOK_S` then."""
    left = iter([0.0] * looks)
    return SimpleNamespace(perf_counter=lambda: next(left, TOOK_S))


def test_raw_device_counts_what_it_writes(tmp_path: Path, account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "time", clock(20))
    rate = raw_device(tmp_path, 5000, 2, 1.0, file_bytes=FILE_BYTES)
    assert len(account.writes) >= 10
    assert set(account.writes) == {(5000, 8192)}
    assert rate.forces_per_s * TOOK_S == pytest.approx(len(account.writes))
    assert rate.mb_per_s * TOOK_S * 1e6 == pytest.approx(8192 * len(account.writes))
    assert 0 <= account.system_bytes - 8192 * len(account.writes) < OTHERS_BYTES


def bare_floor(folder: Path) -> reference.FloorRate:
    return thread_floor(folder, 5, Sizes.parse("contest"), 1.0, bare=True, file_bytes=FILE_BYTES)


def floor(folder: Path) -> reference.FloorRate:
    return thread_floor(folder, 5, Sizes.parse("contest"), 1.0, file_bytes=FILE_BYTES)


def floor_of_coroutines(folder: Path) -> reference.FloorRate:
    return asyncio_floor(folder, 5, Sizes.parse("contest"), 1.0, file_bytes=FILE_BYTES)


@pytest.mark.usefixtures("time_for_some_writes")
@pytest.mark.parametrize("measure", [floor, bare_floor, floor_of_coroutines])
def test_floor_writes_all_bytes_of_the_messages_that_it_counts(
    tmp_path: Path, account: Account, monkeypatch: pytest.MonkeyPatch, measure: Callable[[Path], reference.FloorRate]
) -> None:
    monkeypatch.setattr(reference, "time", clock(1))
    rate = measure(tmp_path)
    messages = round(rate.messages_per_s * TOOK_S)
    assert messages == len(account.handed) > 0
    payload = sum(account.handed)
    assert rate.mean_batch == pytest.approx(messages / len(account.writes))
    written = sum(size for _, size in account.writes)
    assert payload <= written < payload + 4096 * len(account.writes)
    assert all(size <= wrote for size, wrote in account.writes)
    assert 0 <= account.system_bytes - written < OTHERS_BYTES
