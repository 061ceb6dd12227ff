"""Tickets of a connection: what `submit` and `submit_columns` return."""

from __future__ import annotations

import logging
import math
import numbers
import os
import queue
import threading
from collections.abc import Callable, Generator
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from stratalog import BatchTicket, InvalidMessage, StoreClosed, StoreError, Ticket

from .promises import Answer, Wakes

Int64s = npt.NDArray[np.int64]


class Callbacks:
    """Calls the callbacks of tickets, one after the other, in a thread of their own; it begins with the first one."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def wait_for(self, answer: Answer[Any], timeout: object) -> None:
        """Wait for the answer of a ticket. Raises TimeoutError; StoreClosed in a forked child, where none comes."""
        if not answer.done() and os.getpid() != self._pid:
            raise StoreClosed("the ticket's connection was made before a fork: its answer comes in that process alone")
        answer.wait(seconds_of(timeout))

    def error_of(self, answer: Answer[Any], timeout: object) -> StoreError | None:
        """Wait for the error of a ticket; None if it has none. Raises TimeoutError."""
        try:
            self.wait_for(answer, timeout)
        except StoreClosed as error:
            return error
        return answer.error

    def after(self, answer: Answer[Any], call: Callable[[], object]) -> None:
        """Make a call of the user's when the answer is there; at once, in this thread, if it is there already."""
        if answer.done():
            make(call)
        else:
            answer.then(lambda wakes: self.add(call))

    def add(self, call: Callable[[], object]) -> None:
        """Make a call soon."""
        self._calls.put(call)
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="stratalog-callbacks", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            make(call)

    def close(self) -> None:
        """Return when all were called; in a callback itself, at once."""
        thread = self._thread
        if thread is not None:
            self._calls.put(None)
            if thread is not threading.current_thread():
                thread.join()


def make(call: Callable[[], object]) -> None:
    """Make a call of the user's; what it raises is logged, and harms no other."""
    try:
        call()
    except Exception:
        logging.getLogger("stratalog").exception("a callback of a ticket has raised")


def seconds_of(timeout: object) -> float | None:
    """The `timeout` of a ticket. Raises InvalidMessage."""
    if timeout is None:
        return None
    if isinstance(timeout, numbers.Real) and not math.isnan(timeout):
        return min(max(float(timeout), 0.0), threading.TIMEOUT_MAX)
    raise InvalidMessage(f"timeout is a number of seconds or None, not {timeout!r}")


def _outcome_of(answer: Answer[Any]) -> str:
    return "not durable yet" if not answer.done() else "failed" if answer.error is not None else "durable"


class RemoteTicket(Ticket):
    """The ticket of one message. Its caller sees a `Ticket` and nothing else."""

    __slots__ = ("_answer", "_callbacks")

    def __init__(self, lock: threading.Lock, callbacks: Callbacks) -> None:
        self._answer: Answer[tuple[int, bool]] = Answer(lock)
        self._callbacks = callbacks

    def settle(self, value: Any, error: StoreError | None, wakes: Wakes) -> None:
        """See `Settled`; the value is the offset, and whether nothing was stored."""
        self._answer.settle(value, error, wakes)

    def done(self) -> bool:
        return self._answer.done()

    def result(self, timeout: float | None = None) -> int:
        self._callbacks.wait_for(self._answer, timeout)
        return self._answer.get()[0]

    def exception(self, timeout: float | None = None) -> StoreError | None:
        return self._callbacks.error_of(self._answer, timeout)

    @property
    def is_repeat(self) -> bool:
        if not self._answer.done() or self._answer.error is not None:
            return False
        return self._answer.get()[1]

    def add_done_callback(self, callback: Callable[[Self], Any]) -> None:
        self._callbacks.after(self._answer, lambda: callback(self))

    def __await__(self) -> Generator[Any, None, int]:
        offset, _ = yield from self._answer.__await__()
        return offset

    def __dir__(self) -> list[str]:
        return dir(Ticket)

    def __repr__(self) -> str:
        return f"<Ticket over a connection: {_outcome_of(self._answer)}>"


class RemoteBatchTicket(BatchTicket):
    """The ticket of many messages. Its caller sees a `BatchTicket` and nothing else."""

    __slots__ = ("_answer", "_callbacks")

    def __init__(self, answer: Answer[Int64s], callbacks: Callbacks) -> None:
        self._answer = answer
        self._callbacks = callbacks

    def done(self) -> bool:
        return self._answer.done()

    def result(self, timeout: float | None = None) -> Int64s:
        self._callbacks.wait_for(self._answer, timeout)
        return self._answer.get()

    def exception(self, timeout: float | None = None) -> StoreError | None:
        return self._callbacks.error_of(self._answer, timeout)

    def add_done_callback(self, callback: Callable[[Self], Any]) -> None:
        self._callbacks.after(self._answer, lambda: callback(self))

    def __await__(self) -> Generator[Any, None, Int64s]:
        return self._answer.__await__()

    def __dir__(self) -> list[str]:
        return dir(BatchTicket)

    def __repr__(self) -> str:
        return f"<BatchTicket over a connection: {_outcome_of(self._answer)}>"
