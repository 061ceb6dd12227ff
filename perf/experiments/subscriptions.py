"""Subscriptions: the rates of receiving and acknowledging, and what many of one topic cost."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from ...store import MessageStore, Subscription, Ticket
from ..machine.folders import sub_folder
from ..report.figures import counted
from ..report.progress import Run
from ..report.record import Chapter
from ..report.words import sentence
from ..workload.checker import Patience, WrongResult
from ..workload.timed import HEAD
from .experiment import repeats, setting
from .parts import Count, Part, measured
from .reported import Reported, Study

TOPIC = "orders"
UNDER_WAY = 1000  # tickets of one thread
SOME = 32  # messages of a receive
SHARE = 10  # the ways with an object a message take a tenth of the messages
Way = Callable[[Subscription, int, "_Seen"], tuple[int, float]]  # gives the acknowledged messages, and its seconds
RATE = Count(figure="per_s", what="rate", unit="msg/s", meaning="messages received and acknowledged a second")
MANY = (
    Count(figure="subscribe_ms", what="subscribe", unit="ms", better="lower", meaning="durable when it returns"),
    Count(figure="receive_and_ack_ms", what="receive and acknowledge a message", unit="ms", better="lower"),
    Count(figure="list_all_ms", what="list all with their backlogs", unit="ms", better="lower"),
)


class _Seen:
    """Compares bodies with those of the topic, and says if one comes twice. Never inside a timed part."""

    def __init__(self, messages: int, rest: bytes) -> None:
        self._seen, self._rest = bytearray(messages), rest

    def add(self, bodies: Iterable[bytes | memoryview]) -> None:
        """Raises WrongResult at a body that was not written, or has come before."""
        for body in map(bytes, bodies):
            number = int.from_bytes(body[: HEAD.size], "little")
            if number >= len(self._seen) or body[HEAD.size :] != self._rest:
                raise WrongResult("a message was received that is not what was written")
            if self._seen[number]:
                raise WrongResult(f"message {number:,} was received twice")
            self._seen[number] = True

    def count(self) -> int:
        """So many were compared."""
        return sum(self._seen)


@dataclass(frozen=True, kw_only=True)
class Subscriptions(Reported):
    """Receiving and acknowledging, in batches and one at a time; many subscriptions of one topic."""

    NAME: ClassVar[str] = "subscriptions"
    TITLE: ClassVar[str] = "Receiving and acknowledging"
    METHOD: ClassVar[str] = (
        "each way with a new subscription of one filled topic; every acknowledgement durable; the ways with an object "
        "a message take a tenth of the messages"
    )

    messages: int = setting(1_000_000, "messages in the topic", short=6_000, least=1_000)
    size_bytes: int = setting(100, "of a message", least=HEAD.size)
    queues: int = setting(10, "queues of the topic", least=1)
    batch: int = setting(4096, "messages of a batch", short=512, least=1)
    threads: int = setting(40, "threads that acknowledge one at a time", short=4, least=1)
    coroutines: int = setting(200, "coroutines that acknowledge one at a time", short=8, least=1)
    subscriptions: int = setting(1_000, "subscriptions of the topic", short=20, least=1)
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """The space of the topic, and of the records."""
        return 4.0 * self.messages * (self.size_bytes + 100) + (512 << 20)

    def study(self, base: Path, run: Run) -> Study:
        """All ways in turn, on one store; then many subscriptions of it."""
        few = max(self.threads * SOME, self.coroutines, self.messages // SHARE)
        ways: dict[str, tuple[str, Way, int]] = {
            "batches": ("receive_batch, ack_batch", self._in_batches, self.messages),
            "random_order": ("ack_batch in random order", self._in_random_order, self.messages),
            "submit_ack": (f"receive({SOME}), submit_ack, one thread", self._submitted, few),
            "threads": (f"receive(1), ack, {counted(self.threads, 'thread')}", self._by_threads, few),
            "coroutines": (f"receive_async(1), ack_async, {counted(self.coroutines, 'coroutine')}",
                           self._by_coroutines, few),
        }  # fmt: skip
        with sub_folder(base, "store") as folder, MessageStore.open(folder) as store:
            self._fill(store)
            parts = [
                Part(name, partial(self._run, store, run, way, count), (RATE,), what)
                for name, (what, way, count) in ways.items()
            ]
            found = measured(parts, self.repeat, run)
            many = measured([Part("many", partial(self._many, store, run), MANY)], 1, run)
        text = f"{self.messages:,} messages of {self.size_bytes} B; a new subscription a way; each ack is durable."
        chapters = (
            Chapter(title="Receiving and acknowledging", text=text, measures=tuple(found.values())),
            Chapter(title=f"{self.subscriptions:,} subscriptions of one topic", measures=tuple(many.values()),
                    text="Each is made, and gets and acknowledges one message."),
        )  # fmt: skip
        return Study(summary=tuple(map(sentence, found.values())), chapters=chapters)

    def _fill(self, store: MessageStore) -> None:
        first = 0
        for queue_id in range(self.queues):
            count = self.messages // self.queues + (queue_id < self.messages % self.queues)
            zeros = np.zeros(count, np.int64)
            payload = b"".join(HEAD.pack(number) + self._rest for number in range(first, first + count))
            store.append_columns([(TOPIC, queue_id)], zeros, zeros + self.size_bytes, payload)
            first += count

    @property
    def _rest(self) -> bytes:
        """What follows the number of a message."""
        return random.Random(self.seed).randbytes(self.size_bytes - HEAD.size)

    def _run(self, store: MessageStore, run: Run, way: Way, count: int) -> dict[str, float]:
        name, seen = f"s{time.monotonic_ns()}", _Seen(self.messages, self._rest)
        with store.subscribe(TOPIC, name) as sub:
            done, seconds = way(sub, count, seen)
            left = sub.backlog()
        store.delete_subscription(TOPIC, name)
        if left.total != self.messages - done or done < count or seen.count() != done:
            raise WrongResult(f"{done:,} messages were acknowledged, and {left} is left of {self.messages:,}")
        run.checked(done)
        return {"per_s": done / seconds}

    def _in_batches(self, sub: Subscription, _count: int, seen: _Seen) -> tuple[int, float]:
        done, took_s, began = 0, 0.0, time.perf_counter()
        while len(batch := sub.receive_batch(self.batch)):
            sub.ack_batch(batch.receipts)
            took_s += time.perf_counter() - began
            done += len(batch)
            seen.add(batch.payloads())
            began = time.perf_counter()
        return done, took_s

    def _in_random_order(self, sub: Subscription, _count: int, seen: _Seen) -> tuple[int, float]:
        held = []
        while len(batch := sub.receive_batch(self.batch)):
            held.append(batch.receipts)
            seen.add(batch.payloads())
        receipts = np.random.default_rng(self.seed).permutation(np.concatenate(held))
        began = time.perf_counter()
        for begin in range(0, len(receipts), self.batch):
            sub.ack_batch(receipts[begin : begin + self.batch])
        return len(receipts), time.perf_counter() - began

    def _submitted(self, sub: Subscription, count: int, seen: _Seen) -> tuple[int, float]:
        under_way: deque[Ticket] = deque()
        bodies: list[bytes] = []
        began = time.perf_counter()
        while len(bodies) < count:
            patience = Patience(f"after {len(bodies):,} of {count:,} messages no other one came")
            while not (taken := sub.receive(SOME)):
                patience.check()
            for delivery in taken:
                under_way.append(sub.submit_ack(delivery))
                bodies.append(delivery.message.data)
            while len(under_way) > UNDER_WAY:
                under_way.popleft().result()
        for ticket in under_way:
            ticket.result()
        took_s = time.perf_counter() - began
        seen.add(bodies)
        return len(bodies), took_s

    def _by_threads(self, sub: Subscription, count: int, seen: _Seen) -> tuple[int, float]:
        each = count // self.threads + 1
        bodies: list[bytes] = []

        def consume() -> None:
            for _ in range(each):
                for delivery in sub.receive(1):
                    sub.ack(delivery)
                    bodies.append(delivery.message.data)

        threads = [threading.Thread(target=consume) for _ in range(self.threads)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took_s = time.perf_counter() - began
        seen.add(bodies)
        return len(bodies), took_s

    def _by_coroutines(self, sub: Subscription, count: int, seen: _Seen) -> tuple[int, float]:
        each = count // self.coroutines + 1
        bodies: list[bytes] = []

        async def consume() -> None:
            for _ in range(each):
                for delivery in await sub.receive_async(1):
                    await sub.ack_async(delivery)
                    bodies.append(delivery.message.data)

        async def consume_all() -> float:
            began = time.perf_counter()
            await asyncio.gather(*(consume() for _ in range(self.coroutines)))
            return time.perf_counter() - began

        took_s = asyncio.run(consume_all())
        seen.add(bodies)
        return len(bodies), took_s

    def _many(self, store: MessageStore, run: Run) -> dict[str, float]:
        """Many subscriptions of one topic: the cost to make one, and a message for each."""
        began = time.perf_counter()
        subs = [store.subscribe(TOPIC, f"many-{number}") for number in range(self.subscriptions)]
        made = time.perf_counter()
        bodies = []
        for sub in subs:
            (delivery,) = sub.receive(1)
            sub.ack(delivery)
            bodies.append(delivery.message.data)
        used = time.perf_counter()
        listed = store.subscriptions(TOPIC)
        listed_s = time.perf_counter() - used
        if [one.backlog.total for one in listed] != [self.messages - 1] * self.subscriptions:
            raise WrongResult("a subscription has another backlog than it must have")
        for body in bodies:
            _Seen(self.messages, self._rest).add([body])  # each of its own subscription
        run.checked(self.subscriptions)
        return {
            "subscribe_ms": (made - began) * 1000 / self.subscriptions,
            "receive_and_ack_ms": (used - made) * 1000 / self.subscriptions,
            "list_all_ms": listed_s * 1000,
        }
