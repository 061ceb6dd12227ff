"""Growth of the rings of recent frames: a log that grows gets more memory, and no append waits for it."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic, thread_time
from typing import TYPE_CHECKING

from ...cache import available_bytes
from ..config import MIB
from ..device.background import Background, Bell
from ..device.ring import Ring

if TYPE_CHECKING:
    from .written_lane import WrittenLane

FREE_PARTS = 4  # so many times what a ring may still take must be available
MOST_GROWN_BYTES = 448 * MIB  # of the rings of a process, beyond their first sizes
REST = 19  # the thread rests so many times as long as it has worked
LEAST_REST_S = 0.05  # waking up is expensive where all threads share one processor
LOOK_S = 0.25

# The rings that may have grown; one list for the process, as its memory is one. Only single operations of the deque are
# used, so threads need no lock. A forked child has no thread that grows anything.
GROWING: deque[weakref.ref[Ring]] = deque()
os.register_at_fork(after_in_child=GROWING.clear)


def grown_bytes() -> int:
    """Bytes that the rings of this process have beyond their first sizes."""
    rings = [reference() for reference in list(GROWING)]
    return sum(ring.grown_bytes for ring in rings if ring is not None)


def _drop_closed() -> None:
    """Forget the rings that are closed. Meanwhile another thread may count one ring too few."""
    for _ in range(len(GROWING)):
        try:
            reference = GROWING.popleft()
        except IndexError:  # another thread does the same
            return
        if reference() is not None:
            GROWING.append(reference)


class RingGrowth:
    """Has the kernel provide pages past the ends of a store's rings, in a thread of its own.

    The thread begins when a ring first wants more. It works while nothing is appended: while there are appends, it cost
    them a tenth of their rate and more. It takes a twentieth of one processor and 40 MiB a second at the most, and no
    lock: the kernel's call runs without the interpreter's.

    Invariants:
        * a ring never has more than its limit, and all rings of the process never more than `MOST_GROWN_BYTES` and a
          step a store beyond their first sizes;
        * a ring has its first size, or no more than was written to it and a step.
    """

    def __init__(self, available: Callable[[], int] = available_bytes) -> None:
        """`available()`: bytes of memory that this process can still take."""
        self._available = available
        self._lanes: Sequence[WrittenLane] = ()
        self._wake, self._stop = Bell(), Bell()
        self._thread: Background | None = None
        self._look_at = 0.0  # whether there is room (`time.monotonic`)
        self._ends: list[int] = []

    def start(self, lanes: Sequence[WrittenLane]) -> None:
        """Take on the lanes; nothing is provided yet."""
        self._lanes = [lane for lane in lanes if lane.ring.limit_bytes > lane.ring.size_bytes]
        for lane in self._lanes:
            GROWING.append(weakref.ref(lane.ring))
        _drop_closed()

    def look(self) -> None:
        """Look whether the rings want more pages, after lanes have gone on. One thread calls it."""
        if self._thread is not None:
            self._wake.set()
        elif any(map(wants_more, self._lanes)):
            thread = Background(self._run)
            thread.start()  # first: without a thread now there may be one later
            self._thread = thread

    def stop(self) -> None:
        """End the thread. It may be called again; `look` is not called afterwards."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            wanting = [lane.ring for lane in self._lanes if wants_more(lane)]
            if not wanting:
                if not any(lane.ring.can_grow for lane in self._lanes):
                    return  # they have all that they may have
                self._wake.wait()
                self._wake.clear()
            elif self._has_rested() and (monotonic() < self._look_at or self._is_room(wanting)):
                self._grow(wanting)
            else:
                self._stop.wait(LOOK_S)

    def _grow(self, rings: Sequence[Ring]) -> None:
        """Work a little, and rest."""
        began = thread_time()
        for ring in rings:
            ring.grow()
        self._stop.wait(max((thread_time() - began) * REST, LEAST_REST_S))

    def _has_rested(self) -> bool:
        """Whether nothing was appended since the last look."""
        ends = [lane.tail for lane in self._lanes]
        rested, self._ends = ends == self._ends, ends
        return rested

    def _is_room(self, rings: Sequence[Ring]) -> bool:
        """Whether the process, and the machine or its container, have memory to spare."""
        missing = sum(ring.limit_bytes - ring.warm for ring in rings)
        is_room = grown_bytes() < MOST_GROWN_BYTES and self._available() >= FREE_PARTS * missing
        if is_room:
            self._look_at = monotonic() + LOOK_S
        return is_room


def wants_more(lane: WrittenLane) -> bool:
    """Whether enough went through a lane's ring for it to get more pages."""
    ring = lane.ring
    return ring.can_grow and ring.warm <= ring.written(lane.tail)
