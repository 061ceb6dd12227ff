"""A store of another process, by `stratalog.connect`: rates of each way to append and to consume."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...remote import connect
from ..machine.folders import sub_folder
from ..machine.threads import run_together
from ..references.trivial_grpc import METHOD
from ..workload.checker import WrongResult
from ..workload.rocketmq import Client
from .endpoint_options import AT_ONCE, Options
from .parts import Count, Part
from .servers import served, trivial

if TYPE_CHECKING:
    from ...endpoint.remote.client.store import RemoteStore

TOPIC = "t"
THREADS = 40
BATCH = 1000
VISIBLE_MS = 3_600_000

Work = Callable[["RemoteStore", int, bytes], int]


TRIVIAL = "remote.trivial"


def parts(options: Options) -> list[Part]:
    """Each way on a store of its own, and the calls of a handler that does nothing."""
    trivial_count = Count(figure="per_s", what=f"calls of a handler that does nothing, {AT_ONCE} at once", unit="1/s")
    found = [Part(TRIVIAL, partial(_trivial, options), (trivial_count,))]
    for name, (work, what, waits) in WAYS.items():
        count = Count(
            figure="per_s",
            what=what,
            unit="msg/s",
            beside=f"{TRIVIAL}.per_s",
            beside_what="calls of a handler that does nothing",
            meaning="each waits for its answer" if waits else "many messages share a call",
        )
        run = partial(_way, options, work, options.calls if waits else options.messages)
        found.append(Part(f"remote.{name}", run, (count,)))
    return found


def _trivial(options: Options) -> dict[str, float]:
    count = options.calls // AT_ONCE * AT_ONCE
    with trivial() as (_, address):
        began = time.perf_counter()
        asyncio.run(_calls(address, options))
        return {"per_s": count / (time.perf_counter() - began)}


async def _calls(address: str, options: Options) -> None:
    """Call the handler, many at a time."""
    import grpc  # noqa: PLC0415  # an extra

    async with grpc.aio.insecure_channel(address) as channel:
        client = Client(channel, options.size_bytes, METHOD)

        async def some() -> None:
            for number in range(options.calls // AT_ONCE):
                await client.send(number)

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))


def _way(options: Options, work: Work, count: int) -> dict[str, float]:
    """The rate of one way. Raises WrongResult unless the store has what was answered, as it was sent."""
    data = bytes(options.size_bytes)
    with (
        sub_folder(options.base, "store") as folder,
        served(folder, "force") as (_, address),
        connect(address) as store,
    ):
        if work in CONSUMERS:
            _in_batches(store, count, data)
        began = time.perf_counter()
        done = work(store, count, data)
        seconds = time.perf_counter() - began
        there = [body for queue in store.queues(TOPIC) for body in store.get_range(TOPIC, queue, 0, count).values()]
    if len(there) != done or set(there) != {data}:
        raise WrongResult(f"{done:,} messages were answered; the {len(there):,} of the store are not these")
    options.run.checked(done)
    return {"per_s": done / seconds}


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


WAYS: dict[str, tuple[Work, str, bool]] = {  # name: what runs, in words, and whether it waits for each message
    "batch": (_in_batches, f"`append_batch` of {BATCH:,}", False),
    "submit": (_by_tickets, "`submit`", False),
    "async": (_in_a_loop, f"`append_async`, {AT_ONCE} at once", True),
    "threads": (_by_threads, f"`append`, {THREADS} threads", True),
    "scan": (_read, "`scan`", False),
    "receive": (_received, "`receive_batch` and `ack_batch`", False),
    "receive_one": (_received_one_by_one, f"`receive_async` of 1 and `ack_async`, {AT_ONCE} coroutines", True),
}
CONSUMERS = (_read, _received, _received_one_by_one)
