"""A power cut at each step of a compaction: the store opens as it was before, lane by lane compacted or not.

A round makes a store with what a compaction can meet: some lanes; queues that were trimmed, or of which retention
removed segments; a deleted topic; streams that are gone; two subscriptions that have acknowledged some messages;
delayed messages that are pending, cancelled or moved; bulk commits. It is closed and compacted on a noted file system
(see `tree`). At each change a cut leaves a folder. Each of these is opened as users do, some behind a second compaction
or an opening that was cut as well, and looked at:

* each queue has the same offsets and the same messages, byte by byte, with their times, keys and properties;
* each subscription gets what it would have got of the old store, once, at three times; nothing else, nothing early;
* the bulk commits are known;
* a compaction succeeds, leaves nothing beside the store's own files, and `verify_folder` finds no damage;
* queues go on with their next offsets.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np

from stratalog.store import MessageStore, ShardWriter, commit_shards, compact_store, verify_folder
from stratalog.store.compact import plan
from tests.clocks import WallClock

from ..helpers import KIB, has_settled, memory_folder, tiny, until
from ..shards.helpers import attaching
from .looks import NOW_MS, State, state
from .tree import Left, NotedTree, put_left

DAY_MS = 86_400_000
TIMES_MS = (NOW_MS + 1, NOW_MS + 15 * DAY_MS, NOW_MS + 400 * DAY_MS)
TOPICS = ("t", "u")
NAMES = ("billing", "audit")
CUTS_AGAIN = 0.2
COMMITS_AGAIN = 0.3
# Times as many cuts where folders change their places: there are few such steps, and each can end in many ways.
TIMES_AS_MANY = {"exchange": 30, "rename": 10, "force_folder": 5}

Taken = dict[tuple[str, str], list[tuple[int, int, bytes]]]  # by topic and subscription


class Cut(NamedTuple):
    """What a cut has left, and the step before which it came."""

    left: Left
    step: str


class Known(NamedTuple):
    """What the store gave before it was compacted; `taken` at each of TIMES_MS."""

    state: State
    taken: list[Taken]


class Round:
    """One round of a seed."""

    def __init__(self, seed: int, folder: Path, share: float) -> None:
        """`share`: of the changes, how many leave a folder."""
        self.chance = random.Random(seed)
        self.share = share
        self.folder = folder
        self.path = folder / "s"
        self.lanes = self.chance.choice((1, 2, 2, 3))
        self.segment_bytes = self.chance.choice((64 * KIB, 1 << 30))
        self.commits: list[tuple[str, int]] = []

    # -- the store ------------------------------------------------------------------------------------

    def make(self) -> None:
        """Fill the store, and close it."""
        retention = self.chance.choice((None, 150 * KIB))
        config = tiny(lanes=self.lanes, retention_bytes=retention)
        if self.chance.random() < 0.5:
            self._begin_with_gone()
        with MessageStore.open(self.path, config, clock=WallClock(lambda: NOW_MS)) as store:
            for topic in TOPICS:
                for name in NAMES[: self.chance.choice((1, 2))]:
                    store.subscribe(topic, name, start="earliest")
            for part in range(4):
                self._append(store, part)
                self._acknowledge(store)
                self._change_delays(store)
                if part == 1 and self.chance.random() < 0.5:
                    store.trim("u", 0, before_offset=max(0, store.queue_bounds("u", 0)[1] - 3))
                if part == 2 and self.chance.random() < 0.5:
                    store.delete_topic("gone")
            if retention is not None:
                until(lambda: has_settled(store))
        self._commit("first", as_segments=self.chance.random() < 0.5)
        self._commit("second", as_segments=self.chance.random() < 0.5)

    def _begin_with_gone(self) -> None:
        """The log begins with topics that are deleted, and whose segments go: their streams lose their numbers."""
        with MessageStore.open(self.path, tiny(lanes=self.lanes), clock=WallClock(lambda: NOW_MS)) as store:
            for topic in ("early", "behind it"):
                store.append_batch([(topic, number % 6, bytes(10_000)) for number in range(60)])
                store.delete_topic(topic)

    def _append(self, store: MessageStore, part: int) -> None:
        chance = self.chance
        for number in range(chance.choice((20, 60))):
            due = NOW_MS + chance.randrange(1, 30 * DAY_MS) if chance.random() < 0.3 else None
            data = f"{part}-{number}:".encode() + chance.randbytes(chance.choice((10, 900, 3_000)))
            topic = chance.choice((*TOPICS, "gone"))
            key = b"k%d" % number if number % 3 == 0 else None
            properties = {"part": str(part)} if number % 4 == 0 else None
            store.submit(topic, chance.randrange(4), data, deliver_at_ms=due, key=key, properties=properties)
        store.flush()

    def _acknowledge(self, store: MessageStore) -> None:
        for topic in TOPICS:
            with store.subscribe(topic, NAMES[0]) as subscription:
                deliveries = subscription.receive(self.chance.choice((5, 40)), wait_ms=0)
                chosen = [one for one in deliveries if self.chance.random() < 0.6]
                if chosen:
                    subscription.ack_batch(chosen)

    def _change_delays(self, store: MessageStore) -> None:
        for _ in range(self.chance.choice((2, 8))):
            topic, queue_id = self.chance.choice(TOPICS), self.chance.randrange(4)
            if queue_id not in store.queues(topic):
                continue
            first, end = store.queue_bounds(topic, queue_id)
            if first == end:
                continue
            offset = self.chance.randrange(first, end)
            if self.chance.random() < 0.5:
                store.cancel_delayed(topic, queue_id, offset)
            else:
                later = NOW_MS + self.chance.randrange(1, 40 * DAY_MS)
                store.reschedule_delayed(topic, queue_id, offset, later)

    def _commit(self, name: str, *, as_segments: bool) -> None:
        rows = self.chance.choice((4, 40))
        attaching(setattr, as_segments=as_segments)
        try:
            assert commit(self.path, name, rows)
        finally:
            attaching(setattr, as_segments=False)
        self.commits.append((name, rows))

    # -- the cuts -------------------------------------------------------------------------------------

    def run(self) -> int:
        """Make the store, compact it, and look at all that cuts leave: how many that were."""
        self.make()
        known = self._known()
        count = 0
        for cut in self._cuts(self.share, self._compact):
            self._put(cut.left)
            steps = [cut.step]
            while self.chance.random() < CUTS_AGAIN:
                work = self.chance.choice((self._compact, self._open))
                chosen = self.chance.choice(self._cuts(0.02, work))
                self._put(chosen.left)
                steps.append(f"{work.__name__}: {chosen.step}")
            try:
                self._check(known)
            except BaseException as error:
                error.add_note(f"cut before: {', then '.join(steps)}")
                raise
            count += len(steps)
        return count

    def _cuts(self, share: float, work: Callable[[], None]) -> list[Cut]:
        cuts: list[Cut] = []

        def cut(step: str) -> None:
            for _ in range(TIMES_AS_MANY.get(step.split(maxsplit=1)[0], 1)):
                if self.chance.random() < share:
                    cuts.append(Cut(tree.cut(self.chance), step))

        tree = NotedTree(self.path, cut)
        with tree.noting():
            work()
        return [*cuts, Cut(tree.cut(self.chance), "the end")]

    def _compact(self) -> None:
        compact_store(self.path, segment_bytes=self.segment_bytes)

    def _open(self) -> None:
        with MessageStore.open(self.path, tiny(), clock=WallClock(lambda: NOW_MS)):
            pass

    def _put(self, left: Left) -> None:
        shutil.rmtree(self.path)
        put_left(left, self.path)

    # -- what is looked at ----------------------------------------------------------------------------

    def _known(self) -> Known:
        kept = self.folder / "kept"
        shutil.copytree(self.path, kept)
        with MessageStore.open(self.path, tiny(), clock=WallClock(lambda: NOW_MS)) as store:
            found = state(store)
        known = Known(found, [taken(self.path, now_ms) for now_ms in TIMES_MS])
        shutil.rmtree(self.path)
        kept.rename(self.path)
        return known

    def _check(self, known: Known) -> None:
        clock = WallClock(lambda: TIMES_MS[0])
        with MessageStore.open(self.path, tiny(), clock=clock) as store:
            assert store.losses == []
            check_state(state(store), known.state)
            assert taken_of(store) == known.taken[0], "another delivery behind the cut"
        if self.chance.random() < COMMITS_AGAIN:
            for name, rows in self.commits:
                assert not commit(self.path, name, rows), f"the commit {name} was done twice"
        assert taken(self.path, TIMES_MS[1]) == known.taken[1], "another delivery of what became due"
        self._compact()
        beside = {path.name for path in self.path.iterdir() if not path.name.startswith("lane-")}
        assert beside <= {"STORE", "LOCK", "LIVE", "delayed", "incoming"}, beside
        assert verify_folder(self.path).damages == []
        with MessageStore.open(self.path, tiny(), clock=WallClock(lambda: TIMES_MS[2])) as store:
            check_state(state(store), known.state)
            assert taken_of(store) == known.taken[2], "another delivery behind the second compaction"
            for (topic, queue_id), (_, end, _) in known.state.items():
                assert store.append(topic, queue_id, b"next") == end


def check_state(found: State, known: State) -> None:
    """Raises AssertionError with the first queue that differs."""
    for queue in sorted({*found, *known}):
        assert found.get(queue) == known.get(queue), f"the queue {queue} is another one"


def commit(path: Path, name: str, rows: int) -> bool:
    """Commit some rows in bulk; False if it had been done."""
    streams = [(topic, queue_id) for topic in TOPICS for queue_id in range(4)]
    with ShardWriter(path) as writer:
        writer.append_columns(streams, np.arange(rows) % len(streams), np.full(rows, 500), bytes(rows * 500))
        return commit_shards(path, writer.finish(), name=name, batch=None).is_new


def taken(path: Path, now_ms: int) -> Taken:
    """What the subscriptions of a closed store get at a time, and acknowledge."""
    with MessageStore.open(path, tiny(), clock=WallClock(lambda: now_ms)) as store:
        return taken_of(store)


def taken_of(store: MessageStore) -> Taken:
    """The same of an open one."""
    found: Taken = {}
    for topic in TOPICS:
        for name in NAMES:
            if name not in {one.name for one in store.subscriptions(topic)}:
                continue
            rows = found[topic, name] = []
            with store.subscribe(topic, name) as subscription:
                while deliveries := subscription.receive(100, wait_ms=0):
                    rows += [(one.message.queue_id, one.message.offset, one.message.data) for one in deliveries]
                    subscription.ack_batch(deliveries)
            rows.sort()
    return found


def run_round(seed: int, *, share: float) -> int:
    """A round; how many states were looked at. Raises AssertionError, with the step."""
    # Stores of a few KiB would often be left as they are.
    with memory_folder() as folder, mock.patch.object(plan, "LEAST_GAIN_BYTES", 0):
        return Round(seed, folder.resolve(), share).run()
