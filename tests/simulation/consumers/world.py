"""A run: lives of one store on one disk. Before each operation of the disk somebody may try a crash, and
the device may fail."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

from stratalog.store import MessageStore, StoreError
from stratalog.store.testing import Fault, Operation, SimulatedDisk

from ..check import BrokenPromise
from ..engine import apart
from ..flusher import LifeEnds
from .bills import count_bills
from .calls import BACKGROUND, Callers
from .inline import Inline, RunClock, delays_of, end, is_poisoned, open_on
from .ledger import Ledger
from .producing import FILLER
from .shape import TOPIC, Shape

LEFT_POISONED = 0.1  # of the steps behind a failed write: the process ends there
OnMoment = Callable[["World", Operation], None]


class World:
    """One run. The same seed and shape give the same operations, whatever `on_moment` looks at.

    Attributes:
        doing: the call that is being made.
        reached: what happened, by name.
    """

    def __init__(
        self, seed: int, shape: Shape, driver: Inline, on_moment: OnMoment | None = None, faults: Sequence[Fault] = ()
    ) -> None:  # fmt: skip
        self.seed = seed
        self.shape = shape
        self.disk = SimulatedDisk(block_bytes=random.Random(f"device {seed}").choice((512, 4096)))
        self.clock = RunClock()
        self.ledger = Ledger(shape.kinds, keeps=shape.keeps)
        self.operations: list[Operation] = []
        self.reached: Counter[str] = Counter()
        self.doing = "opening"
        self._chance = random.Random(f"consumers {seed}")
        self._callers = Callers(shape, self._chance, self.ledger, self.clock, driver, self.reached)
        self._on_moment = on_moment
        self._dies_at = 0
        self._left: SimulatedDisk | None = None
        self._store: MessageStore | None = None
        self._faults = faults
        striking = random.Random(f"faults {seed}")
        self._strikes_in = striking.randrange(shape.lives) if faults else -1
        self._strikes_at = striking.randrange(-5, shape.steps // 2)  # the step; negative: before the opening

    def run(self) -> None:
        """All lives. Raises BrokenPromise."""
        try:
            for life in range(self.shape.lives):
                self._live(life)
        finally:
            self._end()

    def _live(self, life: int) -> None:
        last = life == self.shape.lives - 1
        self._left, self._dies_at = None, 0
        if not last:
            self._dies_at = self.disk.operations + self._chance.randrange(1, 4 * self.shape.steps)
        strikes_at = self._strikes_at if life == self._strikes_in else None
        if strikes_at is not None and strikes_at < 0:
            self._inject()
        try:
            self._open()
            self._note_poison()
            for step in range(self.shape.steps):
                if step == strikes_at:
                    self._inject()
                if self.ledger.is_poisoned and self._chance.random() < LEFT_POISONED:
                    break
                self._step()
            if last:
                self._drain()
        except LifeEnds:
            self.reached["died at an operation"] += 1
        except StoreError as error:
            raise BrokenPromise(f"{self.doing} raises {type(error).__name__}: {error}") from error
        if not last:
            self._cut_power()

    def _step(self) -> None:
        weights = self.shape.weights()
        self.doing = self._chance.choices(list(weights), list(weights.values()))[0]
        if self.doing == "reopen":
            self._reopen()
        else:
            self._call(self.doing)

    def _call(self, name: str) -> None:
        """Make a call. It may raise where it meets a fault, and where one has poisoned the store; and so may it keep
        an error for the next receive, which raises it without one.
        """
        struck, poisoned, kept = self.disk.faults_struck, self.ledger.is_poisoned, self._callers.kept()
        try:
            self._callers.call(name)
        except (StoreError, OSError) as error:
            if self._left is not None:  # the process has died in it; what its code made of that is nobody's answer
                raise LifeEnds from error
            if isinstance(error, OSError) and name not in BACKGROUND:
                raise BrokenPromise(f"{name} raises {type(error).__name__}, which is no StoreError: {error}") from error
            if self.disk.faults_struck == struck and not poisoned:
                raise BrokenPromise(f"{name} raises {type(error).__name__} without a fault: {error}") from error
            self.reached[f"raised {type(error).__name__}"] += 1
        if self.disk.faults_struck == struck and not poisoned:
            for of, found in self._callers.kept().items():
                if found is not kept.get(of):
                    raise BrokenPromise(f"{name} keeps {type(found).__name__} without a fault: {found}") from found
        self._note_poison()

    def _note_poison(self) -> None:
        """What is answered up to now is promised; nothing is from now on."""
        if self._store is not None and is_poisoned(self._store) and not self.ledger.is_poisoned:
            if not self.disk.faults_struck:
                raise BrokenPromise("the store is poisoned, and no fault struck")
            self.ledger.settle()
            self.ledger.is_poisoned = True
            self.reached["poisoned"] += 1

    def _inject(self) -> None:
        self.disk.inject(*self._faults)

    # -- opening and closing --------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the store. Where a fault lets it refuse, it opens once the fault is over."""
        self.ledger.settle()
        try:
            self._open_once()
        except StoreError:
            if not self.disk.faults_struck:
                raise
            self.reached["an opening refused"] += 1
            self._end()
            self._leave_disk()
            self._open_once()

    def _open_once(self) -> None:
        self.disk.on_operation = self._before
        store = open_on(self.disk, self.shape.config(), self.clock, random.Random(f"names {self.seed}"))
        self._store = store
        self._callers.begin(store)
        for topic in self._keeping():
            if store.topic_settings(topic).keep != self.shape.keep:
                store.configure_topic(topic, keep=self.shape.keep)
        self.ledger.settings = {topic: {queues} for topic, queues in self.ledger.check_settings(store).items()}
        ends = {queue_id: store.queue_bounds(TOPIC, queue_id)[1] for queue_id in store.queues(TOPIC)}
        self.ledger.crashed(ends, {info.name: info.settings for info in store.subscriptions(TOPIC)})
        self.ledger.bills.opened(count_bills(store))

    def _keeping(self) -> list[str]:
        """The topics that keep what is not acknowledged."""
        if not self.shape.keeps:
            return []
        return [TOPIC, FILLER] if self.shape.is_queue else [TOPIC]

    def _reopen(self) -> None:
        self._note_figures()
        store, struck = self._callers.store, self.disk.faults_struck
        try:
            store.close()
        except StoreError:
            if not struck and not self.disk.faults_struck:
                raise
        self._note_poison()
        poisoned = self.ledger.is_poisoned
        self._end()
        if poisoned:
            self._leave_disk()
        self._open()

    def _end(self) -> None:
        """The process ends, whatever it has done."""
        self.disk.on_operation = None
        if self._store is not None:
            end(self._store)
            self._store = None

    def _cut_power(self) -> None:
        self._end()
        self.disk = (self._left or self.disk).crash(self._chance)
        if self.shape.is_lossy:
            self.ledger.lose()
            self.reached["power cuts that may lose"] += 1

    def _leave_disk(self) -> None:
        """The next process finds what this one has written, or what a power cut leaves of it; the fault is over."""
        self.disk.on_operation = None
        is_killed = self._chance.random() < 0.5
        self.disk = self.disk.kill() if is_killed else self.disk.crash(self._chance)
        if self.shape.is_lossy and not is_killed:
            self.ledger.lose()

    def _drain(self) -> None:
        """The fault is over; behind a failed write the store is opened anew. Then all comes that has to."""
        self.doing = "drain"
        self._note_figures()
        if self.ledger.is_poisoned:
            self._reopen()
        self.disk.inject()
        self._call("drain")

    def _note_figures(self) -> None:
        store = self._callers.store
        self.reached["segments removed"] += store._upkeep.removal.removed_segments
        if self.shape.keeps and store.stats()["subscriptions"]["removed_unacknowledged"]:
            raise BrokenPromise("retention took messages that a subscription had not acknowledged")
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
