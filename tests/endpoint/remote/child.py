"""A process of its own: `serve DIR PORT` serves a store until it is killed; `consume ADDRESS` holds messages."""

from __future__ import annotations

import sys
import threading

from stratalog import MessageStore, StoreConfig, connect
from tests.contract.served import Served


def serve(folder: str, port: str) -> None:
    """Serve the store of a folder."""
    store = MessageStore.open(folder, StoreConfig(durability="os"))
    print(Served(store, int(port)).address, flush=True)
    threading.Event().wait()


def consume(address: str) -> None:
    """Take all messages of the subscription s, and keep them."""
    sub = connect(address).subscribe("t", "s")
    print(len(sub.receive(max_messages=100, wait_ms=60_000, visibility_timeout_ms=3_600_000)), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], sys.argv[3])
    else:
        consume(sys.argv[2])
