"""Makes objects with locks and threads safe after a fork: the child has the locks as they were, and no threads."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class ForkAware(Protocol):
    """An object that has to be told, in the child, of a fork."""

    def after_fork(self) -> None:
        """Replace the locks and refuse further use."""


_KNOWN: set[weakref.ref[ForkAware]] = set()  # no WeakSet: its copy takes several steps, while threads may add to it


def tell_after_fork(one: ForkAware) -> None:
    """Call its `after_fork` in each child of this process, as long as it lives."""
    _KNOWN.add(weakref.ref(one, _KNOWN.discard))


def _in_the_child() -> None:
    for known in list(_KNOWN):
        one = known()
        if one is not None:
            one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)
