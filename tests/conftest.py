"""What every test has: a time limit, so that an endless loop or a lost wake-up is a failure with a traceback."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

LIMIT_S = 60


class TestTookTooLong(BaseException):
    """Not an Exception, so that no test takes it for an error of the store's."""


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    """Interrupt a test after `LIMIT_S` seconds, also while it waits for a lock."""

    def too_long(_signal: int, _frame: FrameType | None) -> None:
        raise TestTookTooLong(f"not finished after {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
