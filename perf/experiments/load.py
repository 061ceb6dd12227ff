"""A steady stream of writes, and a backlog to read beside it (R25).

The source writes 33,000 messages a second of about 1 KiB (34.5 MB/s) for ten minutes, and then reads 5,000 a second
from the beginning while the writing goes on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from ...store import MessageStore, StoreConfig
from ...testing import TunedConfig
from ..workload.checker import WrongResult
from ..workload.contest import Content, QueueAddress
from ..workload.memory import Memory
from ..workload.settings import prewritten

CALL_MESSAGES = 330
QUEUE_MESSAGES = 20  # of one queue after the other, in a call of append_batch
FILL_MESSAGES = 1000
UNPACED_PER_S = 4 * 33_000


@dataclass(frozen=True)
class Load:
    """Rates a second (0 writes as fast as possible), bytes of a message, and the length of a window."""

    write_per_s: int
    read_per_s: int
    message_bytes: int
    queues: int
    backlog_bytes: int
    window_s: float
    warm_messages: int  # a queue: read before a window, so that the read-ahead is what it is on the way
    seed: int
    read_cache_bytes: int
    content: Content = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", Content(self.seed, self.message_bytes))

    @property
    def addresses(self) -> list[QueueAddress]:
        """The addresses of the queues."""
        return [QueueAddress("backlog", queue) for queue in range(self.queues)]

    @property
    def written(self) -> bytes:
        """The message that a window writes repeatedly."""
        return self.content.make(0, 0, self.message_bytes)

    def queue_of(self, at: int) -> int:
        """The queue of message `at` of all: some of one queue, then some of the next."""
        return at // QUEUE_MESSAGES % self.queues

    def serial_of(self, at: int) -> int:
        """The number of a message in its queue."""
        return at // (QUEUE_MESSAGES * self.queues) * QUEUE_MESSAGES + at % QUEUE_MESSAGES

    def config(self, memory: Memory, folder: Path) -> StoreConfig:
        """A store for one window, with the segments pre-written that it needs."""
        written = (self.write_per_s or UNPACED_PER_S) * self.message_bytes * self.window_s
        return TunedConfig(**prewritten(1.3 * written, memory.settings(folder)))

    def fill(self, store: MessageStore) -> list[int]:
        """Write the backlog: whole rounds over all queues. Returns the number of messages of each queue."""
        round_messages, addresses = QUEUE_MESSAGES * self.queues, self.addresses
        total = max(1, self.backlog_bytes // self.message_bytes // round_messages) * round_messages
        for first in range(0, total, FILL_MESSAGES):
            numbers = range(first, min(total, first + FILL_MESSAGES))
            rows = [(self.queue_of(at), self.serial_of(at)) for at in numbers]
            store.append_batch([(*addresses[q], self.content.make(q, at, self.message_bytes)) for q, at in rows])
        return [total // self.queues] * self.queues

    def check_store(self, store: MessageStore, backlog: list[int]) -> int:
        """Compare every message of a store: the backlog's, then those of the windows. Returns their number."""
        written, matches, seen = self.written, self.content.matches, [0] * self.queues
        for batch in store.scan():
            names = batch.stream_names
            rows = zip(batch.stream_index.tolist(), batch.offsets.tolist(), batch.payloads(), strict=True)
            for index, offset, data in rows:
                queue = names[index][1]
                right = matches(bytes(data), queue, offset) if offset < backlog[queue] else bytes(data) == written
                if offset != seen[queue] or not right:
                    raise WrongResult(f"queue {queue}: what the log has at offset {offset} is not what was written")
                seen[queue] += 1
        ends = [store.queue_bounds(*address)[1] if count else 0
                for address, count in zip(self.addresses, seen, strict=True)]  # fmt: skip
        if seen != ends:
            raise WrongResult(f"the queues end at {ends}, the scan found {seen} messages")
        return sum(seen)


@dataclass
class Writer:
    """Calls of append_batch at a given rate. Each is timed from the moment when it was due, so a delay counts."""

    store: MessageStore
    load: Load
    latencies_ns: list[int] = field(default_factory=list)
    messages: int = 0
    seconds: float = 0.0

    def run(self) -> None:
        """Append until the window is over."""
        load, addresses, data = self.load, self.load.addresses, self.load.written
        pace = CALL_MESSAGES / load.write_per_s if load.write_per_s else 0.0
        began = time.perf_counter()
        for call in range(1 << 60):
            due = began + call * pace if pace else time.perf_counter()
            if due - began >= load.window_s:
                break
            wait = due - time.perf_counter()
            if wait > 0:
                time.sleep(wait)  # the pace of the appends
            numbers = range(call * CALL_MESSAGES, (call + 1) * CALL_MESSAGES)
            self.store.append_batch([(*addresses[load.queue_of(at)], data) for at in numbers])
            self.latencies_ns.append(round((time.perf_counter() - due) * 1e9))
            self.messages += CALL_MESSAGES
        # The last call ends before its time is over: a rate over the time that it stood for.
        self.seconds = max(time.perf_counter() - began, self.messages / CALL_MESSAGES * pace)
