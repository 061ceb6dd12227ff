"""How a connection ends: by `close`, with its object, with its program, and in a forked child."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from typing import Any, cast

import pytest

from stratalog import MessageStore, connect
from stratalog.endpoint.remote.client.connection import Connection
from stratalog.endpoint.remote.client.link import Link
from stratalog.endpoint.remote.frames import Frame
from stratalog.endpoint.remote.server.holdings import Holdings
from stratalog.endpoint.server.calls import Call, Proceed
from tests.contract.served import Served

from ...store.helpers import until
from ..server.echoes import until as until_in_loop
from .conftest import port_of

PATIENCE_S = 60.0


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


def test_what_is_dropped_after_its_connection_was_lost_makes_no_other_one(store: MessageStore) -> None:
    """Else the close of the store's object would wait for a server that is gone, for all of its time-out."""
    served = Served(store)
    remote = connect(served.address, timeout_s=PATIENCE_S)
    sub, scan = remote.subscribe("t", "s"), remote.scan()
    lost = remote._link.connection()
    served.kill()
    until(lambda: lost.ended and remote._link._connection is None)
    del sub, scan
    gc.collect()
    until(lambda: all(one.name != "stratalog-dropped" for one in threading.enumerate()))
    assert remote._link._connection is None
    remote.close()


@pytest.mark.parametrize("opens", [True, False], ids=["while it is closed", "while it is opened"])
def test_a_close_that_the_end_of_its_connection_cuts_is_made_all_the_same(store: MessageStore, opens: bool) -> None:
    """A client that is dropped says that its subscription ends, and hangs up at once."""
    store.append("t", 0, b"x")

    async def run() -> None:
        opening: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        sub = store.subscribe("t", "s")
        assert len(sub.receive()) == 1
        never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        asides = iter([opening, never])
        held = Holdings(store, lambda work: next(asides), lambda work: work(), cast(Any, None))
        begun = asyncio.create_task(held.subscribe(frame(held=1, arguments={"map": []})))
        await until_in_loop(lambda: 1 in held._subscriptions)
        if opens:
            opening.set_result(sub)
            await begun
        closing = asyncio.create_task(held.close(frame(held=1)))
        await until_in_loop(lambda: 1 not in held._subscriptions)  # it waits for the opening, or for the close
        closing.cancel()
        held.end()
        await asyncio.wait([closing])
        if not opens:
            opening.set_result(sub)
        await until_in_loop(lambda: sub.closed, 10)
        begun.cancel()

    asyncio.run(run())
    with store.subscribe("t", "s") as other:
        assert len(other.receive()) == 1


def frame(**header: Any) -> Frame:
    return Frame(1, header, [], 0)


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


def test_a_scan_that_nobody_goes_through_ends_at_the_server(store: MessageStore) -> None:
    closed = threading.Event()

    async def around(call: Call, proceed: Proceed) -> Any:
        if call.method == "close":
            closed.set()
        return await proceed()

    served = Served(store, around=around)
    with connect(served.address) as remote:
        remote.scan()
        gc.collect()
        assert closed.wait(PATIENCE_S)
    served.stop()


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
        until(lambda: store.queue_bounds("t", 0)[1] > 0)
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
    until(  # gRPC's own end a moment later
        lambda: not any(name in one.name for one in threading.enumerate() for name in ours)
    )


def interrupt(*given: object) -> None:
    """Be interrupted."""
    raise KeyboardInterrupt
