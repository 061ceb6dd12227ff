"""Tries what a crash leaves, at the moments of a run: recover it, check it, and crash its recovery as well."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from dataclasses import dataclass
from unittest import mock

from stratalog.store import StoreError
from stratalog.store.format.layout import RETIRED_PREFIX
from stratalog.store.testing import MANNERS, BusError, Fault, Kind, Manner, Operation, SimulatedDisk

from .check import BrokenPromise
from .damage import harm
from .engine import Machine, abandon, bounds_of, deterministic, open_store
from .following import check_reader_of_remains
from .ledger import Bounds
from .repairs import RepairTrial
from .served import ServedTrial
from .shape import Shape, draw_settings, draw_shape
from .tally import Tally
from .world import World

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
        again: the share of states that are recovered a second and a third time;
        opened: ... that are opened by other settings, all of the store, and lose their power then;
        repairs: ... that are damaged and repaired as well;
        crashes: the share of a repair's operations before which it is crashed;
        readers: the share of states that are looked at by a reader without a writer;
        served: ... that are opened and read while files are cut and blocks go bad;
        transactions: crash only while a transaction is under way;
        behind_faults: crash once an error has struck, and not before: what was there then is as in a run without one.
    """

    moments: float = 1.0
    subsets: int = 3
    nested: float = 0.3
    depth: int = 2
    again: float = 0.25
    opened: float = 0.02
    repairs: float = 0.012
    crashes: float = 0.1
    readers: float = 0.05
    served: float = 0.01
    behind_faults: bool = False
    transactions: bool = False


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
        if effort.behind_faults and not world.faults_struck:
            return
        if effort.transactions and not world.ledger.has_transaction_under_way():
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
            kill = manner == "all" and world.may("kills")
            self._crash(world, world.disk, manner, operation, 0, power_cut=not kill)

    def _crash(
        self, world: World, disk: SimulatedDisk, manner: Manner, operation: Operation, level: int, *, power_cut: bool
    ) -> None:
        """Crash a disk, and try what is left. Without `power_cut` it was a kill."""
        tally, chance = self.tally, self._chance
        if disk.is_forced() and disk.fingerprint() in self._tried:
            tally.same += 1  # a cut takes nothing, and this was tried
            return
        left = disk.crash(chance, manner) if power_cut else disk.kill()
        mark = left.fingerprint() if left.is_forced() else hash((left.fingerprint(), "unforced"))
        if mark in self._tried:
            tally.same += 1
            return
        self._tried.add(mark)
        self._count(world, manner, operation, level, power_cut=power_cut)
        try:
            self._try(world, left, level, power_cut=power_cut)
        except (BrokenPromise, BusError, StoreError) as error:
            how = manner if power_cut else "kill"
            where = f"seed {world.seed}, operation {world.disk.operations} ({operation.kind}), {how}, level {level}"
            raise BrokenPromise(f"{where}: {error}") from error

    def _count(self, world: World, manner: Manner, operation: Operation, level: int, *, power_cut: bool) -> None:
        tally, parts = self.tally, self.tally.parts
        tally.states += 1
        tally.in_recovery += level > 0
        tally.manners[manner if power_cut else "kill"] += 1
        tally.kinds[operation.kind] += 1
        parts[f"{world.shape.lanes} lanes"] += 1
        if world.ledger.has_transaction_under_way():
            parts[f"a transaction is under way, {world.shape.lanes} lanes"] += 1
        parts[f"generation {min(world.generation, 3)}"] += 1
        parts["behind removed segments"] += any(lane.removed for lane in world.ledger.lanes)
        parts["in a removal or recycling"] += operation.path.name.startswith(RETIRED_PREFIX)
        parts["behind a kill"] += world.killed
        parts["of a relative path"] += world.shape.relative

    def _try(self, world: World, left: SimulatedDisk, level: int, *, power_cut: bool) -> None:
        """Try what a crash left: recovered, opened, damaged and repaired, crashed again."""
        tally, chance, effort = self.tally, self._chance, self.effort
        # Behind a failed force, a reader without a writer may find damage where recovery finds a torn tail.
        if world.may("readers") and chance.random() < effort.readers:
            tally.parts["read without a writer"] += 1
            Machine.starts += power_cut
            check_reader_of_remains(left, world.checker, chance)
            Machine.starts -= power_cut
        opened = left.copy() if chance.random() < effort.opened and world.may("settings") else None
        served = left.copy() if chance.random() < effort.served and world.may("reads") else None
        harmed = left.copy() if chance.random() < effort.repairs and world.may("repair") else None
        if level < effort.depth and chance.random() < effort.nested:

            def beside(inner: Operation) -> None:
                if chance.random() < 0.3:
                    # Of a kill's remains some are not forced yet: a cut takes them, another kill does not.
                    kill = not power_cut and chance.random() < 0.3
                    self._crash(world, left, chance.choice(MANNERS), inner, level + 1, power_cut=not kill)

            left.on_operation = beside
        bounds = world.checker.check(left, power_cut=power_cut)
        left.on_operation = None
        if chance.random() < effort.again:
            tally.again += 1
            world.checker.check_again(left, bounds, left.crash(chance, "none"), power_cut=power_cut)
        if opened is not None:
            self._open(world, opened, bounds, power_cut=power_cut)
        if harmed is not None:
            self._repair(world, harmed, bounds)
        if served is not None:
            ServedTrial(world, served, chance).run(self.tally.parts)

    def _open(self, world: World, disk: SimulatedDisk, bounds: Bounds, *, power_cut: bool) -> None:
        """Open all of the store by other settings; a power cut right after it takes nothing."""
        self.tally.parts["opened by other settings"] += 1
        settings = draw_settings(self._chance, world.shape.parts)
        store = open_store(disk, settings.config(world.shape.lanes), lambda: world.now_ms, random.Random(0))
        expected = world.checker.shown(bounds)
        found = {queue: bounds_of(store, queue) for queue in expected}
        for queue in world.checker.may_be_forgotten(bounds):
            if found[queue] == (0, 0):
                self.tally.parts["deleted queues forgotten"] += 1
                expected[queue] = 0, 0
        abandon(store)
        if found != expected:
            raise BrokenPromise(f"opened by {settings}, the store has {found} in place of {expected}")
        if world.checker.check(disk.crash(self._chance, "none"), power_cut=power_cut) != bounds:
            raise BrokenPromise(f"what opening by {settings} found is lost by a power cut right after it")

    def _repair(self, world: World, disk: SimulatedDisk, bounds: Bounds) -> None:
        """Damage a file, and repair; the same with crashes inside the repair."""
        done = harm(disk, self._chance, world.old_copies)
        if done is None:
            return
        how, words, lanes = done
        parts = self.tally.parts
        parts[f"repaired: {how}"] += 1
        trial = RepairTrial(world.checker, disk, bounds, lanes)
        try:
            trial.run(self._chance, self.effort.crashes)
        except (BrokenPromise, StoreError, OSError) as error:  # an OSError must not be taken for the device's
            raise BrokenPromise(f"{words}: {error}") from error
        parts["repaired"] += 1
        parts["crashed in a repair"] += len(trial.cuts)


def draw_fault(chance: random.Random, kinds: Sequence[Kind] = FAULTY, far: int = 40) -> Fault:
    """A fault for a seed: of any call of the `kinds`, once or for good, soon or late."""
    kind = chance.choice(kinds)
    error = chance.choice((errno.EIO, errno.ENOSPC))
    short = chance.random() if kind == "write" and chance.random() < 0.5 else 0.0
    nth = chance.choice((1, 2, 3, chance.randrange(1, far)))
    return Fault(kind, nth, error, for_good=chance.random() < 0.3, short=short)


def explore(
    seed: int,
    shape: Shape | None = None,
    effort: Effort | None = None,
    limit: int | None = None,
    *,
    faults: Sequence[Fault] = (),
    tally: Tally | None = None,
) -> Tally:
    """One run with its crashes, counted in `tally` if there is one. Raises BrokenPromise at the first violation."""
    tally = tally if tally is not None else Tally()
    tally.seeds += 1
    explorer = Explorer(seed, effort or Effort(), tally, limit)
    shape = shape or draw_shape(random.Random(f"shape {seed}"))
    world = World(seed, shape, explorer.on_moment, faults)
    try:
        with deterministic(), mock.patch("stratalog.store.segment.zeros.STEP_BYTES", shape.zeros_bytes):
            world.run()
    except (BrokenPromise, BusError) as error:
        said = str(error)
        raise BrokenPromise(said if said.startswith("seed ") else f"seed {seed}: {said}") from error
    tally.messages = sum(len(rows) for rows in world.ledger.rows.values())
    tally.outcomes.update(world.outcomes)
    tally.parts.update(world.reached)
    for fault in faults:
        if fault.struck:
            tally.faults[f"{errno.errorcode[fault.error]} on {fault.kind}"] += fault.struck
    return tally
