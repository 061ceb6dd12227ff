"""Work that arrives at a fixed rate, whatever the store does: the latencies of an open system.

A caller that waits for each answer asks for less while the store is slow, and so leaves out the worst waits of those
who would have come (coordinated omission). Here request n is due at the moment n / rate, and its latency counts from
that moment, also if the driver itself comes late to it.
"""

from __future__ import annotations

import asyncio
import threading
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from queue import SimpleQueue
from time import perf_counter_ns, sleep

from ...store import MessageStore, Ticket
from ..machine.threads import run_together
from .checker import WrongResult
from .latencies import Latencies
from .timed import HEAD, TOPIC, Appended

S_NS = 1_000_000_000
QUEUES = 8
SLEEP_FROM_NS, WAKE_EARLY_NS = 200_000, 100_000
JOBS, WAIT_MS = 32, 20


@dataclass(frozen=True)
class Rate:
    """So many requests a second, for so many seconds."""

    per_s: float
    seconds: float

    @property
    def requests(self) -> int:
        """All of them, at least one."""
        return max(1, int(self.per_s * self.seconds))

    def due_ns(self, number: int) -> int:
        """When a request is due, after the first one."""
        return int(number * S_NS / self.per_s)


@dataclass(frozen=True)
class Answers:
    """The latencies of all requests in ns, and the seconds from the first one's due time to the last answer."""

    times_ns: array[int]
    seconds: float

    def figures(self) -> dict[str, float]:
        """ "per_s", the rate of answers, and "p50", "p99", "p99.9", "max" in microseconds."""
        latencies = Latencies()
        latencies.add(self.times_ns)
        return {"per_s": len(self.times_ns) / self.seconds, **latencies.marks_us()}


def drive(rate: Rate, call: Callable[[int], object], began_ns: int) -> None:
    """Call with the number of each request when it is due, or as soon after it as the call before has returned."""
    for number in range(rate.requests):
        due = began_ns + rate.due_ns(number)
        while (early := due - perf_counter_ns()) > 0:
            if early > SLEEP_FROM_NS:
                sleep((early - WAKE_EARLY_NS) / S_NS)
        call(number)


async def calls(rate: Rate, call: Callable[[int], Awaitable[None]], at_once: int) -> Answers:
    """Each request as a task, which begins when it is due. Its latency ends when `call(number)` does.

    `at_once` calls are under way at the most. Those that are due meanwhile wait, which is a part of their latency. An
    error is raised when all have ended.
    """
    times, tasks, loop = array("q"), list[asyncio.Task[None]](), asyncio.get_running_loop()
    room = asyncio.Semaphore(at_once)
    began = perf_counter_ns()

    async def one(number: int) -> None:
        async with room:
            await call(number)
        times.append(perf_counter_ns() - began - rate.due_ns(number))

    def begin(number: int) -> None:
        tasks.append(loop.create_task(one(number)))

    await asyncio.to_thread(drive, rate, lambda number: loop.call_soon_threadsafe(begin, number), began)
    await asyncio.wait(tasks)
    await asyncio.gather(*tasks)  # raises the first error
    return Answers(times, (perf_counter_ns() - began) / S_NS)


def appends(store: MessageStore, rate: Rate, body: bytes) -> tuple[Answers, Appended]:
    """`submit` at the rate; another thread waits for each ticket and takes the time."""
    done = Appended(body, [0] * QUEUES)
    times, tickets = array("q"), SimpleQueue[Ticket | None]()
    began = perf_counter_ns()

    def submit(number: int) -> None:
        tickets.put(_submit(store, done, number))

    def produce() -> None:
        try:
            drive(rate, submit, began)
        finally:
            tickets.put(None)

    def wait() -> None:
        for number in range(rate.requests):
            ticket = tickets.get()
            if ticket is None:
                return  # the producer has failed, and its error is raised
            ticket.result()
            times.append(perf_counter_ns() - began - rate.due_ns(number))

    run_together([produce, wait])
    return Answers(times, (perf_counter_ns() - began) / S_NS), done


def reads(store: MessageStore, rate: Rate, messages: int, body: bytes, places: list[int]) -> Answers:
    """`get_range` of one message of queue 0 at the rate, by one thread; places are taken in turn, each is compared."""
    times = array("q")
    wrong = 0
    began = perf_counter_ns()

    def read(number: int) -> None:
        nonlocal wrong
        place = places[number % messages]
        found = store.get_range(TOPIC, 0, place, 1)
        times.append(perf_counter_ns() - began - rate.due_ns(number))
        wrong += next(iter(found.values()), b"") != HEAD.pack(place) + body

    drive(rate, read, began)
    if wrong:
        raise WrongResult(f"{wrong:,} of {len(times):,} messages that were read are not what was written")
    return Answers(times, (perf_counter_ns() - began) / S_NS)


def jobs(store: MessageStore, rate: Rate, body: bytes) -> tuple[Answers, Appended]:
    """`submit` at the rate; one consumer receives and acknowledges durably, with which a latency ends."""
    done, times = Appended(body, [0] * QUEUES), array("q")
    failed = threading.Event()
    for queue in range(QUEUES):  # a subscription knows the queues, so that the first jobs do not pay for them
        _submit(store, done, queue).result()
    with store.subscribe(TOPIC, "paced", start="latest") as subscription:
        began = perf_counter_ns()

        def produce() -> None:
            try:
                drive(rate, lambda number: _submit(store, done, number), began)
            except BaseException:
                failed.set()
                raise

        def consume() -> None:
            while len(times) < rate.requests and not failed.is_set():
                taken = subscription.receive(max_messages=JOBS, wait_ms=WAIT_MS)
                subscription.ack_batch(list(taken))
                now = perf_counter_ns() - began
                for delivery in taken:
                    message = delivery.message
                    number = (message.offset - 1) * QUEUES + message.queue_id
                    times.append(now - rate.due_ns(number))

        run_together([produce, consume])
        seconds = (perf_counter_ns() - began) / S_NS
        if left := subscription.backlog().total:
            raise WrongResult(f"{left:,} of {rate.requests:,} jobs are left, and all have been acknowledged")
    return Answers(times, seconds), done


def _submit(store: MessageStore, done: Appended, number: int) -> Ticket:
    """Hand message `number` over to its queue; queues take turns."""
    queue = number % QUEUES
    count = done.written[queue]
    ticket = store.submit(TOPIC, queue, HEAD.pack(count) + done.body)
    done.written[queue] = count + 1
    return ticket
