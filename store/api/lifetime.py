"""A store in a `with` or an `async with` statement."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self


class Lifetime:
    """Something that is entered open, and closed when it is left."""

    def close(self) -> None:
        """End it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """`close` for coroutines: the loop goes on meanwhile."""
        # It waits for the device, and the loop goes on meanwhile. The loop's own threads may all wait for messages.
        pool = ThreadPoolExecutor(1, "stratalog-close")
        try:
            closing = asyncio.get_running_loop().run_in_executor(pool, self.close)
        except RuntimeError:  # there can be no more threads
            self.close()
        else:
            await closing
        finally:
            pool.shutdown(wait=False)
