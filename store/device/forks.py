"""The end of open stores when the process forks (also by multiprocessing's "fork"), and when it ends.

The child has copies of the objects, but not their threads, and their files are the parent's: what it did with them
would be lost, or harm the parent's log. So its copies are closed, and say why.

At the end of the interpreter the stores that are still open are closed. It is the moment when all threads but the
daemons have ended, and the daemons, which the store's are, still run.
"""

from __future__ import annotations

import atexit
import os
import weakref
from contextlib import ExitStack
from typing import Protocol


class ForkAware(Protocol):
    """Something that has to know that it is in a child now, or that the interpreter ends."""

    def _after_fork(self) -> None:
        """Called in the child, in the only thread that it has."""

    def _at_exit(self) -> None:
        """Called in the main thread, before the other ones are stopped."""


_OPEN: set[weakref.ref[ForkAware]] = set()  # no WeakSet: that is copied step by step, beside threads that add to it


def watch(store: ForkAware) -> None:
    """Tell a store of forks and of the end from now on."""
    _OPEN.add(weakref.ref(store, _OPEN.discard))


def forget(store: ForkAware) -> None:
    """Tell a store nothing more: it was closed."""
    _OPEN.discard(weakref.ref(store))


def _watched() -> list[ForkAware]:
    return [store for known in list(_OPEN) if (store := known()) is not None]


def _after_fork() -> None:
    for store in _watched():
        store._after_fork()
    _OPEN.clear()


def _at_exit() -> None:
    with ExitStack() as stack:  # each has its turn, whatever the others raise
        for store in _watched():
            stack.callback(store._at_exit)


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
