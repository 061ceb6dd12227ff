"""The program of a `RocketMQProcess`: a store and its endpoint, until SIGTERM, or until its standard input ends.

    python -m stratalog.endpoint.harness.child '{"folder": "data", "port": 0}'

It prints `ready HOST:PORT`. Standard input ends when the test's process does, however that dies.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

from stratalog import MessageStore, StoreConfig
from stratalog.endpoint.errors import AddressInUse
from stratalog.endpoint.rocketmq.endpoint import RocketMQEndpoint

SAME_PORT_S = 5.0
AGAIN_S = 0.05


def main(given: dict[str, Any]) -> None:
    """Serve until the end."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    threading.Thread(target=_watch, args=(ended,), name="stratalog-parent", daemon=True).start()
    with MessageStore.open(given["folder"], StoreConfig(durability=given["durability"])) as store:
        endpoint = _started(store, given["options"])
        try:
            print(f"ready {endpoint.address}", flush=True)
            ended.wait()
        finally:
            endpoint.stop()


def _started(store: MessageStore, options: dict[str, Any]) -> RocketMQEndpoint:
    end_s = time.monotonic() + SAME_PORT_S
    while True:
        endpoint = RocketMQEndpoint(store, **options)
        try:
            endpoint.start()
            return endpoint
        except AddressInUse:
            if time.monotonic() > end_s:
                raise
        time.sleep(AGAIN_S)


def _watch(ended: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    ended.set()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
