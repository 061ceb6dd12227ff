"""A single acknowledgement on its way: of a thread that sleeps, or of a coroutine that awaits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial

from ..errors import StoreError, again
from ..log.request import call_in_loop
from .on_way import AckedOne


class Acking:
    """An acknowledgement whose thread sleeps on `lock`; woken along the chain of its record, see `BlockingRequest`.

    Attributes:
        one: what is acknowledged.
        is_handed_over: its record is written, whatever becomes of its thread.
        thread_id: of the thread that sleeps.
    """

    __slots__ = ("abandoned", "chain", "failure", "is_handed_over", "lock", "one", "thread_id")
    one: AckedOne

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.chain: list[Acking] | None = None
        self.abandoned = False
        self.failure: StoreError | None = None
        self.is_handed_over = False
        self.thread_id = threading.get_ident()


class AwaitedAcking:
    """An acknowledgement whose coroutine awaits `future`, which `tell_loops` answers.

    Attributes:
        one, is_handed_over: as those of `Acking`.
        loop: the coroutine's.
    """

    __slots__ = ("future", "is_handed_over", "loop", "one")
    one: AckedOne

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.is_handed_over = False


def call_later(ackings: Sequence[Acking | AwaitedAcking], delay_s: float, call: Callable[[], None]) -> None:
    """Have the loops of a record's coroutines make a call after a while: they have no thread that would."""
    for loop in {each.loop for each in ackings if isinstance(each, AwaitedAcking)}:
        call_in_loop(loop, partial(loop.call_later, delay_s, call))


def tell_loops(ackings: Sequence[AwaitedAcking], error: StoreError | None) -> None:
    """Answer the coroutines of a record: one call for each loop, however many of them it has."""
    for loop in {each.loop for each in ackings}:
        mine = [each for each in ackings if each.loop is loop]
        call_in_loop(loop, partial(_resolve, mine, error))


def _resolve(ackings: Sequence[AwaitedAcking], error: StoreError | None) -> None:
    """In their loop."""
    for each in ackings:
        if each.future.done():  # its task was cancelled
            continue
        if error is None:
            each.future.set_result(None)
        else:
            each.future.set_exception(again(error))
