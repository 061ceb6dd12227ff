"""One connection: its frames in, its calls, its frames out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import grpc

from stratalog import MessageStore, PublishBufferFull, StoreError

from ...server.calls import Refusal
from ...server.request_bytes import CROWDED, RequestBytes
from ..columns import Columns
from ..failures import failure_to_json
from ..frames import MOST_FRAME_BYTES, MOST_VALUES, BrokenFrame, Frame, Incoming, Outgoing, pack
from .appends import Appends, Aside
from .gate import Gate
from .holdings import Closing, Holdings
from .store_calls import StoreCalls

VERSION = 1
MOST_CALLS = 8192  # of a connection at a time
HELD_BYTES = 64 << 20  # of calls and answers under way: with more, the connection is not read on
SMALL_BYTES = 4096  # a call of no more is not refused for its bytes: an acknowledgement, an end
CALM_S = 1.0  # how long a larger message of the stream waits at most, while the requests of others take much

STOP_S = 0.5  # at a stop of the endpoint: how long appends have for their answers

Run = Callable[[Frame], Awaitable[Columns]]
Write = Callable[[bytes], Awaitable[None]]
Guard = Callable[[str, Frame, Callable[[], Awaitable[Columns]]], Awaitable[Columns]]


class Session:
    """The calls of one connection, from its begin to its end.

    Invariants: a frame is answered once, or the connection ends; appends are handed over in the order of their frames;
    at the end no call is left, none of its bytes counts any more, and all subscriptions are closed.
    """

    def __init__(
        self, store: MessageStore, aside: Aside, closing: Closing, guard: Guard, requests: RequestBytes
    ) -> None:
        """`requests` counts the bytes of calls under way, and of those of which a part has come."""
        self._guard = guard
        self._requests = requests
        self._coming_bytes = 0  # of the message that is read, and of calls that are not complete
        gate = Gate(self._wait_for_room)
        self._holdings = Holdings(store, aside, closing, gate)
        calls, appends = StoreCalls(store, aside, self._holdings, gate), Appends(store, aside)
        self._in_order = {
            "submit": appends.submit, "submit_odd": appends.submit_odd, "append_columns": appends.append_columns,
            "append_batch": appends.append_batch,
        }  # fmt: skip
        held = self._holdings
        self._calls: dict[str, Run] = {
            "hello": _hello, "call": calls.call, "read": calls.read, "read_batch": calls.read_batch,
            "get_range": calls.get_range, "transaction": calls.transaction, "subscribe": held.subscribe,
            "receive": held.receive,
            "receive_few": held.receive_few, "on_subscription": held.call, "close": held.close, "scan": held.scan,
            "scan_next": held.scan_next,
        }  # fmt: skip
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._outgoing = Outgoing(in_turn=True)
        self._held_bytes = 0
        self._to_send = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_sent = asyncio.Event()
        self._over = False
        self._appending: set[int] = set()  # the numbers of calls that append

    async def run(self, messages: AsyncIterator[bytes], write: Write) -> None:
        """Serve until the client ends its direction. Raises BrokenFrame.

        If it is cancelled, as at a stop of the endpoint, appends that are under way still have their answers.
        """
        sending = asyncio.create_task(self._send(write))
        sending.add_done_callback(lambda task: task.cancelled() or task.exception())  # the client has gone: no news
        try:
            await self._receive(messages)
        except asyncio.CancelledError:
            await self._finish(sending)
            raise
        finally:
            self._count_coming(0)
            for task in list(self._tasks.values()):
                task.cancel()
            self._holdings.end()
            self._over = True
            self._to_send.set()
            await asyncio.wait([sending], timeout=STOP_S)  # a write that is cancelled would hold up the stream's end
            sending.cancel()

    async def _receive(self, messages: AsyncIterator[bytes]) -> None:
        incoming = Incoming(MOST_FRAME_BYTES, MOST_VALUES)
        async for message in messages:
            if len(message) > SMALL_BYTES:
                await self._requests.calm(self._coming_bytes, CALM_S)
            for frame in incoming.feed(message):
                self._count_coming(incoming.arrived_bytes + incoming.left_bytes)
                await self._begin(frame)
                while self._held_bytes > HELD_BYTES:
                    self._has_room.clear()
                    await self._has_room.wait()
            self._count_coming(incoming.arrived_bytes)
            if self._coming_bytes:
                self._check_coming(incoming)

    def _count_coming(self, size_bytes: int) -> None:
        """So many bytes are there of calls that are not complete, and of the message that is read."""
        more, self._coming_bytes = size_bytes - self._coming_bytes, size_bytes
        if more > 0:
            self._requests.add(more)
        elif more:
            self._requests.remove(-more)

    def _check_coming(self, incoming: Incoming) -> None:
        """Refuse the calls that are not complete, if the requests of others leave no room for them."""
        if not self._requests.has_room(self._coming_bytes):
            for number in incoming.drop():
                self._reply(number, _failed(PublishBufferFull(CROWDED)))
            self._count_coming(0)

    def _fits(self, size_bytes: int) -> bool:
        """Whether the requests of others leave room for another call of this size."""
        return size_bytes <= SMALL_BYTES or self._requests.has_room(self._coming_bytes + size_bytes, size_bytes)

    async def _wait_for_room(self) -> None:
        """Wait while many bytes of answers are still to be sent."""
        while self._outgoing.size_bytes > HELD_BYTES:
            self._has_room.clear()
            await self._has_room.wait()

    async def _finish(self, sending: asyncio.Task[None]) -> None:
        """Wait a moment for appends that are under way, and for their answers to go out."""
        deadline = asyncio.get_running_loop().time() + STOP_S
        appends = [self._tasks[number] for number in self._appending if number in self._tasks]
        if appends and not sending.done():
            await asyncio.wait(appends, timeout=STOP_S)
            while self._outgoing and not sending.done() and asyncio.get_running_loop().time() < deadline:
                self._is_sent.clear()
                sent = asyncio.ensure_future(self._is_sent.wait())
                await asyncio.wait([sent, sending], timeout=STOP_S, return_when=asyncio.FIRST_COMPLETED)
                sent.cancel()

    async def _begin(self, frame: Frame) -> None:
        """Begin a call; of one that appends, wait until it has handed its messages over."""
        name = str(frame.header.get("call"))
        if name == "cancel":
            of = frame.header.get("of")
            if isinstance(of, int) and of in self._tasks:
                self._tasks[of].cancel()
            return
        if frame.number in self._tasks:
            raise BrokenFrame("two calls under way have one number")
        if not self._fits(frame.size_bytes):
            self._reply(frame.number, _failed(PublishBufferFull(CROWDED)))
            return
        handed = None
        if name in self._in_order:
            append, handed = self._in_order[name], asyncio.get_running_loop().create_future()
            self._appending.add(frame.number)
            told = handed

            def hand() -> None:
                if not told.done():
                    told.set_result(None)

            run: Run = partial(append, handed=hand)
        elif name in self._calls:
            run = self._calls[name]
        else:
            raise BrokenFrame(f"no call is named {name!r}")
        self._held_bytes += frame.size_bytes
        self._requests.add(frame.size_bytes)
        task = asyncio.create_task(self._answer(frame, _refuse if len(self._tasks) >= MOST_CALLS else run))
        self._tasks[frame.number] = task
        task.add_done_callback(partial(self._ended, frame))
        if handed is not None:
            task.add_done_callback(lambda _: hand())
            await handed

    async def _answer(self, frame: Frame, run: Run) -> None:
        """Make a call, and send what comes of it."""
        name = str(frame.header.get("name") or frame.header["call"])
        try:
            names = self._holdings.names_of(frame.header.get("held"))
            if names is not None:  # for those who watch calls: the number says nothing to them
                frame.header["topics"], frame.header["group"] = names
            found = await self._guard(name, frame, lambda: run(frame))
        except StoreError as error:
            found = _failed(error)
        except Refusal as error:
            found = _failed(StoreError(error.text))
        except (BrokenFrame, LookupError, TypeError, ValueError) as error:
            found = _failed(StoreError(f"the server did not understand the call: {error}"))
        except grpc.aio.AbortError:  # the whole connection is broken off, as a fault of a test does
            found = _failed(StoreError("the connection was broken off"))
        except Exception as error:  # whatever it is, it is this call's alone
            logging.getLogger("stratalog").exception("a call of a connection has failed: %s", name)
            found = _failed(StoreError(f"the call failed at the server: {error!r}"))
        self._reply(frame.number, found)

    def _ended(self, frame: Frame, task: asyncio.Task[None]) -> None:
        """A call has ended, or was cancelled, perhaps before its first step."""
        self._tasks.pop(frame.number, None)
        self._appending.discard(frame.number)
        self._held_bytes -= frame.size_bytes
        self._requests.remove(frame.size_bytes)
        if task.cancelled():
            self._reply(frame.number, Columns({"cancelled": True}, []))
        self._has_room.set()

    def _reply(self, number: int, found: Columns) -> None:
        if number:
            self._held_bytes += self._outgoing.add(number, pack(*found))
            self._to_send.set()

    async def _send(self, write: Write) -> None:
        while not self._over:
            while self._outgoing and not self._over:
                before = self._outgoing.size_bytes
                message = self._outgoing.take()
                self._held_bytes -= before - self._outgoing.size_bytes
                await write(message)
                self._has_room.set()
            self._is_sent.set()
            if not self._over:
                self._to_send.clear()
                await self._to_send.wait()


async def _hello(frame: Frame) -> Columns:
    return Columns({"value": {"map": [["version", VERSION]]}}, [])


def _failed(error: StoreError) -> Columns:
    """An answer that says that a call has failed."""
    return Columns({"error": failure_to_json(error)}, [])


async def _refuse(frame: Frame) -> Columns:
    raise StoreError(f"a connection has {MOST_CALLS} calls under way, the most that are taken; wait for some")
