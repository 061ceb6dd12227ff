"""Ways to append for some seconds: each message names its offset, so that all of them can be compared after.

A queue has one producer. Message n of each queue is `HEAD.pack(n)` and the body.
"""

from __future__ import annotations

import asyncio
import struct
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter, perf_counter_ns

from ...store import MessageStore, Ticket
from ..machine.threads import run_together
from .checker import WrongResult
from .latencies import Latencies

HEAD = struct.Struct("<Q")
TOPIC = "measured"
WINDOW_MESSAGES, BATCH_MESSAGES = 4096, 256
Over = Callable[[], bool]


@dataclass
class Appended:
    """What a run has appended: the messages of each queue, its seconds, and the time of each call in ns."""

    body: bytes
    written: list[int]
    seconds: float = 0.0
    times: list[array[int]] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """All messages."""
        return sum(self.written)

    def figures(self) -> dict[str, float]:
        """ "per_s" (messages), "mb_per_s", "calls", and "p50", "p99", "p99.9", "max" of a call in microseconds."""
        latencies = Latencies()
        for one in self.times:
            latencies.add(one)
        per_s, size = self.messages / self.seconds, HEAD.size + len(self.body)
        return {"per_s": per_s, "mb_per_s": per_s * size / 1e6, "calls": latencies.count, **latencies.marks_us()}

    def check(self, store: MessageStore) -> int:
        """Compare every message of the store with what was appended; returns their number. Raises WrongResult."""
        seen = [0] * len(self.written)
        for batch in store.scan():
            queues = [queue_id for _, queue_id in batch.stream_names]
            rows = zip(batch.stream_index.tolist(), batch.offsets.tolist(), batch.payloads(), strict=True)
            for index, offset, data in rows:
                queue = queues[index]
                if offset != seen[queue] or bytes(data) != HEAD.pack(offset) + self.body:
                    raise WrongResult(f"queue {queue}: what the scan gives at offset {offset} is not what was appended")
                seen[queue] += 1
        if seen != self.written:
            raise WrongResult(f"the store has {sum(seen):,} messages, appended were {self.messages:,}")
        return sum(seen)


@contextmanager
def _timed(done: Appended) -> Iterator[None]:
    began = perf_counter()
    yield
    done.seconds = perf_counter() - began


def blocking(threads: int, body: bytes, store: MessageStore, over: Over) -> Appended:
    """So many threads; each appends when its message before is durable."""
    done = Appended(body, [0] * threads, times=[array("q") for _ in range(threads)])

    def produce(queue: int) -> None:
        append, pack, clock, note, count = store.append, HEAD.pack, perf_counter_ns, done.times[queue].append, 0
        while True:
            data = pack(count) + body
            began = clock()
            append(TOPIC, queue, data)
            note(clock() - began)
            count += 1
            done.written[queue] = count
            if over():
                return

    done.seconds = run_together([partial(produce, queue) for queue in range(threads)])
    return done


def asynchronous(tasks: int, body: bytes, store: MessageStore, over: Over) -> Appended:
    """So many tasks of one event loop; each appends when its message before is durable."""
    done = Appended(body, [0] * tasks, times=[array("q") for _ in range(tasks)])

    async def produce(queue: int) -> None:
        append, pack, clock, note, count = store.append_async, HEAD.pack, perf_counter_ns, done.times[queue].append, 0
        while True:
            data = pack(count) + body
            began = clock()
            await append(TOPIC, queue, data)
            note(clock() - began)
            count += 1
            done.written[queue] = count
            if over():
                return

    async def main() -> None:
        await asyncio.gather(*(produce(queue) for queue in range(tasks)))

    with _timed(done):
        asyncio.run(main())
    return done


def pipelined(body: bytes, store: MessageStore, over: Over) -> Appended:
    """One thread with a window of tickets. A call's time is until it sees the answer of the window's oldest."""
    done, window = Appended(body, [0], times=[array("q")]), deque[tuple[Ticket, int]]()
    submit, pack, clock, note, count = store.submit, HEAD.pack, perf_counter_ns, done.times[0].append, 0
    with _timed(done):
        while not over() or not count:
            window.append((submit(TOPIC, 0, pack(count) + body), clock()))
            count += 1
            if len(window) > WINDOW_MESSAGES:
                ticket, began = window.popleft()
                ticket.result()
                note(clock() - began)
        for ticket, began in window:
            ticket.result()
            note(clock() - began)
    done.written[0] = count
    return done


def batches(body: bytes, store: MessageStore, over: Over, messages: int = BATCH_MESSAGES) -> Appended:
    """One thread, so many messages a call. A call's time is that of a whole batch."""
    done, count = Appended(body, [0], times=[array("q")]), 0
    with _timed(done):
        while not over() or not count:
            rows = [(TOPIC, 0, HEAD.pack(number) + body) for number in range(count, count + messages)]
            began = perf_counter_ns()
            store.append_batch(rows)
            done.times[0].append(perf_counter_ns() - began)
            count += messages
    done.written[0] = count
    return done


def filled(store: MessageStore, messages: int, body: bytes) -> Appended:
    """Append so many messages to one queue, in batches."""
    left = iter(range(0, messages, BATCH_MESSAGES))
    return batches(body, store, lambda: next(left, None) is None)
