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
from typing import Any

from stratalog import MessageStore, StoreConfig
from stratalog.endpoint.harness.starting import started
from stratalog.endpoint.rocketmq.endpoint import RocketMQEndpoint


def main(given: dict[str, Any]) -> None:
    """Serve until the end."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    threading.Thread(target=_watch, args=(ended,), name="stratalog-parent", daemon=True).start()
    with MessageStore.open(given["folder"], StoreConfig(durability=given["durability"])) as store:
        endpoint = started(lambda: RocketMQEndpoint(store, **given["options"]))
        try:
            print(f"ready {endpoint.address}", flush=True)
            ended.wait()
        finally:
            endpoint.stop()


def _watch(ended: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    ended.set()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
