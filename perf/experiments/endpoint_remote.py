"""A store of another process, by `stratalog.connect`: rates of each way to append and to consume."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...remote import connect
from ...store import MessageBatch
from ..machine.folders import sub_folder
from ..machine.threads import run_together
from ..references.trivial_grpc import METHOD
from ..workload.checker import WrongResult
from ..workload.rocketmq import Client, body_of
from .endpoint_options import AT_ONCE, Options
from .parts import Count, Part
from .servers import served, trivial

if TYPE_CHECKING:
    from ...endpoint.remote.client.store import RemoteStore

TOPIC = "t"
THREADS = 40
BATCH = 1000
VISIBLE_MS = 3_600_000

Given = bytes | MessageBatch  # what a consumer got, as it came
Work = Callable[["RemoteStore", Sequence[bytes]], Sequence[Given]]  # all bodies; appended, or there already
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
        return {"per_s": count / asyncio.run(_calls(address, options))}


async def _calls(address: str, options: Options) -> float:
    """Call the handler, many at a time. The seconds after a first call: the connection is there, as for the store."""
    import grpc  # noqa: PLC0415  # an extra

    async with grpc.aio.insecure_channel(address) as channel:
        client = Client(channel, options.size_bytes, METHOD)

        async def some() -> None:
            for number in range(options.calls // AT_ONCE):
                await client.send(number)

        await client.send(0)
        began = time.perf_counter()
        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
        return time.perf_counter() - began


def _way(options: Options, work: Work, count: int) -> dict[str, float]:
    """The rate of one way. Raises WrongResult unless the store has what was answered, and gave out what it has."""
    bodies = [body_of(number, options.size_bytes) for number in range(count)]
    with (
        sub_folder(options.base, "store") as folder,
        served(folder, "force") as (_, address),
        connect(address) as store,
    ):
        if work in CONSUMERS:
            _in_batches(store, bodies)
        began = time.perf_counter()
        given = work(store, bodies)
        seconds = time.perf_counter() - began
        there = [body for queue in store.queues(TOPIC) for body in store.get_range(TOPIC, queue, 0, count).values()]
    if sorted(there) != sorted(bodies):
        raise WrongResult(f"{count:,} messages were answered; the {len(there):,} of the store are not these")
    options.run.checked(count)
    if work in CONSUMERS:
        options.run.checked(_compared(given, bodies))
    return {"per_s": count / seconds}


def _compared(given: Sequence[Given], bodies: Sequence[bytes]) -> int:
    """The number of messages. Raises WrongResult unless each was given once, and whole."""
    found: list[bytes] = []
    for one in given:
        found += [one] if isinstance(one, bytes) else map(bytes, one.payloads())
    if sorted(found) != sorted(bodies):
        raise WrongResult(f"the {len(found):,} messages that were read are not the {len(bodies):,} of the store")
    return len(found)


def _in_batches(store: RemoteStore, bodies: Sequence[bytes]) -> Sequence[Given]:
    for at in range(0, len(bodies), BATCH):
        store.append_batch([(TOPIC, number % 4, body) for number, body in enumerate(bodies[at : at + BATCH])])
    return ()


def _by_tickets(store: RemoteStore, bodies: Sequence[bytes]) -> Sequence[Given]:
    tickets = [store.submit(TOPIC, number % 4, body) for number, body in enumerate(bodies)]
    for ticket in tickets:
        ticket.result()
    return ()


def _in_a_loop(store: RemoteStore, bodies: Sequence[bytes]) -> Sequence[Given]:
    async def some(mine: Sequence[bytes]) -> None:
        for body in mine:
            await store.append_async(TOPIC, 0, body)

    async def all_of_them() -> None:
        await asyncio.gather(*(some(bodies[at::AT_ONCE]) for at in range(AT_ONCE)))

    asyncio.run(all_of_them())
    return ()


def _by_threads(store: RemoteStore, bodies: Sequence[bytes]) -> Sequence[Given]:
    def some(mine: Sequence[bytes]) -> None:
        for body in mine:
            store.append(TOPIC, 0, body)

    run_together([partial(some, bodies[at::THREADS]) for at in range(THREADS)])
    return ()


def _read(store: RemoteStore, bodies: Sequence[bytes]) -> Sequence[Given]:
    return list(store.scan())


def _received(store: RemoteStore, bodies: Sequence[bytes]) -> Sequence[Given]:
    found: list[Given] = []
    with store.subscribe(TOPIC, "s") as sub:
        while len(batch := sub.receive_batch(visibility_timeout_ms=VISIBLE_MS)):
            sub.ack_batch(batch.receipts)
            found.append(batch)
    return found


def _received_one_by_one(store: RemoteStore, bodies: Sequence[bytes]) -> Sequence[Given]:
    found: list[Given] = []

    async def consume(sub: Any) -> None:
        while taken := await sub.receive_async(1, visibility_timeout_ms=VISIBLE_MS):
            await sub.ack_async(taken[0])
            found.append(taken[0].message.data)

    async def all_of_them() -> None:
        with store.subscribe(TOPIC, "s") as sub:
            await asyncio.gather(*(consume(sub) for _ in range(AT_ONCE)))

    asyncio.run(all_of_them())
    return found


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
