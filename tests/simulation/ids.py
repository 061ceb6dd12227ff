"""Message ids under crashes: at each operation of the disk the power may go. The next opening must refuse exactly the
ids whose messages are there.

The store works in one thread (`consumers.inline`). Each message has data of its own: so what a crash has left says
which appends are in the log.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stratalog.store import MessageStore
from stratalog.store.format.message_ids import digest_of
from stratalog.store.testing import Operation, SimulatedDisk, TunedConfig

from .check import BrokenPromise
from .consumers.inline import Inline, RunClock, end, inline, open_on
from .engine import TASKS, apart, upkeep_step
from .flusher import LifeEnds

KIB = 1 << 10
TOPICS = ("t", "u")
QUEUES = 3
IDS = 14
WINDOW_MS = 5_000
WEIGHTS = {
    "append": 30, "batch": 14, "transact": 10, "fill": 14, "upkeep": 14, "wait": 8, "trim": 4, "delete": 1, "reopen": 4,
    "configure": 3,
}  # fmt: skip


class Name(NamedTuple):
    """An id of a topic."""

    topic: str
    message_id: str


@dataclass
class Sent:
    """A message that was handed over with an id. `place` (queue id, offset) is known once it is durable."""

    queue_id: int
    data: bytes
    time_ms: int
    place: tuple[int, int] | None = None


class World:
    """A run. `look` compares a store with what was promised; it may be one on a copy of the disk."""

    def __init__(
        self, seed: int, driver: Inline, moments: float, lives: int = 3, steps: int = 60, *,
        lanes: Sequence[int] = (1, 1, 3), only: str | None = None,
    ) -> None:  # fmt: skip
        """`only`: crashes are tried in these calls alone."""
        self.chance = random.Random(f"ids {seed}")
        self._crashing = random.Random(f"ids crash {seed}")
        self.reached: Counter[str] = Counter()
        self.states = 0
        self.operations: list[Operation] = []
        self._driver = driver
        self._moments = moments
        self._lives, self._steps = lives, steps
        self._clock = RunClock()
        self._disk = SimulatedDisk()
        self._only = only
        self._doing = ""
        self._together: list[Sent] = []  # of a transaction that is under way: those that are to be stored
        self.lanes = self.chance.choice(lanes)
        retention_bytes = self.chance.choice((None, 200_000 * self.lanes))
        self._config = TunedConfig(
            lanes=self.lanes, segment_bytes=64 * KIB, max_message_bytes=16 * KIB, max_frame_bytes=16 * KIB,
            recent_bytes=0, retention_bytes=retention_bytes, durability=self.chance.choice(("force", "force", "os")),
        )  # fmt: skip
        self._serial = 0
        self.known: defaultdict[Name, list[Sent]] = defaultdict(list)  # durable; the newest last
        self.on_way: list[tuple[Name, Sent]] = []
        self._deleting: str | None = None
        self._store: MessageStore | None = None
        self._dies_at = 0
        self._left: SimulatedDisk | None = None

    @property
    def store(self) -> MessageStore:
        """The open store."""
        assert self._store is not None
        return self._store

    def run(self) -> None:
        """All lives. Raises BrokenPromise."""
        try:
            for life in range(self._lives):
                self._live(last=life == self._lives - 1)
        finally:
            self._end()

    def _live(self, *, last: bool) -> None:
        self._left = None
        self._doing = "open"
        self._dies_at = 0 if last else self._disk.operations + self.chance.randrange(1, 4 * self._steps)
        try:
            self._open()
            for _ in range(self._steps):
                self._step()
        except LifeEnds:
            self.reached["died at an operation"] += 1
        self._end()
        self._disk = (self._left or self._disk).crash(self.chance)

    def _open(self) -> None:
        self._disk.on_operation = self._before
        self._store = open_on(self._disk, self._config, self._clock, random.Random("name"))
        self.look(self._store, is_own=True)
        for topic in TOPICS:
            if self._store.topic_settings(topic).id_window_ms != WINDOW_MS:
                self._store.configure_topic(topic, id_window_ms=WINDOW_MS)

    def _end(self) -> None:
        self._disk.on_operation = None
        if self._store is not None:
            end(self._store)
            self._store = None

    def _before(self, operation: Operation) -> None:
        """Before each operation of the disk: crash a copy, or die."""
        self.operations.append(operation._replace(path=operation.path.relative_to(operation.path.parents[1])))
        if self._only in (None, self._doing) and self._crashing.random() < self._moments:
            with apart():
                self._crash()
        if self._dies_at and self._disk.operations >= self._dies_at:
            self._left = self._left or self._disk.copy()
            raise LifeEnds

    def _crash(self) -> None:
        left = self._disk.crash(self._crashing)
        beside, driving = self._store, self._driver.is_driving
        store = open_on(left, self._config, self._clock, random.Random("name"))
        try:
            self.look(store, is_own=False)
        finally:
            end(store)
            self._driver.is_driving = driving
        assert beside is self._store
        self.states += 1
        self.reached[f"a transaction with ids is under way, {self.lanes} lanes"] += self._doing == "transact"

    # -- what is promised ---------------------------------------------------------------------------------

    def look(self, store: MessageStore, *, is_own: bool) -> None:
        """Compare an opened store with what was promised. Raises BrokenPromise."""
        there: dict[tuple[str, int, int], bytes] = {}
        firsts: dict[tuple[str, int], int] = {}
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                first, _ = store.queue_bounds(topic, queue_id)
                firsts[topic, queue_id] = first
                for one in store.read(topic, queue_id, first, max_messages=1 << 20, max_bytes=1 << 30):
                    there[topic, queue_id, one.offset] = one.data
        found = set(there.values())
        if len({sent.data in found for sent in self._together}) > 1:
            raise BrokenPromise("a transaction with ids is there in part")
        if is_own:
            self._together = []
            self._settle(there, firsts)
            self._settle_deletion(store)
        for name in {*self.known, *(name for name, _ in self.on_way)}:
            self._check(store, name, there, firsts)

    def _settle(self, there: dict[tuple[str, int, int], bytes], firsts: dict[tuple[str, int], int]) -> None:
        """The power was cut: what was on its way is there, or is not."""
        found = {data: place for place, data in there.items()}
        for name, sent in self.on_way:
            if sent.data in found:
                _, *place = found[sent.data]
                sent.place = place[0], place[1]
                self.known[name].append(sent)
                self.reached["a message on its way was there"] += 1
            else:
                self.reached["a message on its way was not there"] += 1
        self.on_way.clear()
        if self._config.durability == "os":  # it may lose what was answered
            for name, every in self.known.items():
                self.known[name] = [
                    one for one in every
                    if one.data in found or (one.place and one.place[1] < firsts[name.topic, one.place[0]])
                ]  # fmt: skip

    def _settle_deletion(self, store: MessageStore) -> None:
        """A topic was about to be deleted: its ids are forgotten, or they are known still."""
        for name in [one for one in self.known if one.topic == self._deleting]:
            found = self._found(store, name)
            self.known[name] = [sent for sent in self.known[name] if sent.place is not None and sent.place == found]
        self._deleting = None

    def _found(self, store: MessageStore, name: Name) -> tuple[int, int] | None:
        window = store._windows.of(name.topic)
        window.expire(self._clock.wall_ms())
        return window._durable.find(digest_of(name.message_id.encode()))

    def _check(
        self, store: MessageStore, name: Name, there: dict[tuple[str, int, int], bytes],
        firsts: dict[tuple[str, int], int],
    ) -> None:  # fmt: skip
        found = self._found(store, name)
        every = [*self.known[name], *(sent for of, sent in self.on_way if of == name)]
        possible: set[tuple[int, int]] = set()
        must: tuple[int, int] | None = None
        for sent in every:
            if sent.place is not None:
                queue_id, offset = sent.place
                data = there.get((name.topic, queue_id, offset))
                was_removed = offset < firsts[name.topic, queue_id]
                if data != sent.data and not was_removed:
                    if self._config.durability == "force" and self._deleting != name.topic:
                        raise BrokenPromise(f"{name} was acknowledged at {sent.place}, and {data!r} is there")
                    continue
                place = queue_id, offset
            else:
                places = [key for key, data in there.items() if data == sent.data]
                if not places:
                    continue
                place = places[0][1:]
            possible.add(place)
            if self._clock.wall_ms() - sent.time_ms < WINDOW_MS:
                must = place
        if found is not None and found not in possible and self._deleting != name.topic:
            raise BrokenPromise(f"{name} is known at {found}, and could be at {possible}")
        is_forgotten = found is None and self._deleting == name.topic
        if must is not None and found != must and not is_forgotten:
            raise BrokenPromise(f"{name} is known at {found}, and its message at {must} is there")
        self.reached["refused"] += must is not None
        self.reached["free"] += found is None

    # -- what is done -------------------------------------------------------------------------------------

    def _step(self) -> None:
        self._doing = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        getattr(self, f"_{self._doing}")()

    def _drawn(self) -> tuple[Name, Sent]:
        self._serial += 1
        data = b"%d;" % self._serial + bytes(self.chance.choice((0, 10, 10, 900, 5000)))
        name = Name(self.chance.choice(TOPICS), f"id {self.chance.randrange(IDS)}")
        return name, Sent(self.chance.randrange(QUEUES), data, self._clock.now_ms)

    def _answered(self, name: Name, sent: Sent, offset: int) -> None:
        """An append has its answer: that of the one which is known within the window, or its own."""
        every = self.known[name]
        newest = every[-1] if every else None
        if newest is not None and newest.place is not None and self._clock.now_ms - newest.time_ms < WINDOW_MS:
            if offset != newest.place[1]:
                raise BrokenPromise(f"{name} is answered with {offset}, and was stored at {newest.place}")
            self.reached["repeats"] += 1
            return
        found = self.store.read(name.topic, sent.queue_id, offset)
        if not found or found[0].data != sent.data:
            raise BrokenPromise(f"{name} is answered with {offset}, and its message is not there")
        sent.place = sent.queue_id, offset
        every.append(sent)

    def _append(self) -> None:
        name, sent = self._drawn()
        self.on_way.append((name, sent))
        key = b"k" if self.chance.random() < 0.2 else None
        offset = self.store.append(name.topic, sent.queue_id, sent.data, key=key, message_id=name.message_id)
        self.on_way.clear()
        self._answered(name, sent, offset)

    def _many(self, most: int) -> list[tuple[Name, Sent]]:
        drawn = [self._drawn() for _ in range(self.chance.randrange(1, most))]
        first: dict[Name, tuple[Name, Sent]] = {}
        for name, sent in drawn:
            first.setdefault(name, (name, sent))
        self.on_way.extend(first.values())
        return drawn

    def _batch(self) -> None:
        drawn = self._many(12)
        rows = [(name.topic, sent.queue_id, sent.data) for name, sent in drawn]
        offsets = self.store.append_batch(rows, message_ids=[name.message_id for name, _ in drawn])
        self._all_answered(drawn, [*offsets])

    def _transact(self) -> None:
        drawn = self._many(6)
        if self._config.durability == "force":
            self._together = [sent for name, sent in self.on_way if self._is_free(name)]
        with self.store.transaction() as tx:
            for name, sent in drawn:
                tx.append(name.topic, sent.queue_id, sent.data, message_id=name.message_id)
        self._together = []
        self._all_answered(drawn, [*tx.offsets])
        self.reached["transactions over several lanes"] += self.lanes > 1

    def _is_free(self, name: Name) -> bool:
        """Is an id not known within the window, so that its next message is stored?"""
        every = self.known[name]
        return not every or self._clock.now_ms - every[-1].time_ms >= WINDOW_MS

    def _all_answered(self, drawn: list[tuple[Name, Sent]], offsets: list[int]) -> None:
        self.on_way.clear()
        for (name, sent), offset in zip(drawn, offsets, strict=True):
            self._answered(name, sent, int(offset))

    def _fill(self) -> None:
        self.store.append_batch([("filler", 0, bytes(6000))] * self.chance.randrange(1, 12))

    def _upkeep(self) -> None:
        for task in range(len(TASKS)):
            self.reached["retention went through"] += upkeep_step(self.store, task)

    def _wait(self) -> None:
        self._clock.go(self.chance.choice((1, 500, 2000, 6000)))

    def _configure(self) -> None:
        """With a count that gets larger the ids that count are written again; none of these counts is reached."""
        topic, count = self.chance.choice(TOPICS), self.chance.choice((1000, 2000, 3000))
        self.reached["windows got larger"] += count > self.store.topic_settings(topic).id_window_count
        queues = self.chance.choice((None, 8))
        self.store.configure_topic(topic, id_window_ms=WINDOW_MS, id_window_count=count, queues=queues)

    def _trim(self) -> None:
        topic, queue_id = self.chance.choice(TOPICS), self.chance.randrange(QUEUES)
        first, last = self.store.queue_bounds(topic, queue_id)
        self.store.trim(topic, queue_id, self.chance.randint(first, last))

    def _delete(self) -> None:
        topic = self.chance.choice(TOPICS)
        self._deleting = topic
        self.store.delete_topic(topic)
        self.store.flush()  # with "os" a power cut may bring it back until then
        self._deleting = None
        for name in [one for one in self.known if one.topic == topic]:
            del self.known[name]
        self.store.configure_topic(topic, id_window_ms=WINDOW_MS)
        self.reached["topics deleted"] += 1

    def _reopen(self) -> None:
        self.store.close()
        self._end()
        self._open()


def run(
    seed: int, moments: float = 0.05, lives: int = 3, *, lanes: Sequence[int] = (1, 1, 3), only: str | None = None
) -> World:
    """A run with crashes before a share of the operations."""
    with inline(seed) as driver:
        world = World(seed, driver, moments, lives, lanes=lanes, only=only)
        world.run()
    return world
