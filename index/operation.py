"""An operation that waits for a condition or for its time-out, and is completed once, by the first of the two."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from .errors import report
from .locks import let_pass
from .timing_wheel import TimerEntry

if TYPE_CHECKING:
    from .purgatory import Purgatory

# The lock of operations without a purgatory. It is held for a few assignments, so all of them can share one.
_unwatched = threading.Lock()


def _fresh_lock() -> None:
    global _unwatched  # noqa: PLW0603  # in a child process, where a lost thread may hold the parent's
    _unwatched = threading.Lock()


os.register_at_fork(after_in_child=_fresh_lock)


class DelayedOperation(TimerEntry):
    """Work to be done when a condition holds, or after `timeout_ms`. Override the three methods.

    Attributes:
        until_ms: a time of its timers' clock, at which it ends if that is earlier than its time-out; None: no such
            time. A caller that has read the clock before uses it: the clock may have been moved since.
        group: one condition check answers for all operations of a group; None for an operation that is alone.

    Invariants:
        * `on_complete` is called once, by the thread that completes it; `on_expiration` after it if that is its timer;
        * no lock is held while one of the three runs: they may block, raise, and call the purgatory;
        * one thread at a time runs `try_complete`. A second thread that comes meanwhile sets `again`, and the first one
          checks once more. So no thread waits for another, and no change of the condition is missed;
        * its state changes under its purgatory's lock, or under `_unwatched` while it has none. It is its own timer.
    """

    __slots__ = ("again", "is_completed", "is_counted", "purgatory", "timeout_ms", "trying", "until_ms")

    group: object = None

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.until_ms: int | None = None
        self.is_completed = False  # from the moment at which a thread begins to complete it
        self.is_counted = False  # among the purgatory's pending ones
        self.bucket = None
        self.again = False  # another check is asked for
        self.trying = 0  # the thread that runs `try_complete`
        self.purgatory: Purgatory | None = None

    def try_complete(self) -> bool:
        """Whether the condition holds now. Then the purgatory completes the operation."""
        return False

    def on_complete(self) -> None:
        """Do the work at the end, by condition or time-out. An error is logged."""

    def on_expiration(self) -> None:
        """Do the work after `on_complete` if the time-out has ended the operation. An error is logged."""

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
        """Mark it as completed; True if this call did."""
        purgatory = self.purgatory
        if purgatory is None:
            with _unwatched:
                purgatory = self.purgatory  # it may have been given to one meanwhile
                if purgatory is None:
                    is_mine, self.is_completed = not self.is_completed, True
                    return is_mine
        return purgatory.end(self)

    def __call__(self) -> None:
        """The time-out has come: called by its timer."""
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
                self.again |= self.trying != me  # a check that asks for another check would have no end
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
        """Belong to the purgatory, and begin a check by this thread; False if it is completed.

        Raises ValueError if the operation was given to a purgatory before.
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
