"""The bound on the descriptors that segments hold for their readers."""

from __future__ import annotations

import os
import resource
import weakref
from collections import deque
from contextlib import suppress
from typing import Protocol

MOST_DESCRIPTORS = 16384
LEAST_DESCRIPTORS = 16
PART = 2  # of what the process may have
SPARE_PART = 8  # of these: where fewer are left, they are scarce


class Holder(Protocol):
    """Something that holds a descriptor, and opens it again when it is wanted."""

    def was_used(self) -> bool:
        """Whether it was used since the last time that this was asked, or the opening."""

    def let_go(self) -> None:
        """Give the descriptor back. A reader that is just using it keeps it until the end of its call."""


# One entry for each descriptor, in the order of opening; used ones go round once more. One list for the process, as the
# limit on descriptors is. Only single operations of the deque are used, so threads need no lock. A forked child forgets
# its parent's list: a thread that is not there may have held the lock of a holder.
#
# Invariant: a descriptor that is held has an entry of its own, or one that its opener is about to add, or one that is
# just going round. So code that lets go takes an entry away first. A surplus entry (two threads opened the same, a
# store was closed) does no harm: it lets go of nothing.
OPENED: deque[weakref.ref[Holder]] = deque()
os.register_at_fork(after_in_child=OPENED.clear)


def note_opened(holder: Holder) -> None:
    """`holder` has just taken a descriptor: if there are too many now, the least recently used let go.

    Call it without a lock of `holder`: others are asked to let go meanwhile, under theirs.
    """
    OPENED.append(weakref.ref(holder))
    most = _most()
    chances = most  # others may use them faster than they are asked
    while len(OPENED) > most:
        with suppress(IndexError):  # other threads were faster
            entry = OPENED.popleft()
            oldest = entry()
            if oldest is not None and chances and oldest.was_used():
                chances -= 1
                OPENED.append(entry)
            elif oldest is not None:
                oldest.let_go()


def let_go_of_most() -> None:
    """Let go of most: the system gives no more, as readers in calls hold uncounted ones. Call it without a lock."""
    for _ in range(len(OPENED) - LEAST_DESCRIPTORS // 2):
        with suppress(IndexError):
            oldest = OPENED.popleft()()
            if oldest is not None:
                oldest.let_go()


def are_scarce() -> bool:
    """Whether so many descriptors are held that another one soon costs another holder its own."""
    return len(OPENED) > _most() - _most() // SPARE_PART


def _most() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return min(MOST_DESCRIPTORS, max(LEAST_DESCRIPTORS, limit // PART))
