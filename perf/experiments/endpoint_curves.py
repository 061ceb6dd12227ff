"""The endpoint's latency by rate: sends, and receives with their acknowledgement, at fixed rates of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from ..machine.folders import sub_folder
from ..references.trivial_grpc import METHOD
from ..report.record import Chapter
from ..workload import paced, rocketmq
from ..workload.checker import Patience, WrongResult
from ..workload.paced import Rate
from ..workload.rocketmq import Client
from .endpoint_options import AT_ONCE, Options
from .ladder import WAITS, Ladder, capital, climbed, measures_of, waits_chart, waits_line
from .parts import Count
from .servers import served, server_cpu_s, trivial

NOTHING = "endpoint.nothing"
CPU = Count(figure="cpu_us", what="the server's processor time of one", unit="us", better="lower")
WARM_UP = 20  # requests before the first one that counts
KINDS = {
    "nothing": ("calls of a handler that does nothing", "a server of the same gRPC library answers a send at once"),
    "send": ("durable sends", "a send of one message by RocketMQ's protocol"),
    "receive": (
        "receives with an acknowledgement",
        "a receive of one message, and then its durable acknowledgement, by RocketMQ's protocol",
    ),
}


def chapters(options: Options, rates: Sequence[int], seconds: float, repeat: int) -> tuple[list[Chapter], list[str]]:
    """A chapter for each kind, and a line of the summary for each."""
    ladders = {
        kind: Ladder(
            name=f"endpoint.{kind}",
            what=what,
            step=partial(_step, kind, options, seconds),
            counts=(*WAITS, CPU),
            beside=None if kind == "nothing" else (NOTHING, "a handler that does nothing"),
        )
        for kind, (what, _) in KINDS.items()
    }
    climbs = climbed(list(ladders.values()), rates, repeat, options.run)
    made = [
        Chapter(
            title=f"Endpoint: {ladder.what}, latency by rate",
            text=f"{capital(KINDS[kind][1])}. Requests arrive at a fixed rate over one connection, and a latency "
            "counts from the moment at which its request was due (no coordinated omission). 64 are under way at the "
            "most: the others wait at the client, and their wait counts. A fresh server a step.",
            measures=measures_of(ladder, climbs),
            charts=(waits_chart(ladder, climbs[ladder.name]),),
        )
        for kind, ladder in ladders.items()
    ]
    return made, [waits_line(ladder, one.measures) for ladder, one in zip(ladders.values(), made, strict=True)]


def _step(kind: str, options: Options, seconds: float, per_s: int) -> dict[str, float]:
    """The figures of one kind at one rate; all messages are compared."""
    rate = Rate(per_s, seconds)
    messages = WARM_UP + rate.requests
    if kind == "nothing":
        with trivial() as (child, address):
            return asyncio.run(_answers(address, child.pid, options, rate, _send, METHOD))
    with sub_folder(options.base, "store") as folder:
        if kind == "receive":
            rocketmq.fill(folder, messages, options.size_bytes)
        bodies: list[bytes] = []
        call = _send if kind == "send" else partial(_receive, bodies)
        with served(folder, "force") as (child, address):
            figures = asyncio.run(_answers(address, child.pid, options, rate, call))
        options.run.checked(_checked(kind, folder, messages, bodies, options))
    return figures


def _checked(kind: str, folder: Path, messages: int, bodies: list[bytes], options: Options) -> int:
    if kind == "send":
        return rocketmq.check_sent(folder, messages, options.size_bytes)
    rocketmq.check_acknowledged(folder, messages)
    return rocketmq.check_received(bodies, messages, options.size_bytes)


async def _answers(
    address: str, pid: int, options: Options, rate: Rate, call: Callable[[Client, int], Awaitable[None]], path: str = ""
) -> dict[str, float]:
    """The figures of all requests, over one connection that has answered some before the first one is due."""
    import grpc  # noqa: PLC0415  # an extra

    async with grpc.aio.insecure_channel(address) as channel:
        client = Client(channel, options.size_bytes, path)
        for number in range(WARM_UP):
            await call(client, number)
        before_s = server_cpu_s(pid)
        try:
            answers = await paced.calls(rate, lambda number: call(client, WARM_UP + number), AT_ONCE)
        except grpc.RpcError as error:
            raise WrongResult(f"a call at {rate.per_s:,} a second has failed: {error}") from None
        return {**answers.figures(), "cpu_us": (server_cpu_s(pid) - before_s) / rate.requests * 1e6}


async def _send(client: Client, number: int) -> None:
    await client.send(number)


async def _receive(bodies: list[bytes], client: Client, number: int) -> None:
    """One message, and its acknowledgement. There are as many messages as calls."""
    patience = Patience(f"no message came for call {number:,}")
    while not (taken := await client.receive(1)):
        patience.check()
    await client.acknowledge(taken[0])
    bodies.append(taken[0].body)  # compared later
