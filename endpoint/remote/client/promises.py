"""Answers that come later: what threads and coroutines wait for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, TypeVar

from stratalog import StoreError

T = TypeVar("T")
Wakes = dict[asyncio.AbstractEventLoop, list[Callable[[], None]]]  # what is to be called in each loop


class Settled(Protocol):
    """What an answer is given to."""

    def settle(self, value: Any, error: StoreError | None, wakes: Wakes) -> None:
        """It has come. What a loop has to do goes to `wakes`, which are called once for all answers of a message."""


def wake_all(wakes: Wakes) -> None:
    """Have loops do what waits for them; a loop that was closed has nobody left to tell."""
    for loop, calls in wakes.items():
        try:
            loop.call_soon_threadsafe(_call_all, calls)
        except RuntimeError:
            continue


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()


class Answer(Generic[T]):
    """The answer of a call, for threads; coroutines may await it, too.

    Invariant: it is settled once, and each of its listeners is called once.
    """

    __slots__ = ("_done", "_error", "_listeners", "_lock", "_value")

    def __init__(self, lock: threading.Lock) -> None:
        """`lock` is its connection's: many answers share one."""
        self._lock = lock
        self._done = False
        self._value: Any = None
        self._error: StoreError | None = None
        self._listeners: list[Callable[[Wakes], None]] | None = None

    def settle(self, value: Any, error: StoreError | None, wakes: Wakes) -> None:
        """See `Settled`."""
        with self._lock:
            if self._done:
                return
            self._value, self._error = value, error
            self._done = True
            listeners, self._listeners = self._listeners, None
        for one in listeners or ():
            one(wakes)

    def then(self, call: Callable[[Wakes], None]) -> None:
        """Call it once the answer is there, with what is to be woken."""
        with self._lock:
            if not self._done:
                self._listeners = [*(self._listeners or ()), call]
                return
        wakes: Wakes = {}
        call(wakes)
        wake_all(wakes)

    def done(self) -> bool:
        """Whether the answer is there."""
        return self._done

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the answer. Raises TimeoutError."""
        if self._done:
            return
        gate = threading.Lock()
        gate.acquire()

        def release(wakes: Wakes) -> None:
            gate.release()

        self.then(release)
        timeout = -1.0 if timeout_s is None else min(max(timeout_s, 0.0), threading.TIMEOUT_MAX)
        if not gate.acquire(timeout=timeout):
            with self._lock:  # a caller that asks often leaves nothing here
                if self._listeners is not None and release in self._listeners:
                    self._listeners.remove(release)
            raise TimeoutError(f"no answer within {timeout_s} s; it may still come: call again")

    @property
    def is_good(self) -> bool:
        """Whether it is a value, and no error. It counts once it is done."""
        return self._error is None

    @property
    def error(self) -> StoreError | None:
        """The error; None while there is no answer."""
        return self._error

    def get(self) -> T:
        """The value, or the error, of an answer that is there."""
        if self._error is not None:
            raise fresh(self._error)
        value: T = self._value
        return value

    def __await__(self) -> Generator[Any, None, T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self.then(lambda wakes: LoopAnswer(future, loop).settle(self._value, self._error, wakes))
        return future.__await__()


class LoopAnswer:
    """The answer of a call, for one Future of a loop."""

    __slots__ = ("_future", "_loop", "_unwanted")

    def __init__(
        self, future: asyncio.Future[Any], loop: asyncio.AbstractEventLoop,
        unwanted: Callable[[Any], None] | None = None,
    ) -> None:  # fmt: skip
        """`unwanted` is called with the value if the Future was cancelled meanwhile."""
        self._future = future
        self._loop = loop
        self._unwanted = unwanted

    def settle(self, value: Any, error: StoreError | None, wakes: Wakes) -> None:
        """See `Settled`."""

        def resolve() -> None:
            if self._future.done():  # its task was cancelled
                if error is None and self._unwanted is not None:
                    self._unwanted(value)
                return
            if error is not None:
                self._future.set_exception(fresh(error))
            else:
                self._future.set_result(value)

        wakes.setdefault(self._loop, []).append(resolve)


def fresh(error: StoreError) -> StoreError:
    """A copy of an error to raise: one that is raised twice keeps the frames of both."""
    made: StoreError = type(error).__new__(type(error), *error.args)
    made.args = error.args
    vars(made).update(vars(error))
    made.__cause__ = error.__cause__
    return made
