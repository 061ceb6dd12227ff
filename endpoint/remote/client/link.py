"""A connection that is made again when it was lost: what all objects of one `stratalog.connect` send their calls by."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from stratalog import StoreClosed, StoreError

from ...errors import ConnectionLost
from ..frames import Buffer
from ..messages import Given
from ..values import from_json, to_json
from .connection import NOBODY, Asked, Connection, Convert, Submitted, nothing_of
from .promises import Answer, LoopAnswer, Settled, Wakes, wake_all
from .tickets import Callbacks
from .waiting import wait_for, wait_in_loop

PAUSE_S = 0.05  # before another attempt, in a thread that has nothing else to do
TRIES = 20  # how often what has a message id is sent again


class Link:
    """Sends calls to one server. Any number of threads and event loops may use it.

    Invariant: there is one connection at a time; a call that finds it lost makes the next one.
    """

    def __init__(self, address: str, channel: Any, metadata: Callable[[], Sequence[tuple[str, str]]], timeout_s: float):
        """`metadata` gives the headers of a connection when it is made."""
        self.address = address
        self.answers_lock = threading.Lock()
        self.callbacks = Callbacks()
        self.numbers = itertools.count(1)  # of what a connection holds
        self._channel = channel
        self._metadata = metadata
        self._timeout_s = timeout_s
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._is_settled = threading.Condition(self._lock)  # what a lost connection left is asked again, or has errors
        self._losing = 0  # lost connections whose calls are not settled yet
        self._connection: Connection | None = None
        self._closed = False
        self._down_s: float | None = None  # since when no connection was answered

    @property
    def closed(self) -> bool:
        """True after `close`, and in a forked child."""
        return self._closed or os.getpid() != self._pid

    def check(self) -> None:
        """Raises StoreClosed."""
        if os.getpid() != self._pid:
            raise StoreClosed(
                f"the connection to {self.address} was made before a fork: call stratalog.connect in this process"
            )
        if self._closed:
            raise StoreClosed(f"the connection to {self.address} was closed: call stratalog.connect again")

    def connection(self) -> Connection:
        """The connection; a new one if there is none, or it was lost. It does not wait. Raises StoreClosed."""
        self.check()
        with self._lock:
            if self._connection is None:
                self.check()
                try:
                    self._connection = Connection(self._open, self._note_lost, self._timeout_s)
                except ValueError:  # gRPC's, of a channel that was closed this moment
                    self.check()
                    raise
            return self._connection

    def _open(self, requests: Iterator[bytes]) -> Any:
        stream = self._channel.stream_stream("/stratalog.v1.Store/Connect")
        return stream(requests, metadata=tuple(self._metadata()), wait_for_ready=True)

    def _note_lost(self, why: str, *, answered: bool, gave_up: bool, asked: list[Asked | Submitted]) -> None:
        with self._lock:
            self._connection = None
            self._losing += 1
        try:
            self._ask_all_again(why, answered=answered, gave_up=gave_up, asked=asked)
        finally:
            with self._lock:
                self._losing -= 1
                self._is_settled.notify_all()

    def _ask_all_again(self, why: str, *, answered: bool, gave_up: bool, asked: list[Asked | Submitted]) -> None:
        """Ask again what may be asked twice; all else gets an error."""
        error: StoreError = StoreClosed(f"the connection to {self.address} was closed")
        if not self._closed:
            error = ConnectionLost(
                f"the connection to {self.address} was lost ({why}): what was asked and not answered may have "
                f"happened, or not. The next call connects again."
                if answered
                else f"there is no connection to {self.address} ({why}): nothing was done. The next call tries again."
            )
        may_repeat = not gave_up and self._is_soon(answered=answered)
        used = 1 if answered else 0  # else nothing was sent
        wakes: Wakes = {}
        try:
            for one in asked:
                if isinstance(one, Submitted):
                    for given, settled, tries in zip(one.messages, one.settled, one.tries, strict=True):
                        if not (may_repeat and tries and self._again(given, settled, tries - used)):
                            settled.settle(None, error, wakes)
                elif not (may_repeat and one.tries and self._ask_again(one._replace(tries=one.tries - used))):
                    one.settled.settle(None, error, wakes)
        finally:
            wake_all(wakes)

    def _is_soon(self, *, answered: bool) -> bool:
        """Whether the server was there within `timeout_s`. If it was not there this time, wait a moment."""
        now_s = time.monotonic()
        if answered:
            self._down_s = None
            return True
        if self._down_s is None:
            self._down_s = now_s
        time.sleep(PAUSE_S)
        return now_s - self._down_s < self._timeout_s

    def _again(self, given: Given, settled: Settled, tries: int) -> bool:
        try:
            self._put(given, settled, tries, waits=False)
        except Exception:  # it was closed; or there is no memory or no thread for another connection
            return False
        return True

    def _ask_again(self, asked: Asked) -> bool:
        try:
            self.send(asked)
        except Exception:  # as in `_again`
            return False
        return True

    def wait_until_answered(self) -> None:
        """Connect, and wait for the server's first answer. Raises ConnectionLost."""
        self.wait("hello", value_of)

    # -- calls ----------------------------------------------------------------------------------------

    def submit(self, given: Given, settled: Settled, *, waits: bool) -> None:
        """Send a message to append. Raises StoreClosed."""
        self._put(given, settled, TRIES if given.message_id is not None else 0, waits=waits)

    def _put(self, given: Given, settled: Settled, tries: int, *, waits: bool) -> None:
        while not self.connection().submit(given, settled, tries=tries, waits=waits):
            continue  # it was lost this moment: the next one is another

    def send(self, asked: Asked) -> tuple[Connection, int]:
        """Send a call. Raises StoreClosed."""
        while True:
            connection = self.connection()
            number = connection.ask(asked)
            if number is not None:
                return connection, number

    def ask(
        self, call: str, convert: Convert, buffers: Sequence[Buffer] = (), *, appends: bool = False, tries: int = 0,
        **header: Any,
    ) -> Answer[Any]:  # fmt: skip
        """Send a call; its answer comes. Raises StoreClosed."""
        answer: Answer[Any] = Answer(self.answers_lock)
        self.send(Asked({"call": call, **header}, buffers, answer, convert, appends, None, tries))
        return answer

    def ask_on(self, connection: Connection, call: str, convert: Convert, **header: Any) -> Answer[Any]:
        """Send a call about what this connection holds. Raises StoreClosed; ConnectionLost if it has ended."""
        self.check()
        answer: Answer[Any] = Answer(self.answers_lock)
        if connection.ask(Asked({"call": call, **header}, (), answer, convert)) is None:
            self.check()
            raise ConnectionLost(f"the connection to {self.address} was lost, and what it held is gone: begin anew")
        return answer

    def ask_in_loop(
        self, call: str, convert: Convert, buffers: Sequence[Buffer] = (), *, tries: int = 0, **header: Any
    ) -> asyncio.Future[Any]:
        """Send a call that appends, for coroutines. Raises StoreClosed, and RuntimeError without a running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self.send(Asked({"call": call, **header}, buffers, LoopAnswer(future, loop), convert, True, None, tries))
        return future

    def wait_on(self, call: str, convert: Convert, **header: Any) -> Connection:
        """Make a call, and wait for its answer; the connection that holds now what the call has made."""
        asked = Asked({"call": call, **header}, (), NOBODY, convert)
        sent: list[Connection] = []

        def send(asked: Asked) -> tuple[Connection, int]:
            connection, number = self.send(asked)
            sent.append(connection)
            return connection, number

        wait_for(send, self.answers_lock, asked)
        return sent[0]

    def wait(self, call: str, convert: Convert, buffers: Sequence[Buffer] = (), **header: Any) -> Any:
        """Make a call, and wait for its answer."""
        return wait_for(self.send, self.answers_lock, Asked({"call": call, **header}, buffers, NOBODY, convert))

    async def wait_in_loop(self, call: str, convert: Convert, buffers: Sequence[Buffer] = (), **header: Any) -> Any:
        """`wait` for coroutines."""
        return await wait_in_loop(self.send, Asked({"call": call, **header}, buffers, NOBODY, convert))

    def call(self, name: str, /, **arguments: object) -> Any:
        """A call of the store whose arguments and result are plain values."""
        return self.wait("call", value_of, name=name, arguments=to_json(arguments))

    async def call_in_loop(self, name: str, /, **arguments: object) -> Any:
        """`call` for coroutines."""
        return await self.wait_in_loop("call", value_of, name=name, arguments=to_json(arguments))

    def let_go(self, held: int) -> None:
        """End a scan or a subscription without a wait. The garbage collector may call it, in a thread that holds any of
        our locks."""

        def close() -> None:
            with self._lock:
                connection = self._connection
            if connection is not None:  # else it has ended with its connection
                connection.ask(Asked({"call": "close", "held": held}, (), Answer(self.answers_lock), nothing_of))

        if not self.closed:
            with suppress(RuntimeError):  # the interpreter ends, and takes all with it
                threading.Thread(target=close, name="stratalog-dropped", daemon=True).start()

    def close(self) -> None:
        """End it, when appends that are under way have their answers: also those of a connection that is lost."""
        if self.closed:
            return
        while (connection := self._settled()) is not None and not connection.drain():
            continue  # it was lost meanwhile: its appends go on with another one, or have failed
        self._closed = True
        self._end()
        self.callbacks.close()

    def _settled(self) -> Connection | None:
        """The connection, if there is one, once no lost one has calls that are not settled."""
        with self._lock:
            while self._losing or (self._connection is not None and self._connection.ended):
                self._is_settled.wait()
            return self._connection

    def drop(self) -> None:
        """End it without a wait, also in a thread that holds locks: its user has let go of it."""
        if not self.closed:
            self._closed = True
            with suppress(RuntimeError):  # the interpreter ends, and takes all with it
                threading.Thread(target=self._end, name="stratalog-dropped", daemon=True).start()

    def _end(self) -> None:
        with self._lock:
            connection = self._connection
        if connection is not None:
            connection.end()
        self._channel.close()


def value_of(header: dict[str, Any], buffers: list[memoryview]) -> Any:
    """The plain value of an answer."""
    return from_json(header["value"])
