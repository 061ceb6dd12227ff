"""A store in trouble behind the endpoint: each call has its code, and the endpoint goes on and stops in time."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stratalog import MessageStore, StoreConfig
from stratalog.endpoint import RocketMQEndpoint
from stratalog.endpoint.wire import CLASSES, Code
from stratalog.testing import Fault, SimulatedDisk, TunedConfig

from ..seeds import draw_seed
from .rocketmq.raw_client import RawClient, raw_client

SMALL = TunedConfig(segment_bytes=1 << 20, recent_bytes=0, max_message_bytes=1 << 18)
LARGE = bytes(200_000)


@contextmanager
def served(store: MessageStore) -> Iterator[RawClient]:
    with RocketMQEndpoint(store, queues=1) as endpoint, raw_client(endpoint.address) as client:
        yield client


def goes_on(client: RawClient) -> None:
    """Calls that need no append are answered."""
    assert client.call("Heartbeat", CLASSES["HeartbeatRequest"]()).status.code == Code.OK
    request = CLASSES["QueryRouteRequest"]()
    request.topic.name = "orders"
    assert client.call("QueryRoute", request).status.code == Code.OK


def test_a_poisoned_store_says_so_to_every_send(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    with MessageStore.open(tmp_path, disk=disk) as store, served(store) as client:
        assert client.send("orders", b"before").status.code == Code.OK
        disk.inject(Fault("write", for_good=True))
        for _ in range(3):
            answer = client.send("orders", b"after")
            assert answer.status.code == answer.entries[0].status.code == Code.INTERNAL_SERVER_ERROR
            assert "poisoned" in answer.status.message or "injected" in answer.status.message
        goes_on(client)
        status, messages = client.receive("orders", "g")
        assert status.code == Code.INTERNAL_SERVER_ERROR and not messages  # the group cannot be made
    after = disk.crash(random.Random(draw_seed()))
    with MessageStore.open(tmp_path, disk=after) as store, served(store) as client:
        assert [one.body for one in client.receive("orders", "g")[1]] == [b"before"]


def test_a_full_disk_refuses_sends_until_there_is_space(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    with MessageStore.open(tmp_path, SMALL, disk=disk) as store, served(store) as client:
        assert client.send("orders", b"before").status.code == Code.OK
        disk.inject(*(Fault(kind, error=errno.ENOSPC, for_good=True) for kind in ("create", "reserve")))
        codes, sent = set(), 1
        while (code := client.send("orders", LARGE, message_id=f"large {sent}").status.code) == Code.OK:
            sent += 1
            assert sent < 1000
        codes.add(code)
        assert codes == {Code.INTERNAL_SERVER_ERROR}
        goes_on(client)
        assert len(client.receive("orders", "g")[1]) == min(32, sent)
        disk.inject()
        assert client.send("orders", b"there is space").status.code == Code.OK


def test_a_store_that_is_closed_under_the_endpoint_says_so(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, StoreConfig(durability="os"))
    with served(store) as client:
        assert client.send("orders", b"before").status.code == Code.OK
        store.close()
        for answer in (client.send("orders", b"after"), client.ack("orders", "g", "1:0:0")):
            assert answer.status.code in (Code.INTERNAL_SERVER_ERROR, Code.INVALID_RECEIPT_HANDLE)
        status, _ = client.receive("orders", "g")
        assert status.code == Code.INTERNAL_SERVER_ERROR and "closed" in status.message
        assert client.call("Heartbeat", CLASSES["HeartbeatRequest"]()).status.code == Code.OK


def test_a_damaged_message_has_a_code_of_its_own_and_other_topics_go_on(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store, served(store) as client:
        for number in range(12):
            assert client.send("orders", b"order %d" % number + LARGE).status.code == Code.OK
    [file] = [path for path in tmp_path.rglob("*.seg") if b"order 3\0" in path.read_bytes()]
    at = file.read_bytes().index(b"order 3\0")
    with file.open("r+b") as damaged:
        damaged.seek(at + 100)
        damaged.write(b"X")
    with MessageStore.open(tmp_path, SMALL) as store, served(store) as client:
        bodies, status = [], None
        while status is None or status.code == Code.OK:
            status, messages = client.receive("orders", "g", batch_size=1)
            bodies += [one.body[:7] for one in messages]
        assert status.code == Code.MESSAGE_CORRUPTED and "damaged" in status.message
        assert bodies == [b"order 0", b"order 1", b"order 2"]
        client.send("other", b"well")
        assert [one.body for one in client.receive("other", "g", wait_s=5)[1]] == [b"well"]
