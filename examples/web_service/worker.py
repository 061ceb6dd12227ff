"""A worker: it takes jobs from the service's store, and stores their results."""

from __future__ import annotations

import json
import os
import sys
import time

import stratalog
from stratalog import StaleReceipt
from stratalog.endpoint import ConnectionLost

PATIENCE_S = 3  # with a service that does not answer
WORK_S = float(os.environ.get("WORK_S", "0.1"))


def count_words(text: bytes) -> int:
    """The work. It takes a while, so that one can kill it in the middle."""
    time.sleep(WORK_S)
    return len(text.split())


def work(address: str) -> None:
    """Work on jobs until the connection ends. A job that has failed five times goes to the topic `failed`."""
    with stratalog.connect(address, timeout_s=PATIENCE_S) as store:
        for job in store.subscribe("jobs", "workers", max_attempts=5, dead_letter_topic="failed"):
            name = job.message.key or b""
            print(f"{os.getpid()} has {name.decode()}", flush=True)
            result = {"words": count_words(job.message.data), "attempt": job.attempt}
            try:
                with store.transaction() as tx:  # the job is done, and its result is there: both, or neither
                    tx.append("results", 0, json.dumps(result).encode(), key=name)
                    tx.ack(job)
            except StaleReceipt:
                pass  # it took more than 30 s, and another worker has the job


if __name__ == "__main__":
    try:
        work(sys.argv[1])
    except ConnectionLost:
        sys.exit("the service is gone")
