"""Times of the protocol (seconds and nanoseconds) and of the store (milliseconds)."""

from __future__ import annotations

from typing import Any, Final

LONGEST_MS: Final = 1 << 40  # 34 years: what the store takes for an invisible time
LATEST_MS: Final = 1 << 50  # and for a delivery time


def ms_of(time: Any) -> int:
    """Milliseconds of a Timestamp or a Duration. A part of a millisecond counts as a whole one: nothing is early."""
    return int(time.seconds) * 1000 - (-int(time.nanos) // 1_000_000)


def set_ms(time: Any, ms: int) -> None:
    """Set a Timestamp or a Duration. It is there then, also with 0."""
    time.SetInParent()
    time.seconds, rest_ms = divmod(ms, 1000)
    time.nanos = rest_ms * 1_000_000
