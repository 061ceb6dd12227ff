"""Reads that wait in the writing process: how soon they are woken, their cost for the writers, their memory."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from ...store import MessageStore, StoreConfig
from ..machine.folders import sub_folder
from ..machine.threads import run_together
from ..report.figures import counted
from ..report.progress import Run
from ..report.record import Chapter
from ..report.words import sentence
from ..workload.checker import WrongResult
from ..workload.latencies import Latencies
from ..workload.settings import space_bytes
from .experiment import repeats, setting
from .parts import Count, Part, latencies, measured
from .reported import Reported, Study

TOPIC, OTHERS = "waits", "others"
AN_HOUR_MS = 3_600_000
PACE_S = 0.001
SETTLE_S = 0.001
MOST_PER_S = 60_000
LONGEST = Count(figure="max", what="the longest", unit="us", better="neither")
MEMORY = (
    Count(figure="bytes_each", what="memory without its task", unit="B", better="lower",
          meaning="as tracemalloc counts it"),
    Count(figure="with_task", what="memory with it", unit="B", better="lower"),
    Count(figure="threads", what="threads that all of them need", unit="", better="lower"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Waits(Reported):
    """Reads that wait for a message: a thread's and a coroutine's, beside many that wait on other queues."""

    NAME: ClassVar[str] = "waits"
    TITLE: ClassVar[str] = "Reads that wait for a message"
    METHOD: ClassVar[str] = (
        "one reader waits for each message in turn, from the answer of its append; the writers' rates by turns with "
        "nobody waiting; memory as tracemalloc counts it, with and without the task that waits"
    )

    waiting: int = setting(1_000, "coroutines that wait on other queues", short=20, least=0)
    memory: int = setting(10_000, "coroutines whose memory is counted", short=100, least=1)
    messages: int = setting(2_000, "messages whose way to a waiting reader is timed", short=30, least=1)
    producers: int = setting(40, "threads that block on every append", short=4, least=1)
    seconds: float = setting(2.0, "seconds of a row of rates", short=0.1, least=0)
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """The space of a row."""
        return space_bytes(MOST_PER_S * self.seconds * 120)

    def study(self, base: Path, run: Run) -> Study:
        """The latencies, the rates with and without waiting readers, and the memory of a waiting reader."""
        rate = Count(figure="per_s", what="rate", unit="msg/s", beside="rate.0.per_s", beside_is_store=True,
                     beside_what="nobody waits", meaning="1.00: those that wait cost the writers nothing")  # fmt: skip
        told = "from the answer of its append; one message each millisecond, whatever the reader does"
        parts = [
            *(Part(f"rate.{count}", partial(self._rate, base, count), (rate,),
                   f"{self.producers} threads append beside {counted(count, 'waiting read')}")
              for count in dict.fromkeys((0, self.waiting))),
            *(Part(f"wait.{whom}", partial(self._latency, base, of_thread=whom == "thread", run=run),
                   (*latencies("sees a message after", told), LONGEST), f"a waiting {whom}")
              for whom in ("thread", "coroutine")),
            Part("memory", partial(self._memory, base), MEMORY, "a waiting coroutine"),
        ]  # fmt: skip
        found = measured(parts, self.repeat, run)
        names = ("wait.thread.p50", "wait.coroutine.p50", f"rate.{self.waiting}.per_s", "memory.bytes_each")
        chapter = Chapter(title="Reads that wait", text="In the writing process.", measures=tuple(found.values()))
        return Study(summary=tuple(sentence(found[name]) for name in names), chapters=(chapter,))

    def _rate(self, base: Path, waiting: int) -> dict[str, float]:
        counts = [0] * self.producers

        def produce(store: MessageStore, at: int, until: float) -> None:
            while time.perf_counter() < until:
                store.append(TOPIC, at, bytes(100))
                counts[at] += 1

        with (
            sub_folder(base, "store") as folder,
            MessageStore.open(folder, StoreConfig()) as store,
            others_waiting(store, waiting),
        ):
            until = time.perf_counter() + self.seconds
            took = run_together([partial(produce, store, at, until) for at in range(self.producers)])
        return {"per_s": sum(counts) / took}

    def _latency(self, base: Path, *, of_thread: bool, run: Run) -> dict[str, float]:
        durable: list[int] = []
        seen: list[int] = []

        def read(store: MessageStore) -> None:
            while len(seen) < self.messages:
                found = store.read(TOPIC, 0, len(seen), max_messages=1, wait_ms=AN_HOUR_MS)
                seen.extend([time.monotonic_ns()] * len(found))

        async def read_async(store: MessageStore) -> None:
            while len(seen) < self.messages:
                found = await store.read_async(TOPIC, 0, len(seen), max_messages=1, wait_ms=AN_HOUR_MS)
                seen.extend([time.monotonic_ns()] * len(found))

        with (
            sub_folder(base, "store") as folder,
            MessageStore.open(folder, StoreConfig()) as store,
            others_waiting(store, self.waiting),
        ):
            work = partial(read, store) if of_thread else partial(asyncio.run, read_async(store))
            reader = threading.Thread(target=work)
            reader.start()
            for number in range(self.messages):
                store.append(TOPIC, 0, b"%d" % number)
                durable.append(time.monotonic_ns())
                time.sleep(PACE_S)  # the pace of the appends
            reader.join()
        run.checked(len(seen))
        took = Latencies()
        took.add(np.array(seen) - np.array(durable))
        return {"calls": took.count, **took.marks_us()}

    def _memory(self, base: Path) -> dict[str, float]:
        with sub_folder(base, "store") as folder, MessageStore.open(folder, StoreConfig()) as store:
            return asyncio.run(self._count_memory(store))

    async def _count_memory(self, store: MessageStore) -> dict[str, float]:
        async with waiting_tasks(store, 1):  # for the objects that are made once
            pass
        threads = threading.active_count()
        tracemalloc.start()
        try:
            async with waiting_tasks(store, self.memory):
                with_task = _traced() / self.memory
                more = threading.active_count() - threads
            tracemalloc.stop()
            tracemalloc.start()
            never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            bare = [asyncio.create_task(_await(never)) for _ in range(self.memory)]
            await asyncio.sleep(SETTLE_S)
            of_task = _traced() / self.memory
            never.cancel()
            await asyncio.gather(*bare, return_exceptions=True)
        finally:
            tracemalloc.stop()
        return {"bytes_each": with_task - of_task, "with_task": with_task, "threads": more}


@contextmanager
def others_waiting(store: MessageStore, count: int) -> Iterator[None]:
    """So many coroutines wait, in one other loop, each on another queue."""
    ready, done = threading.Event(), threading.Event()

    async def wait() -> None:
        async with waiting_tasks(store, count):
            ready.set()
            await asyncio.to_thread(done.wait)

    loop = threading.Thread(target=lambda: asyncio.run(wait()))
    if count:
        loop.start()
        ready.wait()
    try:
        yield
    finally:
        done.set()
        if count:
            loop.join()


@asynccontextmanager
async def waiting_tasks(store: MessageStore, count: int) -> AsyncIterator[None]:
    """So many tasks wait, each on another queue. Raises WrongResult if one of them gets a message."""
    tasks = [asyncio.create_task(store.read_async(OTHERS, queue, wait_ms=AN_HOUR_MS)) for queue in range(count)]
    await asyncio.sleep(SETTLE_S)
    gc.collect()
    try:
        yield
        if any(task.done() for task in tasks):
            raise WrongResult("a read that waits on a queue without messages has ended")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _await(future: asyncio.Future[None]) -> None:
    await future


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
