"""Stops, kills, power cuts, time travel and resets, with running clients of the official Python package."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rocketmq import ConsumeResult, FilterExpression, MessageListener, PushConsumer, TransactionResolution

import stratalog
from stratalog import StoreReader
from stratalog.endpoint import Code, RocketMQHarness, RocketMQProcess
from stratalog.endpoint.harness import RunningClock

from ...store.helpers import until
from ..rocketmq.official_client import configuration, consumer, message, producer, receive_all
from ..rocketmq.raw_client import raw_client

HOUR_MS = 3_600_000


@pytest.fixture
def clients(rocketmq: RocketMQHarness) -> Iterator[tuple[Any, Any]]:
    with producer(rocketmq.address, "orders") as sender, consumer(rocketmq.address, "billing", "orders") as receiver:
        yield sender, receiver


def bodies(rocketmq: RocketMQHarness) -> list[bytes]:
    return [message.body for message in rocketmq.sent("orders")]


def eventually(call: Callable[[], Any]) -> Any:
    """What a call gives once it does not fail: clients that run do not find an endpoint that comes back at once."""
    for _ in range(150):
        try:
            return call()
        except Exception:  # of a client that is not ours, of whatever kind; the last one is raised below
            time.sleep(0.1)  # a client that is refused answers at once
    return call()


def let_time_pass_until(asked: threading.Event, rocketmq: RocketMQHarness) -> None:
    """Move the clock on, time and again, until a producer was asked about its transaction."""

    def is_asked() -> bool:
        if asked.wait(0.05):
            return True
        rocketmq.clock.advance(ms=6000)
        return False

    until(is_asked)


def send(sender: Any, body: bytes) -> None:
    """Send until it is answered."""
    eventually(lambda: sender.send(message("orders", body)))


@pytest.mark.parametrize("end", ["stop", "kill", "power_cut"])
@pytest.mark.rocketmq(durability="force")
def test_what_was_answered_survives_and_clients_go_on(
    rocketmq: RocketMQHarness, clients: tuple[Any, Any], end: str
) -> None:
    sender, receiver = clients
    address = rocketmq.address
    for number in range(5):
        sender.send(message("orders", b"%d" % number))
    assert {one.body for one in receive_all(receiver, 5)} == {b"0", b"1", b"2", b"3", b"4"}
    getattr(rocketmq, end)()
    assert not rocketmq.is_running
    rocketmq.start()
    assert rocketmq.address == address
    send(sender, b"5")
    assert bodies(rocketmq) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    came = eventually(lambda: receive_all(receiver, 1))
    assert [one.body for one in came] == [b"5"]  # nothing that was acknowledged came again


def test_power_cut_takes_what_was_not_forced_and_kill_does_not(rocketmq: RocketMQHarness) -> None:
    with raw_client(rocketmq.address) as client:
        client.send("orders", b"1")
        rocketmq.store.flush()
        client.send("orders", b"2")
    rocketmq.kill()
    rocketmq.start()
    assert bodies(rocketmq) == [b"1", b"2"]
    rocketmq.store.flush()
    with raw_client(rocketmq.address) as client:
        client.send("orders", b"3")
    rocketmq.power_cut("none")
    rocketmq.start()
    assert bodies(rocketmq) == [b"1", b"2"]


def test_restart_keeps_faults_calls_and_the_clock(rocketmq: RocketMQHarness) -> None:
    with raw_client(rocketmq.address) as client:
        client.send("orders", b"1")
    rocketmq.faults.fail(Code.FORBIDDEN)
    now_ms = rocketmq.clock.advance(ms=HOUR_MS)
    rocketmq.restart()
    assert rocketmq.clock.wall_ms() >= now_ms and len(rocketmq.calls) == 1
    with raw_client(rocketmq.address) as client:
        assert client.send("orders", b"2").status.code == Code.FORBIDDEN
    with pytest.raises(RuntimeError, match="runs already"):
        rocketmq.start()
    rocketmq.stop()
    for down in (rocketmq.kill, rocketmq.power_cut, rocketmq.reset, lambda: rocketmq.sent("orders")):
        with pytest.raises(RuntimeError, match="down"):
            down()


@pytest.mark.rocketmq(disk="folder")
def test_a_store_in_files_can_be_read_and_cannot_be_killed_in_this_process(
    rocketmq: RocketMQHarness, tmp_path: Path
) -> None:
    with raw_client(rocketmq.address) as client:
        client.send("orders", b"1")
    with pytest.raises(RuntimeError, match="RocketMQProcess"):
        rocketmq.kill()
    rocketmq.restart()
    with StoreReader.open(tmp_path / "rocketmq") as reader:
        assert reader.topics() == ["orders"]
    assert bodies(rocketmq) == [b"1"]


def test_delays_and_invisible_times_pass_at_once(rocketmq: RocketMQHarness, clients: tuple[Any, Any]) -> None:
    sender, receiver = clients
    due_s = rocketmq.clock.wall_ms() // 1000 + 3600
    sender.send(message("orders", b"later", delivery_timestamp=due_s))
    assert bodies(rocketmq) == [b"later"]
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.extend(receiver.receive(32, 15)))
    waiting.start()
    rocketmq.clock.advance(ms=HOUR_MS + 1000)
    waiting.join()

    def has_come() -> bool:
        got.extend([] if got else receiver.receive(32, 15))
        return bool(got)

    until(has_come)  # the receive may have begun after the move, or ended by it
    assert (got[0].body, got[0].delivery_attempt) == (b"later", 1)
    rocketmq.clock.advance(ms=15_000)
    (again,) = receiver.receive(32, 15)
    assert again.delivery_attempt == 2
    with pytest.raises(TimeoutError, match="not idle"):
        rocketmq.wait_until_idle("billing", timeout_s=0.01)
    receiver.ack(again)
    rocketmq.wait_until_idle("billing")


def test_a_transaction_is_asked_back_when_the_clock_says_so(rocketmq: RocketMQHarness) -> None:
    asked = threading.Event()

    class Checker:
        def check(self, message: Any) -> Any:
            asked.set()
            return TransactionResolution.COMMIT

    with producer(rocketmq.address, "orders", checker=Checker()) as sender:
        sender.send(message("orders", b"paid"), sender.begin_transaction())
        assert bodies(rocketmq) == []
        let_time_pass_until(asked, rocketmq)
        rocketmq.calls.wait(method="EndTransaction")
    assert bodies(rocketmq) == [b"paid"]


def test_a_new_producer_is_asked_about_a_transaction_of_before_a_death(rocketmq: RocketMQHarness) -> None:
    asked = threading.Event()

    class Checker:
        def check(self, message: Any) -> Any:
            asked.set()
            return TransactionResolution.COMMIT

    with producer(rocketmq.address, "orders", checker=Checker()) as sender:
        sender.send(message("orders", b"paid"), sender.begin_transaction())
        rocketmq.kill()
        rocketmq.start()
    with producer(rocketmq.address, "orders", checker=Checker()):
        let_time_pass_until(asked, rocketmq)
        rocketmq.calls.wait(method="EndTransaction")
    assert bodies(rocketmq) == [b"paid"]


def test_reset_leaves_nothing_and_clients_go_on(rocketmq: RocketMQHarness, clients: tuple[Any, Any]) -> None:
    sender, receiver = clients
    for number in range(3):
        sender.send(message("orders", b"%d" % number))
    sender.send(message("bills", b"x"))
    assert len(receive_all(receiver, 3, ack=False)) == 3
    rocketmq.faults.fail(Code.FORBIDDEN, times=None)
    rocketmq.reset()
    assert (rocketmq.store.topics(), rocketmq.store.subscriptions(), len(rocketmq.calls)) == ([], [], 0)
    sender.send(message("orders", b"new"))
    assert [one.body for one in receive_all(receiver, 1)] == [b"new"]
    rocketmq.wait_until_idle("billing", "orders")


def test_reset_answers_a_receive_that_waits_and_forgets_transactions(rocketmq: RocketMQHarness) -> None:
    statuses: list[int] = []
    with raw_client(rocketmq.address) as client, producer(rocketmq.address, "orders", checker=object()) as sender:
        sender.send(message("orders", b"half"), sender.begin_transaction())
        client.send("orders", b"0")
        client.receive("orders", "billing")
        waiting = threading.Thread(
            target=lambda: statuses.append(client.receive("orders", "billing", wait_s=10)[0].code)
        )
        waiting.start()
        until(lambda: any(call.is_open for call in rocketmq.calls.of(method="ReceiveMessage")))
        rocketmq.reset()
        waiting.join()
        assert statuses == [Code.MESSAGE_NOT_FOUND]
        transaction = sender.begin_transaction()
        sender.send(message("orders", b"whole"), transaction)
        transaction.commit()
        assert bodies(rocketmq) == [b"whole"]


def test_push_consumer_works_until_its_group_is_idle(rocketmq: RocketMQHarness) -> None:
    seen: list[bytes] = []

    class Listener(MessageListener):  # type: ignore[misc]
        def consume(self, message: Any) -> Any:
            seen.append(message.body)
            return ConsumeResult.SUCCESS

    with ExitStack() as stack:
        sender = stack.enter_context(producer(rocketmq.address, "orders"))
        pusher = PushConsumer(configuration(rocketmq.address), "work", Listener(), {"orders": FilterExpression("*")})
        pusher.startup()
        stack.callback(pusher.shutdown)
        for number in range(10):
            sender.send(message("orders", b"%d" % number))
        rocketmq.wait_until_idle("work", timeout_s=30)
    assert sorted(seen) == sorted(b"%d" % number for number in range(10))


def test_connections_that_break_are_made_again(rocketmq: RocketMQHarness, clients: tuple[Any, Any]) -> None:
    sender, _ = clients
    sender.send(message("orders", b"1"))
    rocketmq.disconnect()
    send(sender, b"2")
    assert bodies(rocketmq) == [b"1", b"2"]


def test_a_process_is_killed_and_started_again(rocketmq_process: RocketMQProcess) -> None:
    address, first = rocketmq_process.address, rocketmq_process.pid
    with producer(address, "orders") as sender, consumer(address, "billing", "orders") as receiver:
        sender.send(message("orders", b"1"))
        rocketmq_process.kill()
        with pytest.raises(RuntimeError, match="does not run"):
            rocketmq_process.pause()
        rocketmq_process.start()
        assert rocketmq_process.address == address and rocketmq_process.pid != first
        send(sender, b"2")
        came: dict[bytes, Any] = {}

        def have_come() -> bool:
            came.update((one.body, one) for one in eventually(lambda: receive_all(receiver, 1)))
            return came.keys() == {b"1", b"2"}

        until(have_come)
        rocketmq_process.pause()
        rocketmq_process.resume()
        with stratalog.connect(address) as store:
            assert store.topics() == ["orders"]


def test_a_process_that_stands_still_can_be_stopped(rocketmq_process: RocketMQProcess) -> None:
    rocketmq_process.pause()
    rocketmq_process.stop()  # the system gives the signal to any of its threads


def test_a_process_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "broker").write_text("a file")
    with pytest.raises(RuntimeError, match="has not started") as error:
        RocketMQProcess(tmp_path / "broker").start()
    assert "StoreUnusable" in str(error.value)


def test_a_running_clock_runs_and_stands_still_when_it_is_told() -> None:
    clock = RunningClock()
    try:
        began_ms = clock.wall_ms()
        until(lambda: clock.wall_ms() != began_ms)
        clock.freeze()
        time.sleep(0.05)  # here and below: time passes, and the clock is not to see it
        still_ms = clock.wall_ms()
        time.sleep(0.05)  # as above
        assert clock.wall_ms() == still_ms
        assert clock.advance(ms=HOUR_MS) == still_ms + HOUR_MS
        clock.run()
        until(lambda: clock.wall_ms() != still_ms + HOUR_MS)
    finally:
        clock.close()
