"""The endpoint's rates: sends and receives of many callers at once, and a store that is opened with an endpoint."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import psutil

from ...store import MessageStore
from ..machine.folders import sub_folder
from ..references.trivial_grpc import METHOD
from ..workload import rocketmq
from ..workload.rocketmq import Client
from .endpoint_options import AT_ONCE, Options
from .parts import Count, Part
from .servers import served, trivial

BATCH = 32  # messages of a receive
NOTHING, BESIDE = "rates.nothing", "a handler that does nothing"
WAYS = {
    "nothing": "calls of a handler that does nothing",
    "send.os": 'sends, durability "os"',
    "send.force": "sends, durable",
    "receive.os": f'receives of {BATCH} with an acknowledgement each, durability "os": calls',
    "receive.force": f"receives of {BATCH} with an acknowledgement each, durable: calls",
}


def parts(options: Options) -> list[Part]:
    """Each way as a part, and an opening."""
    found = []
    for name, what in WAYS.items():
        kind, _, durability = name.partition(".")
        work = {
            "nothing": partial(_trivial, options),
            "send": partial(_sends, options, durability),
            "receive": partial(_receives, options, durability),
        }[kind]
        is_beside = kind != "nothing"
        counts = (
            Count(
                figure="per_s",
                what="all callers together",
                unit="1/s",
                beside=f"{NOTHING}.per_s" if is_beside else "",
                beside_what=BESIDE,
                meaning="" if is_beside else "what the gRPC library leaves",
            ),
            Count(
                figure="cpu_us",
                what="the server's processor time of one",
                unit="us",
                better="lower",
                beside=f"{NOTHING}.cpu_us" if is_beside else "",
                beside_what=BESIDE,
            ),
        )
        found.append(Part(f"rates.{name}", work, counts, what))
    start = Count(
        figure="ms",
        what="a store is opened with an endpoint, a first message is sent, and all is closed",
        unit="ms",
        better="lower",
        meaning="what a test with an endpoint of its own waits for",
    )
    return [*found, Part("rates.start", partial(_start, options), (start,))]


async def sends(client: Client, numbers: Iterator[int]) -> None:
    """Send one message after the other."""
    for number in numbers:
        await client.send(number)


async def receives(client: Client, left: list[int]) -> None:
    """Receive a batch and acknowledge each message, until all are acknowledged. `left` has their number."""
    while left[0] > 0:
        taken = await client.receive(BATCH)
        for system in taken:
            await client.acknowledge(system)
        left[0] -= len(taken)
        if not taken:
            await asyncio.sleep(0.01)  # others have the last ones


async def _together(
    address: str,
    options: Options,
    child: subprocess.Popen[str],
    work: Callable[[Client], Awaitable[None]],
    path: str = "",
) -> dict[str, float]:
    """The rate of all callers together, and the server's processor time of a call."""
    import grpc  # noqa: PLC0415  # an extra

    process = psutil.Process(child.pid)
    async with grpc.aio.insecure_channel(address) as channel:
        client = Client(channel, options.size_bytes, path)
        used_s, began_s = sum(process.cpu_times()[:2]), time.perf_counter()
        await asyncio.gather(*(work(client) for _ in range(AT_ONCE)))
        taken_s, used_s = time.perf_counter() - began_s, sum(process.cpu_times()[:2]) - used_s
    return {"per_s": client.made / taken_s, "cpu_us": used_s / client.made * 1e6}


def _trivial(options: Options) -> dict[str, float]:
    numbers = iter(range(options.calls))
    with trivial() as (child, address):
        return asyncio.run(_together(address, options, child, partial(sends, numbers=numbers), METHOD))


def _sends(options: Options, durability: str) -> dict[str, float]:
    numbers = iter(range(options.calls))
    with sub_folder(options.base, "store") as folder:
        with served(folder, durability) as (child, address):
            figures = asyncio.run(_together(address, options, child, partial(sends, numbers=numbers)))
        options.run.checked(rocketmq.check_sent(folder, options.calls, options.size_bytes))
    return figures


def _receives(options: Options, durability: str) -> dict[str, float]:
    left = [options.calls]
    with sub_folder(options.base, "store") as folder:
        rocketmq.fill(folder, options.calls, options.size_bytes)
        with served(folder, durability) as (child, address):
            figures = asyncio.run(_together(address, options, child, partial(receives, left=left)))
        options.run.checked(rocketmq.check_acknowledged(folder, options.calls))
    return figures


def _start(options: Options) -> dict[str, float]:
    import grpc  # noqa: PLC0415  # an extra

    from ...endpoint import RocketMQEndpoint  # noqa: PLC0415  # as above

    with sub_folder(options.base, "start") as folder:
        began_s = time.perf_counter()
        with (
            MessageStore.open(folder) as store,
            RocketMQEndpoint(store) as endpoint,
            grpc.insecure_channel(endpoint.address) as channel,
        ):
            send: Any = channel.unary_unary(rocketmq.path_of("SendMessage"))
            send(Client(channel, options.size_bytes).request(0), metadata=rocketmq.HEADERS)
        return {"ms": (time.perf_counter() - began_s) * 1000}
