"""Forks of a process that has an endpoint: the child has copies of its sockets, and lets them go at once.

Else the port would still take connections, which nobody answers, when the parent has stopped or died, and its clients
would not hear of that as long as the child lives. The store has a list of its own: the endpoint imports nothing below
its public face.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class HasSockets(Protocol):
    """Something with sockets."""

    def let_go(self) -> None:
        """Close the sockets of this process alone. Called in the child, in the only thread that it has."""


_OPEN: set[weakref.ref[HasSockets]] = set()  # no WeakSet: that is copied step by step, beside threads that add to it


def watch(one: HasSockets) -> None:
    """Have its sockets let go in children, as long as it lives."""
    _OPEN.add(weakref.ref(one, _OPEN.discard))


def _after_fork() -> None:
    for known in list(_OPEN):
        one = known()
        if one is not None:
            one.let_go()
    _OPEN.clear()


os.register_at_fork(after_in_child=_after_fork)
