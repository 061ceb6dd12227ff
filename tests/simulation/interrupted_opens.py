"""Openings that are interrupted, on copies of a run's disk; a crash then, or the next opening, finds everything."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from stratalog.store import MessageStore, StoreError
from stratalog.store.testing import SimulatedDisk

from .check import BrokenPromise, Checker
from .engine import abandon, apart
from .interrupts import HOWS, PLACES, StepInterrupter
from .shape import Settings

Open = Callable[[SimulatedDisk, Settings], MessageStore]


class Look(Protocol):
    """Looks at everything that an opened store has. Raises BrokenPromise."""

    def __call__(self, store: MessageStore, *, note: bool) -> None: ...


class InterruptedOpens:
    """The tries of one run. `reached` counts them."""

    def __init__(
        self, chance: random.Random, checker: Checker, open_beside: Open, look_at: Look, reached: Counter[str]
    ) -> None:
        self._chance = chance
        self._checker = checker
        self._open_beside = open_beside
        self._look_at = look_at
        self._reached = reached

    def try_all(self, disk: SimulatedDisk, settings: Settings) -> SimulatedDisk:
        """Interrupt the opening that comes now; the disk that the run goes on with: sometimes an interrupted one."""
        chance = self._chance
        for how in HOWS:
            copy, share = disk.copy(), chance.random()
            total = self._open_interrupted(disk.copy(), settings, StepInterrupter(how)).steps
            if not total:
                continue
            interrupter = self._open_interrupted(copy, settings, StepInterrupter(how, 1 + int(share * total)))
            if interrupter.place:
                self._reached[f"open interrupted at {PLACES[how]}"] += 1
            place = f"{how} {interrupter.at} of {total} of an opening was interrupted"
            try:
                self._checker.check(copy.crash(random.Random(share)), power_cut=True)
                self._checker.check(copy.copy(), power_cut=False)
                self._open_after(copy.copy(), settings)
            except (BrokenPromise, StoreError) as error:
                raise BrokenPromise(f"{place}: {error}") from error
            if how == "operation" and chance.random() < 0.3:
                disk = copy
        return disk

    def _open_interrupted(
        self, disk: SimulatedDisk, settings: Settings, interrupter: StepInterrupter
    ) -> StepInterrupter:
        disk.on_operation = lambda operation: interrupter.meet("operation")
        try:
            with apart(), interrupter.watching():
                store = self._open_beside(disk, settings)
            abandon(store)
        except KeyboardInterrupt:
            pass
        finally:
            disk.on_operation = None
        return interrupter

    def _open_after(self, disk: SimulatedDisk, settings: Settings) -> None:
        """The next opening works, and has everything; a lock that was left would refuse it."""
        with apart():
            store = self._open_beside(disk, settings)
            self._look_at(store, note=False)
            abandon(store)
