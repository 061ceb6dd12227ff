"""What every test has: a time limit, so that an endless loop or a lost wake-up is a failure with a traceback.

No outcome may depend on how fast the machine is: the limit is for what never ends, and Hypothesis gets none of its own.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest
from hypothesis import HealthCheck, settings

LIMIT_S = 240

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


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
