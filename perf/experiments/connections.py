"""Connections: what idle clients of an endpoint cost: memory each, and the time of another client's sends."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psutil
from rich.console import Console

from ...store import MessageStore
from ..machine.folders import sub_folder
from ..report import figures as report
from ..report.figures import Figures
from ..report.progress import Run
from ..workload.checker import WrongResult
from .experiment import Experiment, setting
from .servers import served

AT_ONCE = 50  # connections that are made at the same time
WARM_UP = 5  # the share of the sends that warm it up is one of so many
BEAT_S = 10  # official clients send a heartbeat so often
OK = 20000
OPTIONS = (("grpc.use_local_subchannel_pool", 1),)  # a connection a channel


@dataclass(frozen=True, kw_only=True)
class Connections(Experiment):
    """Idle RocketMQ clients, each with a connection and an open stream: memory, and what another client notices."""

    NAME: ClassVar[str] = "connections"
    METHOD: ClassVar[str] = 'an endpoint in a process of its own, durability "os"; sends of one client, one at a time'

    connections: int = setting(1_000, "idle clients", short=20, least=1)
    sends: int = setting(1_000, "sends of the active client in each state", short=20, least=1)
    size_bytes: int = setting(100, "of a message", least=0)

    def need_bytes(self) -> float:
        """The space of all messages."""
        return 16.0 * self.sends * (4096 + self.size_bytes) + (512 << 20)

    def measure(self, base: Path, run: Run) -> Figures:
        """The three states one after the other: no idle client, all of them, and all of them with heartbeats."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        with sub_folder(base, "store") as folder:
            with served(folder) as (child, address):
                figures = asyncio.run(_Clients(address, self, psutil.Process(child.pid)).measured(run))
            with MessageStore.open(folder) as store:
                there = sum(store.queue_bounds("active", queue)[1] for queue in store.queues("active"))
        if there != figures["answered"]:
            raise WrongResult(f"{figures['answered']} sends were answered, and {there} messages are there")
        run.checked(there)
        return figures

    def show(self, figures: Figures, console: Console) -> None:
        """Show the table."""
        shown = {"beside": "beside", "median ms": "median_ms", "p99 ms": "p99_ms", "processor us": "processor_us"}
        console.print(report.table("a send", report.chosen(figures["rows"], shown)))
        console.print(
            f"an idle connection with its stream takes {figures['memory_kib']} KiB of the endpoint's memory and "
            f"{figures['descriptors']} descriptors"
        )


class _Clients:
    """One client that sends, and many that are there."""

    def __init__(self, address: str, options: Connections, server: psutil.Process) -> None:
        import grpc  # noqa: PLC0415  # an extra

        from ...endpoint.wire import CLASSES, SERVICE  # noqa: PLC0415  # as above

        self._classes = CLASSES
        self._service = SERVICE
        self._options = options
        self._server = server
        self._make: Callable[[], Any] = lambda: grpc.aio.insecure_channel(address, OPTIONS)
        self._idle: list[Any] = []
        self._streams: list[Any] = []
        self._answered = 0

    async def measured(self, run: Run) -> Figures:
        """The figures."""
        count = self._options.connections
        run.expect(3)
        async with self._make() as active:
            await self._sends(active, max(1, self._options.sends // WARM_UP))
            rows = [{"beside": "nobody", **await self._sends(active, self._options.sends)}]
            run.one_done()
            before, files = self._server.memory_info().rss, self._server.num_fds()
            for begin in range(0, count, AT_ONCE):
                await asyncio.gather(*(self._come(number) for number in range(begin, min(begin + AT_ONCE, count))))
            memory_kib = (self._server.memory_info().rss - before) / count / 1024
            descriptors = (self._server.num_fds() - files) / count
            rows.append({"beside": f"{count:,} idle clients", **await self._sends(active, self._options.sends)})
            run.one_done()
            beats = asyncio.create_task(self._beats())
            rows.append({"beside": "and their heartbeats", **await self._sends(active, self._options.sends)})
            run.one_done()
            beats.cancel()
        for channel in self._idle:
            await channel.close()
        return {
            "rows": rows, "memory_kib": round(memory_kib, 1), "descriptors": round(descriptors, 2),
            "answered": self._answered,
        }  # fmt: skip

    def _call(self, channel: Any, kind: str, method: str, asked: str, answer: str) -> Any:
        return getattr(channel, kind)(
            f"/{self._service}/{method}",
            request_serializer=self._classes[asked].SerializeToString,
            response_deserializer=self._classes[answer].FromString,
        )

    async def _sends(self, channel: Any, count: int) -> Figures:
        """Sends one after the other: their times, and the endpoint's processor time."""
        call = self._call(channel, "unary_unary", "SendMessage", "SendMessageRequest", "SendMessageResponse")
        body, taken_s = bytes(self._options.size_bytes), []
        used_s = sum(self._server.cpu_times()[:2])
        for _ in range(count):
            self._answered += 1
            message = self._classes["Message"](topic=self._classes["Resource"](name="active"), body=body)
            message.system_properties.message_id = f"01{self._answered:032X}"
            request = self._classes["SendMessageRequest"](messages=[message])
            began_s = time.perf_counter()
            answer = await call(request, metadata=[("x-mq-client-id", "active")])
            taken_s.append(time.perf_counter() - began_s)
            if answer.status.code != OK:
                raise WrongResult(f"a send was answered {answer.status.code}: {answer.status.message}")
        used_s = sum(self._server.cpu_times()[:2]) - used_s
        taken_s.sort()
        return {
            "median_ms": round(taken_s[count // 2] * 1000, 2), "p99_ms": round(taken_s[count * 99 // 100] * 1000, 2),
            "processor_us": round(used_s / count * 1e6),
        }  # fmt: skip

    async def _come(self, number: int) -> None:
        """A consumer connects, opens its stream and tells its settings."""
        channel = self._make()
        self._idle.append(channel)
        call = self._call(channel, "stream_stream", "Telemetry", "TelemetryCommand", "TelemetryCommand")
        stream = call(metadata=[("x-mq-client-id", f"idle {number}")])
        self._streams.append(stream)
        command = self._classes["TelemetryCommand"]()
        command.settings.client_type = 3
        command.settings.subscription.group.name = "idle"
        await stream.write(command)
        answer = await stream.read()
        if answer.status.code != OK:
            raise WrongResult(f"settings were answered {answer.status.code}: {answer.status.message}")

    async def _beats(self) -> None:
        """Heartbeats of all, as often as official clients send them."""
        asked, calls = self._classes["HeartbeatRequest"](), set()
        number = 0
        while True:
            channel = self._idle[number % len(self._idle)]
            call = self._call(channel, "unary_unary", "Heartbeat", "HeartbeatRequest", "HeartbeatResponse")
            task = asyncio.ensure_future(call(asked, metadata=[("x-mq-client-id", f"idle {number}")]))
            calls.add(task)
            task.add_done_callback(calls.discard)
            number += 1
            await asyncio.sleep(BEAT_S / len(self._idle))
