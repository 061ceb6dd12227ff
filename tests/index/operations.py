"""Operations that count what happens to them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from stratalog.index import DelayedOperation


class Counted(DelayedOperation):
    """Counts its ends. It can be completed once `ready` is set."""

    def __init__(self, timeout_ms: int = 3_600_000, ready: bool = False) -> None:
        super().__init__(timeout_ms)
        self.ready = ready
        self.looks = self.completions = self.expirations = 0

    def try_complete(self) -> bool:
        """As the test has set it."""
        self.looks += 1
        return self.ready

    def on_complete(self) -> None:
        """Count."""
        self.completions += 1

    def on_expiration(self) -> None:
        """Count."""
        self.expirations += 1

    @property
    def ends(self) -> tuple[int, int]:
        """(completions, expirations)."""
        return self.completions, self.expirations


class Doing(Counted):
    """Calls functions of the test in place of what it would do."""

    def __init__(
        self,
        look: Callable[[], bool] | None = None,
        complete: Callable[[], object] | None = None,
        expire: Callable[[], object] | None = None,
        timeout_ms: int = 3_600_000,
    ) -> None:
        super().__init__(timeout_ms)
        self.look, self.complete, self.expire = look, complete, expire

    def try_complete(self) -> bool:
        """As the function says."""
        super().try_complete()
        return self.look() if self.look is not None else self.ready

    def on_complete(self) -> None:
        """Count, and call."""
        super().on_complete()
        if self.complete is not None:
            self.complete()

    def on_expiration(self) -> None:
        """Count, and call."""
        super().on_expiration()
        if self.expire is not None:
            self.expire()


def in_thread(call: Callable[[], object]) -> threading.Thread:
    """A thread that makes this call, started."""
    thread = threading.Thread(target=call)
    thread.start()
    return thread
