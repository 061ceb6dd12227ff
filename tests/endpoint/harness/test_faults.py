"""The fault table and the record of calls, by a client that says exactly what the test wants."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

import stratalog
from stratalog.endpoint import Code, ConnectionLost, RocketMQHarness
from stratalog.endpoint.faults import CallLog, FaultTable
from stratalog.endpoint.faults.methods import ADMIN, MESSAGING, REMOTE
from stratalog.endpoint.faults.watched import watched
from stratalog.endpoint.remote.server import holdings, store_calls
from stratalog.endpoint.remote.server.service import METHOD
from stratalog.endpoint.remote.server.session import Session
from stratalog.endpoint.rocketmq.admin.service import admin_service
from stratalog.endpoint.server.calls import Call

from ...store.helpers import until
from ..rocketmq.raw_client import RawClient, raw_client


@pytest.fixture
def client(rocketmq: RocketMQHarness) -> Iterator[RawClient]:
    with raw_client(rocketmq.address) as made:
        yield made


def bodies(rocketmq: RocketMQHarness, topic: str = "orders") -> list[bytes]:
    return [message.body for message in rocketmq.sent(topic)]


def broken(error: pytest.ExceptionInfo[grpc.RpcError]) -> tuple[grpc.StatusCode, str | None]:
    return error.value.code(), error.value.details()


def test_the_next_calls_fail_with_a_code_and_the_store_hears_nothing(
    rocketmq: RocketMQHarness, client: RawClient
) -> None:
    fault = rocketmq.faults.fail(Code.TOO_MANY_REQUESTS, "slow down", times=2, method="SendMessage")
    statuses = [client.send("orders", body).status for body in (b"1", b"2", b"3")]
    assert [status.code for status in statuses] == [Code.TOO_MANY_REQUESTS, Code.TOO_MANY_REQUESTS, Code.OK]
    assert statuses[0].message == "slow down"
    assert (fault.strikes, bodies(rocketmq)) == (2, [b"3"])


def test_calls_fail_with_a_code_of_grpc(rocketmq: RocketMQHarness, client: RawClient) -> None:
    rocketmq.faults.fail(grpc.StatusCode.PERMISSION_DENIED, "not today")
    with pytest.raises(grpc.RpcError) as error:
        client.send("orders", b"1")
    assert broken(error) == (grpc.StatusCode.PERMISSION_DENIED, "not today")
    assert rocketmq.calls.wait()[-1].code is grpc.StatusCode.PERMISSION_DENIED
    assert client.send("orders", b"2").status.code == Code.OK


def test_a_fault_strikes_what_it_selects(rocketmq: RocketMQHarness, client: RawClient) -> None:
    failing = rocketmq.faults.fail
    failing(Code.FORBIDDEN, times=None, topic="bills")
    failing(Code.UNAUTHORIZED, times=None, client_id="another client")
    failing(Code.MESSAGE_CORRUPTED, times=None, group="billing")
    failing(Code.BAD_REQUEST, times=None, where=lambda call: len(getattr(call.request, "messages", ())) > 1)
    with raw_client(rocketmq.address, "another client") as another:
        answers = [
            client.send("orders", b"1"), client.send("bills", b"2"), client.send("orders", b"3", b"4"),
            another.send("orders", b"5"),
        ]  # fmt: skip
    codes = [answer.status.code for answer in answers]
    assert codes == [Code.OK, Code.FORBIDDEN, Code.BAD_REQUEST, Code.UNAUTHORIZED]
    assert client.receive("orders", "shipping")[0].code == Code.OK
    assert client.receive("orders", "billing")[0].code == Code.MESSAGE_CORRUPTED


def test_a_fault_skips_calls_and_ends_with_its_block(rocketmq: RocketMQHarness, client: RawClient) -> None:
    with rocketmq.faults.fail(Code.FORBIDDEN, skip=1, times=None, method="SendMessage") as fault:
        codes = [client.send("orders", b"%d" % number).status.code for number in range(3)]
        assert list(rocketmq.faults) == [fault]
    assert codes == [Code.OK, Code.FORBIDDEN, Code.FORBIDDEN]
    assert client.send("orders", b"3").status.code == Code.OK
    assert list(rocketmq.faults) == []


def test_a_share_of_calls_is_the_same_for_a_seed() -> None:
    async def strikes(seed: int) -> list[bool]:
        fault = FaultTable(seed).fail(Code.FORBIDDEN, share=0.5, times=None)
        context: Any = None
        return [fault.meets(Call("service", "method", context, asyncio.Event())) for _ in range(40)]

    first, second, third = (asyncio.run(strikes(seed)) for seed in (7, 7, 8))
    assert first == second != third
    assert 5 < sum(first) < 35


def test_a_dropped_call_is_not_handled_and_a_torn_one_is(rocketmq: RocketMQHarness, client: RawClient) -> None:
    rocketmq.faults.drop(topic="dropped")
    rocketmq.faults.tear(topic="torn")
    for topic in ("dropped", "torn"):
        with pytest.raises(grpc.RpcError) as error:
            client.send(topic, b"1")
        assert broken(error) == (grpc.StatusCode.UNAVAILABLE, "Socket closed")
    assert (bodies(rocketmq, "dropped"), bodies(rocketmq, "torn")) == ([], [b"1"])
    assert client.send("torn", b"1").status.code == Code.OK  # as clients do: they send it again, with its id
    assert bodies(rocketmq, "torn") == [b"1"]


def test_a_stream_of_answers_breaks_after_some_of_them(rocketmq: RocketMQHarness, client: RawClient) -> None:
    client.send("orders", b"1", b"2", b"3")
    rocketmq.faults.drop(method="ReceiveMessage", after_answers=2)
    with pytest.raises(grpc.RpcError) as error:
        client.receive("orders", "billing")
    assert broken(error)[0] is grpc.StatusCode.UNAVAILABLE
    again: set[bytes] = set()

    def are_two() -> bool:
        again.update(one.body for one in client.receive("orders", "billing", wait_s=5)[1])
        return len(again) >= 2

    until(are_two)  # they are given back one by one
    assert client.receive("orders", "billing")[1] == []  # one came through, and is the client's
    torn = rocketmq.faults.tear(method="ReceiveMessage")
    client.send("orders", b"4")
    with pytest.raises(grpc.RpcError):
        client.receive("orders", "billing", wait_s=5)
    assert torn.strikes == 1
    assert client.receive("orders", "billing")[1] == []  # it was given out, and nobody knows


def test_a_delayed_call_is_answered_later(rocketmq: RocketMQHarness, client: RawClient) -> None:
    rocketmq.faults.delay(300, method="SendMessage")
    began_s = time.monotonic()
    assert client.send("orders", b"1").status.code == Code.OK
    assert time.monotonic() - began_s >= 0.3
    rocketmq.faults.delay(20_000, method="SendMessage")
    rocketmq.faults.fail(Code.FORBIDDEN, method="SendMessage")  # both strike: the delay is first
    with pytest.raises(grpc.RpcError) as error:
        client.call("SendMessage", b"", timeout_s=0.2)
    assert broken(error)[0] is grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_black_hole_lets_nothing_through_until_it_is_removed(rocketmq: RocketMQHarness, client: RawClient) -> None:
    codes: list[int] = []
    hole = rocketmq.faults.black_hole(client_id="a client")
    sender = threading.Thread(target=lambda: codes.append(client.send("orders", b"1").status.code))
    sender.start()
    hole.wait(1)
    with raw_client(rocketmq.address, "another client") as another:
        assert another.send("orders", b"2").status.code == Code.OK
    assert bodies(rocketmq) == [b"2"] and codes == []
    hole.remove()
    sender.join()
    assert bodies(rocketmq) == [b"2", b"1"] and codes == [Code.OK]


def test_a_black_hole_swallows_what_an_open_call_would_answer(rocketmq: RocketMQHarness, client: RawClient) -> None:
    client.send("orders", b"0")
    assert len(client.receive("orders", "billing")[1]) == 1
    got: list[list[bytes]] = []

    def receive() -> None:
        got.append([message.body for message in client.receive("orders", "billing", wait_s=10)[1]])

    receiver = threading.Thread(target=receive)
    receiver.start()
    until(lambda: any(call.is_open for call in rocketmq.calls.of(method="ReceiveMessage")))
    hole = rocketmq.faults.black_hole(client_id="a client")
    rocketmq.store.append("orders", 0, b"1")
    receiver.join(0.3)
    assert got == [] and receiver.is_alive()
    hole.remove()
    receiver.join()
    assert got == [[b"1"]]


def test_an_endpoint_stops_while_a_black_hole_holds_calls(rocketmq: RocketMQHarness, client: RawClient) -> None:
    errors: list[grpc.StatusCode] = []

    def send() -> None:
        try:
            client.send("orders", b"1")
        except grpc.RpcError as error:
            errors.append(error.code())

    hole = rocketmq.faults.black_hole()
    sender = threading.Thread(target=send)
    sender.start()
    hole.wait(1)
    rocketmq.stop()
    sender.join()
    assert errors == [grpc.StatusCode.UNAVAILABLE]


def test_the_record_has_who_asked_what_and_the_answer(rocketmq: RocketMQHarness, client: RawClient) -> None:
    client.send("orders", b"1")
    client.send("a b", b"2")
    client.receive("orders", "billing")
    first, second, third = rocketmq.calls
    assert (first.method, first.client_id, first.topics, first.code) == (
        "SendMessage",
        "a client",
        ("orders",),
        Code.OK,
    )
    assert first.request.messages[0].body == b"1" and not first.is_open and first.number == 0
    assert second.code == Code.ILLEGAL_TOPIC and "illegal" in second.text
    assert (third.group, third.code, third.answers) == ("billing", Code.OK, 3)  # the status, a message, the time
    assert rocketmq.calls.clients() == ["a client"]
    assert rocketmq.calls.of(method="SendMessage", topic="orders") == [first]
    assert rocketmq.calls.wait(2, method="SendMessage") == [first, second]
    with pytest.raises(TimeoutError):
        rocketmq.calls.wait(1, method="AckMessage", timeout_s=0.01)
    rocketmq.calls.clear()
    assert len(rocketmq.calls) == 0


def test_faults_strike_calls_of_connect_too(rocketmq: RocketMQHarness) -> None:
    with stratalog.connect(rocketmq.address) as store:
        rocketmq.faults.fail(Code.FORBIDDEN, "not you", method="topics")
        with pytest.raises(stratalog.StoreError, match="not you"):
            store.topics()
        rocketmq.faults.tear(method="submit")
        with pytest.raises(ConnectionLost):
            store.append("orders", 0, b"1")
        assert store.read("orders", 0)[0].data == b"1"
        rocketmq.faults.drop(method="submit")
        with pytest.raises(ConnectionLost):
            store.append("orders", 0, b"2")
        assert len(store.read("orders", 0)) == 1
    assert rocketmq.calls.of(method="topics")[0].code is not None


CALLS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("append", lambda store, sub: store.append("bills", 0, b"1")),
    ("append_batch", lambda store, sub: store.append_batch([("orders", 0, b"1"), ("bills", 0, b"2")])),
    ("append_batch", lambda store, sub: store.append_batch([("bills", 0, b"2")], message_ids=["a"])),
    ("submit_columns", lambda store, sub: store.append_columns([("bills", 0)], [0], [1], b"x")),
    ("read", lambda store, sub: store.read("bills", 0)),
    ("read_batch_async", lambda store, sub: store.read_batch("bills", 0)),
    ("queues", lambda store, sub: store.queues("bills")),
    ("subscribe", lambda store, sub: store.subscribe(["bills"], "billing")),
    ("receive", lambda store, sub: sub.receive()),
    ("receive_batch", lambda store, sub: sub.receive_batch()),
    ("backlog", lambda store, sub: sub.backlog()),
]


def test_faults_and_the_record_know_topics_and_groups_of_connect(rocketmq: RocketMQHarness) -> None:
    with stratalog.connect(rocketmq.address) as store:
        sub = store.subscribe("bills", "billing")
        for method, call in CALLS:
            fault = rocketmq.faults.fail(Code.FORBIDDEN, "struck", method=method, topic="bills")
            rocketmq.faults.fail(Code.FORBIDDEN, "wrong", times=None, topic="another")
            rocketmq.faults.fail(Code.FORBIDDEN, "wrong", times=None, group="another")
            known = len(rocketmq.calls.of(topic="bills"))
            with pytest.raises(stratalog.StoreError, match="struck"):
                call(store, sub)
            assert fault.strikes == 1
            assert len(rocketmq.calls.of(topic="bills")) > known
            rocketmq.faults.clear()
        rocketmq.faults.fail(Code.FORBIDDEN, "struck", group="billing")
        with pytest.raises(stratalog.StoreError, match="struck"):
            sub.receive()
    assert [call.method for call in rocketmq.calls.of(group="billing", method="receive")][-1] == "receive_few"


def test_faults_can_name_all_methods_that_there_are(rocketmq: RocketMQHarness) -> None:
    endpoint: Any = rocketmq.endpoint
    served = {*endpoint._service.service().methods, *admin_service(endpoint.store, *[cast(Any, None)] * 4).methods}
    assert served | {METHOD} == MESSAGING | ADMIN
    session: Any = Session(endpoint.store, *[cast(Any, None)] * 3)
    named = {*session._calls, *session._in_order} - {"call", "on_subscription"}
    of_store = {*store_calls.CALLS, *store_calls.COROUTINES}
    of_subscriptions = {*holdings.SUBSCRIPTION_CALLS, *holdings.SUBSCRIPTION_COROUTINES}
    assert named | of_store | of_subscriptions == REMOTE


@pytest.mark.parametrize(
    "wrong",
    [
        {"times": 0}, {"times": "3"}, {"skip": -1}, {"share": 0.0}, {"share": 1.5}, {"share": "x"}, {"nothing": 1},
        {"method": "NoSuchMethod"}, {"method": 5}, {"topic": 5}, {"where": 5}, {"code": "x"}, {"code": 12345},
        {"code": Code.OK}, {"code": grpc.StatusCode.OK}, {"text": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_fault_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        FaultTable().fail(**{"code": Code.FORBIDDEN, **wrong})


def test_what_a_harness_cannot_do_is_refused(rocketmq: RocketMQHarness, tmp_path: Path) -> None:
    wrong: Any = "nonsense"
    with pytest.raises(ValueError, match="after_answers"):
        rocketmq.faults.drop(after_answers=-1)
    with pytest.raises(ValueError, match="ms"):
        rocketmq.faults.delay(wrong)
    with pytest.raises(ValueError, match="NoSuchMethod"):
        rocketmq.calls.of(method="NoSuchMethod")
    with pytest.raises(ValueError, match="manner"):
        rocketmq.power_cut(wrong)
    assert rocketmq.is_running
    with pytest.raises(ValueError, match="disk"):
        RocketMQHarness(tmp_path, disk=wrong)


def test_a_log_that_keeps_none_stands_in_no_way() -> None:
    async def answer() -> str:
        return "answer"

    log, table = CallLog(most_calls=0), FaultTable()
    call = Call("s", "ReceiveMessage", context := object(), asyncio.Event())  # type: ignore[arg-type]
    assert asyncio.run(log.around(call, answer)) == "answer"
    assert len(log) == 0 and call.context is context
    assert asyncio.run(table.around(call, answer)) == "answer"
    assert [gate(b"") for gate in watched(call).gates] == [None]
