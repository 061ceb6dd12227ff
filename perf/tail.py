"""A reader a queue that follows the appends: which layer serves what was just written (R25)."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path

from perf import report, served
from perf.catchup import Load, Writer
from perf.folders import sub_folder
from perf.report import Figures, WrongResult
from perf.served import Mark
from perf.settings import prewritten
from perf.threads import run_together
from perf.tiers import Memory
from perf.workload import Content, QueueAddress
from store import MessageStore, StoreConfig

WAIT_MS = 50
READ_MESSAGES = 512


def measure(base: Path, load: Load, memory: Memory) -> Figures:
    """One window of paced appends, every queue read by a thread of its own until it has everything."""
    content = Content(load.seed, load.message_bytes)
    written = (load.write_per_s or 4 * 33_000) * load.message_bytes * load.window_s
    settings = prewritten(1.3 * written, memory.settings(base))
    with sub_folder(base, "tail") as folder, MessageStore.open(folder, StoreConfig(**settings)) as store:
        writer, over = Writer(store, load, content), threading.Event()
        got, waited = [0] * load.queues, [0.0] * load.queues
        jobs = [partial(_follow, store, address, index, got, waited, over)
                for index, address in enumerate(load.addresses)]  # fmt: skip

        def write() -> None:
            try:
                writer.run()
            finally:
                over.set()

        before, cpu_0 = Mark.now(store), report.cpu_seconds()
        run_together([write, *jobs])
        reads, cpu_s = served.served(before, Mark.now(store)), report.cpu_seconds() - cpu_0
        ring_bytes = store.stats()["recent_bytes"]
    if sum(got) != writer.messages:
        raise WrongResult(f"the readers got {sum(got):,} of {writer.messages:,} messages")
    return {
        "written_per_s": writer.messages / writer.seconds,
        "read_messages": sum(got),
        "ring_bytes": ring_bytes,
        "catch_up_after_ms": max(waited) * 1e3,
        "cpu_s": cpu_s,
        "served": reads,
        "lower_layers_messages": reads["messages"] - reads["layers"]["ring"]["messages"],
        "device_reads": reads["device_reads"],
    }


def _follow(
    store: MessageStore,
    address: QueueAddress,
    index: int,
    got: list[int],
    waited: list[float],
    over: threading.Event,
) -> None:
    """Read a queue as it grows; the time that it took to have everything once the writer had finished."""
    offset, ended = 0, 0.0
    while True:
        last = over.is_set()  # looked at first: nothing is written after it
        if last and not ended:
            ended = time.perf_counter()
        # A queue that has no message yet cannot be read; one that has can be waited on.
        found = store.read(*address, offset, READ_MESSAGES, wait_ms=0 if last else WAIT_MS)
        offset += len(found)
        got[index] = offset
        if last and not found:
            waited[index] = time.perf_counter() - ended
            return
