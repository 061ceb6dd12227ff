"""One fault: which calls it strikes, how often, and what it does to them."""

from __future__ import annotations

import random
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from ..server.calls import Call, Proceed
from .latch import Latch
from .selection import Selection

Action = Callable[["CallFault", Call, Proceed], Awaitable[Any]]


def is_whole(value: object, least: int) -> bool:
    """Whether it is an int of at least so much."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


class CallFault:
    """A fault of a `FaultTable`. In a `with` block it ends with the block.

    Attributes:
        name: what it does, as "fail".
        times: how many calls it strikes; None: all until it is removed.
        skip: so many calls that fit go by before the first strike.
        share: of the calls that fit, the share that it strikes. Each run with a seed strikes the same ones: the seed,
            the fault's number in the table and the call's number among those that fit decide.
        removed: open once it is removed; calls that it holds wait there.
    """

    def __init__(
        self, name: str, action: Action, selection: Selection, *, times: int | None, skip: int, share: float, seed: str
    ) -> None:
        if times is not None and not is_whole(times, 1):
            raise ValueError(f"times is at least 1, or None for all calls, not {times!r}")
        if not is_whole(skip, 0):
            raise ValueError(f"skip is at least 0, not {skip!r}")
        if not isinstance(share, int | float) or not 0 < share <= 1:
            raise ValueError(f"share is more than 0 and at most 1, not {share!r}")
        self.name = name
        self.selection = selection
        self.times = times
        self.skip = skip
        self.share = share
        self.removed = Latch()
        self._action = action
        self._seed = seed
        self._fitted = 0
        self._strikes = 0
        self._changed = threading.Condition()

    @property
    def strikes(self) -> int:
        """How many calls it has struck."""
        return self._strikes

    def meets(self, call: Call) -> bool:
        """Whether it strikes this call. It counts the call, so it is asked once for each."""
        if self.removed.is_open or not self.selection.fits(call):
            return False
        with self._changed:
            number, self._fitted = self._fitted, self._fitted + 1
            if number < self.skip or (self.times is not None and self._strikes >= self.times):
                return False
            if self.share < 1 and random.Random(f"{self._seed}/{number}").random() >= self.share:
                return False
            self._strikes += 1
            self._changed.notify_all()
        return True

    async def strike(self, call: Call, proceed: Proceed) -> Any:
        """Do it to a call."""
        return await self._action(self, call, proceed)

    def wait(self, strikes: int = 1, *, timeout_s: float = 10.0) -> None:
        """Wait, in a thread, until it has struck so many calls. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._strikes >= strikes, timeout_s):
                raise TimeoutError(f"the fault {self.name} has struck {self._strikes} calls in {timeout_s} s")

    def remove(self) -> None:
        """End it: it strikes no more, and calls that it holds go on. A second call does nothing."""
        self.removed.open()

    def __enter__(self) -> CallFault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"CallFault({self.name!r}, {self.selection}, strikes={self._strikes}, removed={self.removed.is_open})"
