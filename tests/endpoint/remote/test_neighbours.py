"""What one user of a connection does wrong harms no other user of it."""

from __future__ import annotations

import gc
import math
from typing import Any, cast

import pytest

from stratalog import InvalidConfig, InvalidMessage, MessageStore, MessageTooLarge, StoreError, connect
from stratalog.endpoint import ConnectionLost
from stratalog.endpoint.remote.client import connection
from stratalog.endpoint.remote.client.promises import Answer
from stratalog.endpoint.remote.server import holdings
from tests.contract.served import Served

from ..patience import once_connected
from .conftest import port_of

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
            sub = once_connected(lambda: remote.subscribe("t", "s"), StoreError)  # it hears soon of those that went
            assert [one.message.data for one in sub.receive(wait_ms=60_000)] == [b"x"]
            del sub
            gc.collect()


def test_a_scan_ends_with_its_connection(store: MessageStore) -> None:
    store.append_batch([("t", 0, bytes(1 << 19))] * 40)
    served = Served(store)
    with connect(served.address) as remote:
        scan, late = remote.scan(), remote.scan()
        assert len(next(scan))
        served.kill()
        served = Served(store, port_of(served.address))
        once_connected(remote.topics)
        for one in (scan, late):
            with pytest.raises(ConnectionLost):
                list(one)
        assert sum(map(len, remote.scan())) == 40
    served.stop()


def test_polling_a_ticket_leaves_nothing_behind(served: Served) -> None:
    with connect(served.address) as remote:
        answer: Answer[int] = Answer(remote._link.answers_lock)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                answer.wait(0)
        assert not answer._listeners


def test_wrong_arguments_have_the_errors_of_the_store(served: Served) -> None:
    deep: Any = ("a", "=", 1)
    for _ in range(2000):
        deep = ("not", deep)
    with connect(served.address) as remote:
        with pytest.raises(InvalidMessage):
            remote.append_batch(cast(Any, 5))
        with pytest.raises(InvalidMessage):
            remote.subscribe("t", "s", filter=deep)
    wrong: list[tuple[Any, dict[str, Any]]] = [
        ("host:", {}), (":1", {}), ("localhost:99999", {}), ("localhost:x", {}), (5, {}),
        (served.address, {"access_key": b"me", "secret_key": b"me"}),
    ]  # fmt: skip
    wrong += [(served.address, {"timeout_s": one}) for one in ("x", 1e12, math.nan, -1, 0)]
    for address, more in wrong:
        with pytest.raises(InvalidConfig):
            connect(address, **more)
