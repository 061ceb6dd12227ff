"""gRPC is quiet: tests do to it what it would write about. And the official Node client, where it can be had."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from rocketmq.v5.client.connection.rpc_client import RpcClient

from .node_package import installed

os.environ.setdefault("GRPC_VERBOSITY", "NONE")


@pytest.fixture(autouse=True)
def loop_of_the_official_client() -> None:
    """Give this thread an event loop: the client asks for one, and `asyncio.run` of an earlier test took it away.

    It asks in the thread that starts it where a route's answer is there before the client waits for it. Without
    a loop it says "There is no current event loop", and then that it got no settings within 10 s.
    """
    RpcClient()  # the first one makes the loop that all clients share
    asyncio.set_event_loop(RpcClient.get_channel_io_loop())


@pytest.fixture(scope="session")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the official Node client, installed once for all workers of the suite."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "node client"
    if reason := installed(folder):
        pytest.skip(reason)
    return folder
