"""A store that this process serves, and a connection to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stratalog import MessageStore, StoreConfig, connect
from stratalog.endpoint.remote.server.service import StoreService
from stratalog.endpoint.server.calls import Around
from stratalog.endpoint.server.loop_thread import LoopThread
from stratalog.endpoint.server.server import GrpcServer

CONFIG = StoreConfig(durability="os", max_message_bytes=1 << 20)


class Served:
    """Serves a store on a port of 127.0.0.1, in an event loop of its own."""

    def __init__(self, store: MessageStore, port: int = 0, around: Around | None = None) -> None:
        self._loop = LoopThread()
        self._service = StoreService(store, around=around)
        self._server = GrpcServer([self._service.service()], port=port, tls=None)
        self._loop.run(self._server.start())
        self.address = self._server.address

    def stop(self, grace_s: float = 0.5) -> None:
        """Stop, as an endpoint does."""
        self._loop.run(self._server.stop(grace_s))
        self._loop.run(self._service.close())
        self._loop.close()

    def kill(self) -> None:
        """End as a process that is killed: connections are reset."""
        self._loop.run(self._server.kill())
        self._loop.run(self._service.close())
        self._loop.close()


@contextmanager
def opened(kind: str, path: Path, **more: Any) -> Iterator[Any]:
    """A store in a folder: itself, or a connection to it."""
    with MessageStore.open(path, CONFIG, **more) as store:
        if kind == "store":
            yield store
            return
        served = Served(store)
        try:
            with connect(served.address) as remote:
                yield remote
        finally:
            served.stop()
