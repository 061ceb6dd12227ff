"""A store of another process, by `stratalog.connect`: rates of each way to append and to consume."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Console

from ...remote import connect
from ..machine.folders import sub_folder
from ..machine.threads import run_together
from ..references.trivial_grpc import METHOD
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.checker import WrongResult
from .experiment import Experiment, medians, repeats, setting
from .servers import served, trivial

if TYPE_CHECKING:
    from ...endpoint.remote.client.store import RemoteStore

TOPIC = "t"
AT_ONCE = 64
THREADS = 40
BATCH = 1000
VISIBLE_MS = 3_600_000

Work = Callable[["RemoteStore", int, bytes], int]


@dataclass(frozen=True, kw_only=True)
class Remote(Experiment):
    """Appends to, and reads from, a store that another process serves, beside a trivial gRPC handler."""

    NAME: ClassVar[str] = "remote"
    METHOD: ClassVar[str] = "client and server in processes of their own, on 127.0.0.1"

    messages: int = setting(100_000, "of each way in batches or by tickets", short=2_000, least=BATCH)
    calls: int = setting(4_000, "messages of each way that waits for every one", short=320, least=AT_ONCE)
    size_bytes: int = setting(100, "of a message", least=0)
    durability: str = setting("force", 'of the store: "force" or "os"')
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """The space of a round."""
        return 8.0 * self.messages * (200 + self.size_bytes) + 16.0 * self.calls * 4096 + (1 << 30)

    def measure(self, base: Path, run: Run) -> Figures:
        """All ways by turns, each on a store of its own."""
        ways: dict[str, Callable[[], Figures]] = {
            name: partial(self._round, base, run, work, self.calls if waits else self.messages)
            for name, (work, waits) in WAYS.items()
        }
        with trivial() as (_, address):
            ways = {f"a trivial handler, {AT_ONCE} at once": partial(self._trivial, address, run), **ways}
            found = medians(ways, self.repeat, run)
        rows = [{"way": name, **figures} for name, figures in found.items()]
        for row in rows:
            row["of_trivial"] = round(row["per_s"] / rows[0]["per_s"], 2)
        return {"rows": rows}

    def _trivial(self, address: str, run: Run) -> Figures:
        count = self.calls // AT_ONCE * AT_ONCE
        began = time.perf_counter()
        asyncio.run(_call(address, count))
        run.checked(0)
        return {"messages": count, "per_s": round(count / (time.perf_counter() - began))}

    def _round(self, base: Path, run: Run, work: Work, count: int) -> Figures:
        with (
            sub_folder(base, "store") as folder,
            served(folder, self.durability) as (_, address),
            connect(address) as store,
        ):
            data = bytes(self.size_bytes)
            if work in CONSUMERS:
                _in_batches(store, count, data)
            began = time.perf_counter()
            done = work(store, count, data)
            seconds = time.perf_counter() - began
            there = sum(store.queue_bounds(TOPIC, queue)[1] for queue in store.queues(TOPIC))
        if there != done:
            raise WrongResult(f"{done} messages were answered, and {there} are there")
        run.checked(done)
        return {"messages": done, "per_s": round(done / seconds)}

    def show(self, figures: Figures, console: Console) -> None:
        """Show the table."""
        shown = {"way": "way", "messages": "messages", "a second": "per_s", "of the trivial calls": "of_trivial"}
        console.print(report.table("over a connection", report.chosen(figures["rows"], shown)))


async def _call(address: str, count: int) -> None:
    """Call the trivial handler, many at a time, with an empty message."""
    import grpc  # noqa: PLC0415  # an extra

    async with grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.unary_unary(METHOD)

        async def some() -> None:
            for _ in range(count // AT_ONCE):
                await call(b"")

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))


def _in_batches(store: RemoteStore, count: int, data: bytes) -> int:
    done = 0
    while done < count:
        done += len(store.append_batch([(TOPIC, number % 4, data) for number in range(BATCH)]))
    return done


def _by_tickets(store: RemoteStore, count: int, data: bytes) -> int:
    tickets = [store.submit(TOPIC, number % 4, data) for number in range(count)]
    return len([ticket.result() for ticket in tickets])


def _in_a_loop(store: RemoteStore, count: int, data: bytes) -> int:
    async def some() -> None:
        for _ in range(count // AT_ONCE):
            await store.append_async(TOPIC, 0, data)

    async def all_of_them() -> None:
        await asyncio.gather(*(some() for _ in range(AT_ONCE)))

    asyncio.run(all_of_them())
    return count // AT_ONCE * AT_ONCE


def _by_threads(store: RemoteStore, count: int, data: bytes) -> int:
    def some() -> None:
        for _ in range(count // THREADS):
            store.append(TOPIC, 0, data)

    run_together([some] * THREADS)
    return count // THREADS * THREADS


def _one_by_one(store: RemoteStore, count: int, data: bytes) -> int:
    for _ in range(count // 4):
        store.append(TOPIC, 0, data)
    return count // 4


def _read(store: RemoteStore, count: int, data: bytes) -> int:
    return sum(len(batch) for batch in store.scan())


def _received(store: RemoteStore, count: int, data: bytes) -> int:
    done = 0
    with store.subscribe(TOPIC, "s") as sub:
        while len(batch := sub.receive_batch(visibility_timeout_ms=VISIBLE_MS)):
            sub.ack_batch(batch.receipts)
            done += len(batch)
    return done


def _received_one_by_one(store: RemoteStore, count: int, data: bytes) -> int:
    async def consume(sub: Any) -> int:
        done = 0
        while found := await sub.receive_async(1, visibility_timeout_ms=VISIBLE_MS):
            await sub.ack_async(found[0])
            done += 1
        return done

    async def all_of_them() -> int:
        with store.subscribe(TOPIC, "s") as sub:
            return sum(await asyncio.gather(*(consume(sub) for _ in range(AT_ONCE))))

    return asyncio.run(all_of_them())


WAYS: dict[str, tuple[Work, bool]] = {
    f"append_batch of {BATCH:,}": (_in_batches, False),
    "submit": (_by_tickets, False),
    f"append_async, {AT_ONCE} at once": (_in_a_loop, True),
    f"append, {THREADS} threads": (_by_threads, True),
    "append, one by one": (_one_by_one, True),
    "scan": (_read, False),
    "receive_batch and ack_batch": (_received, False),
    f"receive 1 and ack, {AT_ONCE} coroutines": (_received_one_by_one, True),
}
CONSUMERS = (_read, _received, _received_one_by_one)
