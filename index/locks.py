"""Locks of objects that many threads use: taken by turns without a convoy, and made again after a fork.

A thread that blocks on a lock gets it at the release, while it still waits for the interpreter. The thread that
has the interpreter then finds the lock taken at its next step, and blocks as well. From then on each step of both is a
switch between threads, some 20 us instead of 0.1, for as long as both have work. So a thread that finds the lock taken
lets the others go on for a moment, and does not stand in line for it. It does that only a few times: then it waits for
the lock as any thread does, as a holder may keep it for long.

In the child of a fork the locks are as they were, and there are no other threads: nobody would release them.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Protocol

MOMENT_S = 0.00005
MOMENTS = 20


def let_pass(lock: threading.Lock, *, growth: int = 1, moments: int = MOMENTS) -> None:
    """Let others go on until the lock is free, or for a millisecond or two. Call it if `lock.locked()`.

    Each moment is `growth` times as long as the one before: for a lock that is sometimes held for long.
    """
    moment_s = MOMENT_S
    for _ in range(moments):
        time.sleep(moment_s)  # not a wait for an event: gives up the interpreter, which the lock's holder waits for
        moment_s *= growth
        if not lock.locked():
            return


def if_free(lock: threading.Lock) -> Iterator[bool]:
    """For the head of a `for`: yields once, holding the lock, or not at all if it is taken. The body releases it.

    After an `if` of `acquire` an interrupt would leave the lock taken: a signal's handler runs after a call, but not
    between the step of an iterator that is no Python code and the `try` that follows. And a thread that asks `locked`
    first may find the lock taken after that.
    """
    return islice(iter(partial(lock.acquire, False), False), 1)


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


os.register_at_fork(after_in_child=_in_the_child)
