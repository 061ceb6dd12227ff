"""An event loop in a thread of its own, for programs without one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..errors import EndpointClosed

T = TypeVar("T")
END_S = 5.0  # how long cancelled tasks have for their ends


class LoopThread:
    """An event loop that runs in a daemon thread until `close`.

    The thread is a daemon: a program that forgets to stop its endpoint still ends.
    """

    def __init__(self, name: str = "stratalog-endpoint") -> None:
        self.loop = asyncio.new_event_loop()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the loop, and wait for its result.

        Raises what the coroutine raises; TimeoutError after `timeout_s` seconds, and then cancels it; EndpointClosed
        after `close`; RuntimeError if it is called on the loop itself, which would wait for ever.
        """
        if self._closed:
            coroutine.close()
            raise EndpointClosed("the endpoint was stopped: start another one")
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("this call waits for the endpoint's loop, and was made on it: use the async form")
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

    def close(self, timeout_s: float = END_S) -> None:
        """Cancel what still runs, end the loop and its thread. A second call does nothing.

        It returns after about `timeout_s` seconds at the latest, also if a task does not end.
        """
        if self._closed:
            return
        with contextlib.suppress(concurrent.futures.TimeoutError):
            self.run(_cancel_others(timeout_s), timeout_s * 2)
        self._closed = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout_s)


async def _cancel_others(timeout_s: float) -> None:
    """Cancel all other tasks of the loop, and wait for their ends."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=timeout_s)
    await asyncio.get_running_loop().shutdown_asyncgens()
