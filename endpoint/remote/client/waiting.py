"""Calls that wait for their answers: in a thread, or in an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from .connection import Asked, Connection
from .promises import Answer, LoopAnswer

Send = Callable[[Asked], tuple[Connection, int]]


def wait_for(send: Send, lock: threading.Lock, asked: Asked) -> Any:
    """Send a call and wait for its answer. An interrupt ends the call at the server, too."""
    answer: Answer[Any] = Answer(lock)
    connection, number = send(asked._replace(settled=answer))
    try:
        answer.wait()
    except BaseException:
        if not connection.cancel(number) and asked.unwanted is not None and answer.done() and answer.is_good:
            asked.unwanted(answer.get())
        raise
    return answer.get()


async def wait_in_loop(send: Send, asked: Asked) -> Any:
    """`wait_for` for coroutines: if the task is cancelled, the call ends at the server, too."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    connection, number = send(asked._replace(settled=LoopAnswer(future, loop, asked.unwanted)))
    try:
        return await future
    except asyncio.CancelledError:
        came = not connection.cancel(number) and future.done() and not future.cancelled()
        if came and asked.unwanted is not None and future.exception() is None:
            asked.unwanted(future.result())
        raise
