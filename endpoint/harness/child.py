"""The program of a `RocketMQProcess`: a store and its endpoint, until SIGTERM, or until its standard input ends.

    python -m stratalog.endpoint.harness.child '{"folder": "data", "port": 0}'

It prints `ready HOST:PORT`. Standard input ends when the test's process does, however that dies.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from typing import Any

from stratalog import MessageStore, StoreConfig
from stratalog.endpoint.harness.starting import started
from stratalog.endpoint.rocketmq.endpoint import RocketMQEndpoint


def main(given: dict[str, Any]) -> None:
    """Serve until the end."""
    told = _pipe_of_signals()
    with MessageStore.open(given["folder"], StoreConfig(durability=given["durability"])) as store:
        endpoint = started(lambda: RocketMQEndpoint(store, **given["options"]))
        try:
            print(f"ready {endpoint.address}", flush=True)
            _wait(told)
        finally:
            endpoint.stop()


def _pipe_of_signals() -> int:
    """A descriptor that SIGTERM makes readable, whichever thread the system gives it to: a lock that the main thread
    waits for would not end by a signal that another thread has got."""
    told, tells = os.pipe()
    os.set_blocking(tells, False)
    signal.set_wakeup_fd(tells)
    signal.signal(signal.SIGTERM, lambda *_: None)
    return told


def _wait(told: int) -> None:
    """Return at SIGTERM, or when standard input ends."""
    while told not in (ready := select.select([0, told], [], [])[0]):
        if 0 in ready and not os.read(0, 4096):
            return


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
