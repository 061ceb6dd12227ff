"""What a connection promises when it is lost: clear errors, repeats by message id, and a new connection by itself."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path

import pytest

from stratalog import (
    InvalidMessage,
    MessageStore,
    StaleReceipt,
    StoreClosed,
    StoreError,
    SubscriptionClosed,
    connect,
)  # fmt: skip
from stratalog.endpoint import ConnectionLost
from stratalog.endpoint.remote.client.connection import Connection
from stratalog.endpoint.remote.client.link import Link
from tests.contract.served import Served

from ...store.helpers import until
from ..patience import once_connected
from .conftest import Start, port_of

PATIENCE_S = 60.0


def test_a_waiting_call_hears_of_the_loss(store: MessageStore) -> None:
    served = Served(store)
    with connect(served.address, timeout_s=0.2) as remote:
        errors: list[Exception] = []

        def wait() -> None:
            try:
                remote.read("t", 0, wait_ms=60_000)
            except StoreError as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: bool(remote.stats()["reads"]))
        served.kill()
        thread.join(PATIENCE_S)
        assert isinstance(errors[0], ConnectionLost)
        assert remote.address in str(errors[0]) and "may have happened" in str(errors[0])
        with pytest.raises(ConnectionLost, match="nothing was done"):
            remote.topics()
        assert not remote.closed


def test_the_next_call_connects_again(store: MessageStore) -> None:
    served = Served(store)
    with connect(served.address) as remote:
        assert remote.append("t", 0, b"a") == 0
        served.kill()
        served = Served(store, port_of(served.address))
        assert once_connected(lambda: remote.queue_bounds("t", 0))[1] >= 1
        assert remote.append("t", 0, b"b") == 1
    served.stop()


def test_a_subscription_opens_again_and_old_receipts_are_stale(store: MessageStore) -> None:
    served = Served(store)
    with connect(served.address) as remote:
        store.append_batch([("t", 0, b"%d" % number) for number in range(3)])
        sub = remote.subscribe("t", "s")
        before = sub.receive()
        assert len(before) == 3
        served.kill()
        served = Served(store, port_of(served.address))
        again = once_connected(lambda: sub.receive(wait_ms=10_000))
        assert [one.message.data for one in again] == [b"0", b"1", b"2"]
        with pytest.raises(StaleReceipt):
            sub.ack(before[0])
        sub.ack_batch(again)
        assert sub.backlog().total == 0
    served.stop()


def test_a_subscription_that_was_deleted_meanwhile_is_not_made_anew(store: MessageStore) -> None:
    served = Served(store)
    with connect(served.address, timeout_s=PATIENCE_S) as remote:
        for topic in ("t", "u"):
            store.append(topic, 0, b"x")
        one, two = remote.subscribe("t", "s"), remote.subscribe(["t", "u"], "both")
        served.kill()
        store.delete_subscription("t", "s")
        store.delete_subscription("u", "both")
        served = Served(store, port_of(served.address))
        with pytest.raises(SubscriptionClosed, match="deleted"):
            once_connected(one.receive)
        assert one.closed
        assert [delivery.message.topic for delivery in once_connected(two.receive)] == ["t"]
        assert [(info.topic, info.name) for info in store.subscriptions()] == [("t", "both")]
    served.stop()


def test_there_is_no_server(store: MessageStore) -> None:
    served = Served(store)
    served.stop()
    with pytest.raises(ConnectionLost, match="there is no connection"):
        connect(served.address, timeout_s=0.1)


def test_a_client_may_start_before_its_server(store: MessageStore) -> None:
    served = Served(store)
    address = served.address
    served.stop()
    began = threading.Timer(0.2, lambda: late.append(Served(store, port_of(address))))
    late: list[Served] = []
    began.start()
    with connect(address, timeout_s=PATIENCE_S) as remote:
        assert remote.topics() == []
    began.join()
    late[0].stop()


def test_what_has_an_id_is_sent_again_and_stored_once(tmp_path: Path, start: Start) -> None:
    process, address = start("serve", str(tmp_path / "store"), "0")
    with connect(address, timeout_s=PATIENCE_S) as remote:
        errors: list[StoreError] = []
        stored: list[str] = []
        stop = threading.Event()

        def send(worker: int) -> None:
            number = 0
            while not stop.is_set():
                name = f"{worker}-{number}"
                try:
                    remote.append("t", worker, name.encode(), message_id=name)
                    if number % 5 == 0:
                        remote.append_batch([("t", worker, b"b" + name.encode())], message_ids=["b" + name])
                except StoreError as error:
                    errors.append(error)
                else:
                    stored.append(name)
                number += 1

        threads = [threading.Thread(target=send, args=[worker]) for worker in range(4)]
        for one in threads:
            one.start()
        for _ in range(2):
            threading.Event().wait(0.2)
            process.send_signal(signal.SIGKILL)
            process.wait()
            process, _ = start("serve", str(tmp_path / "store"), str(port_of(address)))
        threading.Event().wait(0.2)
        stop.set()
        for one in threads:
            one.join(PATIENCE_S)
        assert errors == []
        found = []
        for worker in range(4):
            datas = [one.data for one in remote.read("t", worker, max_messages=1 << 20, max_bytes=1 << 26)]
            assert len(set(datas)) == len(datas)
            found += datas
        assert stored and {name.encode() for name in stored} <= set(found)


def test_what_has_no_id_is_not_sent_again(tmp_path: Path, start: Start) -> None:
    process, address = start("serve", str(tmp_path / "store"), "0")
    with connect(address, timeout_s=PATIENCE_S) as remote:
        process.send_signal(signal.SIGSTOP)
        tickets = [remote.submit("t", 0, b"%d" % number) for number in range(100)]
        process.send_signal(signal.SIGKILL)
        process.wait()
        for one in tickets:
            with pytest.raises(ConnectionLost):
                one.result(PATIENCE_S)
            assert one.done() and isinstance(one.exception(), ConnectionLost)


def test_a_consumer_that_is_killed_gives_its_messages_back_at_once(served: Served, start: Start) -> None:
    with connect(served.address) as remote:
        remote.append_batch([("t", 0, b"%d" % number) for number in range(10)])
        process, count = start("consume", served.address)
        assert count == "10"
        sub = remote.subscribe("t", "s")
        assert sub.receive() == []
        process.send_signal(signal.SIGKILL)
        found = sub.receive(wait_ms=60_000)
        assert len(found) == 10


def test_a_stop_answers_what_is_under_way(store: MessageStore) -> None:
    served = Served(store)
    with connect(served.address, timeout_s=0.5) as remote:
        stop = threading.Thread(target=served.stop)
        tickets = [remote.submit("t", 0, b"%d" % number) for number in range(2000)]
        stop.start()
        stored = [one.result(PATIENCE_S) for one in tickets if one.exception(PATIENCE_S) is None]
        stop.join(PATIENCE_S)
        assert stored == list(range(len(stored)))
        assert store.queue_bounds("t", 0)[1] >= len(stored)


def test_a_lost_connection_ends_futures_and_iterators(store: MessageStore) -> None:
    served = Served(store)

    async def program() -> None:
        remote = connect(served.address, timeout_s=0.2)
        sub = remote.subscribe("t", "s")
        waiting = [
            asyncio.ensure_future(remote.read_async("t", 0, wait_ms=60_000)),
            asyncio.ensure_future(sub.receive_async(wait_ms=60_000)),
            asyncio.ensure_future(anext(aiter(sub))),
        ]
        await remote.append_async("u", 0, b"x")
        await asyncio.to_thread(served.kill)
        for one in waiting:
            with pytest.raises(ConnectionLost):
                await one
        await remote.aclose()
        with pytest.raises(StoreClosed):
            await remote.append_async("t", 0, b"x")

    asyncio.run(asyncio.wait_for(program(), PATIENCE_S))


def test_whatever_fails_where_answers_are_read_is_told_to_all(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(served.address) as remote:
        assert remote.append("t", 0, b"x") == 0
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "_settle", fail)
            with pytest.raises(ConnectionLost, match="MemoryError"):
                remote.append("t", 0, b"x")
        assert remote.append("t", 0, b"x") == 2


def test_what_cannot_be_sent_again_has_an_error_whatever_the_reason(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(served.address) as remote, monkeypatch.context() as patched:
        patched.setattr(Connection, "_settle", fail)  # so the connection is lost
        patched.setattr(Link, "_put", lambda *given, waits: fail() if not waits else put(*given, waits=waits))
        tickets = [remote.submit("t", 0, b"x", message_id=str(number)) for number in range(3)]
        for one in tickets:
            with pytest.raises(ConnectionLost):
                one.result(PATIENCE_S)


put = Link._put


def test_a_call_that_is_too_large_is_refused_and_harms_no_other(served: Served) -> None:
    with connect(served.address) as remote:
        with pytest.raises(InvalidMessage, match="cannot be sent"):
            remote.append_columns([("t", 0)], [0], [257 << 20], memoryview(bytes(257 << 20)))
        assert remote.append("t", 0, b"x") == 0


def fail(*given: object) -> None:
    """Fail as an interpreter without memory does."""
    raise MemoryError
