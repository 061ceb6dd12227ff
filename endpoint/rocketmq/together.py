"""Calls to the store that come together are made together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")
HOLD_S: Final = 0.001  # more of them come meanwhile; a call that comes alone is not held
LONGEST_S: Final = 0.05  # a call that takes long holds up others for so long


class Together:
    """Holds calls back while others of the kind are under way, and a moment longer; then makes all that wait in one
    step of the loop.

    The store gives what is handed over in one step one frame, one force and one wake-up of the loop. Measured with 64
    senders: the store's thread takes 40 us a message in place of 70 (force), and 70 in place of 140 (os). A call that
    comes alone does not wait.

    Invariants: `_under_way` counts the calls that were let go and have not ended. While a call waits there is a timer
    that lets it go.
    """

    def __init__(self) -> None:
        self._under_way = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None

    async def call(self, make: Callable[[], Awaitable[T]]) -> T:
        """Make the call when it is its turn, and wait for its result. Raises what the call raises."""
        if self._under_way or self._waiting:
            await self._turn()
        else:
            self._under_way = 1
        try:
            return await make()
        finally:
            self._ended()

    async def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if self._timer is None:
            self._timer = loop.call_later(LONGEST_S, self._let_go)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was let go, and cancelled before it ran
                self._ended()
            raise

    def _ended(self) -> None:
        self._under_way -= 1
        if not self._under_way and self._timer is not None:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(HOLD_S, self._let_go)

    def _let_go(self) -> None:
        self._timer = None
        let_go, self._waiting = [turn for turn in self._waiting if not turn.done()], []
        self._under_way += len(let_go)
        for turn in let_go:
            turn.set_result(None)
