"""A run: lives of one store on one disk. Before each operation of the disk somebody may try a crash."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from stratalog.store import StoreError
from stratalog.store.testing import Operation, SimulatedDisk

from ..check import BrokenPromise
from ..engine import apart
from ..flusher import LifeEnds
from .calls import Callers
from .inline import Inline, RunClock, delays_of, end, open_on
from .ledger import Ledger
from .shape import TOPIC, Shape

OnMoment = Callable[["World", Operation], None]


class World:
    """One run. The same seed and shape give the same operations, whatever `on_moment` looks at.

    Attributes:
        doing: the call that is being made.
        reached: what happened, by name.
    """

    def __init__(self, seed: int, shape: Shape, driver: Inline, on_moment: OnMoment | None = None) -> None:
        self.seed = seed
        self.shape = shape
        self.disk = SimulatedDisk()
        self.clock = RunClock()
        self.ledger = Ledger(shape.kinds)
        self.operations: list[Operation] = []
        self.reached: Counter[str] = Counter()
        self.doing = "opening"
        self._chance = random.Random(f"consumers {seed}")
        self._callers = Callers(shape, self._chance, self.ledger, self.clock, driver, self.reached)
        self._on_moment = on_moment
        self._dies_at = 0
        self._left: SimulatedDisk | None = None

    def run(self) -> None:
        """All lives. Raises BrokenPromise."""
        for life in range(self.shape.lives):
            self._live(last=life == self.shape.lives - 1)

    def _live(self, *, last: bool) -> None:
        self._left, self._dies_at = None, 0
        self._open()
        weights = self.shape.weights()
        if not last:
            self._dies_at = self.disk.operations + self._chance.randrange(1, 4 * self.shape.steps)
        try:
            for _ in range(self.shape.steps):
                self.doing = self._chance.choices(list(weights), list(weights.values()))[0]
                if self.doing == "reopen":
                    self._reopen()
                else:
                    self._callers.call(self.doing)
            self._note_figures()
        except LifeEnds:
            self.reached["died at an operation"] += 1
        except StoreError as error:
            raise BrokenPromise(f"{self.doing} raises {type(error).__name__}: {error}") from error
        finally:
            self.disk.on_operation = None
            end(self._callers.store)
        if not last:
            self.disk = (self._left or self.disk).crash(self._chance)

    def _open(self) -> None:
        self.ledger.settle()
        self.disk.on_operation = self._before
        store = open_on(self.disk, self.shape.config(), self.clock, random.Random(f"names {self.seed}"))
        self._callers.begin(store)
        ends = {queue_id: store.queue_bounds(TOPIC, queue_id)[1] for queue_id in store.queues(TOPIC)}
        self.ledger.crashed(ends, {info.name for info in store.subscriptions(TOPIC)})

    def _reopen(self) -> None:
        self._note_figures()
        self._callers.store.close()
        self._open()

    def _note_figures(self) -> None:
        store = self._callers.store
        self.reached["segments removed"] += store._upkeep.removed_segments
        for topic in delays_of(store).topics.values():
            stats = topic.tracker.stats()
            self.reached["buckets sealed"] += stats.get("seals", 0)
            self.reached["buckets merged"] += stats.get("merges", 0)
            self.reached["copies"] += len(topic.copies)
            self.reached["indexes built anew"] += topic.rebuilds

    def _before(self, operation: Operation) -> None:
        """Before each operation of the disk: tell of it, or die."""
        self.operations.append(operation._replace(path=operation.path.relative_to(operation.path.parents[1])))
        self.ledger.settle()
        if self._on_moment is not None:
            with apart():
                self._on_moment(self, operation)
        if self._dies_at and self.disk.operations >= self._dies_at:
            if self._left is None:
                self._left = self.disk.copy()
            raise LifeEnds
