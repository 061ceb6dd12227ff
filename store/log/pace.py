"""Appends go no faster than retention: if it cannot keep up, the builders of lanes wait for it.

`retention_bytes` is a promise about the disk. Without this, a store that fills segments faster than retention removes
them would grow beyond it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..format.hidden import is_hidden

if TYPE_CHECKING:
    from .written_lane import WrittenLane

MOST_OVER = 4  # segments beyond the limit
PATIENCE_S = 0.5  # for a step of retention
NAP_S = 0.002


class Pace:
    """Holds the builders of all lanes back while the store is more than `MOST_OVER` segments over its limit.

    Invariants:
        * no builder waits for retention that cannot go on: its last look left too much or failed, or its thread ended;
        * no builder waits longer than `PATIENCE_S` for the next step: retention may itself wait for that builder;
        * no record of the store's own waits: retention itself appends records, and records free space;
        * no builder waits while retention has the lanes forced.

    Attributes:
        is_running: there is a thread that removes.
        is_forcing: retention waits for the builders.
        waits: how often a builder has waited.
    """

    def __init__(self, held_bytes: Callable[[], int], segment_bytes: int) -> None:
        self._held_bytes = held_bytes
        self._most_bytes = MOST_OVER * segment_bytes
        self._steps = 0
        self._is_stuck = False
        self._limit_bytes: int | None = None
        self.is_running = False
        self.is_forcing = False
        self.waits = 0

    def went(self) -> None:
        """Retention has taken a step."""
        self._steps += 1
        self._is_stuck = False

    def looked(self, limit_bytes: int | None, *, is_stuck: bool) -> None:
        """Retention has looked, and may leave `limit_bytes`; `is_stuck`: it has left what it should have removed."""
        self._steps += 1
        self._limit_bytes = limit_bytes
        self._is_stuck = is_stuck

    def hold_back(self, lane: WrittenLane, wake: Callable[[], None]) -> None:
        """Return when the lane may begin another segment. `wake` has retention look."""
        if not self._is_behind(lane):
            return
        self.waits += 1
        wake()
        steps, until_s = self._steps, time.monotonic() + PATIENCE_S
        while self._is_behind(lane) and time.monotonic() < until_s:
            time.sleep(NAP_S)
            if self._steps != steps:
                steps, until_s = self._steps, time.monotonic() + PATIENCE_S

    def _is_behind(self, lane: WrittenLane) -> bool:
        limit_bytes = self._limit_bytes
        if limit_bytes is None or not self.is_running or self.is_forcing or self._is_stuck or lane.poison is not None:
            return False
        if self._held_bytes() <= limit_bytes + self._most_bytes:
            return False
        queue = lane.queue
        return queue.refusal is None and not any(one.count and is_hidden(one.stream.topic) for one in queue.requests)
