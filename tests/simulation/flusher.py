"""A flusher as steps: the parts of `flusher` in their order, with a place to stop wherever a thread could."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from stratalog.store import StoreError
from stratalog.store.format.layout import align_up
from stratalog.store.log.flusher import Flusher
from stratalog.store.log.write import Write

from .engine import build_step, fail_step, is_ready, write_step
from .ledger import Ledger

PATIENCE = 4  # polls for nothing before what is held back is written all the same

Stage = Literal["build", "write", "ended"]


class LifeEnds(BaseException):
    """The process of the run dies here. Not an Exception: nothing of the store may handle it."""


class SteppedFlusher:
    """One thread of a lane's flusher. `stage` is what the next `step` does."""

    def __init__(self, index: int, flusher: Flusher, ledger: Ledger, clock_ms: Callable[[], int]) -> None:
        self.index = index
        self.lane = flusher.lane
        self.stage: Stage = "build"
        self.running = False  # inside a step: a nested one must leave it alone
        self._flusher = flusher
        self._ledger = ledger
        self._clock_ms = clock_ms
        self._writes: deque[Write] = deque()
        self._polls = 0  # in a row, for nothing

    @property
    def stands_still(self) -> bool:
        """Does somebody else, as a round of transactions, have the lane stand still?"""
        return self._flusher.building.locked()

    @property
    def must_wait(self) -> bool:
        """Does its next write have to wait for zeros that are on their way to the device?"""
        if not self._writes:
            return False
        write = self._writes[0]
        zeros, base = write.segment.writer.zeros, write.segment.base
        assert base is not None
        return zeros is not None and zeros.is_stepping and write.end - base > zeros.ready

    def step(self) -> None:
        """Take, build and plan; or do one of the writes that were planned, and answer."""
        if self.stage == "ended" or self.running:
            return
        self.running = True
        try:
            self._step()
        except (OSError, StoreError) as error:
            fail_step(self._flusher, error)
            self._writes.clear()
            self.stage = "ended"
        finally:
            self.running = False
        segment, lane = self.lane.segment, self.lane
        sequence, base = (segment.sequence, segment.base or 0) if segment is not None else (0, 0)
        self._ledger.note_built(self.index, sequence, align_up(lane.tail - base), self._clock_ms())
        self._ledger.note_answers(self.index)

    def _step(self) -> None:
        flusher, lane = self._flusher, self.lane
        if self.stage == "write":
            write_step(flusher, self._writes.popleft())
        else:
            came = is_ready(flusher.queue)
            self._polls = 0 if came else self._polls + 1
            held = lane.tail > lane.issued
            if not came and lane.poison is None and (not held or self._polls < PATIENCE):
                return  # asleep
            writes, ended = build_step(flusher, came=came)
            self._writes.extend(writes)
            if ended and not writes:
                self.stage = "ended"
                return
        self.stage = "write" if self._writes else "build"


def stop_before_completion(lane: Any, pause: Callable[[], None]) -> None:
    """Have a lane call `pause` between the end of a write and its completion."""
    complete = lane.complete

    def paused(write: Write) -> Any:
        pause()
        return complete(write)

    lane.complete = paused
