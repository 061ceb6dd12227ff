"""Calls that several threads make side by side."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stratalog.store.log.crew import Crew


def test_threads_that_cannot_be_started_leave_the_writes_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    crew, made = Crew(), list[int]()
    monkeypatch.setattr("stratalog.store.device.background.start_new_thread", _no_thread)
    crew.do_all([lambda at=at: made.append(at) for at in range(3)])  # type: ignore[misc]
    assert sorted(made) == [0, 1, 2]
    crew.close()


def test_calls_side_by_side_all_end_before_the_first_error_comes_out() -> None:
    crew, ended = Crew(), list[int]()

    def call(at: int) -> Callable[[], None]:
        def run() -> None:
            ended.append(at)
            if at != 2:
                raise OSError(at)

        return run

    for _ in range(3):
        ended.clear()
        with pytest.raises(OSError):
            crew.do_all([call(at) for at in range(4)])
        assert sorted(ended) == [0, 1, 2, 3]
    crew.close()
    crew.close()


def _no_thread(*_: object) -> None:
    raise RuntimeError("can't start new thread")
