"""A connection to a `RocketMQEndpoint`: its faults, its users, its certificate."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from stratalog import InvalidConfig, MessageStore, StoreError, connect
from stratalog.endpoint import ConnectionLost, RocketMQEndpoint

PATIENCE_S = 60.0


def test_an_answer_that_gets_lost_is_no_harm_with_an_id(store: MessageStore) -> None:
    with RocketMQEndpoint(store) as endpoint, connect(endpoint.address) as remote:
        endpoint.faults.tear(method="submit")
        ticket = remote.submit("t", 0, b"x", message_id="o-17")
        assert (ticket.result(PATIENCE_S), ticket.is_repeat) == (0, True)
        endpoint.faults.tear(method="append_batch")
        assert remote.append_batch([("t", 0, b"y")], message_ids=["o-18"]).tolist() == [1]
        endpoint.faults.drop(method="submit")
        assert remote.append("t", 0, b"z", message_id="o-19") == 2
        endpoint.faults.tear(method="submit")
        with pytest.raises(ConnectionLost):
            remote.append("t", 0, b"without an id")
    assert [one.data for one in store.read("t", 0)] == [b"x", b"y", b"z", b"without an id"]


def test_faults_of_the_table_reach_each_call(store: MessageStore) -> None:
    with RocketMQEndpoint(store) as endpoint, connect(endpoint.address) as remote:
        endpoint.faults.fail(50001, "out of order", method="topics")
        with pytest.raises(StoreError, match="out of order"):
            remote.topics()
        endpoint.faults.fail(grpc.StatusCode.INTERNAL, method="topics")
        with pytest.raises(ConnectionLost, match="INTERNAL"):
            remote.topics()
        endpoint.faults.delay(5, method="topics")
        assert remote.topics() == []


def test_acknowledgements_whose_answers_get_lost_hold(store: MessageStore) -> None:
    store.append_batch([("t", 0, b"%d" % number) for number in range(2)])
    with RocketMQEndpoint(store) as endpoint, connect(endpoint.address) as remote:
        sub = remote.subscribe("t", "s")
        (first,) = sub.receive(max_messages=1)
        endpoint.faults.tear(method="ack")
        with pytest.raises(ConnectionLost):
            sub.ack(first)
        assert [one.message.data for one in sub.receive(wait_ms=60_000)] == [b"1"]


def test_users_and_certificates(store: MessageStore, tmp_path: Path) -> None:
    with RocketMQEndpoint(store, users={"alice": "secret"}) as endpoint:
        certificate = tmp_path / "certificate.pem"
        certificate.write_bytes(endpoint.certificate_pem())
        for tls in (False, certificate, str(certificate)):
            with connect(endpoint.address, tls=tls, access_key="alice", secret_key="secret") as remote:
                assert remote.topics() == []
        for name, secret in ((None, None), ("alice", "wrong"), ("bob", "secret")):
            with pytest.raises(ConnectionLost, match="UNAUTHENTICATED"):
                connect(endpoint.address, access_key=name, secret_key=secret)
        with pytest.raises(ConnectionLost, match="no answer"):
            connect(endpoint.address, tls=True, access_key="alice", secret_key="secret", timeout_s=0.5)
        with pytest.raises(InvalidConfig):
            connect(endpoint.address, access_key="alice")
    with pytest.raises(InvalidConfig):
        connect("no port")
