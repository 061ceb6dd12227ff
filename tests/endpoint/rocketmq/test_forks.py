"""A process with an endpoint forks: the endpoint is the parent's, and the child holds nothing of it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from stratalog import MessageStore
from stratalog.endpoint import RocketMQEndpoint
from stratalog.endpoint.errors import EndpointClosed
from stratalog.endpoint.server.front import HTTP2_FIRST

from ...store.helpers import until

PATIENCE_S = 10

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@contextmanager
def forked(work: Callable[[], str]) -> Iterator[str]:
    """What a child says; it lives on within."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            signal.alarm(20 * PATIENCE_S)  # whatever becomes of the parent
            try:
                said = work()
            except BaseException as error:
                said = repr(error)
            os.write(theirs, said.encode() or b" ")
            signal.pause()
        finally:
            os._exit(1)
    os.close(theirs)
    try:
        yield os.read(ours, 10_000).decode().strip()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ours)


def connected(address: str) -> socket.socket:
    """A connection that has begun."""
    host, _, port = address.rpartition(":")
    made = socket.create_connection((host, int(port)), PATIENCE_S)
    made.sendall(HTTP2_FIRST + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    assert made.recv(1)
    return made


def test_a_child_holds_neither_the_port_nor_the_connections_of_its_parent(store: MessageStore) -> None:
    with RocketMQEndpoint(store) as endpoint:
        client = connected(endpoint.address)
        silent = socket.create_connection(("127.0.0.1", endpoint.server.port), PATIENCE_S)
        until(lambda: endpoint.server.connections == 2)
        with forked(lambda: "") as said:
            assert said == ""
            connected(endpoint.address).close()  # the parent's goes on
            endpoint.disconnect()
            for one in (client, silent):
                with pytest.raises(ConnectionResetError):
                    while one.recv(1000):
                        pass
                one.close()
            endpoint.stop()
            with pytest.raises(ConnectionRefusedError):
                connected(endpoint.address)
            with RocketMQEndpoint(store, port=endpoint.server.port) as again:
                connected(again.address).close()


def test_a_child_can_neither_stop_nor_use_the_endpoint_of_its_parent(store: MessageStore) -> None:
    def misuse() -> str:
        said = []
        for call in (endpoint.reset, endpoint.certificate_pem, endpoint.disconnect):
            try:
                call()
            except EndpointClosed:
                said.append("closed")
        endpoint.stop()
        return " ".join(said)

    with RocketMQEndpoint(store) as endpoint:
        with forked(misuse) as said:
            assert said == "closed closed closed"
        connected(endpoint.address).close()
