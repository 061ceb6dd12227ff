"""A store with a backlog under a steady stream of writes, with and without a reader that catches up (R25).

The source writes 33,000 messages a second of about 1 KiB (34.5 MB/s) for ten minutes, and then reads 5,000 a second
from the beginning while the writing goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np

from perf import report, served
from perf.folders import drop_page_cache, sub_folder
from perf.progress import Parts
from perf.report import Figures, WrongResult
from perf.served import Mark
from perf.settings import prewritten
from perf.threads import run_together
from perf.tiers import Memory
from perf.workload import HEADER_BYTES, Content, QueueAddress
from store import MessageStore, StoreConfig

CALL_MESSAGES = 330
QUEUE_MESSAGES = 20  # of one queue after the other, in a call of append_batch
FETCH_MESSAGES = 100
FILL_MESSAGES = 1000
RECENT_BYTES = 8 << 20
READERS = ("no reader", "read cache off", "read cache on")


@dataclass(frozen=True)
class Load:
    """Rates a second (0 writes as fast as it goes), bytes a message, and how long a window is."""

    write_per_s: int = 33_000
    read_per_s: int = 5_000
    message_bytes: int = 1045
    queues: int = 4
    backlog_bytes: int = 1 << 30
    window_s: float = 3.0
    warm_messages: int = 2000  # a queue: read before a window, so that the read-ahead is what it is on the way
    seed: int = 2021
    read_cache_bytes: int = 64 << 20

    @property
    def addresses(self) -> list[QueueAddress]:
        """Of the queues."""
        return [QueueAddress("backlog", queue) for queue in range(self.queues)]

    def queue_of(self, at: int) -> int:
        """The queue of message `at` of all: some of one queue, then some of the next."""
        return at // QUEUE_MESSAGES % self.queues

    def serial_of(self, at: int) -> int:
        """Its number in its queue."""
        return at // (QUEUE_MESSAGES * self.queues) * QUEUE_MESSAGES + at % QUEUE_MESSAGES

    def fill(self, store: MessageStore, content: Content) -> list[int]:
        """Write the backlog: whole rounds over all queues. Messages a queue."""
        round_messages = QUEUE_MESSAGES * self.queues
        total = max(1, self.backlog_bytes // self.message_bytes // round_messages) * round_messages
        for first in range(0, total, FILL_MESSAGES):
            numbers = range(first, min(total, first + FILL_MESSAGES))
            rows = [(self.queue_of(at), self.serial_of(at)) for at in numbers]
            store.append_batch(
                [(*self.addresses[queue], content.make(queue, serial, self.message_bytes)) for queue, serial in rows]
            )
        return [total // self.queues] * self.queues


@dataclass
class Writer:
    """Calls of append_batch at a pace, from the time when each was due: a late one is not forgiven."""

    store: MessageStore
    load: Load
    content: Content
    latencies_s: list[float] = field(default_factory=list)
    messages: int = 0
    seconds: float = 0.0

    def run(self) -> None:
        """Until the window is over."""
        load, addresses = self.load, self.load.addresses
        data = self.content.make(0, 0, load.message_bytes)
        pace = CALL_MESSAGES / load.write_per_s if load.write_per_s else 0.0
        began = time.perf_counter()
        for call in range(1 << 60):
            due = began + call * pace if pace else time.perf_counter()
            if due - began >= load.window_s:
                break
            wait = due - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            numbers = range(call * CALL_MESSAGES, (call + 1) * CALL_MESSAGES)
            self.store.append_batch([(*addresses[load.queue_of(at)], data) for at in numbers])
            self.latencies_s.append(time.perf_counter() - due)
            self.messages += CALL_MESSAGES
        # The last call ends before its time is over: a rate over the time that it stood for.
        self.seconds = max(time.perf_counter() - began, self.messages / CALL_MESSAGES * pace)


@dataclass
class Reader:
    """Reads the backlog's queues by turns, at a pace, and checks what comes."""

    store: MessageStore
    content: Content
    addresses: list[QueueAddress]
    next_offset: list[int]
    ends: list[int]
    messages: int = 0

    def warm_up(self, messages: int) -> None:
        """Read so many of each queue, as fast as it goes."""
        for queue in range(len(self.ends)):
            until = min(self.ends[queue], self.next_offset[queue] + messages)
            while self.next_offset[queue] < until:
                self._fetch(queue)
        self.messages = 0

    def run(self, per_s: int, over: threading.Event) -> None:
        """Queue after queue, until the writer has finished."""
        began, queues = time.perf_counter(), cycle(range(len(self.ends)))
        while not over.wait(max(0.0, began + self.messages / per_s - time.perf_counter())):
            queue = next(queues)
            if self.next_offset[queue] >= self.ends[queue]:
                raise WrongResult("the backlog came to its end: make it larger, or the window shorter")
            self._fetch(queue)

    def _fetch(self, queue: int) -> None:
        offset = self.next_offset[queue]
        count = min(FETCH_MESSAGES, self.ends[queue] - offset)
        found = self.store.get_range(*self.addresses[queue], offset, count)
        first = found.get(0, b"")
        if len(found) != count or len(first) < HEADER_BYTES or not self.content.matches(first, queue, offset):
            raise WrongResult(f"queue {queue}: what came from offset {offset} is not what was written")
        self.next_offset[queue] = offset + count
        self.messages += count


def measure(base: Path, load: Load, repeat: int, parts: Parts) -> list[Figures]:
    """A row a way to read: medians over the rounds. Every window reads on where the last one of its kind stopped."""
    content = Content(load.seed, load.message_bytes)
    with sub_folder(base, "catchup") as folder:
        home = folder / "store"
        with MessageStore.open(home, StoreConfig(recent_bytes=0)) as store:
            ends = load.fill(store, content)
        places = {name: [0] * load.queues for name in READERS}
        rounds: list[list[Figures]] = []
        for number in range(repeat):
            names = list(READERS) if number % 2 == 0 else list(READERS)[::-1]
            found = {}
            for name in names:
                drop_page_cache(home)
                found[name] = _window(home, content, load, ends, places[name], name)
                parts.one_done()
            rounds.append([{"reader": name, **_beside(found[name], found["no reader"])} for name in READERS])
    return report.median_rows(rounds)


def _window(home: Path, content: Content, load: Load, ends: list[int], places: list[int], name: str) -> Figures:
    """One opening of the store: writes for `window_s`, and reads beside them unless there is no reader."""
    cache_bytes = load.read_cache_bytes if name == "read cache on" else 0
    written = (load.write_per_s or 4 * 33_000) * load.message_bytes * load.window_s
    memory = Memory(limit_bytes=0, recent_bytes=RECENT_BYTES, read_cache_bytes=cache_bytes)
    settings = prewritten(1.3 * written, memory.settings(home))
    with MessageStore.open(home, StoreConfig(**settings)) as store:
        writer, over = Writer(store, load, content), threading.Event()
        reader = Reader(store, content, load.addresses, places, ends)
        if name != "no reader":
            reader.warm_up(load.warm_messages)
        jobs: list[Callable[[], None]] = [writer.run, partial(reader.run, load.read_per_s, over)]
        before, cpu_0 = Mark.now(store), report.cpu_seconds()
        run_together(jobs if name != "no reader" else jobs[:1], finished=over.set)
        cpu_s, after = report.cpu_seconds() - cpu_0, Mark.now(store)
    reads = served.served(before, after)
    latencies = np.array(writer.latencies_s) * 1e3
    stats = after.stats["cache"]["reads"]
    return {
        "written_per_s": writer.messages / writer.seconds,
        "p50_ms": float(np.percentile(latencies, 50)),
        "p99_ms": float(np.percentile(latencies, 99)),
        "read_per_s": reader.messages / writer.seconds,
        "read_ahead_share": reads["layers"]["read cache"]["share"],
        "device_share": reads["layers"]["device"]["share"],
        "device_reads": reads["device_reads"],
        "device_mb": reads["device_mb"],
        "kernel_read_mb": reads["kernel_read_mb"],
        "read_mb": reader.messages * load.message_bytes / 1e6,
        "wasted_messages": stats["wasted_messages"] if stats else 0,
        "cpu_s": cpu_s,
    }


def _beside(figures: Figures, alone: Figures) -> Figures:
    return {**figures, "writers_ratio": figures["written_per_s"] / alone["written_per_s"]}
