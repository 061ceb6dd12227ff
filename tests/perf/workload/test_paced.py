"""Work at a fixed rate: each request has its own due time, and a stall is paid by all who come meanwhile."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from stratalog import MessageStore
from stratalog.perf.workload import paced, timed
from stratalog.perf.workload.checker import WrongResult
from stratalog.perf.workload.latencies import MOST_NS, Latencies
from stratalog.perf.workload.paced import Rate

STALL_S = 0.2
BODY = b"body"


class Stalling:
    """Answers reads at once, but for the first one, which takes `STALL_S`."""

    def __init__(self) -> None:
        self.calls = 0

    def get_range(self, topic: str, queue_id: int, offset: int, count: int) -> dict[int, bytes]:
        self.calls += 1
        if self.calls == 1:
            time.sleep(STALL_S)
        return {0: timed.HEAD.pack(offset) + BODY}


def test_requests_that_are_due_in_a_stall_wait_for_its_end() -> None:
    store: Any = Stalling()
    answered = paced.reads(store, Rate(1_000, 0.1), 8, BODY, list(range(8)))
    assert store.calls == len(answered.times_ns) == 100
    for number, waited_ns in enumerate(answered.times_ns):
        assert waited_ns >= STALL_S * 1e9 - number * 1e6  # number / 1,000 s is when it was due


def test_no_request_is_made_before_it_is_due() -> None:
    made: list[int] = []
    rate, began = Rate(2_000, 0.05), time.perf_counter_ns()
    paced.drive(rate, lambda number: made.append(time.perf_counter_ns() - began - rate.due_ns(number)), began)
    assert len(made) == 100 and min(made) >= 0


def test_appends_are_all_answered_and_are_what_was_written(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        answered, done = paced.appends(store, Rate(1_000, 0.1), BODY)
        assert len(answered.times_ns) == done.messages == done.check(store) == 100
    assert min(answered.times_ns) > 0


def test_jobs_are_all_acknowledged_once(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        answered, done = paced.jobs(store, Rate(1_000, 0.1), BODY)
        assert len(answered.times_ns) == 100
        assert done.messages == done.check(store) == 100 + paced.QUEUES
    assert min(answered.times_ns) > 0


def test_read_of_another_message_is_a_wrong_result() -> None:
    store: Any = Stalling()
    with pytest.raises(WrongResult, match="100 of 100"):
        paced.reads(store, Rate(100_000, 0.001), 8, b"another", list(range(8)))


def test_appends_that_fail_end_with_the_error_of_the_store(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        with pytest.raises(Exception, match="closed") as raised:
            store.close()
            paced.appends(store, Rate(1_000, 0.05), BODY)
        assert type(raised.value).__name__ == "StoreClosed"


def test_jobs_that_fail_end_with_the_error_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        real, made = paced._submit, []

        def fail_later(*arguments: Any) -> Any:
            made.append(1)
            if len(made) > 20:
                raise OSError(5, "the device is gone")
            return real(*arguments)

        monkeypatch.setattr(paced, "_submit", fail_later)
        with pytest.raises(OSError, match="the device is gone"):
            paced.jobs(store, Rate(1_000, 0.05), BODY)


def test_distribution_keeps_three_digits_and_takes_any_value() -> None:
    latencies = Latencies()
    assert latencies.marks_us() == {"p50": 0.0, "p99": 0.0, "p99.9": 0.0, "max": 0.0}
    latencies.add([*range(1_000, 1_001_000, 1_000)])
    marks = latencies.marks_us()
    assert latencies.count == 1_000
    assert marks["p50"] == pytest.approx(500, rel=2e-3) and marks["p99"] == pytest.approx(990, rel=2e-3)
    latencies.add([-5, 0, MOST_NS * 10])
    assert latencies.count == 1_003 and latencies.marks_us()["max"] == pytest.approx(MOST_NS / 1e3, rel=2e-3)


def test_scan_that_differs_from_what_was_appended_is_a_wrong_result(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        done = timed.filled(store, 512, BODY)
        assert done.check(store) == 512
        store.append(timed.TOPIC, 0, b"more")
        with pytest.raises(WrongResult, match="offset 512"):
            done.check(store)
        done.written[0] += 2
        with pytest.raises(WrongResult):
            done.check(store)


def test_calls_under_way_are_bounded_and_the_wait_of_the_others_counts() -> None:
    under_way, most = 0, 0

    async def call(number: int) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.05)
        under_way -= 1

    answered = asyncio.run(paced.calls(Rate(10_000, 0.002), call, 5))
    assert most == 5 and len(answered.times_ns) == 20
    assert max(answered.times_ns) >= 4 * 0.05e9 - 0.002e9  # four turns of five


def test_call_that_fails_is_raised_when_all_others_have_ended() -> None:
    ended: list[int] = []

    async def call(number: int) -> None:
        if number == 0:
            raise OSError(5, "the server is gone")
        await asyncio.sleep(0.02)
        ended.append(number)

    with pytest.raises(OSError, match="the server is gone"):
        asyncio.run(paced.calls(Rate(10_000, 0.001), call, 3))
    assert sorted(ended) == list(range(1, 10))
