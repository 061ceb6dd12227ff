"""An operation that waits for a condition or for its time-out: completed once, whoever comes first."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from .errors import report
from .timing_wheel import TimerEntry
from .turns import let_pass

if TYPE_CHECKING:
    from .purgatory import Purgatory

# Of operations that no purgatory has: it is held for a few assignments, and an operation needs no lock of its own.
_unwatched = threading.Lock()


def _fresh_lock() -> None:
    global _unwatched  # noqa: PLW0603  # in a child process, where a lost thread may hold the parent's
    _unwatched = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_lock)


class DelayedOperation(TimerEntry):
    """Something to be done when a condition holds, or after `timeout_ms`. Override the three methods.

    Attributes:
        group: of operations whose conditions one of them answers for all; None for one that is alone.

    Invariants:
        * `on_complete` is called once, by the thread that completes it; `on_expiration` after it if that is its timer;
        * no lock is held while one of the three runs: they may block, raise, and call the purgatory;
        * one thread at a time runs `try_complete`. A second one that comes meanwhile leaves word, and the first one
          looks again. So no thread waits for another, and no change of the condition is missed;
        * its state changes under its purgatory's lock, or under `_unwatched` while it has none. It is its own timer.
    """

    __slots__ = ("again", "is_completed", "is_counted", "purgatory", "timeout_ms", "trying")

    group: object = None

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.is_completed = False  # True from the moment at which a thread has begun to complete it
        self.is_counted = False  # by the purgatory, as one that is pending
        self.bucket = None
        self.again = False  # somebody has asked for another look
        self.trying = 0  # the thread that runs `try_complete`
        self.purgatory: Purgatory | None = None

    def try_complete(self) -> bool:
        """Whether the condition holds now. The purgatory completes the operation then."""
        return False

    def on_complete(self) -> None:
        """What is to be done at the end, whatever has brought it. An error is logged."""

    def on_expiration(self) -> None:
        """What is to be done after `on_complete` if the time-out has brought the end. An error is logged."""

    def force_complete(self) -> bool:
        """Complete it now, whether its condition holds or not; True if this call did. From any thread."""
        if self.is_completed or not self._end():
            return False
        try:
            self.on_complete()
        except Exception as error:  # a user's own code; the operation is completed all the same
            report(f"on_complete of {type(self).__name__} has raised", error)
        return True

    def _end(self) -> bool:
        """Be completed from here on; True if this call has brought it."""
        purgatory = self.purgatory
        if purgatory is None:
            with _unwatched:
                purgatory = self.purgatory  # which it was given to meanwhile
                if purgatory is None:
                    is_mine, self.is_completed = not self.is_completed, True
                    return is_mine
        return purgatory.end(self)

    def __call__(self) -> None:
        """The time-out has come: what its timer calls."""
        if self.force_complete():
            try:
                self.on_expiration()
            except Exception as error:  # a user's own code; the operation is over all the same
                report(f"on_expiration of {type(self).__name__} has raised", error)

    # -- for the purgatory ----------------------------------------------------------------------------

    def attempt(self, lock: threading.Lock) -> bool:
        """Complete it if its condition holds; True if this call did. Passes on what `try_complete` raises."""
        me = threading.get_ident()
        if lock.locked():
            let_pass(lock)
        with lock:
            if self.is_completed or self.trying:
                self.again |= self.trying != me  # a look that calls for another look would have no end
                return False
            self.trying = me
        again = True
        while again:
            error: BaseException | None = None
            try:
                if self.try_complete():
                    return self.force_complete()
            except BaseException as raised:  # raised again below, when the lock is free
                error = raised
            if lock.locked():
                let_pass(lock)
            with lock:
                again, self.again = self.again, False
                if not again:
                    self.trying = 0
        if error is not None:
            raise error
        return False

    def enter(self, purgatory: Purgatory) -> bool:
        """Belong to the purgatory, and begin a look of this thread; False if it is completed.

        Raises ValueError if the operation was given to a purgatory already.
        """
        me = threading.get_ident()
        with _unwatched:
            if self.is_completed:
                return False
            if self.trying or self.purgatory is not None:
                raise ValueError("the operation waits already; make a new one")
            self.trying = me
            self.purgatory = purgatory
        return True
