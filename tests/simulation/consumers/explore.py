"""Tries what a crash leaves, at the moments of a run; some of what is tried is crashed again while it recovers."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.store import StoreError
from stratalog.store.testing import MANNERS, Fault, Manner, Operation, SimulatedDisk

from ..check import BrokenPromise
from ..tally import Tally
from .check import Look
from .inline import inline
from .limits import drawn_limits
from .shape import Shape, draw_shape
from .world import World

FILLING = 0.15  # of the moments of a call that only makes segments full


@dataclass(frozen=True)
class Effort:
    """How much is tried.

    Attributes:
        moments: the share of a run's operations before which a crash is tried;
        cuts: survivor subsets at each of them.
        nested: the share of states whose opening and first deliveries are crashed as well, at one in ten operations.
        closed: the share of states that are closed, and opened and looked at once more.
        calls: crashes are tried in these alone; in all without them.
    """

    moments: float = 0.25
    cuts: int = 2
    nested: float = 0.15
    closed: float = 0.05
    calls: frozenset[str] | None = None


class Explorer:
    """Tries crashes of one run. Its own choices come from a seed of their own: they never change the run."""

    def __init__(self, seed: int, effort: Effort, tally: Tally) -> None:
        self._effort = effort
        self._tally = tally
        self._chance = random.Random(f"explorer {seed}")
        self._tried: set[int] = set()
        self._version = -1

    def on_moment(self, world: World, operation: Operation) -> None:
        """Before an operation of the run: crash here."""
        self._tally.operations += 1
        chance, effort = self._chance, self._effort
        if effort.calls is not None and world.doing not in effort.calls:
            return
        share = effort.moments * (FILLING if world.doing == "fill" else 1)
        if chance.random() >= share or not any(one.exists for one in world.ledger.subscriptions.values()):
            return
        if world.ledger.version != self._version:
            self._version = world.ledger.version
            self._tried.clear()
        cuts = 1 if world.disk.is_forced() else effort.cuts
        for manner in [chance.choice(MANNERS) for _ in range(cuts)]:
            self._crash(world, world.disk, manner, operation, world.clock.now_ms, 0)

    def _crash(
        self, world: World, disk: SimulatedDisk, manner: Manner, operation: Operation, now_ms: int, level: int
    ) -> None:  # fmt: skip
        tally, chance = self._tally, self._chance
        left = disk.crash(chance, manner)
        mark = hash((left.fingerprint(), now_ms if level else 0))
        if mark in self._tried:
            tally.same += 1
            return
        self._tried.add(mark)
        tally.states += 1
        tally.in_recovery += level > 0
        tally.manners[manner] += 1
        tally.kinds[world.doing] += 1
        if world.doing == "transact":
            tally.parts[f"a transaction with acknowledgements is under way, {world.shape.lanes} lanes"] += 1
        look = Look(world.ledger, world.shape, left, now_ms, chance)
        if level == 0 and chance.random() < self._effort.nested:

            def beside(inner: Operation) -> None:
                if chance.random() < 0.1:
                    self._crash(world, left, chance.choice(MANNERS), inner, look.clock.now_ms, level + 1)

            left.on_operation = beside
        try:
            look.run()
        except (BrokenPromise, StoreError) as error:
            where = f"{world.doing}, operation {world.disk.operations} ({operation.kind} of {operation.path.name})"
            raise BrokenPromise(f"seed {world.seed}, {where}, {manner}, level {level}: {error}") from error


def explore(
    seed: int, shape: Shape | None = None, effort: Effort | None = None, tally: Tally | None = None,
    faults: Sequence[Fault] = (),
) -> Tally:  # fmt: skip
    """One run with its crashes, and with errors of the device. Raises BrokenPromise at the first violation."""
    tally = tally if tally is not None else Tally()
    tally.seeds += 1
    explorer = Explorer(seed, effort or Effort(), tally)
    with inline(seed) as driver:
        world = World(seed, shape or draw_shape(random.Random(f"shape {seed}")), driver, explorer.on_moment, faults)
        try:
            with drawn_limits(seed):
                world.run()
        except BrokenPromise as error:
            said = str(error)
            raise BrokenPromise(said if said.startswith("seed ") else f"seed {seed}: {said}") from error
        finally:
            tally.parts.update(world.reached)
            for fault in faults:
                if fault.struck:
                    tally.parts[f"{errno.errorcode[fault.error]} on {fault.kind}"] += fault.struck
    return tally
