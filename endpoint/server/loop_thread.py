"""An event loop in a thread of its own, for programs without one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ..errors import EndpointClosed

T = TypeVar("T")
END_S = 5.0  # how long cancelled tasks have for their ends


class LoopThread:
    """An event loop that runs in a daemon thread, from the first `run` until `close`.

    The thread is a daemon: a program that forgets to stop its endpoint still ends. A child of a fork has no such
    thread: there it is closed.

    Invariant: an interrupt of a caller, at whatever instant, leaves no thread behind once `close` was called: the
    thread ends itself, and the caller only waits for it.
    """

    def __init__(self, name: str = "stratalog-endpoint") -> None:
        self.loop = asyncio.new_event_loop()
        self._closed = False
        self._is_started = False
        self._pid = os.getpid()
        self._taken = threading.Lock()  # by the thread when it begins to run the loop, or by a close before that
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._error: BaseException | None = None
        self._ending: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_closed(self) -> bool:
        """Whether its end has begun."""
        return self._closed

    def _run(self) -> None:
        if not self._taken.acquire(blocking=False):
            return
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()
            if self._error is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(self._error)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the loop, and wait for its result.

        Raises what the coroutine raises; TimeoutError after `timeout_s` seconds, and then cancels it; EndpointClosed
        after `close` and in a child of a fork; RuntimeError if it is called on the loop itself, which would wait for
        ever.
        """
        if self._closed or self._pid != os.getpid():
            coroutine.close()
            raise EndpointClosed("the endpoint was stopped, or belongs to the parent process: start another one")
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("this call waits for the endpoint's loop, and was made on it: use the async form")
        if not self._is_started:
            self._is_started = True
            try:
                self._thread.start()
            except BaseException:
                coroutine.close()
                raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            if not future.done():
                future.cancel()
            raise
        except BaseException:  # an interrupt of the waiting thread
            future.cancel()
            raise

    def close(self, timeout_s: float = END_S, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Run `last` on the loop, cancel what still runs, end the loop and its thread. A second call waits for it.

        It returns about `timeout_s` seconds after `last` at the latest, also if a task does not end. An interrupt is
        raised when all has ended; a second one at once, and the thread goes on to its end alone. Raises what `last`
        raises; RuntimeError on the loop itself.
        """
        if self._pid != os.getpid():
            return
        if threading.current_thread() is self._thread:
            raise RuntimeError("this call waits for the endpoint's loop, and was made on it: use the async form")
        if self._taken.acquire(blocking=False):  # the thread has not begun, and will not any more
            self.loop.close()
            self._closed = True
            self._ended.set_result(None)
            return
        with contextlib.suppress(RuntimeError):  # it is closed already
            self.loop.call_soon_threadsafe(self._begin_end, timeout_s, last)
        self._closed = True
        try:
            self._wait()
        except BaseException:  # an interrupt
            self._wait()
            raise
        self._ended.result()

    def _wait(self) -> None:
        concurrent.futures.wait([self._ended])
        self._thread.join(END_S)

    def _begin_end(self, timeout_s: float, last: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        if self._ending is None:
            self._ending = self.loop.create_task(self._end(timeout_s, last))

    async def _end(self, timeout_s: float, last: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        try:
            if last is not None:
                await last()
        except BaseException as error:  # comes out of `close`
            self._error = error
        try:
            await _cancel_others(timeout_s)
        finally:
            self.loop.stop()


async def _cancel_others(timeout_s: float) -> None:
    """Cancel all other tasks of the loop, and wait for their ends."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=timeout_s)
    await asyncio.get_running_loop().shutdown_asyncgens()
