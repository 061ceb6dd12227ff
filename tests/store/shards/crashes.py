"""A power cut or a kill at each step of staging, committing and attaching: the commit is done, or it is not.

A round stages shards, commits them and attaches them on a simulated disk, with a store that is open beside it or with
none. At each operation that changes the disk, a cut leaves another disk (see `stratalog.store.testing.disk`). Each of
these is opened, sometimes cut once more while that goes on, and then looked at:

* all that was acknowledged is there: appended messages, and the commit if it had returned;
* of the commit, all rows are there or none, in their order, once;
* readers in other processes see all of it or none: one that looks at steps of the round, and one that comes to what a
  kill has left, before anybody opens that for writing;
* the same commit once more, by new shards, makes it exactly once.

Of a round, commits go into frames or become segments; of an opening behind a cut, either.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from stratalog.store import Commit, MessageStore, Shard, StoreReader, commit_shards
from stratalog.store.testing import SimulatedDisk

from ..helpers import memory_folder, tiny
from .helpers import Queues, Row, attaching, content, queues_of, rows_of, staged

CUTS_AGAIN = 0.1
CUTS_BEHIND_A_KILL = 0.6
CHOOSES_AGAIN = 0.1
READERS_LOOK = 0.15
COMMITS_BESIDE_A_WRITER = 0.7  # an opening in place of three, and openings are what a state costs


@dataclass
class Told:
    """What a program knew at one moment."""

    before: list[Row] = field(default_factory=list)  # acknowledged
    commit: Commit | None = None
    after: list[Row] = field(default_factory=list)  # handed over behind the attached commit
    acknowledged: int = 0  # of them


@dataclass
class State:
    """A disk that a cut has left, and what had been told by then."""

    disk: SimulatedDisk
    step: str
    killed: bool  # what was not forced may still be lost
    commit: bool
    acknowledged: int


class Round:
    """One round of a seed; `states` are checked by `check`."""

    def __init__(self, seed: int, folder: Path, share: float, only_segments: bool) -> None:
        """`share`: of the operations, how many leave a disk. `only_segments`: there are rows, and never in frames."""
        self.chance = random.Random(seed)
        self.only_segments = only_segments
        self.folder = folder
        self.share = share
        self.lanes = self.chance.choice((1, 3, 3))
        count = self.chance.choice((40, 200) if only_segments else (0, 1, 40, 200))
        self.rows = rows_of("new", count, queues=self.chance.choice((1, 4)))
        self.tasks = self.chance.choice((1, 2, 3))
        self.told = Told(before=rows_of("old", self.chance.choice((0, 30))))
        self.disk = SimulatedDisk()
        self.states: list[State] = []

    def choose(self) -> None:
        """Draw how commits go into the log from here on."""
        frame_bytes = self.chance.choice((1_500, 4_000, 4 << 20))
        as_segments = self.only_segments or self.chance.random() < 0.4
        attaching(setattr, as_segments=as_segments, frame_bytes=frame_bytes)

    def run(self) -> None:
        """Stage, commit, attach, append."""
        self.choose()
        live = self.chance.random() < 0.5
        with MessageStore.open(self.folder, tiny(lanes=self.lanes), disk=self.disk) as store:
            if self.told.before:
                store.append_batch(self.told.before)
            if live:
                with (
                    MessageStore.open(self.folder, read_only=True, disk=self.disk) as reader,
                    self._cutting(self.disk, reader),
                ):
                    self._commit()
                    store.attach_pending()
                    self._append(store)
        if not live:
            with self._cutting(self.disk):
                self._commit()
                with MessageStore.open(self.folder, tiny(), disk=self.disk) as store:
                    self._append(store)

    def _commit(self) -> None:
        shards = [shard for task in range(self.tasks) for shard in self._stage(task)]
        self.told.commit = commit_shards(self.folder, shards, name="q", batch=3, wait_ms=0, disk=self.disk)

    def _stage(self, task: int) -> list[Shard]:
        mine = self.rows[len(self.rows) * task // self.tasks : len(self.rows) * (task + 1) // self.tasks]
        return list(staged(self.folder, mine, calls=self.chance.choice((1, 2)), partition=task, disk=self.disk))

    def _append(self, store: MessageStore) -> None:
        for row in rows_of("after", 6):
            self.told.after.append(row)
            store.append(*row)
            self.told.acknowledged += 1

    @contextmanager
    def _cutting(self, disk: SimulatedDisk, reader: StoreReader | None = None) -> Iterator[None]:
        """Inside, operations of the disk leave others, and the reader looks at some of them."""

        def cut(operation: object) -> None:
            if reader is not None and self.chance.random() < READERS_LOOK:
                self._check_seen(reader)
            if self.chance.random() < self.share:
                killed = self.chance.random() < 0.25
                left = disk.kill() if killed else disk.crash(self.chance)
                told = self.told
                state = left, str(operation), killed, told.commit is not None, told.acknowledged
                self.states.append(State(*state))

        disk.on_operation = cut
        try:
            yield
        finally:
            disk.on_operation = None

    def check(self) -> int:
        """Look at every disk that was left; how many they were."""
        count = 0
        while self.states:
            state = self.states.pop()
            count += 1
            if self.chance.random() < CHOOSES_AGAIN:
                self.choose()
            if self.chance.random() < (CUTS_BEHIND_A_KILL if state.killed else CUTS_AGAIN):
                state = self._cut_again(state)
                count += 1
            try:
                self._check(state)
            except BaseException as error:
                error.add_note(f"cut at {state.step}")
                raise
        return count

    def _cut_again(self, state: State) -> State:
        """Open a disk, and cut at one operation of that."""
        again: list[SimulatedDisk] = []
        at = self.chance.randrange(1, 40)

        def cut(operation: object) -> None:
            if not again and state.disk.operations >= at:
                again.append(state.disk.crash(self.chance))

        state.disk.operations = 0
        state.disk.on_operation = cut
        MessageStore.open(self.folder, tiny(), disk=state.disk).close()
        state.disk.on_operation = None
        return replace(state, disk=again[0] if again else state.disk, step=f"{state.step}, then {at}", killed=False)

    def _check_seen(self, reader: StoreReader) -> None:
        """A reader in another process has all of the commit or none, and what was appended after it only with it."""
        found = content(reader)
        after = self.told.after[: self._after_in(found)]
        with_it = queues_of(self.told.before, self.rows, after)
        assert found in (with_it, queues_of(self.told.before)), "a reader sees a part of the commit"

    def _check(self, state: State) -> None:
        told, disk = self.told, state.disk
        if state.killed:
            with MessageStore.open(self.folder, read_only=True, disk=disk) as reader:
                self._check_seen(reader)
        by_writer = self.chance.random() < COMMITS_BESIDE_A_WRITER
        with MessageStore.open(self.folder, tiny(), disk=disk) as store:
            found = content(store)
            after = self._after_in(found)
            with_it = queues_of(told.before, self.rows, told.after[:after])
            without = queues_of(told.before)
            assert found == with_it or (not state.commit and found == without), "a commit is there in part"
            assert after >= state.acknowledged, "an acknowledged message is missing"
            if by_writer:
                self._commit_again(disk)
                store.attach_pending()
                assert content(store) == with_it, "the commit is not there exactly once"
        if not by_writer:
            self._commit_again(disk)
            with MessageStore.open(self.folder, tiny(), disk=disk) as store:
                assert content(store) == with_it, "the commit is not there exactly once"

    def _commit_again(self, disk: SimulatedDisk) -> None:
        """The same rows, in one shard a lane."""
        shards = staged(self.folder, self.rows, disk=disk)
        commit_shards(self.folder, shards, name="q", batch=3, wait_ms=0, disk=disk)

    def _after_in(self, found: Queues) -> int:
        """How many of the messages that were appended last are there: a prefix, as they were appended one by one."""
        there = {data for datas in found.values() for data in datas}
        return sum(row[2] in there for row in self.told.after)


def run_round(seed: int, *, share: float, only_segments: bool = False) -> int:
    """A round; how many states were looked at. Raises AssertionError, with the step."""
    with memory_folder() as folder:
        one = Round(seed, folder, share, only_segments)
        try:
            one.run()
            return one.check()
        finally:
            attaching(setattr, as_segments=False)
