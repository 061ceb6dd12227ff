"""What becomes of open stores in a forked child (also that of multiprocessing's "fork").

The child has copies of the objects, but not their threads, and their files are the parent's: whatever it did with
them would be missing or would harm the parent's log. So its copies are closed, and say why.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """Something that has to know that it is in a child now."""

    def _after_fork(self) -> None:
        """Called in the child, in the only thread that it has."""


_OPEN: weakref.WeakSet[Forkable] = weakref.WeakSet()


def watch(store: Forkable) -> None:
    """Tell a store of forks from now on."""
    _OPEN.add(store)


def forget(store: Forkable) -> None:
    """It was closed."""
    _OPEN.discard(store)


def _after_fork() -> None:
    for store in list(_OPEN):
        store._after_fork()
    _OPEN.clear()


os.register_at_fork(after_in_child=_after_fork)
