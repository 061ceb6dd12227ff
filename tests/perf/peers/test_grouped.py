"""The group-commit thread that engines get."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from stratalog.perf.peers.grouped import MOST_WAITING, GroupCommit

WAIT_S = 60.0


def test_callers_return_only_when_their_row_is_written_and_share_a_write() -> None:
    writes: list[list[Any]] = []
    begun, gate = threading.Event(), threading.Event()

    def write(rows: list[Any]) -> None:
        begun.set()
        gate.wait(WAIT_S)
        writes.append(rows)

    commits, returned = GroupCommit(write), []

    def caller(row: int) -> None:
        commits.append(row)
        assert any(row in rows for rows in writes)
        returned.append(row)

    threads = [threading.Thread(target=caller, args=(row,)) for row in range(8)]
    threads[0].start()
    assert begun.wait(WAIT_S)
    for thread in threads[1:]:
        thread.start()
    until = time.monotonic() + WAIT_S
    while len(commits._rows) < 7:
        assert time.monotonic() < until
        time.sleep(0.001)
    assert not returned
    gate.set()
    for thread in threads:
        thread.join(WAIT_S)
    commits.close()
    assert sorted(returned) == sorted(row for rows in writes for row in rows) == list(range(8))
    assert [len(rows) for rows in writes] == [1, 7]


def test_its_thread_is_ready_before_it_takes_rows_and_an_error_of_that_is_raised() -> None:
    order: list[Any] = []
    commits = GroupCommit(order.extend, lambda: order.append("ready"))
    assert order == ["ready"]
    commits.append(1)
    commits.close()
    assert order == ["ready", 1]

    def refused() -> None:
        raise OSError("no connection")

    with pytest.raises(OSError, match="no connection"):
        GroupCommit(order.extend, refused)


def test_handed_over_rows_are_all_written_in_their_order_when_it_is_closed() -> None:
    written: list[Any] = []
    commits = GroupCommit(written.extend)
    rows = range(3 * MOST_WAITING)
    for row in rows:
        commits.hand_over(row)
    commits.close()
    assert written == list(rows)


def test_failed_write_is_raised_in_every_caller_and_nothing_is_written_after_it() -> None:
    tried: list[Any] = []

    def write(rows: list[Any]) -> None:
        tried.extend(rows)
        raise OSError("no force")

    commits = GroupCommit(write)
    with pytest.raises(OSError, match="no force"):
        commits.append(1)
    with pytest.raises(OSError, match="no force"):
        commits.append(2)
    with pytest.raises(OSError, match="no force"):
        commits.hand_over(3)
    with pytest.raises(OSError, match="no force"):
        commits.close()
    assert tried == [1]


def test_row_that_waits_beside_a_write_that_fails_is_not_written() -> None:
    tried: list[Any] = []
    begun, waits = threading.Event(), threading.Event()

    def write(rows: list[Any]) -> None:
        tried.extend(rows)
        begun.set()
        waits.wait(10)
        raise OSError("no force")

    commits = GroupCommit(write)
    commits.hand_over(1)
    begun.wait(10)
    commits.hand_over(2)
    waits.set()
    with pytest.raises(OSError, match="no force"):
        commits.close()
    assert tried == [1]
