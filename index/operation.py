"""An operation that waits for a condition or for its time-out (R38): completed once, whoever comes first."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from .errors import report

if TYPE_CHECKING:
    from .purgatory import Purgatory
    from .timing_wheel import Timer

# One for all operations: it is held for a few assignments, and an operation needs no lock of its own.
_state = threading.Lock()


def _fresh_lock() -> None:
    global _state  # noqa: PLW0603  # in a child process, where a lost thread may hold the parent's
    _state = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_lock)


class DelayedOperation:
    """Something to be done when a condition holds, or after `timeout_ms`. Override the three methods.

    Invariants:
        * `on_complete` is called once, by the thread that completes it; `on_expiration` after it if that is its timer;
        * no lock is held while one of the three runs: they may block, raise, and call the purgatory;
        * one thread at a time runs `try_complete`. A second one that comes meanwhile leaves word, and the first one
          looks again. So no thread waits for another, and no change of the condition is missed.
    """

    __slots__ = ("_again", "_purgatory", "_timer", "_trying", "is_completed", "is_counted", "timeout_ms")

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.is_completed = False  # True from the moment at which a thread has begun to complete it
        self.is_counted = False  # by the purgatory, as one that is pending
        self._again = False
        self._trying = 0  # the thread that runs `try_complete`
        self._timer: Timer | None = None
        self._purgatory: Purgatory | None = None

    def try_complete(self) -> bool:
        """Whether the condition holds now. The purgatory completes the operation then."""
        return False

    def on_complete(self) -> None:
        """What is to be done at the end, whatever has brought it. An error is logged."""

    def on_expiration(self) -> None:
        """What is to be done after `on_complete` if the time-out has brought the end. An error is logged."""

    def force_complete(self) -> bool:
        """Complete it now, whether its condition holds or not; True if this call did. From any thread."""
        timer = purgatory = None
        try:
            with _state:
                if self.is_completed:
                    return False
                timer, purgatory = self._timer, self._purgatory
                self._timer = self._purgatory = None
                self.is_completed = True
            if timer is not None:
                timer.cancel()
        finally:  # also after an interrupt: the purgatory counts on it
            if purgatory is not None:
                purgatory.one_completed()
        try:
            self.on_complete()
        except Exception as error:
            report(f"on_complete of {type(self).__name__} has raised", error)
        return True

    def __call__(self) -> None:
        """The time-out has come: what its timer calls."""
        if self.force_complete():
            try:
                self.on_expiration()
            except Exception as error:
                report(f"on_expiration of {type(self).__name__} has raised", error)

    # -- for the purgatory ----------------------------------------------------------------------------

    def attempt(self) -> bool:
        """Complete it if its condition holds; True if this call did. Passes on what `try_complete` raises."""
        me = threading.get_ident()
        with _state:
            if self.is_completed or self._trying:
                self._again |= self._trying != me  # a look that calls for another look would have no end
                return False
            self._trying = me
        again = True
        while again:
            error: BaseException | None = None
            try:
                if self.try_complete():
                    return self.force_complete()
            except BaseException as raised:
                error = raised
            with _state:
                again, self._again = self._again, False
                if not again:
                    self._trying = 0
        if error is not None:
            raise error
        return False

    def enter(self) -> bool:
        """Begin a look of this thread, at whose end `settle` or `leave` stands; False if it is completed.

        Raises ValueError if the operation was given to a purgatory already.
        """
        if self.is_completed:
            return False
        if self._trying or self._purgatory is not None:
            raise ValueError("the operation waits already; make a new one")
        self._trying = threading.get_ident()  # without the lock: no other thread looks before it is watched
        return True

    def settle(self, purgatory: Purgatory, timer: Timer | None) -> tuple[bool, bool]:
        """End the look: (whether it waits now, whether somebody has asked for another look meanwhile).

        While it waits its end cancels the timer and is told to the purgatory.
        """
        with _state:
            self._trying = 0
            again, self._again = self._again, False
            waits = not self.is_completed
            if waits:
                self._purgatory, self._timer = purgatory, timer
        if timer is not None and not waits:
            timer.cancel()
        return waits, again

    def leave(self) -> None:
        """End the look, and the operation: if it is not completed, none of its methods is called."""
        with _state:
            self._trying = 0
            self.is_completed = True
