"""Subscriptions: the rates of receiving and acknowledging, beside SQLite and, if installed, Redis."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.console import Console

from ...store import MessageStore, Subscription, Ticket
from ..machine.folders import sub_folder
from ..references.redis_stream import MISSING, RedisStream, has_redis
from ..references.redis_stream import SETUP as REDIS_SETUP
from ..references.sqlite_queue import SETUP, SqliteQueue
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.checker import WrongResult
from .experiment import Experiment, medians, repeats, setting

TOPIC = "orders"
UNDER_WAY = 1000  # tickets of one thread
SOME = 32  # messages of a receive
SHARE = 10  # the ways with an object a message take a tenth of the messages


@dataclass(frozen=True, kw_only=True)
class Subscriptions(Experiment):
    """Receiving and acknowledging, in batches and one at a time; many subscriptions of one topic."""

    NAME: ClassVar[str] = "subscriptions"
    METHOD: ClassVar[str] = (
        "each way with a new subscription of one filled topic; every acknowledgement durable; the ways with an object "
        f"a message, and the peer, take a tenth of the messages; {SETUP}; {REDIS_SETUP}"
    )

    messages: int = setting(1_000_000, "messages in the topic", short=6_000, least=1_000)
    size_bytes: int = setting(100, "of a message", least=1)
    queues: int = setting(10, "queues of the topic", least=1)
    batch: int = setting(4096, "messages of a batch", short=512, least=1)
    threads: int = setting(40, "threads that acknowledge one at a time", short=4, least=1)
    coroutines: int = setting(200, "coroutines that acknowledge one at a time", short=8, least=1)
    subscriptions: int = setting(1_000, "subscriptions of the topic", short=20, least=1)
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """The space of the topic, of the peer's, and of the records."""
        return 4.0 * self.messages * (self.size_bytes + 100) + (512 << 20)

    def measure(self, base: Path, run: Run) -> Figures:
        """All ways in turn, on one store; then many subscriptions."""
        with sub_folder(base, "store") as folder, MessageStore.open(folder) as store:
            self._fill(store)
            few = max(self.threads * SOME, self.coroutines, self.messages // SHARE)
            ways: dict[str, Callable[[], Figures]] = {
                "receive_batch, ack_batch": partial(self._run, store, run, self._in_batches, self.messages),
                "ack_batch, random order": partial(self._run, store, run, self._in_random_order, self.messages),
                f"receive({SOME}), submit_ack, one thread": partial(self._run, store, run, self._submitted, few),
                f"receive(1), ack, {self.threads} threads": partial(self._run, store, run, self._by_threads, few),
                f"receive_async(1), ack_async, {self.coroutines} coroutines": partial(
                    self._run, store, run, self._by_coroutines, few
                ),
                "peer: SQLite, batches": partial(self._peer, SqliteQueue, base, run, self.batch),
                "peer: SQLite, one at a time": partial(self._peer, SqliteQueue, base, run, 1),
            }
            if has_redis():
                ways["peer: Redis, batches"] = partial(self._peer, RedisStream, base, run, self.batch)
                ways["peer: Redis, one at a time"] = partial(self._peer, RedisStream, base, run, 1)
            found = medians(ways, self.repeat, run)
            rows = [{"way": name, **figures} for name, figures in found.items()]
            left_out = None if has_redis() else MISSING
            return {"rows": rows, "many": self._many(store, run), "left_out": left_out}

    def _fill(self, store: MessageStore) -> None:
        payload = bytes(self.size_bytes)
        for queue_id in range(self.queues):
            count = self.messages // self.queues + (queue_id < self.messages % self.queues)
            zeros = np.zeros(count, np.int64)
            store.append_columns([(TOPIC, queue_id)], zeros, zeros + self.size_bytes, payload * count)

    def _run(
        self, store: MessageStore, run: Run, way: Callable[[Subscription, int], tuple[int, float]], count: int
    ) -> Figures:
        name = f"s{time.monotonic_ns()}"
        with store.subscribe(TOPIC, name) as sub:
            done, seconds = way(sub, count)
            left = sub.backlog()
        store.delete_subscription(TOPIC, name)
        if left.total != self.messages - done or done < count:
            raise WrongResult(f"{done:,} messages were acknowledged, and {left} is left of {self.messages:,}")
        run.checked(done)
        return {"messages": done, "per_s": round(done / seconds)}

    def _in_batches(self, sub: Subscription, _count: int) -> tuple[int, float]:
        done, began = 0, time.perf_counter()
        while len(batch := sub.receive_batch(self.batch)):
            sub.ack_batch(batch.receipts)
            done += len(batch)
        return done, time.perf_counter() - began

    def _in_random_order(self, sub: Subscription, _count: int) -> tuple[int, float]:
        held = []
        while len(batch := sub.receive_batch(self.batch)):
            held.append(batch.receipts)
        receipts = np.random.default_rng(self.seed).permutation(np.concatenate(held))
        began = time.perf_counter()
        for begin in range(0, len(receipts), self.batch):
            sub.ack_batch(receipts[begin : begin + self.batch])
        return len(receipts), time.perf_counter() - began

    def _submitted(self, sub: Subscription, count: int) -> tuple[int, float]:
        under_way: deque[Ticket] = deque()
        done, began = 0, time.perf_counter()
        while done < count:
            for delivery in sub.receive(SOME):
                under_way.append(sub.submit_ack(delivery))
                done += 1
            while len(under_way) > UNDER_WAY:
                under_way.popleft().result()
        for ticket in under_way:
            ticket.result()
        return done, time.perf_counter() - began

    def _by_threads(self, sub: Subscription, count: int) -> tuple[int, float]:
        each = count // self.threads + 1

        def consume() -> None:
            for _ in range(each):
                for delivery in sub.receive(1):
                    sub.ack(delivery)

        threads = [threading.Thread(target=consume) for _ in range(self.threads)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return each * self.threads, time.perf_counter() - began

    def _by_coroutines(self, sub: Subscription, count: int) -> tuple[int, float]:
        each = count // self.coroutines + 1

        async def consume() -> None:
            for _ in range(each):
                for delivery in await sub.receive_async(1):
                    await sub.ack_async(delivery)

        async def consume_all() -> float:
            began = time.perf_counter()
            await asyncio.gather(*(consume() for _ in range(self.coroutines)))
            return time.perf_counter() - began

        return each * self.coroutines, asyncio.run(consume_all())

    def _peer(self, kind: type[SqliteQueue] | type[RedisStream], base: Path, run: Run, batch: int) -> Figures:
        count = max(100, self.messages // SHARE // (1 if batch > 1 else SHARE))
        with sub_folder(base, "peer") as folder:
            queue: Any = kind(folder)
            try:
                queue.put([bytes(self.size_bytes)] * count)
                done, began = 0, time.perf_counter()
                while rows := queue.take(batch):
                    queue.ack([number for number, _ in rows])
                    done += len(rows)
                seconds = time.perf_counter() - began
            finally:
                queue.close()
        if done != count:
            raise WrongResult(f"the peer gave {done:,} of {count:,} messages")
        run.checked(done)
        return {"messages": done, "per_s": round(done / seconds)}

    def _many(self, store: MessageStore, run: Run) -> Figures:
        """Many subscriptions of one topic: the cost to make one, and a message for each."""
        began = time.perf_counter()
        subs = [store.subscribe(TOPIC, f"many-{number}") for number in range(self.subscriptions)]
        made = time.perf_counter()
        for sub in subs:
            sub.ack(sub.receive(1)[0])
        used = time.perf_counter()
        listed = store.subscriptions(TOPIC)
        if [one.backlog.total for one in listed] != [self.messages - 1] * self.subscriptions:
            raise WrongResult("a subscription has another backlog than it must have")
        run.checked(self.subscriptions)
        return {
            "subscriptions": self.subscriptions,
            "subscribe_ms": round((made - began) * 1000 / self.subscriptions, 3),
            "receive_and_ack_ms": round((used - made) * 1000 / self.subscriptions, 3),
            "list_all_ms": round((time.perf_counter() - used) * 1000, 1),
        }

    def show(self, figures: Figures, console: Console) -> None:
        """Show the tables."""
        shown = {"way": "way", "messages": "messages", "messages/s": "per_s"}
        console.print(report.table("receiving and acknowledging", report.chosen(figures["rows"], shown)))
        console.print(report.pairs("many subscriptions of one topic", figures["many"]))
        if figures["left_out"] is not None:
            console.print(figures["left_out"])
