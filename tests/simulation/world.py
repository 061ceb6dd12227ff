"""A run: producers, consumers, flushers and the background of one store, all steps drawn from one seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from store import CacheConfig, MessageStore, OffsetOutOfRange, StoreConfig, StoreError, StorePoisoned, StoreUnreadable
from store.config import Alignment, Durability
from store.format import START_FILE
from store.request import Barrier, Group, Ticket
from store.testing import Fault, Operation, SimulatedDisk

from .check import BrokenPromise, Checker
from .engine import (
    KIB,
    TASKS,
    abandon,
    apart,
    bounds_of,
    close_store,
    contents_of,
    feed_cache,
    flushers_of,
    lanes_of,
    open_store,
    threads_of,
    upkeep_step,
)
from .flusher import LifeEnds, SteppedFlusher, stop_before_completion
from .ledger import Ledger, Queue

HELD_STEPS = 12
SMALL_CACHE = CacheConfig(heap_bytes=32 * KIB, off_heap_bytes=64 * KIB, block_bytes=4 * KIB, edge_bytes=16 * KIB)
OnMoment = Callable[["World", Operation], None]


@dataclass(frozen=True)
class Shape:
    """What kind of run it is."""

    lanes: int = 1
    durability: Durability = "force"
    alignment: Alignment = "adaptive"
    queues: int = 3
    typical_bytes: int = 700
    large_bytes: int = 6_000
    retention_bytes: int | None = None
    retention_ms: int | None = None
    steps: int = 120
    lives: int = 2
    cached: bool = False

    def config(self) -> StoreConfig:
        """The smallest segments there are."""
        return StoreConfig(
            lanes=self.lanes, durability=self.durability, alignment=self.alignment,
            segment_bytes=64 * KIB, max_message_bytes=90 * KIB, max_frame_bytes=16 * KIB, recent_bytes=0,
            retention_bytes=self.retention_bytes, retention_ms=self.retention_ms, memory_limit_bytes=0,
            cache=SMALL_CACHE if self.cached else None, read_cache_bytes=64 * KIB if self.cached else 0,
        )  # fmt: skip


def draw_shape(chance: random.Random) -> Shape:
    """A shape for a seed."""
    recycling = chance.random() < 0.6
    return Shape(
        lanes=chance.choice((1, 1, 2)),
        durability=chance.choice(("force", "force", "force", "os")),
        alignment=chance.choice(("pad", "trim", "adaptive")),
        queues=chance.choice((1, 3, 6)),
        typical_bytes=chance.choice((60, 700, 2_000)),
        large_bytes=chance.choice((3_000, 9_000, 14_000)),
        retention_bytes=chance.choice((70, 140)) * KIB if recycling else None,
        retention_ms=chance.choice((None, None, 2_000)),
        steps=chance.choice((60, 150, 300)),
        lives=chance.choice((1, 2, 4)),
        cached=chance.random() < 0.3,
    )


class World:
    """One run on one disk, life after life; `on_moment` is called before every operation of the disk.

    The same seed and shape give the same operations, whatever `on_moment` looks at.
    """

    def __init__(
        self, seed: int, shape: Shape, on_moment: OnMoment | None = None, faults: Sequence[Fault] = ()
    ) -> None:
        self.seed = seed
        self.shape = shape
        self.chance = random.Random(f"world {seed}")
        self._feeding = random.Random(f"feeding {seed}")
        self.disk = SimulatedDisk()
        self.ledger = Ledger(shape.lanes, lazy=shape.durability == "os")
        self.checker = Checker(self.ledger)
        self.now_ms = 1_700_000_000_000
        self.operations: list[Operation] = []
        self.outcomes: Counter[str] = Counter()  # errors that the store raised, by name
        self._faults = list(faults)
        self._faults_at = random.Random(f"faults {seed}").randrange(-5, shape.steps // 2)  # negative: before opening
        self._on_moment = on_moment
        self._serial = 0
        self._nested = False
        self._dies_at = 0
        self._left: SimulatedDisk | None = None
        self._held: Any = None
        self.store: MessageStore | None = None
        self._flushers: list[SteppedFlusher] = []

    # -- lives ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """All lives, and a look at everything at the end. Raises BrokenPromise."""
        for life in range(self.shape.lives):
            self._live(last=life == self.shape.lives - 1)
        self.disk.inject()
        self._begin()
        self._end(abandon)

    def _live(self, *, last: bool) -> None:
        chance = self.chance
        length = chance.randrange(self.shape.steps // 2, self.shape.steps + 1)
        self._dies_at = self.disk.operations + chance.randrange(1, length) if chance.random() < 0.4 else 0
        try:
            if self._begin():
                for number in range(length):
                    self._inject(number)
                    self.step()
            if chance.random() < 0.5 or last:
                self._dies_at = 0
                self._close()
                return
        except LifeEnds:
            pass
        died, self._dies_at = self._dies_at > 0, 0
        power_cut = chance.random() < 0.7
        left = self._left or self.disk.crash(chance, None if power_cut else "all")
        self._end(abandon)
        self._left = None
        # Sometimes the store is opened on what the crash left, sometimes on what a recovery made of it.
        looked_at = left if chance.random() < 0.5 else left.copy()
        power_cut = power_cut or died
        self.ledger.crashed(self.checker.check(looked_at, power_cut=power_cut))
        self.disk = left

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
        if not self.disk.faults_struck:
            self._look_at_everything()
        return True

    def _inject(self, step: int) -> None:
        """Set the faults, once, when their step has come."""
        if self._faults and (step >= self._faults_at or self._faults_at < 0):
            self.disk.inject(*self._faults)
            self._faults = []

    def _open(self) -> None:
        self.disk.on_operation = self._before
        names = random.Random(f"names {self.seed}")
        store = self.store = open_store(self.disk, self.shape.config(), lambda: self.now_ms, names)
        for lane, _ in lanes_of(store):
            stop_before_completion(lane, self._beside)
        self._flushers = [
            SteppedFlusher(index, flusher, self.ledger)
            for index, flusher in enumerate(flushers_of(store))
            for _ in range(threads_of(store))
        ]

    def _close(self) -> None:
        if self.store is not None:
            close_store(self.store, self._drain)
        poisoned = self.store is not None and self.store.stats()["poisoned"] is not None
        left = self.disk.crash(self.chance, None if poisoned else "none")
        self._end(lambda store: None)
        self.ledger.crashed(self.checker.check(left.copy(), power_cut=poisoned))
        self.disk = left

    def _end(self, how: Callable[[MessageStore], None]) -> None:
        if self.store is not None:
            how(self.store)
        self.store, self._flushers, self._held = None, [], None
        self.disk.on_operation = None

    def _drain(self) -> None:
        while any(flusher.stage != "ended" for flusher in self._flushers):
            for flusher in self._flushers:
                flusher.step()

    # -- moments --------------------------------------------------------------------------------------

    def _before(self, operation: Operation) -> None:
        """Before each operation of the disk: tell of it, die, or let another thread go on first."""
        self.operations.append(operation._replace(path=operation.path.relative_to(operation.path.parents[1])))
        self._note_retention(begins=operation.kind == "write" and operation.path.name == START_FILE)
        if self._on_moment is not None:
            with apart():
                self._on_moment(self, operation)
        if self._dies_at and self.disk.operations >= self._dies_at:
            self._left = self.disk.crash(self.chance)
            raise LifeEnds
        if operation.kind == "force":
            self._beside()

    def _beside(self) -> None:
        """Let other threads take some steps, while one is with the device or just back from it."""
        if self._nested or self.store is None or self.chance.random() < 0.5:
            return
        self._nested = True
        try:
            for _ in range(self.chance.randrange(1, 5)):
                self._step_beside()
        finally:
            self._nested = False

    def _step_beside(self) -> None:
        """Who builds, or is inside a force of the background, has a lock: nobody else can build then."""
        writing = any(flusher.running and flusher.stage == "write" for flusher in self._flushers)
        able = [flusher for flusher in self._flushers if writing or flusher.stage == "write"]
        if writing and self.chance.random() < 0.2:
            self._upkeep()
        elif able:
            self.chance.choice(able).step()
        self._feed()

    def _note_retention(self, *, begins: bool = False) -> None:
        """Where the readers' view of each queue begins now: what is before it may be gone.

        When a removal `begins` by noting where the log begins, a crash may take the oldest segment as well.
        """
        if self.store is not None and (self.shape.retention_bytes is not None or self.shape.retention_ms is not None):
            for queue in self.ledger.rows:
                try:
                    first, end = bounds_of(self.store, queue)
                    first = end if begins else first  # of the lane that it is about, at the most
                except OSError:
                    self.outcomes["OSError of a read"] += 1
                    if not self.disk.faults_struck:
                        raise
                    first = len(self.ledger.rows[queue])  # unknown: any may be gone
                self.ledger.first[queue] = max(self.ledger.first[queue], first)

    # -- steps ----------------------------------------------------------------------------------------

    def step(self) -> None:
        """One thing that somebody does."""
        chance = self.chance
        draw = chance.random()
        if draw < 0.34:
            self._produce()
        elif draw < 0.82:
            chance.choice(self._flushers).step()
        elif draw < 0.92:
            self._upkeep()
        elif draw < 0.97:
            self._consume()
        else:
            self.now_ms += chance.choice((0, 1, 40, 700, -5))
        self._feed()
        self._note_retention()

    def _feed(self) -> None:
        """The thread of the cache gets on now and then, at any moment; it touches no file."""
        if self.shape.cached and self.store is not None and self._feeding.random() < 0.3:
            feed_cache(self.store)

    def _upkeep(self) -> None:
        assert self.store is not None
        upkeep_step(self.store, self.chance.randrange(len(TASKS) + 2))

    def _message(self) -> tuple[Queue, bytes]:
        chance, shape = self.chance, self.shape
        queue = "t", chance.randrange(shape.queues)
        self._serial += 1
        draw = chance.random()
        if draw < 0.002:
            size = chance.randrange(50 * KIB, 90 * KIB)
        elif draw < 0.1:
            size = chance.randrange(shape.large_bytes)
        else:
            size = chance.randrange(2 * shape.typical_bytes)
        head = b"%d.%d;" % (self.seed, self._serial)
        return queue, head + chance.randbytes(max(0, size - len(head)))

    def _produce(self) -> None:
        """A few messages, a batch, or a barrier."""
        assert self.store is not None
        store, chance = self.store, self.chance
        draw = chance.random()
        try:
            if draw < 0.08:
                index = chance.randrange(self.shape.lanes)
                barrier: Ticket = Barrier()
                lanes_of(store)[index][1].put(barrier, wait=False)
                self.ledger.hand(index, barrier, [], [])
            elif draw < 0.2:
                self._produce_batch(store)
            else:
                for _ in range(chance.choice((1, 1, 2, 5))):
                    queue, data = self._message()
                    facts: dict[str, Any] = {"key": b"k", "properties": {"p": "q"}} if chance.random() < 0.1 else {}
                    ticket = store.submit(*queue, data, **facts)
                    self.ledger.hand(ticket.stream.lane.index, ticket, [queue], [data])
        except StorePoisoned:
            self.outcomes["StorePoisoned"] += 1
            if not self.disk.faults_struck:
                raise BrokenPromise("the store is poisoned, and no fault struck") from None

    def _produce_batch(self, store: MessageStore) -> None:
        rows = [self._message() for _ in range(self.chance.randrange(2, 20))]
        streams, datas, sizes = store._accept_batch([(*queue, data) for queue, data in rows])
        for lane in {stream.lane.index: stream.lane for stream in streams}.values():
            picked = [i for i, stream in enumerate(streams) if stream.lane is lane]
            columns = [streams[i] for i in picked], [datas[i] for i in picked], [sizes[i] for i in picked]
            groups = store._put_groups(*columns)
            at = 0
            for group in groups:
                assert isinstance(group, Group)
                mine = [rows[i] for i in picked[at : at + group.count]]
                at += group.count
                self.ledger.hand(lane.index, group, [queue for queue, _ in mine], [data for _, data in mine])

    def _consume(self) -> None:
        """Read some messages; what was read may not be lost. Now and then a reader keeps what it looks at."""
        assert self.store is not None
        store, chance = self.store, self.chance
        self._held = store._lanes[0].view if chance.random() < 0.3 else None
        queue = "t", chance.randrange(self.shape.queues)
        try:
            first, end = store.queue_bounds(*queue)
            if first == end:
                return
            at = chance.randrange(first, end)
            messages = store.read(*queue, at, 8)
            found = store.get_range(*queue, at, 8) if self.shape.cached else {}
        except OffsetOutOfRange:
            return
        except StoreUnreadable:
            self.outcomes["StoreUnreadable"] += 1
            if not self.disk.faults_struck:
                raise
            return
        for message in messages:
            self._check_read(queue, message.offset, message.data)
        for index, data in found.items():
            self._check_read(queue, at + index, data)

    def _check_read(self, queue: Queue, offset: int, data: bytes) -> None:
        if self.ledger.rows[queue][offset] != data:
            raise BrokenPromise(f"a read of {queue} gave other bytes at offset {offset}")
        self.ledger.note_read(queue, offset)
        if not self.ledger.lazy:
            self.ledger.history.read(*queue, offset, data)

    def _look_at_everything(self) -> None:
        """Every message through the public face, and the history of all lives until now."""
        assert self.store is not None
        for queue, rows in self.ledger.rows.items():
            first, end = self.store.queue_bounds(*queue)
            self.ledger.first[queue] = max(self.ledger.first[queue], first)
            if end != len(rows):
                raise BrokenPromise(f"{queue} ends at {end} in an opened store, {len(rows)} were recovered")
            found = [(m.offset, m.data) for m in self.store.read(*queue, first, 1 << 20, 1 << 40)]
            if self.shape.cached and dict(found) != contents_of(self.store, queue, first):
                raise BrokenPromise(f"two reads of {queue} differ")
            for offset, data in found:
                self._check_read(queue, offset, data)
            self.ledger.history.found(*queue, first, found)
        violations = [] if self.ledger.lazy else self.ledger.history.check()
        if violations:
            raise BrokenPromise(f"the history is broken: {violations[:3]}")
