"""What an end of an endpoint leaves: nothing open, whatever was under way; and a start of one that runs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from stratalog import MessageStore, StoreConfig
from stratalog.endpoint import Certificate, RocketMQEndpoint
from stratalog.endpoint.errors import EndpointClosed
from stratalog.endpoint.remote.server import service
from stratalog.endpoint.rocketmq.groups import Groups
from stratalog.endpoint.server.server import GrpcServer

from .echoes import PATIENCE_S, run


def test_an_endpoint_that_runs_does_not_start_again(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, StoreConfig(durability="os")) as store:
        with RocketMQEndpoint(store) as endpoint:
            thread = endpoint._thread
            with pytest.raises(RuntimeError, match="runs already"):
                endpoint.start()
            with pytest.raises(RuntimeError, match="runs already"):
                asyncio.run(endpoint.start_async())
            assert endpoint._thread is thread
        endpoint.start()
        endpoint.stop()


def test_a_stop_while_the_certificate_is_made_leaves_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, goes_on = threading.Event(), threading.Event()
    made = Certificate.self_signed("127.0.0.1")

    def slow(host: str) -> Certificate:
        asked.set()
        goes_on.wait(PATIENCE_S)
        return made

    async def test() -> None:
        server = GrpcServer([])
        await server.start()
        monkeypatch.setattr(Certificate, "self_signed", slow)
        tls = asyncio.ensure_future(server._tls_backend())
        await asyncio.to_thread(asked.wait, PATIENCE_S)
        await server.stop(0)
        goes_on.set()
        with pytest.raises(EndpointClosed):
            await tls
        assert len(server._servers) == 1

    run(test)


def test_a_call_that_does_not_end_keeps_no_service_from_its_close(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()

    async def test() -> None:
        monkeypatch.setattr(service, "CLOSE_S", 0.05)
        one: Any = service.StoreService(None)  # type: ignore[arg-type]  # no call reaches it
        call = one._aside(lambda: goes_on.wait(PATIENCE_S))
        await one.close()
        assert not call.done()
        goes_on.set()
        assert await call

    run(test)


def test_an_error_of_one_group_leaves_no_other_open() -> None:
    closed: list[str] = []

    class Sub:
        def __init__(self, name: str) -> None:
            self.topic, self.name = "t", name

        def close(self) -> None:
            closed.append(self.name)
            if self.name == "b":
                raise OSError(self.name)

    groups: Any = Groups(None, None, None)  # type: ignore[arg-type]  # none of them is asked
    for name in "abc":
        groups._open["t", name] = type("Group", (), {"sub": Sub(name)})
    with pytest.raises(OSError, match="b"):
        groups.close()
    assert sorted(closed) == ["a", "b", "c"]
