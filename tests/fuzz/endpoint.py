"""A fuzzer of the endpoint: calls that are malformed, out of order, cut, unsigned, or nothing at all.

    python -m tests.fuzz endpoint --calls 20000 [--seed N]

Each call is drawn from the seed and its number: fields by chance, bytes changed, handles of others, headers left out,
wrong signatures, streams that are cut at some step, connections with garbage or reset under others. Each must end
with a code that says something: a status in the answer, or one of gRPC's; INTERNAL, UNKNOWN and an endless wait are
findings, and so is an error that the endpoint logs. Meanwhile good clients send to a topic of their own and
acknowledge what they receive. At the end every answered message is there once, none that was acknowledged comes
again, and no call or connection is left.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # it has no types

from stratalog import MessageStore, StoreConfig
from stratalog.endpoint import RocketMQEndpoint
from stratalog.endpoint.rocketmq.admin.service import ADMIN_SERVICE
from stratalog.endpoint.server.front import HTTP2_FIRST
from stratalog.endpoint.server.limits import Limits
from stratalog.endpoint.server.users import authorization
from stratalog.endpoint.wire import CLASSES, SERVICE, Code
from tests.seeds import draw_seed
from tests.store.helpers import memory_folder

from .requests import mutated, request

PATIENCE_S = 60.0
WORKERS = 16
GOOD_EACH = 20  # calls between two of the good client
LEAST_GOOD = 10
STREAM, TELEMETRY = "ReceiveMessage", "Telemetry"
ONE = ("QueryRoute", "Heartbeat", "SendMessage", "QueryAssignment", "AckMessage", "ForwardMessageToDeadLetterQueue",
       "EndTransaction", "NotifyClientTermination", "ChangeInvisibleDuration", "RecallMessage", "SyncLiteSubscription",
       "PullMessage", "NoSuchMethod")  # fmt: skip
ADMIN = ("DescribeTopicStatus", "ListSubscription", "DescribeSubscription", "DeleteSubscription",
         "DescribeGroupAccumulation", "ListConsumerConnection", "ResetGroupOffset", "QueryMessage", "QueryTimeSpan",
         "GetProxyRuntimeStats", "VerifyMessage")  # fmt: skip
NOW = "20261127T120000Z"
USER = ("ak", "sk")
CUT_MS = (0, 0, 1, 3, 10, 50)
SAYING = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
}
OWN_ERROR = "Internal error from Core"  # of grpc's client, of a read after the end: nothing that the endpoint said
SILENT = {Code.INTERNAL_ERROR, Code.INTERNAL_SERVER_ERROR, 0}


class Broken(AssertionError):
    """A call had no code, or a promise was broken."""


class Logged(logging.Handler):
    """What the endpoint, gRPC and the event loop log as errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.found.append(logging.Formatter().format(record))


class Good:
    """A client that does all right, beside the others."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.answered: set[bytes] = set()
        self.acknowledged: set[bytes] = set()
        self.again: list[bytes] = []
        self._sent = 0

    async def turn(self) -> None:
        """Send a message, receive some, acknowledge them."""
        self._sent += 1
        body = b"good %d" % self._sent
        message = CLASSES["Message"](topic=CLASSES["Resource"](name="good"), body=body)
        message.system_properties.message_id = f"01GOOD{self._sent:028d}"
        sent = await self._ask("SendMessage", CLASSES["SendMessageRequest"](messages=[message]))
        if sent.status.code == Code.OK:
            self.answered.add(body)
        await self.receive()

    async def receive(self) -> bool:
        """Receive some and acknowledge them; False if there was none."""
        asked = CLASSES["ReceiveMessageRequest"](batch_size=16)
        asked.group.name, asked.message_queue.topic.name = "good", "good"
        asked.invisible_duration.seconds = 3600
        asked.long_polling_timeout.SetInParent()
        ack = CLASSES["AckMessageRequest"]()
        ack.group.name, ack.topic.name = "good", "good"
        bodies: dict[str, bytes] = {}
        with suppress(grpc.aio.AioRpcError):
            call = self.channel.unary_stream(
                f"/{SERVICE}/{STREAM}",
                request_serializer=CLASSES["ReceiveMessageRequest"].SerializeToString,
                response_deserializer=CLASSES["ReceiveMessageResponse"].FromString,
            )(asked, metadata=headers("good"), timeout=PATIENCE_S)
            async for answer in call:
                if answer.WhichOneof("content") == "message":
                    handle = answer.message.system_properties.receipt_handle
                    bodies[handle] = answer.message.body
                    ack.entries.add(receipt_handle=handle, message_id="x")
        self.again += [body for body in bodies.values() if body in self.acknowledged]
        if bodies:
            done = await self._ask("AckMessage", ack)
            self.acknowledged |= {bodies[one.receipt_handle] for one in done.entries if one.status.code == Code.OK}
        return bool(bodies)

    async def _ask(self, name: str, asked: Any) -> Any:
        answer_type = CLASSES[f"{name}Response"]
        call = self.channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=type(asked).SerializeToString,
            response_deserializer=answer_type.FromString,
        )
        try:
            return await call(asked, metadata=headers("good"), timeout=PATIENCE_S)
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:  # another one resets connections
                raise Broken(f"{name} of the good client: {error.code()} {error.details()}") from error
            return answer_type()


def headers(client: str) -> list[tuple[str, str]]:
    """Those of a client that does all right."""
    return [("x-mq-client-id", client), *authorization(*USER, NOW)]


class Fuzzer:
    """Attacks one endpoint until there were enough calls."""

    def __init__(self, endpoint: RocketMQEndpoint, seed: int, certificate_pem: bytes) -> None:
        self.endpoint = endpoint
        self.seed = seed
        self.codes: Counter[str] = Counter()
        self.findings: list[str] = []
        self.good = Good(self._channel())
        secure = grpc.ssl_channel_credentials(certificate_pem)
        self._channels = [self._channel(), self._channel(), self._channel(), self._channel(secure)]
        self._seen: list[str] = []  # handles that the endpoint gave out

    def _channel(self, secure: grpc.ChannelCredentials | None = None) -> Any:
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_reconnect_backoff_ms", 100),
            ("grpc.initial_reconnect_backoff_ms", 10),
        ]
        if secure is not None:
            return grpc.aio.secure_channel(self.endpoint.address, secure, options)
        return grpc.aio.insecure_channel(self.endpoint.address, options)

    async def run(self, calls: int) -> None:
        """Attack."""
        numbers = iter(range(calls))
        await asyncio.gather(*(self._work(numbers) for _ in range(WORKERS)))

    async def close(self) -> None:
        """Close all connections."""
        for channel in (*self._channels, self.good.channel):
            await channel.close()

    async def _work(self, numbers: Any) -> None:
        for number in numbers:
            if number % GOOD_EACH == 0:
                await self.good.turn()
            chance = random.Random(f"{self.seed} {number}")
            kinds: list[tuple[int, Callable[[random.Random], Awaitable[str]]]] = [
                (600, self._one), (200, self._receive), (100, self._telemetry), (60, self._raw), (3, self._reset),
            ]  # fmt: skip
            [kind] = chance.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])
            try:
                said = await asyncio.wait_for(kind(chance), PATIENCE_S)
            except TimeoutError:
                said = "no answer"
            name = kind.__name__.strip("_")
            self.codes[f"{name}: {said}"] += 1
            if said.startswith("no "):
                self.findings.append(f"call {number}, {name}: {said}")

    def _headers(self, chance: random.Random) -> tuple[list[tuple[str, Any]], bool]:
        """Headers, and whether they are a known client's."""
        kind = chance.random()
        signed = headers(f"client {chance.randrange(5)}")
        if kind < 0.8:
            return signed, True
        if kind < 0.85:
            return signed[1:], True  # signed, without a client
        user = chance.choice(["ak", "other", "", "a=b,c"])
        wrong: list[list[tuple[str, Any]]] = [
            [], signed[:1], [*signed[:1], *authorization(user, "wrong", NOW)], [*signed[:2], ("x-mq-date-time", "2")],
            [*signed[:1], ("authorization", chance.choice(["", "x", "MQv2-HMAC-SHA1 ,,,=", "Signature"]))],
            [*signed[:1], ("authorization-bin", chance.randbytes(40))], [("x" * 100, "y" * 4000)],
        ]  # fmt: skip
        return chance.choice(wrong), False

    def _known(self, status: Any, known: bool, what: str) -> str:
        """What a status says; a finding if it says nothing, or lets pass what nobody has signed."""
        if status.code in SILENT:
            return f"no code: {what}: {status.code} {status.message}"
        is_parsed = "is no message of" not in status.message
        if not known and is_parsed and status.code != Code.UNAUTHORIZED:
            return f"no refusal of an unsigned call: {what}: {status.code}"
        return str(status.code)

    def _failed(self, error: grpc.aio.AioRpcError, what: str) -> str:
        code = error.code()
        if error.details() == OWN_ERROR:
            return "cut"
        return code.name if code in SAYING else f"no saying code: {what}: {code.name} {error.details()}"

    async def _one(self, chance: random.Random) -> str:
        """A call with one answer, sometimes cancelled."""
        service, name = SERVICE, chance.choice(ONE)
        if chance.random() < 0.15:
            service, name = ADMIN_SERVICE, chance.choice(ADMIN)
        messages = "ListMessage" if name == "QueryMessage" else name
        metadata, known = self._headers(chance)
        is_there = f"{messages}Request" in CLASSES
        data = request(f"{messages}Request", chance, self._seen) if is_there else chance.randbytes(10)
        call = chance.choice(self._channels).unary_unary(f"/{service}/{name}")(data, metadata=metadata)
        if chance.random() < 0.05:
            await asyncio.sleep(chance.choice(CUT_MS) / 1000)
            call.cancel()
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            return self._failed(error, name)
        except asyncio.CancelledError:
            return "cut"
        made = CLASSES[f"{messages}Response"].FromString(answer)
        for entry in getattr(made, "entries", ()):
            self._see(getattr(entry, "recall_handle", ""))
            self._see(getattr(entry, "transaction_id", ""))
        return self._known(made.status, known, name)

    def _see(self, handle: str) -> None:
        if handle:
            self._seen.append(handle)
            del self._seen[:-100]

    async def _receive(self, chance: random.Random) -> str:
        """A receive that is read to its end, or cut at some step."""
        metadata, known = self._headers(chance)
        asked = CLASSES["ReceiveMessageRequest"].FromString(b"")
        data = request("ReceiveMessageRequest", chance, self._seen)
        if chance.random() < 0.7:
            asked.group.name, asked.message_queue.topic.name = "g0", chance.choice(["t0", "t1", "t2"])
            asked.batch_size = chance.choice([1, 3, 32, -1])
            asked.invisible_duration.nanos = chance.choice([0, 1_000_000, 20_000_000])
            asked.auto_renew = chance.random() < 0.3
            asked.long_polling_timeout.nanos = chance.choice([0, 5_000_000, 50_000_000])
            data = asked.SerializeToString()
        stream = chance.choice(self._channels).unary_stream(f"/{SERVICE}/{STREAM}")(
            data, metadata=metadata, timeout=0.5
        )
        steps = chance.choice([0, 1, 2, 100, 100, 100])
        said = "cut"
        try:
            for step in range(steps):
                answer = await stream.read()
                if answer is grpc.aio.EOF:
                    return said if step else "no status"
                made = CLASSES["ReceiveMessageResponse"].FromString(answer)
                if made.WhichOneof("content") == "status":
                    said = self._known(made.status, known, STREAM)
                self._see(made.message.system_properties.receipt_handle)
            await asyncio.sleep(chance.choice(CUT_MS) / 1000)
            stream.cancel()
        except grpc.aio.AioRpcError as error:
            late = error.code() == grpc.StatusCode.DEADLINE_EXCEEDED  # a poll longer than its deadline
            return "late" if late else self._failed(error, STREAM)
        except asyncio.CancelledError:
            return "cut"
        return said

    async def _telemetry(self, chance: random.Random) -> str:
        """Commands in any order; the stream is ended, cancelled, or left."""
        metadata, known = self._headers(chance)
        stream = chance.choice(self._channels).stream_stream(f"/{SERVICE}/{TELEMETRY}")(metadata=metadata, timeout=0.5)
        said = "cut"
        try:
            for _ in range(chance.randrange(4)):
                await stream.write(request("TelemetryCommand", chance, self._seen))
                if chance.random() < 0.3:
                    answer = await asyncio.wait_for(stream.read(), 0.1)
                    if answer is not grpc.aio.EOF:
                        said = self._commanded(answer, known)
            if chance.random() < 0.5:
                await stream.done_writing()
                while (answer := await stream.read()) is not grpc.aio.EOF:
                    said = self._commanded(answer, known)
            else:
                await asyncio.sleep(chance.choice(CUT_MS) / 1000)
                stream.cancel()
        except grpc.aio.AioRpcError as error:
            late = error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            return "late" if late else self._failed(error, TELEMETRY)
        except (TimeoutError, asyncio.CancelledError, asyncio.InvalidStateError, cygrpc.ExecuteBatchError):
            stream.cancel()  # no answer in time, or it has ended before the client's end
        return said

    def _commanded(self, answer: bytes, known: bool) -> str:
        """What a command says: of settings a status; of others, which the endpoint begins, their name."""
        made = CLASSES["TelemetryCommand"].FromString(answer)
        kind = str(made.WhichOneof("command") or "")
        if known and not made.HasField("status") and kind != "settings":
            return kind
        return self._known(made.status, known, TELEMETRY)

    async def _raw(self, chance: random.Random) -> str:
        """Bytes on the port that are no call; the port hangs up, or the client does."""
        host, _, port = self.endpoint.address.rpartition(":")
        sock = socket.create_connection((host, int(port)))
        settings = b"\0\0\0\4\0\0\0\0\0"
        whole = HTTP2_FIRST + settings + chance.randbytes(chance.choice((0, 9, 100)))
        data = chance.choice(
            [b"", chance.randbytes(30), b"\x16\x03\x01" + chance.randbytes(30), HTTP2_FIRST[: chance.randrange(25)],
             whole, mutated(whole, chance)]
        )  # fmt: skip
        with sock, suppress(OSError):
            sock.sendall(data)
            if chance.random() < 0.3:
                sock.shutdown(socket.SHUT_WR)
            await asyncio.sleep(chance.choice(CUT_MS) / 1000)
            if chance.random() < 0.5:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return "sent"

    async def _reset(self, chance: random.Random) -> str:
        """All connections of the endpoint are cut under their calls."""
        front = self.endpoint.server.front
        assert front is not None
        front.drop(reset=chance.random() < 0.5)
        return "done"


async def attack(store: MessageStore, calls: int, seed: int) -> Fuzzer:
    """Attack an endpoint of a store, and see that all is well at its end. Raises Broken."""
    limits = Limits(first_byte_s=5.0)
    async with RocketMQEndpoint(
        store, users=dict([USER]), limits=limits, fifo_groups=["fifo"], long_polling_ms=1000, max_attempts=3
    ) as endpoint:
        certificate = await endpoint.server.certificate()
        assert certificate is not None
        fuzzer = Fuzzer(endpoint, seed, certificate.certificate_pem)
        await fuzzer.run(calls)
        for _ in range(LEAST_GOOD):
            await fuzzer.good.turn()
        while await fuzzer.good.receive():
            pass
        await fuzzer.close()
        gc.collect()  # a connection of grpc's client ends with the last of its calls that Python still has
        await _nothing_left(endpoint)
    _check(store, fuzzer)
    return fuzzer


async def _nothing_left(endpoint: RocketMQEndpoint) -> None:
    server = endpoint.server
    assert server.front is not None
    deadline = time.monotonic() + PATIENCE_S
    while server.front.connections or server.calls.request_bytes or server.calls._waiting:
        if time.monotonic() > deadline:
            raise Broken(
                f"left: {server.front.connections} connections, {server.calls.request_bytes} bytes of requests, "
                f"{len(server.calls._waiting)} calls"
            )
        await asyncio.sleep(0.05)


def _check(store: MessageStore, fuzzer: Fuzzer) -> None:
    """What good clients sent is there once, and what they acknowledged did not come again."""
    good = fuzzer.good
    there = Counter(
        one.data
        for queue in store.queues("good")
        for one in store.read("good", queue, *store.queue_bounds("good", queue)[:1], max_messages=1 << 20)
    )
    if lost := sorted(good.answered - set(there)):
        raise Broken(f"{len(lost)} answered messages are lost: {lost[:3]}")
    if twice := [body for body, count in there.items() if count > 1]:
        raise Broken(f"{len(twice)} messages are there twice: {twice[:3]}")
    if good.again:
        raise Broken(f"{len(good.again)} acknowledged messages came again: {good.again[:3]}")
    if len(good.acknowledged) < LEAST_GOOD or len(good.answered) < LEAST_GOOD:
        raise Broken(
            f"the good client had only {len(good.answered)} answers, {len(good.acknowledged)} of them received"
        )
    if fuzzer.findings:
        raise Broken(f"{len(fuzzer.findings)} calls without a code: {'; '.join(fuzzer.findings[:5])}")


def fuzz(folder: Path, calls: int, seed: int) -> Fuzzer:
    """Make so many calls. Raises Broken."""
    logged = Logged()
    logs = [logging.getLogger(name) for name in ("stratalog", "grpc", "asyncio")]
    for log in logs:
        log.addHandler(logged)
    try:
        with MessageStore.open(folder / "store", StoreConfig(durability="os")) as store:
            fuzzer = asyncio.run(attack(store, calls, seed))
    finally:
        for log in logs:
            log.removeHandler(logged)
    if logged.found:
        raise Broken(f"{len(logged.found)} errors logged: {logged.found[0]}")
    return fuzzer


def main(options: Sequence[str]) -> int:
    """The command. 0: nothing found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz endpoint", description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args(options)
    seed = given.seed if given.seed is not None else draw_seed()
    began = time.monotonic()
    try:
        with memory_folder() as folder:
            fuzzer = fuzz(folder, given.calls, seed)
    except Broken as error:
        print(f"{type(error).__name__}: {error}\nrun it again with --seed {seed}")
        return 1
    for said, count in sorted(fuzzer.codes.items()):
        print(f"{count:7,} {said}")
    good = fuzzer.good
    print(
        f"{given.calls:,} calls in {time.monotonic() - began:.0f} s, {len(good.answered)} good messages answered, "
        f"{len(good.acknowledged)} acknowledged: nothing broken"
    )
    return 0
