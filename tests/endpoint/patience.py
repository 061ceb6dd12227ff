"""Waiting, with an end, for what comes soon. For any other condition there is `until` of the store's tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from stratalog.endpoint import ConnectionLost

from ..store.helpers import until

T = TypeVar("T")


def once_connected(call: Callable[[], T], meanwhile: type[Exception] = ConnectionLost) -> T:
    """What a call gives once its connection is made again, or once it does not raise `meanwhile` any more."""
    found: list[T] = []

    def is_answered() -> bool:
        with suppress(meanwhile):  # it is tried again, until `until` gives up
            found.append(call())
        return bool(found)

    until(is_answered)
    return found[0]


def next_ms() -> int:
    """The machine's time in milliseconds, once it is another one than that of all that has happened."""
    began_ms = time.time_ns() // 1_000_000
    until(lambda: time.time_ns() // 1_000_000 > began_ms)
    return time.time_ns() // 1_000_000
