"""What idle clients of an endpoint cost: memory each, and the time of another client's sends."""

from __future__ import annotations

import asyncio
import resource
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import psutil

from ...store import MessageStore
from ..machine.folders import sub_folder
from ..report.record import NOISE
from ..workload import rocketmq
from ..workload.checker import WrongResult
from ..workload.latencies import Latencies
from ..workload.rocketmq import Client
from .endpoint_options import Options
from .parts import TAILS, Count, Part
from .servers import served, server_cpu_s

AT_ONCE = 50  # connections that are made at the same time
SENDS = 1_000  # of the active client in each state, at most
WARM_UP = 5  # the share of the sends that warm it up is one of so many
BEAT_S = 10  # official clients send a heartbeat so often
GRPC_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)  # a connection a channel
MARKS = {"p50": "p50", "p99": "p99", "cpu_us": "the endpoint's processor time"}
STATES = {"alone": "beside nobody", "idle": "beside the idle clients and their heartbeats"}


def parts(options: Options) -> list[Part]:
    """The states, one after the other; and an opening."""
    counts = [
        Count(
            figure=f"{state}.{mark}",
            what=f"a send {words}, {told}",
            unit="us",
            better="lower",
            noise=TAILS.get(mark, NOISE),
            beside=f".alone.{mark}" if state != "alone" else "",
            beside_what="beside nobody",
        )
        for state, words in STATES.items()
        for mark, told in MARKS.items()
    ]
    counts += [
        Count(figure="memory_kib", what="an idle client: the endpoint's memory", unit="KiB", better="lower", noise=0.25,
              meaning=f"the growth of its process over {options.connections:,} clients"),
        Count(figure="descriptors", what="an idle client: the endpoint's descriptors", unit="", better="lower"),
    ]  # fmt: skip
    start = Count(
        figure="ms",
        what="a store is opened with an endpoint, a first message is sent, and all is closed",
        unit="ms",
        better="lower",
        meaning="what a test with an endpoint of its own waits for",
    )
    return [
        Part("connections", partial(_states, options), tuple(counts)),
        Part("connections.start", partial(_start, options), (start,)),
    ]


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


def _states(options: Options) -> dict[str, float]:
    with _all_descriptors(), sub_folder(options.base, "store") as folder:
        with served(folder, "os") as (child, address):
            clients = _Clients(address, options, psutil.Process(child.pid))
            figures = asyncio.run(clients.measured())
        options.run.checked(rocketmq.check_sent(folder, clients.sent, options.size_bytes))
    return figures


@contextmanager
def _all_descriptors() -> Iterator[None]:
    """As many descriptors as a process may have: each client has a connection, here and in the server."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class _Clients:
    """One client that sends, and many that are there.

    Attributes:
        sent: the messages of the one that sends.
        answered_beats: the heartbeats that were answered OK.
    """

    def __init__(self, address: str, options: Options, server: psutil.Process) -> None:
        import grpc  # noqa: PLC0415  # an extra

        from ...endpoint.wire import CLASSES  # noqa: PLC0415  # as above

        self.sent = self.answered_beats = 0
        self._failed_beat = ""  # the first one that was not
        self._under_way: set[asyncio.Task[None]] = set()
        self._classes = CLASSES
        self._options = options
        self._sends = min(SENDS, options.calls)
        self._server = server
        self._make: Callable[[], Any] = lambda: grpc.aio.insecure_channel(address, GRPC_OPTIONS)
        self._idle: list[Any] = []
        self._streams: list[Any] = []

    async def measured(self) -> dict[str, float]:
        """The figures of all states."""
        count, found = self._options.connections, {}
        async with self._make() as channel:
            active = Client(channel, self._options.size_bytes)
            await self._state(active, max(1, self._sends // WARM_UP))
            found["alone"] = await self._state(active, self._sends)
            before, files = self._server.memory_info().rss, self._server.num_fds()
            for begin in range(0, count, AT_ONCE):
                await asyncio.gather(*(self._come(number) for number in range(begin, min(begin + AT_ONCE, count))))
            memory_kib = (self._server.memory_info().rss - before) / count / 1024
            descriptors = (self._server.num_fds() - files) / count
            beats = asyncio.create_task(self._beats())
            found["idle"] = await self._state(active, self._sends)
            beats.cancel()
            with suppress(asyncio.CancelledError):
                await beats  # its error, if it has ended before
            await asyncio.gather(*self._under_way)
        for idle in self._idle:
            await idle.close()
        if not self.answered_beats or self._failed_beat:
            raise WrongResult(f"{self.answered_beats:,} heartbeats were answered OK; failed: {self._failed_beat or 0}")
        states = {f"{state}.{name}": value for state, one in found.items() for name, value in one.items()}
        return {**states, "memory_kib": memory_kib, "descriptors": descriptors}

    async def _state(self, active: Client, count: int) -> dict[str, float]:
        """Sends one after the other: their times, and the endpoint's processor time."""
        times = array("q")
        before_s = server_cpu_s(self._server.pid)
        for _ in range(count):
            began = time.perf_counter_ns()
            await active.send(self.sent)
            times.append(time.perf_counter_ns() - began)
            self.sent += 1
        used_s = server_cpu_s(self._server.pid) - before_s
        latencies = Latencies()
        latencies.add(times)
        return {**latencies.marks_us(), "cpu_us": used_s / count * 1e6}

    async def _come(self, number: int) -> None:
        """A consumer connects, opens its stream and tells its settings."""
        channel = self._make()
        self._idle.append(channel)
        call = channel.stream_stream(
            rocketmq.path_of("Telemetry"),
            request_serializer=self._classes["TelemetryCommand"].SerializeToString,
            response_deserializer=self._classes["TelemetryCommand"].FromString,
        )
        stream = call(metadata=[("x-mq-client-id", f"idle {number}")])
        self._streams.append(stream)
        command = self._classes["TelemetryCommand"]()
        command.settings.client_type = 3
        command.settings.subscription.group.name = "idle"
        await stream.write(command)
        answer = await stream.read()
        if answer.status.code != rocketmq.OK:
            raise WrongResult(f"settings were answered {answer.status.code}: {answer.status.message}")

    async def _beats(self) -> None:
        """Heartbeats of all, as often as official clients send them."""
        number = 0
        while True:
            task = asyncio.create_task(self._beat(number % len(self._idle)))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            number += 1
            await asyncio.sleep(BEAT_S / len(self._idle))

    async def _beat(self, number: int) -> None:
        """One heartbeat of an idle client; notes its answer."""
        import grpc  # noqa: PLC0415  # an extra

        asked = self._classes["HeartbeatRequest"]().SerializeToString()
        beat = self._idle[number].unary_unary(rocketmq.path_of("Heartbeat"))
        try:
            found = await beat(asked, metadata=[("x-mq-client-id", f"idle {number}")], timeout=BEAT_S)
        except grpc.RpcError as error:
            self._failed_beat = self._failed_beat or f"client {number}: {error}"
            return
        status = self._classes["HeartbeatResponse"].FromString(found).status
        if status.code == rocketmq.OK:
            self.answered_beats += 1
        else:
            self._failed_beat = self._failed_beat or f"client {number} was answered {status.code}: {status.message}"
