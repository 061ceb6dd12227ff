"""The rates of the references are those of the writes that reach the system."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stratalog.perf.references.device import Seconds, raw_device
from stratalog.perf.references.no_engine import NoEngineRate, tasks_without_engine, threads_without_engine
from stratalog.perf.references.rawfile import RWF_DSYNC, Preparation, round_up
from stratalog.perf.workload.contest import Sizes

from .recorder import Questions, Recorder

FILE_BYTES = 2 << 20
PRODUCERS = 5
MESSAGE_BYTES = 5000
WRITES = 20


@pytest.mark.parametrize("preparation", ["prewritten", "fallocated", "growing"])
def test_rate_of_the_device_is_that_of_its_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preparation: Preparation
) -> None:
    recorder = Recorder(monkeypatch)
    rate = raw_device(tmp_path, 300_000, 2, Questions(WRITES), preparation=preparation, file_bytes=FILE_BYTES)
    forced = [size for size in recorder.sizes if size != 4096]  # a block each to probe the two files
    assert forced == [round_up(300_000)] * WRITES
    assert set(recorder.flags) == {RWF_DSYNC}
    assert (rate.forces, rate.written_bytes) == (WRITES, sum(forced))
    assert rate.mb_per_s == pytest.approx(sum(forced) / rate.seconds / 1e6)
    assert list(tmp_path.iterdir()) == []


def check_rate(rate: NoEngineRate, sizes: list[int], message_bytes: int) -> None:
    """Every message that was answered is in a write, and no write is smaller than its messages."""
    possible = {round_up(message_bytes * count): count for count in range(1, PRODUCERS + 1)}
    assert len(possible) == PRODUCERS  # else a write would not tell how many messages it has
    assert set(sizes) <= possible.keys()
    assert rate.forces == len(sizes) >= WRITES
    assert rate.messages == sum(possible[size] for size in sizes)
    assert rate.payload_bytes == rate.messages * message_bytes
    assert rate.written_bytes == sum(sizes)
    assert rate.messages_per_s == pytest.approx(rate.messages / rate.seconds)
    assert rate.mean_batch == pytest.approx(rate.messages / len(sizes))


@pytest.mark.parametrize("bare", [False, True])
def test_threads_without_an_engine_write_all_of_their_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: bool
) -> None:
    recorder = Recorder(monkeypatch)
    sizes = Sizes(MESSAGE_BYTES, MESSAGE_BYTES)
    rate = threads_without_engine(tmp_path, PRODUCERS, sizes, 0.05, Questions(WRITES), bare=bare, file_bytes=FILE_BYTES)
    check_rate(rate, recorder.sizes[1:], MESSAGE_BYTES)  # the first one probes the file
    assert set(recorder.flags) == {RWF_DSYNC}
    assert list(tmp_path.iterdir()) == []


def test_tasks_without_an_engine_write_all_of_their_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch)
    sizes = Sizes(MESSAGE_BYTES, MESSAGE_BYTES)
    rate = tasks_without_engine(tmp_path, PRODUCERS, sizes, 0.05, Questions(WRITES), file_bytes=FILE_BYTES)
    check_rate(rate, recorder.sizes[1:], MESSAGE_BYTES)
    assert set(recorder.flags) == {RWF_DSYNC}
    assert list(tmp_path.iterdir()) == []


def test_seconds_are_counted_from_the_first_question(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    over = Seconds(2.0)
    now[0] = 500.0
    answers = []
    for at in (500.0, 501.9, 502.0, 503.0):
        now[0] = at
        answers.append(over())
    assert answers == [False, False, True, True]
