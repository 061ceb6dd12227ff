"""The process that has the store open is killed while another one commits: each commit is done, and once.

`python -m tests.store.shards.writer_kills --seconds 600` is the long form. In a round, a writer's process dies before
one of its steps on the disk, or at a random moment, while a committer puts its question, waits for the answer, leaves
its manifest and waits until that is attached. The commit is a new one, one that was made before, or one of that name
with other rows. Some committers die as well, in the same way. Whatever became of them:

* a committer that lives is told the truth, and what it was told is so behind the writer's death;
* the store has the rows of each commit that was made, once and in order; of a commit whose committer died, all or none;
* the same commit once more makes it exactly once, by whoever has the store open then.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from stratalog.store import MessageStore, ReplayDiffers, commit_shards
from stratalog.store.device.disk import OsDisk
from stratalog.store.device.os_file import OsFile
from tests.rounds import run_rounds

from ..helpers import memory_folder, tiny
from ..killing import STEPS
from .helpers import Row, attaching, content, left_in, queues_of, rows_of, staged

NEVER = -1
MOST_STEPS = 40  # a commit takes fewer
WAIT_MS = 100_000
NEW, KNOWN, DIFFERS = "new", "known", "differs"
ALL_STEPS = [*(step for step in STEPS if step[0] in (OsDisk, OsFile)), (OsFile, "truncate"), (OsDisk, "remove")]


def dying_at(step: int) -> None:
    """From here on this process dies before its step of this number."""
    left = [step]

    def counting(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            if left[0] == 0:
                os._exit(1)
            left[0] -= 1
            return call(*given, **named)

        return run

    for owner, name in ALL_STEPS:
        setattr(owner, name, counting(getattr(owner, name)))


def forked(work: Callable[[], object]) -> int:
    """A child process that does some work, and ends."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException as error:
        sys.stderr.write(f"a child has failed: {error!r}\n")
    finally:
        os._exit(3)


class Round:
    """One round of a seed."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = chance = random.Random(seed)
        self.folder = folder
        self.kind = chance.choice((NEW, NEW, KNOWN, DIFFERS))
        self.batch = chance.choice((None, 7))
        self.lanes = chance.choice((1, 3))
        self.as_segments = chance.random() < 0.3
        self.rows = rows_of("commit", chance.choice((1, 20, 60)))
        self.first = {NEW: [], KNOWN: self.rows, DIFFERS: rows_of("first", 5)}[self.kind]

    def commit(self, rows: list[Row]) -> bool:
        """Commit rows under the round's name; whether that was new."""
        shards = staged(self.folder, rows)
        return commit_shards(self.folder, shards, name="q", batch=self.batch, wait_ms=WAIT_MS).is_new

    def run(self) -> int:
        attaching(setattr, as_segments=self.as_segments)
        with MessageStore.open(self.folder, tiny(lanes=self.lanes)) as store:
            store.append_batch(rows_of("old", 12))
        if self.first:
            assert self.commit(self.first)
        dies = self.chance.random() < 0.2
        writer = self.writer()
        if dies:
            self.committer_that_dies()
        else:
            self.committers(self.chance.choice((1, 1, 2)))
        with suppress(ProcessLookupError):
            os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        self.check(is_sure=not dies)
        return 1

    def writer(self) -> int:
        """A process that has the store open, and is killed at some time."""
        step = self.chance.choice((NEVER, self.chance.randrange(MOST_STEPS), self.chance.randrange(MOST_STEPS)))
        alive_s = self.chance.random() * 0.02 if step == NEVER else WAIT_MS
        reading, writing = os.pipe()

        def work() -> None:
            with MessageStore.open(self.folder, tiny()):
                dying_at(step)
                os.write(writing, b"x")
                time.sleep(alive_s)
                os.kill(os.getpid(), signal.SIGKILL)

        child = forked(work)
        os.close(writing)
        assert os.read(reading, 1), "the writer has opened the store"
        os.close(reading)
        return child

    def committers(self, count: int) -> None:
        """So many processes that make the commit at once: one of them is the first, if it is new."""
        reading, writing = os.pipe()
        others = [forked(lambda: os.write(writing, bytes([self.committer()]))) for _ in range(count - 1)]
        told = [self.committer()]
        for child in others:
            _, status = os.waitpid(child, 0)
            assert not status, "another committer has failed"
            told.append(bool(os.read(reading, 1)[0]))
        os.close(reading)
        os.close(writing)
        assert sum(told) == (self.kind == NEW), "a committer was told what is not so"

    def committer(self) -> bool:
        """Whether it was told that its commit is new."""
        try:
            is_new = self.commit(self.rows)
        except ReplayDiffers as error:
            assert self.kind == DIFFERS and "other rows" in str(error), error
            return False
        assert self.kind != DIFFERS, "other rows were taken"
        return is_new

    def committer_that_dies(self) -> None:
        step = self.chance.randrange(MOST_STEPS // 2)
        shards = staged(self.folder, self.rows)

        def work() -> None:
            dying_at(step)
            with suppress(ReplayDiffers):
                commit_shards(self.folder, shards, name="q", batch=self.batch, wait_ms=WAIT_MS)

        os.waitpid(forked(work), 0)

    def check(self, *, is_sure: bool) -> None:
        """Open the store that is left, and make the commit once more, beside a writer or without one."""
        first, rows = (self.first, self.first) if self.first else ([], self.rows)
        wanted = queues_of(rows_of("old", 12), rows)
        with MessageStore.open(self.folder, tiny()) as store:
            found = content(store)
            assert found == wanted or (not is_sure and found == queues_of(rows_of("old", 12), first))
            is_missing = found != wanted
            if self.chance.random() < 0.5:
                assert self.commit(rows) is is_missing
                is_missing = False
                assert content(store) == wanted
        assert self.commit(rows) is is_missing
        with MessageStore.open(self.folder, tiny()) as store:
            assert content(store) == wanted
        names = [name for name in left_in(self.folder) if name.endswith((".manifest", ".refused"))]
        assert not names, "a commit waits, or was refused"


def run_round(seed: int) -> int:
    """A round. Raises AssertionError, with the seed."""
    with memory_folder() as folder:
        try:
            return Round(seed, folder).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            attaching(setattr, as_segments=False)


if __name__ == "__main__":
    assert threading.active_count() == 1, "a fork has one thread"
    sys.exit(run_rounds("tests.store.shards.writer_kills", __doc__, run_round, "each commit done, and once"))
