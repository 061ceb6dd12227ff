"""What one user of a connection does wrong harms no other user of it."""

from __future__ import annotations

import gc
import logging
import math
import time
from typing import Any

import pytest

from stratalog import InvalidConfig, InvalidMessage, MessageStore, MessageTooLarge, StoreError, connect
from stratalog.endpoint import ConnectionLost, RocketMQEndpoint
from stratalog.endpoint.remote.client import connection
from stratalog.endpoint.remote.server import holdings
from tests.contract.served import Served

PATIENCE_S = 60.0


def test_what_cannot_travel_fails_alone(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_FRAME_BYTES", 1 << 16)
    with connect(served.address) as remote:
        for number in range(20):
            first = remote.submit("t", 0, b"x")
            large = remote.submit("t", 0, bytes(1 << 16))
            name = remote.submit("t" * (1 << 16), 0, b"x")
            queue = remote.submit("t", 10**5000, b"x")
            second = remote.submit("t", 0, b"y")
            assert (first.result(PATIENCE_S), second.result(PATIENCE_S)) == (2 * number, 2 * number + 1)
            for wrong, error in ((large, MessageTooLarge), (name, MessageTooLarge), (queue, StoreError)):
                assert isinstance(wrong.exception(PATIENCE_S), error)


def test_subscriptions_that_nobody_has_any_more_take_no_place(
    served: Served, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holdings, "MOST_HELD", 4)
    store.append("t", 0, b"x")
    with connect(served.address) as remote:
        for _ in range(20):
            for _ in range(100):  # the server hears of it soon
                try:
                    sub = remote.subscribe("t", "s")
                    break
                except StoreError:
                    time.sleep(0.01)
            assert [one.message.data for one in sub.receive(wait_ms=60_000)] == [b"x"]
            del sub
            gc.collect()
