"""A run: producers, consumers, flushers and the background of one store, all steps drawn from one seed."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from stratalog.store import MessageStore, StoreError
from stratalog.store.format.layout import lane_name
from stratalog.store.testing import Fault, Operation, SimulatedDisk

from .callers import Callers, QueueBeginsAnew, lowest_segments
from .check import BrokenPromise, Checker
from .engine import (
    TASKS,
    Machine,
    Naps,
    abandon,
    apart,
    close_store,
    feed_cache,
    flushers_of,
    home,
    is_locked,
    lanes_of,
    open_store,
    retention_works,
    stop_at_close,
    threads_of,
    upkeep_step,
)
from .flusher import LifeEnds, SteppedFlusher, stop_before_completion
from .following import Following
from .interrupted_opens import InterruptedOpens
from .interrupts import HOWS, PLACES, How, StepInterrupter
from .ledger import Bounds, Ledger, records_of
from .retention import check_removed, note_removal
from .rounds import SteppedRounds
from .shape import Part, Settings, Shape

OnMoment = Callable[["World", Operation], None]
CLOSING: dict[How, int] = {"operation": 12, "signal": 500}  # steps, about; behind the last one comes nothing


@cache
def elsewhere() -> Path:
    """Another working directory, in which a relative path leads to a folder of the same name."""
    folder = home().parent / "elsewhere"
    folder.mkdir()
    return folder


class World:
    """One run on one disk, life after life; `on_moment` is called before every operation of the disk.

    The same seed and shape give the same operations, whatever `on_moment` looks at.
    """

    def __init__(
        self, seed: int, shape: Shape, on_moment: OnMoment | None = None, faults: Sequence[Fault] = ()
    ) -> None:
        self.seed = seed
        self.shape = shape
        self.settings = shape.lives[0]
        self.chance = random.Random(f"world {seed}")
        self._feeding = random.Random(f"feeding {seed}")
        self.disk = SimulatedDisk()
        self.ledger = Ledger(shape.lanes)
        self.checker = Checker(self.ledger)
        self.now_ms = 1_700_000_000_000
        self.operations: list[Operation] = []
        self.outcomes: Counter[str] = Counter()  # errors that the store raised, by name
        self.reached: Counter[str] = Counter()  # parts of the schedule
        self.old_copies: dict[Path, bytes] = {}  # of files, from earlier in this life
        self.generation = 0  # how many deaths the disk has seen since the store was last closed
        self.killed = False  # an earlier life was killed, and its disk has not lost its power since
        self._faults = list(faults)  # those that are not set yet
        self._all_faults = tuple(faults)
        self._faults_at = random.Random(f"faults {seed}").randrange(-5, shape.steps // 2)  # negative: before opening
        self._on_moment = on_moment
        self._nested = False
        self._dies_at = 0
        self._left: SimulatedDisk | None = None
        self._interrupter: StepInterrupter | None = None
        self._broken: BrokenPromise | None = None
        self.store: MessageStore | None = None
        self.callers = Callers(shape, seed, self.chance, self.ledger, self._note, self.reached)
        self._flushers: list[SteppedFlusher] = []
        self._rounds: SteppedRounds | None = None
        self._opener = InterruptedOpens(self.chance, self.checker, self._open_beside, self._look_at, self.reached)
        self._following: Following | None = None
        if "readers" in shape.parts:
            self._following = Following(seed, self.ledger, self.reached)
        self._copying = random.Random(f"copies {seed}")
        self._device = random.Random(f"device {seed}")

    def _note(self, outcome: str) -> None:
        self.outcomes[outcome] += 1

    def may(self, part: Part) -> bool:
        """Is this part of the schedule in use?"""
        return part in self.shape.parts

    @property
    def faults_struck(self) -> int:
        """How often errors struck, in all lives."""
        return sum(fault.struck for fault in self._all_faults)

    # -- lives ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """All lives, and a look at everything at the end. Raises BrokenPromise."""
        began_in = os.getcwd()
        Naps.step = self._nap  # type: ignore[method-assign]
        try:
            for life, settings in enumerate(self.shape.lives):
                self._set(settings)
                self._live(last=life == len(self.shape.lives) - 1)
            self.disk.inject()
            self._begin()
        except QueueBeginsAnew:
            pass  # a longer run would say no more
        except Exception:
            if self._broken is None:
                raise
        finally:
            self._end(abandon)
            os.chdir(began_in)
        if self._broken is not None:
            raise self._broken

    def _set(self, settings: Settings) -> None:
        if settings != self.settings:
            self.reached["opened by other settings"] += 1
        self.settings = settings
        self.ledger.lazy = settings.durability == "os"
        self.old_copies.clear()
        self.disk.unit_bytes = self._device.choice(self.shape.block_bytes)  # a life may be on another device
        self.reached[f"blocks of {self.disk.unit_bytes} bytes"] += 1

    def _live(self, *, last: bool) -> None:
        chance = self.chance
        length = chance.randrange(self.shape.steps // 2, self.shape.steps + 1)
        if self.may("interrupts") and chance.random() < 0.4:
            self.disk = self._opener.try_all(self.disk, self.settings)
        self._dies_at = self.disk.operations + chance.randrange(1, length) if chance.random() < 0.4 else 0
        kill = self.may("kills") and chance.random() < 0.5
        try:
            if self._begin():
                for number in range(length):
                    self._inject(number)
                    self.step()
            if chance.random() < 0.4 or last:
                self._dies_at = 0
                if self._close():
                    return
                kill = True
        except LifeEnds:
            self.reached["died at an operation"] += 1
        self._dies_at = 0
        self._die(kill=kill)

    def _die(self, *, kill: bool) -> None:
        """The process ends, or the power; the next life finds what is left."""
        chance = self.chance
        ended = self._left or self.disk
        Machine.starts += not kill
        left = ended.kill() if kill else ended.crash(chance)
        self._end(abandon)
        self._left = None
        # Sometimes the store is opened on what the crash left, sometimes on what a recovery made of it. What a kill
        # left stays as it is: a recovery would force it.
        looked_at = left if not kill and chance.random() < 0.5 else left.copy()
        self._recovered(self.checker.check(looked_at, power_cut=not kill))
        self.generation += 1
        self.killed = kill
        self.reached["killed" if kill else "power cut"] += 1
        self.disk = left

    def _recovered(self, bounds: Bounds) -> None:
        """The next life begins with these messages."""
        self.ledger.crashed(bounds)
        self.old_copies.clear()

    def _begin(self) -> bool:
        """Open the store, and look at all it has. False if it refused because of a fault."""
        self._inject(-1)
        try:
            self._open()
        except StoreError as error:
            if not self.disk.faults_struck:
                raise BrokenPromise(f"the store does not open: {error}") from error
            self.outcomes[type(error).__name__] += 1
            self.disk.on_operation = None
            return False
        self.ledger.opened()
        if not self.disk.faults_struck:
            self._look_at(self.store)
        return True

    def _open_beside(self, disk: SimulatedDisk, settings: Settings) -> MessageStore:
        """Open a store that is not the run's own, with the real lock."""
        config = settings.config(self.shape.lanes)
        return open_store(disk, config, self._clock_ms, self._names(), real_lock=True)

    def _look_at(self, store: MessageStore | None, *, note: bool = True) -> None:
        """Look at everything that an opened store has; `note`: it is the run's own. Raises BrokenPromise."""
        assert store is not None
        bounds = self.callers.look_at_everything(store, self.settings, note=note)
        for index, lowest in enumerate(lowest_segments(store)):
            ledger = self.ledger
            trimmed = ledger.trimmed(index, len(ledger.rows.get(records_of(index), ())))
            self.checker.check_beginning(index, bounds[index], lowest, trimmed)

    def _inject(self, step: int) -> None:
        """Set the faults, once, when their step has come."""
        if self._faults and (step >= self._faults_at or self._faults_at < 0):
            self.disk.inject(*self._faults)
            self._faults = []

    def _open(self) -> None:
        self.disk.on_operation = self._before
        path = None
        if self.shape.relative:
            os.chdir(home().parent)
            path = Path(home().name)
        store = self.store = open_store(
            self.disk, self.settings.config(self.shape.lanes), self._clock_ms, self._names(), path=path
        )
        if self.shape.relative:
            self._go_elsewhere()
        for lane, _ in lanes_of(store):
            stop_before_completion(lane, self._beside)
        self._flushers = [
            SteppedFlusher(index, flusher, self.ledger, self._clock_ms)
            for index, flusher in enumerate(flushers_of(store))
            for _ in range(threads_of(store))
        ]
        self._rounds = SteppedRounds(store, self.ledger, self._clock_ms)

    def _names(self) -> random.Random:
        return random.Random(f"names {self.seed}")

    def _clock_ms(self) -> int:
        return self.now_ms

    def _go_elsewhere(self) -> None:
        """Change the working directory: the path that the store was given leads to another folder now."""
        self.reached["working directory changed"] += 1
        os.chdir(elsewhere())
        told, self.disk.on_operation = self.disk.on_operation, None
        for lane in range(self.shape.lanes):
            self.disk.make_folder(elsewhere() / home().name / lane_name(lane))
        self.disk.on_operation = told

    def _close(self) -> bool:
        """Close the store. False if it was interrupted, and the process ends by that."""
        if self.store is not None and not self._close_store(self.store):
            return False
        poisoned = self.store is None or self.store.stats()["poisoned"] is not None
        if is_locked(self.disk):
            raise BrokenPromise("a closed store is locked")
        if self.ledger.unanswered():
            raise BrokenPromise(f"a closed store leaves {self.ledger.unanswered()} requests without an answer")
        Machine.starts += 1
        left = self.disk.crash(self.chance, None if poisoned else "none")
        self._end(lambda store: None)
        self._recovered(self.checker.check(left.copy(), power_cut=poisoned))
        self.disk, self.killed = left, False
        return True

    def _close_store(self, store: MessageStore) -> bool:
        chance = self.chance
        if self.may("interrupts") and chance.random() < 0.5:
            how = chance.choice(HOWS)
            interrupter = self._interrupter = StepInterrupter(how, chance.randrange(1, CLOSING[how]))
            try:
                with interrupter.watching():
                    close_store(store, self._drain, self._drain_rounds)
            except KeyboardInterrupt:
                self.reached[f"close interrupted at {PLACES[how]}"] += 1
                if chance.random() < 0.4:
                    return False
            finally:
                self._interrupter = None
        close_store(store, self._drain, self._drain_rounds)
        return True

    def _end(self, how: Callable[[MessageStore], None]) -> None:
        if self.store is not None:
            how(self.store)
        self.store, self._flushers = None, []
        if self._following is not None:
            self._following.let_go()
        self.callers.let_go()
        self.disk.on_operation = None

    def _drain(self) -> None:
        while any(flusher.stage != "ended" for flusher in self._flushers):
            for flusher in self._flushers:
                if self._interrupter is not None:
                    self._interrupter.meet("signal")  # it is waited for here
                with stop_at_close(self._interrupter):
                    flusher.step()

    def _drain_rounds(self) -> None:
        if self._rounds is not None:
            with stop_at_close(self._interrupter):
                self._rounds.drain()

    def _nap(self) -> None:
        """A builder sleeps until a write has ended: one of those that are out ends."""
        able = [flusher for flusher in self._flushers if flusher.stage == "write" and not flusher.running]
        assert able, "a builder waits for a write, and there is none"
        self.chance.choice(able).step()

    # -- moments --------------------------------------------------------------------------------------

    def _before(self, operation: Operation) -> None:
        """Before each operation of the disk: tell of it, die, or let another thread go on first."""
        if home() not in (operation.path, *operation.path.parents):
            self._broken = BrokenPromise(f"{operation.kind} of {operation.path}, which is not in the store's folder")
            raise self._broken
        self.operations.append(operation._replace(path=operation.path.relative_to(operation.path.parents[1])))
        store = self.store
        if store is not None:
            removed = note_removal(operation, self.disk, store, self.ledger, self.settings, self.now_ms)
            self.reached["segments removed"] += removed
        if self._following is not None:
            self._following.may_look(self.disk, 0.05)
        if self._on_moment is not None and self._broken is None:
            self._look_beside(self._on_moment, operation)
        if self._dies_at and self.disk.operations >= self._dies_at:
            self._left = self.disk.copy()
            raise LifeEnds
        if self._interrupter is not None:
            self._interrupter.meet("operation")
        if operation.kind == "force":
            self._beside()

    def _look_beside(self, on_moment: OnMoment, operation: Operation) -> None:
        """Have the run looked at. What is found ends the run, also if the store's code handles it as an error."""
        try:
            with stop_at_close(self._interrupter), apart():  # its lines are not the run's
                on_moment(self, operation)
        except BrokenPromise as broken:
            self._broken = self._broken or broken
            raise
        except Exception as error:  # of the look itself: a flusher would take it for the device's, and never end
            self._broken = self._broken or BrokenPromise(f"the look at it failed: {error!r}")
            raise

    def _beside(self) -> None:
        """Let other threads take some steps, while one is with the device or just back from it."""
        if self._nested or self.store is None or self.chance.random() < 0.5:
            return
        self._nested = True
        try:
            for _ in range(self.chance.randrange(1, 5)):
                with stop_at_close(self._interrupter):
                    self._step_beside()
        finally:
            self._nested = False

    def _step_beside(self) -> None:
        """Who builds, or is inside a force of the background, has a lock: nobody else can build then."""
        writing = any(flusher.running and flusher.stage == "write" for flusher in self._flushers)
        writing = writing and not any(flusher.stands_still for flusher in self._flushers)  # a round waits for it
        able = [one for one in self._flushers if (writing or one.stage == "write") and not one.must_wait]
        if writing and self.chance.random() < 0.2:
            self._upkeep()
        elif able:
            self.chance.choice(able).step()
        self._feed()

    # -- steps ----------------------------------------------------------------------------------------

    def step(self) -> None:
        """One thing that somebody does."""
        chance, store = self.chance, self.store
        assert store is not None
        draw = chance.random()
        if draw < 0.34:
            self.callers.produce(store, self.settings, self.disk)
        elif draw < 0.82:
            assert self._rounds is not None, "since the opening"
            several: list[SteppedFlusher | SteppedRounds] = [self._rounds] if self._rounds.is_there else []
            chance.choice([*self._flushers, *several]).step()
        elif draw < 0.92:
            self._upkeep()
        elif draw < 0.97:
            self.callers.consume(store, self.settings, self.disk)
        else:
            self.now_ms += chance.choice((0, 1, 40, 700, -5))
        self._feed()
        if self._following is not None:
            self._following.may_look(self.disk, 0.1)
        self._keep_copy()
        if self._broken is not None:
            raise self._broken

    def _feed(self) -> None:
        """The thread of the cache gets on now and then, at any moment; it touches no file."""
        if self.settings.cached and self.store is not None and self._feeding.random() < 0.3:
            feed_cache(self.store)

    def _keep_copy(self) -> None:
        """Somebody makes a copy of a segment's file, to put it back later."""
        if self.may("repair") and self._copying.random() < 0.02:
            paths = [path for path in self.disk.sizes() if path.suffix == ".seg"]
            if paths:
                path = self._copying.choice(paths)
                self.old_copies[path] = self.disk.bytes_of(path)

    def _upkeep(self) -> None:
        assert self.store is not None
        retired = upkeep_step(self.store, self.chance.randrange(len(TASKS) + 2))
        if retired and retention_works(self.store):
            check_removed(self.store, self.settings)
