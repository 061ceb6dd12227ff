"""What a connection promises when it is lost: clear errors, repeats by message id, and a new connection by itself."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stratalog import InvalidMessage, MessageStore, StaleReceipt, StoreClosed, StoreError, connect
from stratalog.endpoint import ConnectionLost
from stratalog.endpoint.remote.client.connection import Connection
from stratalog.endpoint.remote.client.link import Link
from tests.contract.served import Served

from .conftest import Start

PATIENCE_S = 60.0


def port_of(address: str) -> int:
    """The port of host:port."""
    return int(address.rpartition(":")[2])


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
        while not remote.stats()["reads"]:
            continue
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
        while True:
            try:
                assert remote.queue_bounds("t", 0)[1] >= 1
                break
            except ConnectionLost:
                continue
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
        while True:
            try:
                again = sub.receive(wait_ms=10_000)
                break
            except ConnectionLost:
                continue
        assert [one.message.data for one in again] == [b"0", b"1", b"2"]
        with pytest.raises(StaleReceipt):
            sub.ack(before[0])
        sub.ack_batch(again)
        assert sub.backlog().total == 0
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


def test_close_waits_for_answers(served: Served, store: MessageStore) -> None:
    remote = connect(served.address)
    tickets = [remote.submit("t", 0, b"%d" % number) for number in range(500)]
    remote.close()
    assert all(one.done() for one in tickets)
    assert store.queue_bounds("t", 0) == (0, 500)


def test_an_object_that_is_dropped_ends_its_connection(served: Served, store: MessageStore) -> None:
    remote = connect(served.address)
    store.append("t", 0, b"x")
    sub = remote.subscribe("t", "s")
    assert len(sub.receive()) == 1
    link = remote._link
    del remote, sub
    gc.collect()
    assert link.closed
    with store.subscribe("t", "s") as other:
        assert len(other.receive(wait_ms=60_000)) == 1


def test_a_scan_that_is_collected_where_locks_are_held_waits_for_nobody(served: Served) -> None:
    with connect(served.address) as remote:
        remote.append("t", 0, b"x")
        batches = remote.scan()
        next(batches)
        connection, link = remote._link.connection(), remote._link

        def collect() -> None:
            with link._lock, connection._lock:
                batches.close()  # type: ignore[attr-defined]  # what the garbage collector calls

        thread = threading.Thread(target=collect, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert remote.append("t", 0, b"y") == 1


def test_close_waits_for_what_a_lost_connection_left(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(store)
    remote = connect(served.address, timeout_s=PATIENCE_S)
    pausing, goes_on = threading.Event(), threading.Event()

    def pause(link: Link, *, answered: bool) -> bool:
        pausing.set()
        return goes_on.wait(PATIENCE_S)

    monkeypatch.setattr(Link, "_is_soon", pause)
    with monkeypatch.context() as patched:
        patched.setattr(Connection, "_settle", lambda *given: None)  # the answer gets lost
        ticket = remote.submit("t", 0, b"x", message_id="x")
        while store.queue_bounds("t", 0)[1] == 0:
            continue
        served.kill()
    assert pausing.wait(PATIENCE_S)
    served = Served(store, port_of(served.address))
    closing = threading.Thread(target=remote.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    goes_on.set()
    closing.join(PATIENCE_S)
    assert ticket.done() and ticket.result() == 0
    served.stop()


def test_an_interrupted_close_leaves_nothing_open(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = connect(served.address)
    link = remote._link
    with monkeypatch.context() as patched:
        patched.setattr(Connection, "drain", interrupt)
        with pytest.raises(KeyboardInterrupt):
            remote.close()
    del remote
    gc.collect()
    assert link.closed


FORK = """
import os, sys
import stratalog
address = sys.argv[1]
store = stratalog.connect(address)
assert store.append("t", 0, b"parent") == 0
done = store.submit("t", 1, b"parent")
assert done.result() == 0
answers = store._link.answers_lock
answers.acquire()  # so that the next ticket is not done at the fork
open_one, batch = store.submit("t", 2, b"parent"), store.submit_columns([("t", 3)], [0], [1], b"x")
child = os.fork()
if child:
    answers.release()
    assert open_one.result() == 0
if not child:
    code = 1
    try:
        assert store.closed and done.result() == 0
        for ticket in (open_one, batch):
            try:
                ticket.result()
                os._exit(3)
            except stratalog.StoreClosed as error:
                assert "before a fork" in str(error) and isinstance(ticket.exception(), stratalog.StoreClosed)
        try:
            store.append("t", 0, b"x")
        except stratalog.StoreClosed as error:
            assert "before a fork" in str(error)
            with stratalog.connect(address) as other:
                code = 0 if other.append("t", 0, b"child") == 1 else 2
    finally:
        os._exit(code)
assert os.waitpid(child, 0)[1] == 0
assert store.append("t", 0, b"parent again") == 2
store.close()
"""


def test_a_forked_child_connects_anew(served: Served) -> None:
    command = [sys.executable, "-c", FORK, served.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr


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


def test_a_call_that_is_too_large_is_refused_and_harms_no_other(served: Served) -> None:
    with connect(served.address) as remote:
        with pytest.raises(InvalidMessage, match="cannot be sent"):
            remote.append_columns([("t", 0)], [0], [257 << 20], memoryview(bytes(257 << 20)))
        assert remote.append("t", 0, b"x") == 0


END = """
import sys, threading
import stratalog
store = stratalog.connect(sys.argv[1])
store.append("t", 0, b"x")
sub = store.subscribe("t", "s")
sub.receive()
threading.Thread(target=lambda: sub.receive(wait_ms=600_000), daemon=True).start()
store.submit("t", 0, b"y").add_done_callback(print)
"""


def test_a_program_that_closes_nothing_ends(served: Served) -> None:
    done = subprocess.run(
        [sys.executable, "-c", END, served.address], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


def test_no_thread_is_left_after_close(served: Served) -> None:
    ours = ("stratalog-connection", "stratalog-callbacks", "channel_spin", "consume_request_iterator")
    for _ in range(5):
        with connect(served.address) as remote:
            remote.submit("t", 0, b"x").add_done_callback(lambda ticket: None)
            remote.subscribe("t", "s").receive()
    deadline = time.monotonic() + PATIENCE_S
    while left := [one for one in threading.enumerate() if any(name in one.name for name in ours)]:
        assert time.monotonic() < deadline, left  # gRPC's own end a moment later
        time.sleep(0.01)


def fail(*given: object) -> None:
    """Fail as an interpreter without memory does."""
    raise MemoryError


def interrupt(*given: object) -> None:
    """Be interrupted."""
    raise KeyboardInterrupt
