"""The ticket of `submit_columns`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Self

from ..device.background import report
from ..errors import StoreError
from ..format.arrays import Int64s
from ..log.listeners import Listeners
from ..log.request import Group, call_in_loop, seconds_of
from ..log.ticket import BatchTicket
from .batches import BatchPart, offsets_of


class GroupsTicket(BatchTicket):
    """The ticket of some groups, done when all of them are. Its caller sees a `BatchTicket` and nothing else."""

    __slots__ = ("_groups", "_listeners", "_parts")

    def __init__(self, parts: list[BatchPart], listeners: Listeners) -> None:
        self._parts = parts
        self._groups: Sequence[Group] = [group for part in parts for group in part.groups]
        self._listeners = listeners

    def done(self) -> bool:
        return all(group.done() for group in self._groups)

    def result(self, timeout: float | None = None) -> Int64s:
        self._wait(timeout)
        return offsets_of(self._parts)

    def exception(self, timeout: float | None = None) -> StoreError | None:
        return next((error for error in self._wait(timeout) if error is not None), None)

    def _wait(self, timeout: float | None) -> list[StoreError | None]:
        """Wait for all groups; the error of each."""
        if timeout is None:
            return [group.exception() for group in self._groups]
        deadline = time.monotonic() + seconds_of(timeout)
        return [group.exception(deadline - time.monotonic()) for group in self._groups]

    def _then(self, call: Callable[[], object]) -> None:
        """Make a call once all groups are answered."""
        for group in self._groups:
            if not group.done():
                group.then(lambda: self._then(call))
                return
        call()

    def add_done_callback(self, callback: Callable[[Self], Any]) -> None:
        if self.done():
            try:
                callback(self)
            except Exception as error:  # what a caller's own code raises harms no other callback
                report(f"a callback of {self!r} has raised", error)
        else:
            self._then(lambda: self._listeners.call(lambda: callback(self)))

    def __await__(self) -> Generator[Any, None, Int64s]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Int64s] = loop.create_future()

        def resolve() -> None:
            if future.done():  # its task was cancelled
                return
            error = self.exception()
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(offsets_of(self._parts))

        if self.done():
            resolve()
        else:
            self._then(lambda: call_in_loop(loop, resolve))
        return future.__await__()

    def __dir__(self) -> list[str]:
        return dir(BatchTicket)

    def __repr__(self) -> str:
        count = sum([group.count for group in self._groups])
        outcome = "not durable yet" if not self.done() else "failed" if self.exception() is not None else "durable"
        return f"<BatchTicket of {count} messages: {outcome}>"
