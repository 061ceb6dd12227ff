"""A work queue for the fuzzer of damage: jobs that are done, fail and wait, with settings, ids and transactions.

A worker does a job in one transaction: it acknowledges the job and appends a bill, in many stores over two lanes. So
each job is waiting, done or dead, and never two of these. Jobs that wait long are moved forward, as their segments go.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple
from unittest import mock

from stratalog.store import Delivery, MessageStore, StoreConfig, TopicSettings
from stratalog.store.log.removal import Removal
from tests.store.helpers import crash_copy, take_snapshot, until, without_marks

from .stories import Story, config

WORK, DONE, DEAD = "work", "done", "dead"
WORKERS, CLERK, UNDERTAKER = "workers", "clerk", "undertaker"
TOPIC_OF = {WORKERS: WORK, CLERK: DONE, UNDERTAKER: DEAD}
QUEUES = 3
MOST_ATTEMPTS = 8  # a job that waits is given out once in a round, and a few times by the checks
NEVER_MS = 1 << 49
State = Literal["waiting", "done", "dead"]
RETIRE = Removal.retire


class WorkPlan(NamedTuple):
    """What kind of store is made. `records`: two damages of it may be close, as of all stores with many records."""

    lanes: int
    closed: bool  # else the folder is a copy of one that is open: what a kill leaves
    seed: int
    records: bool = True
    bulk: bool = False
    repaired: bool = False

    def __str__(self) -> str:
        return f"work queue, {self.lanes} lanes, {'closed' if self.closed else 'killed'}, seed {self.seed}"

    def config(self) -> StoreConfig:
        """By the seed, half of the stores have blocks of 512 bytes."""
        return config(lanes=self.lanes, block_bytes=4096 if self.seed % 2 else 512)


@dataclass
class Job:
    """A job: its place (queue id, offset) and data, and what became of it."""

    place: tuple[int, int]
    data: bytes
    state: State = "waiting"


@dataclass
class WorkStory(Story):
    """A made store: its jobs by place, and all settings that the topic WORK had, the last one last."""

    jobs: dict[tuple[int, int], Job] = field(default_factory=dict)
    settings: list[TopicSettings] = field(default_factory=list)
    firsts: dict[int, int] = field(default_factory=dict)  # of each queue

    def moved(self) -> list[Job]:
        """The waiting jobs that live on as copies."""
        waiting = [job for job in self.jobs.values() if job.state == "waiting"]
        return [job for job in waiting if job.place[1] < self.firsts[job.place[0]]]


def id_of(job: Job) -> str:
    """The message id of a job."""
    return job.data.partition(b";")[0].decode()


def place_of(one: Delivery) -> tuple[int, int]:
    """The place of a job that was given out."""
    return one.message.queue_id, one.message.offset


def bill_of(job: Job) -> bytes:
    """The message that says that a job is done."""
    return b"bill of " + job.data[:40]


@contextmanager
def by_hand() -> Iterator[None]:
    """No background removes segments, and no look at a work queue holds for a while."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(Removal, "retire", lambda removal: None))
        for name in ("delays.DROP_S", "keeping.LOOK_S", "work_queues.LOOK_S", "keeping.LOOK_TIMES"):
            stack.enter_context(mock.patch(f"stratalog.store.delayed.{name}", 0))
        stack.enter_context(mock.patch("stratalog.store.delayed.work_queues.LOOK_TIMES", 0))
        stack.enter_context(mock.patch("stratalog.store.log.early.PATIENCE_S", 1e9))  # `remove` seals
        yield


def remove(store: MessageStore) -> int:
    """Have retention take what it may; how many segments."""
    removal, begun = store._upkeep.removal, store._upkeep.removal.removed_segments
    until(lambda: not any(map(store._upkeep.sealer.waiting, store._lanes)))
    store._upkeep.early.seal()
    before = -1
    while before != removal.removed_segments:
        before = removal.removed_segments
        RETIRE(removal)
    return removal.removed_segments - begun


class WorkMaker:
    """Writes one from one thread."""

    def __init__(self, plan: WorkPlan, folder: Path) -> None:
        self.plan = plan
        self.path = folder / "made"
        self.copies = folder / "copy"
        self.chance = random.Random(f"work {plan.seed}")
        self.story = WorkStory(plan, [], [])  # type: ignore[arg-type]  # of a plan it needs what both have
        self._fails: set[tuple[int, int]] = set()
        self._waits: set[tuple[int, int]] = set()
        self._serial = 0

    def make(self) -> WorkStory:
        """The whole life."""
        with by_hand():
            store = self._open()
            rounds = self.chance.randrange(3, 6)
            for number in range(rounds):
                self._configure(store)
                self._round(store)
                removed = remove(store)
                last = number == rounds - 1
                if not last or not self.plan.closed:
                    self.story.moments.append(take_snapshot(crash_copy(self.path, self.copies)))
                if removed and not last and self.chance.random() < 0.3:
                    store.close()
                    store = self._open()
            self.story.firsts = {queue_id: store.queue_bounds(WORK, queue_id)[0] for queue_id in range(QUEUES)}
            store.close()
        if self.plan.closed:
            self.story.moments.append(take_snapshot(self.path))
        return self.story

    def _open(self) -> MessageStore:
        store: MessageStore = MessageStore.open(self.path, self.plan.config())
        without_marks(store)
        return store

    def _configure(self, store: MessageStore) -> None:
        """Settings that differ in what changes nothing here."""
        if self.story.settings and self.chance.random() < 0.4:
            return
        ttl_ms = NEVER_MS + len(self.story.settings)
        found = store.configure_topic(
            WORK, keep="until_acknowledged", id_window_ms=NEVER_MS, ttl_ms=ttl_ms, queues=QUEUES
        )
        self.story.settings.append(found)
        for topic in (DONE, DEAD):
            store.configure_topic(topic, keep="until_acknowledged")

    def _round(self, store: MessageStore) -> None:
        """Jobs come, some with an id; most of them are done."""
        for who in (UNDERTAKER, CLERK):
            store.subscribe(TOPIC_OF[who], who).close()
        self._append(store, [self._job() for _ in range(self.chance.randrange(20, 60))])
        jobs = self.story.jobs
        with store.subscribe(WORK, WORKERS, max_attempts=MOST_ATTEMPTS, dead_letter_topic=DEAD) as workers:
            while got := workers.receive(16):
                self._work(store, [one for one in got if place_of(one) not in self._waits | self._fails])
                fails = [one for one in got if place_of(one) in self._fails]
                for one in fails:
                    if one.attempt == MOST_ATTEMPTS:
                        jobs[place_of(one)].state = "dead"  # the next receive moves it to the dead letters
                workers.nack_batch(fails, 0)

    def _job(self) -> tuple[int, bytes]:
        self._serial += 1
        size = int(2 ** self.chance.uniform(6, 12.5))
        return self.chance.randrange(QUEUES), b"job %06d;" % self._serial + self.chance.randbytes(size)

    def _append(self, store: MessageStore, made: list[tuple[int, bytes]]) -> None:
        """One by one, each sent twice; as a batch; or in a transaction over several lanes."""
        while made:
            some, made = made[:6], made[6:]
            way = self.chance.randrange(3)
            ids = [data.partition(b";")[0].decode() for _, data in some]
            rows = [(WORK, queue_id, data) for queue_id, data in some]
            if way == 0:
                twice = [store.append(*row, message_id=one) for row, one in zip(rows, ids, strict=True) for _ in "ab"]
                offsets = twice[::2]
            elif way == 1:
                offsets = store.append_batch(rows, message_ids=ids).tolist()
            else:
                with store.transaction() as tx:
                    for row, one in zip(rows, ids, strict=True):
                        tx.append(*row, message_id=one)
                offsets = tx.offsets.tolist()
            for (queue_id, data), offset in zip(some, offsets, strict=True):
                self._take(Job((queue_id, offset), data))

    def _take(self, job: Job) -> None:
        """A job was appended: one in ten has to wait for long, and a few fail."""
        self.story.jobs[job.place] = job
        self.story.ids[id_of(job)] = job.place
        draw = self.chance.random()
        if draw < 0.15:
            (self._waits if draw < 0.1 else self._fails).add(job.place)

    def _work(self, store: MessageStore, done: list[Delivery]) -> None:
        """Each few of them in a transaction."""
        while done:
            some, done = done[:4], done[4:]
            with store.transaction() as tx:
                for one in some:
                    tx.append(DONE, one.message.offset % QUEUES, bill_of(self.story.jobs[place_of(one)]))
                    tx.ack(one)
            for one in some:
                self.story.jobs[place_of(one)].state = "done"


def work_plans(seed: int, count: int) -> list[WorkPlan]:
    """Of one lane and of several."""
    chance = random.Random(f"work plans {seed}")
    return [WorkPlan(chance.choice((1, 1, 2, 4)), chance.random() < 0.5, chance.getrandbits(30)) for _ in range(count)]
