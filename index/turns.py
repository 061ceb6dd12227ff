"""Threads that take one lock by turns, without a convoy.

A thread that blocks on a lock gets it at the release, while it still waits for the interpreter. The thread that
has the interpreter then finds the lock taken at its next step, and blocks as well. From then on each step of both is a
switch between threads, some 20 us instead of 0.1, for as long as both have work. So a thread that finds the lock taken
lets the others go on for a moment, and does not stand in line for it. It does that only a few times: then it waits for
the lock as any thread does, as a holder may keep it for long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice

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
