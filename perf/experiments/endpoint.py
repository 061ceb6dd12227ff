"""Endpoint: RocketMQ's sends and receives of many callers at once, beside a gRPC handler that does nothing."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import psutil
from rich.console import Console

from ...store import MessageStore
from ..machine.folders import sub_folder
from ..references.trivial_grpc import METHOD
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.checker import WrongResult
from .experiment import Experiment, medians, repeats, setting
from .servers import served, trivial

TOPIC, GROUP = "rates", "group"
OK = 20000
HEADERS = (
    ("x-mq-language", "PYTHON"), ("x-mq-protocol", "GRPC_V2"), ("x-mq-client-version", "5.1.2"),
    ("x-mq-date-time", "20261127T152000Z"), ("x-mq-request-id", "0b0b0b0b-0000-0000-0000-000000000000"),
    ("x-mq-client-id", "perf@1@1@perf"), ("x-mq-namespace", ""),
    ("authorization", f"MQv2-HMAC-SHA1 Credential=, SignedHeaders=x-mq-date-time, Signature={'01' * 20}"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Endpoint(Experiment):
    """RocketMQ clients at an endpoint: sends, receives and acknowledgements, beside a handler that does nothing."""

    NAME: ClassVar[str] = "endpoint"
    METHOD: ClassVar[str] = "servers in processes of their own, one connection, raw gRPC calls with official headers"

    calls: int = setting(10_000, "sends and messages to receive, a round", short=300, least=64)
    at_once: int = setting(64, "callers at the same time", short=8, least=1)
    size_bytes: int = setting(100, "of a message", least=1)
    batch: int = setting(32, "messages of a receive", least=1)
    starts: int = setting(20, "stores opened and closed with an endpoint and a message", short=2, least=1)
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """The space of all messages."""
        return 3.0 * self.repeat * self.calls * (4096 + self.size_bytes) + (1 << 30)

    def measure(self, base: Path, run: Run) -> Figures:
        """Medians of rounds with each way in turn; then the starts."""
        ways: dict[str, Callable[[], Figures]] = {"nothing": self._trivial}
        for durability in ("os", "force"):
            ways[f"send, {durability}"] = partial(self._sends, base, durability, run)
            ways[f"receive and ack, {durability}"] = partial(self._receives, base, durability)
        found = medians(ways, self.repeat, run)
        least = found["nothing"]
        rows = [
            {"handler": name, **figures, "of_nothing": report.ratio(figures["calls_per_s"], least["calls_per_s"])}
            for name, figures in found.items()
        ]
        return {"rows": rows, "start_ms": self._starts(base)}

    def show(self, figures: Figures, console: Console) -> None:
        """Show the table."""
        shown = {
            "handler": "handler", "calls/s": "calls_per_s", "of nothing": "of_nothing",
            "processor us a call": "processor_us",
        }  # fmt: skip
        console.print(report.table(f"{self.at_once} callers at once", report.chosen(figures["rows"], shown)))
        console.print(f"from nothing to the first message, and all closed: {figures['start_ms']} ms")

    def _trivial(self) -> Figures:
        with trivial() as (child, address):
            return asyncio.run(_measured(address, METHOD, self, child, _Calls.send))

    def _sends(self, base: Path, durability: str, run: Run) -> Figures:
        with sub_folder(base, "store") as folder:
            with served(folder, durability) as (child, address):
                figures = asyncio.run(_measured(address, _path("SendMessage"), self, child, _Calls.send))
            self._check(folder, run)
        return figures

    def _receives(self, base: Path, durability: str) -> Figures:
        with sub_folder(base, "store") as folder:
            with MessageStore.open(folder) as store:
                store.configure_topic(TOPIC, queues=4)
                store.append_batch((TOPIC, number % 4, bytes(self.size_bytes)) for number in range(self.calls))
            with served(folder, durability) as (child, address):
                figures = asyncio.run(_measured(address, _path("ReceiveMessage"), self, child, _Calls.receive))
            with MessageStore.open(folder) as store:
                (info,) = store.subscriptions(TOPIC)
                if info.backlog.total:
                    raise WrongResult(f"{info.backlog.total} messages were acknowledged, and are there again")
        return figures

    def _check(self, folder: Path, run: Run) -> None:
        with MessageStore.open(folder) as store:
            there = sum(store.queue_bounds(TOPIC, queue)[1] for queue in store.queues(TOPIC))
        if there != self.calls:
            raise WrongResult(f"{self.calls} sends were answered, and {there} messages are there")
        run.checked(there)

    def _starts(self, base: Path) -> float:
        """Milliseconds from nothing to the first message that a client has sent, and all closed."""
        import grpc  # noqa: PLC0415  # an extra

        from ...endpoint import RocketMQEndpoint  # noqa: PLC0415  # as above

        taken_ms = []
        for number in range(self.starts):
            with sub_folder(base, f"start {number}") as folder:
                began_s = time.perf_counter()
                with (
                    MessageStore.open(folder) as store,
                    RocketMQEndpoint(store) as endpoint,
                    grpc.insecure_channel(endpoint.address) as channel,
                ):
                    send: Any = channel.unary_unary(_path("SendMessage"))
                    send(_request(self.size_bytes, 0), metadata=HEADERS)
                taken_ms.append((time.perf_counter() - began_s) * 1000)
        return round(median(taken_ms), 1)


def _path(method: str) -> str:
    from ...endpoint.wire import SERVICE  # noqa: PLC0415  # an extra

    return f"/{SERVICE}/{method}"


def _request(size_bytes: int, number: int) -> bytes:
    from ...endpoint.wire import CLASSES  # noqa: PLC0415  # an extra

    request = CLASSES["SendMessageRequest"]()
    message = request.messages.add(body=bytes(size_bytes))
    message.topic.name = TOPIC
    message.user_properties["colour"] = "red"
    system = message.system_properties
    system.tag, system.message_id = "new", f"01{number:032X}"
    system.keys.append("k-17")
    system.born_host, system.body_encoding, system.message_type = "host", 1, 1
    packed: bytes = request.SerializeToString()
    return packed


async def _measured(
    address: str, path: str, options: Endpoint, child: subprocess.Popen[str], work: Callable[[_Calls], Awaitable[None]]
) -> Figures:
    """The rate of all callers together, and the server's processor time a call."""
    import grpc  # noqa: PLC0415  # an extra

    process = psutil.Process(child.pid)
    async with grpc.aio.insecure_channel(address) as channel:
        calls = _Calls(channel, path, options)
        used_s, began_s = sum(process.cpu_times()[:2]), time.perf_counter()
        await asyncio.gather(*(work(calls) for _ in range(options.at_once)))
        taken_s, used_s = time.perf_counter() - began_s, sum(process.cpu_times()[:2]) - used_s
    return {"calls_per_s": round(calls.made / taken_s), "processor_us": round(used_s / calls.made * 1e6)}


class _Calls:
    """The calls of one measurement, shared by its callers.

    Attributes:
        made: so many were answered.
    """

    def __init__(self, channel: Any, path: str, options: Endpoint) -> None:
        from ...endpoint.wire import CLASSES  # noqa: PLC0415  # an extra

        self.made = 0
        self._begun = 0
        self._acked = 0
        self._options = options
        self._classes = CLASSES
        self._send = channel.unary_unary(path)
        self._receive = channel.unary_stream(path)
        self._ack = channel.unary_unary(_path("AckMessage"))

    async def send(self) -> None:
        """Send, one message after the other, until all are sent."""
        parse = self._classes["SendMessageResponse"].FromString
        while self._begun < self._options.calls:
            self._begun += 1
            answer = parse(await self._send(_request(self._options.size_bytes, self._begun), metadata=HEADERS))
            self._need(answer.status)

    async def receive(self) -> None:
        """Receive a batch and acknowledge each message, until all are acknowledged."""
        request = self._classes["ReceiveMessageRequest"](batch_size=self._options.batch)
        request.message_queue.topic.name, request.group.name = TOPIC, GROUP
        request.invisible_duration.seconds = 60
        request.long_polling_timeout.seconds = 0
        parse = self._classes["ReceiveMessageResponse"].FromString
        while self._acked < self._options.calls:
            found = [parse(one) async for one in self._receive(request.SerializeToString(), metadata=HEADERS)]
            self.made += 1
            for one in found:
                if one.HasField("message"):
                    await self._acknowledge(one.message.system_properties)
            if len(found) == 1:
                await asyncio.sleep(0.01)  # others have the last ones

    async def _acknowledge(self, system: Any) -> None:
        request = self._classes["AckMessageRequest"]()
        request.topic.name, request.group.name = TOPIC, GROUP
        request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        answer = self._classes["AckMessageResponse"].FromString(
            await self._ack(request.SerializeToString(), metadata=HEADERS)
        )
        self._need(answer.status)
        self._acked += 1

    def _need(self, status: Any) -> None:
        self.made += 1
        if status.code != OK:
            raise WrongResult(f"a call was answered {status.code}: {status.message}")
