"""Tries what a crash leaves, at the moments of a run: recover it, check it, and crash its recovery as well."""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from store.testing import MANNERS, Fault, Kind, Manner, Operation, SimulatedDisk

from .check import BrokenPromise
from .engine import deterministic
from .world import Shape, World, draw_shape

FAULTY: tuple[Kind, ...] = (
    "write", "force", "truncate", "reserve", "open", "create", "rename", "remove", "make_folder", "force_folder",
)  # fmt: skip


@dataclass(frozen=True)
class Effort:
    """How much is tried.

    Attributes:
        moments: the share of a run's operations before which a crash is tried.
        subsets: survivor subsets tried at each of them.
        nested: the share of states whose recovery is crashed as well, at one of its operations ...
        depth: ... and how deep: crashes of recoveries of crashed recoveries.
        again: the share of states that are recovered a second and a third time.
    """

    moments: float = 1.0
    subsets: int = 3
    nested: float = 0.3
    depth: int = 2
    again: float = 0.25


@dataclass
class Tally:
    """What was tried."""

    seeds: int = 0
    operations: int = 0
    states: int = 0  # different ones of a run
    same: int = 0  # left out: bytes that were seen before, with the same promises
    in_recovery: int = 0
    again: int = 0
    manners: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)  # of the operation that the crash came before
    messages: int = 0
    faults: Counter[str] = field(default_factory=Counter)  # injected errors that struck
    outcomes: Counter[str] = field(default_factory=Counter)  # what the store raised then
    violations: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add what somebody else tried."""
        for name in ("seeds", "operations", "states", "same", "in_recovery", "again", "messages"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.manners.update(other.manners)
        self.kinds.update(other.kinds)
        self.faults.update(other.faults)
        self.outcomes.update(other.outcomes)
        self.violations += other.violations


class Explorer:
    """Tries crashes of one run. Its own choices come from a seed of their own: they never change the run."""

    def __init__(self, seed: int, effort: Effort, tally: Tally, limit: int | None = None) -> None:
        self.effort = effort
        self.tally = tally
        self.limit = limit  # states, over the whole tally
        self._chance = random.Random(f"explorer {seed}")
        self._tried: set[int] = set()
        self._promises: tuple[int, ...] = ()

    def on_moment(self, world: World, operation: Operation) -> None:
        """Before an operation of the run: crash here."""
        self.tally.operations += 1
        chance, effort = self._chance, self.effort
        if self.limit is not None and self.tally.states >= self.limit:
            return
        if effort.moments < 1 and chance.random() >= effort.moments:
            return
        promises = (world.ledger.life, *world.ledger.answered.values(), *world.ledger.forced.values())
        if promises != self._promises:
            self._promises = promises
            self._tried.clear()
        manners: list[Manner] = ["all", "none"] if chance.random() < 0.3 else []
        manners += [chance.choice(MANNERS) for _ in range(max(0, effort.subsets - len(manners)))]
        if world.disk.is_forced():
            del manners[1:]  # a cut takes nothing: every one leaves the same
        for manner in manners:
            self._crash(world, world.disk, manner, operation, 0, power_cut=manner != "all")

    def _crash(
        self, world: World, disk: SimulatedDisk, manner: Manner, operation: Operation, level: int, *, power_cut: bool
    ) -> None:
        """Crash a disk, and try what is left."""
        tally, chance, effort = self.tally, self._chance, self.effort
        if disk.is_forced() and disk.fingerprint() in self._tried:
            tally.same += 1  # a cut takes nothing, and this was tried
            return
        left = disk.crash(chance, manner)
        mark = left.fingerprint()
        if mark in self._tried:
            tally.same += 1
            return
        self._tried.add(mark)
        tally.states += 1
        tally.in_recovery += level > 0
        tally.manners[manner] += 1
        tally.kinds[operation.kind] += 1
        if level < effort.depth and chance.random() < effort.nested:

            def beside(inner: Operation) -> None:
                if chance.random() < 0.3:
                    self._crash(world, left, chance.choice(MANNERS), inner, level + 1, power_cut=power_cut)

            left.on_operation = beside
        try:
            bounds = world.checker.check(left, power_cut=power_cut)
            left.on_operation = None
            if chance.random() < effort.again:
                tally.again += 1
                world.checker.check_again(left, bounds, left.crash(chance, "none"), power_cut=power_cut)
        except BrokenPromise as error:
            where = f"seed {world.seed}, operation {world.disk.operations} ({operation.kind}), {manner}, level {level}"
            raise BrokenPromise(f"{where}: {error}") from error


def draw_fault(chance: random.Random) -> Fault:
    """A fault for a seed."""
    kind: Kind = chance.choice(FAULTY)
    error = chance.choice((errno.EIO, errno.ENOSPC))
    short = chance.random() if kind == "write" and chance.random() < 0.5 else 0.0
    nth = chance.choice((1, 2, 3, chance.randrange(1, 40)))
    return Fault(kind, nth, error, for_good=chance.random() < 0.3, short=short)


def explore(
    seed: int,
    shape: Shape | None = None,
    effort: Effort | None = None,
    limit: int | None = None,
    *,
    faults: Sequence[Fault] = (),
) -> Tally:
    """One run with its crashes. Raises BrokenPromise at the first violation."""
    tally = Tally(seeds=1)
    explorer = Explorer(seed, effort or Effort(), tally, limit)
    world = World(seed, shape or draw_shape(random.Random(f"shape {seed}")), explorer.on_moment, faults)
    with deterministic():
        world.run()
    tally.messages = sum(len(rows) for rows in world.ledger.rows.values())
    tally.outcomes.update(world.outcomes)
    for fault in faults:
        if fault.struck:
            tally.faults[f"{errno.errorcode[fault.error]} on {fault.kind}"] += fault.struck
    return tally
