"""A program that uses a tracker on a disk that may crash at each step, and what has to be true after each crash.

The program keeps a log, as the store does: of what it added and cancelled. It takes what is due, and says with a
checkpoint that what was taken is safe. After a crash it opens the tracker, and repeats the log from the mark on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from stratalog.index import BucketTracker

from .kinds import on_disk, taken
from .simulated_files import SimulatedFiles

Position = tuple[int, int]
END_MS = 1 << 40


class Event(NamedTuple):
    """A line of the log; without a time, a cancellation."""

    position: Position
    time_ms: int | None


class Program:
    """Draws calls, makes them, and knows what has to be pending after a crash at any moment."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.settings = {
            "seal_entries": self.chance.choice([3, 10]), "most_entries": self.chance.choice([12, 30]),
            "segment_ms": self.chance.choice([20, 1_000]), "segment_entries": self.chance.choice([2, 7]),
            "most_buckets": self.chance.choice([1, 1, 2, 3, 5]), "seal_after_ms": 60,
        }  # fmt: skip
        self.files = SimulatedFiles(seed)
        self.tracker = self.open(self.files)
        self.log: list[Event] = []
        self.pending: dict[Position, int] = {}
        self.taken: dict[Position, int] = {}  # since the checkpoint
        self.checkpoints: dict[int, dict[Position, int]] = {0: {}}  # by the mark: what was pending
        self.floor = self.floor_asked = 0
        self.now_ms = 100
        self.last_ledger = 0

    def open(self, files: SimulatedFiles) -> BucketTracker:
        """With this program's settings."""
        return on_disk(files=files, **self.settings)

    def run(self, calls: int) -> None:
        """Make calls."""
        steps: list[Callable[[], None]] = [self.add] * 6 + [self.cancel] * 3 + [self.move, self.take, self.take]
        steps += [self.checkpoint, self.trim, self.upkeep, self.restart]
        for _ in range(calls):
            self.chance.choice(steps)()
            self.now_ms += self.chance.choice([0, 1, 10])

    def retried(self, call: Callable[[], Any]) -> Any:
        """Call it until the disk makes no error."""
        while True:
            with suppress(OSError):
                return call()

    def add(self) -> None:
        """Some entries, some of them known ones."""
        self.last_ledger = max(self.last_ledger + self.chance.choice([0, 0, 1]), self.floor_asked)
        count = self.chance.choice([1, 4, 15])
        rows = []
        for _ in range(count):
            ledger = max(self.last_ledger - self.chance.choice([0, 0, 0, 1]), self.floor_asked)
            rows.append(((ledger, self.chance.randrange(12)), self.now_ms + self.chance.randrange(-10, 100)))
        self._add(rows)

    def _add(self, rows: list[tuple[Position, int]]) -> None:
        self.log += [Event(position, time_ms) for position, time_ms in rows]
        columns = [position[0] for position, _ in rows], [position[1] for position, _ in rows], [t for _, t in rows]
        if len(rows) == 1:
            self.retried(lambda: self.tracker.add_message(*rows[0][0], rows[0][1]))
        else:
            self.retried(lambda: self.tracker.add_messages(*columns))
        for position, time_ms in rows:
            self.pending.setdefault(position, time_ms)

    def cancel(self) -> None:
        """One entry, pending or not."""
        known = [*self.pending, *self.taken, (self.last_ledger, 3)]
        self._cancel(self.chance.choice(known))

    def _cancel(self, position: Position) -> None:
        self.log.append(Event(position, None))
        assert self.tracker.cancel(*position) == (self.pending.pop(position, None) is not None)

    def move(self) -> None:
        """One entry, to another time."""
        if self.pending:
            position = self.chance.choice([*self.pending])
            self._cancel(position)
            self._add([(position, self.now_ms + self.chance.randrange(100))])

    def take(self) -> None:
        """What is due."""
        count = self.chance.choice([1, 5, 1_000])
        got = self.retried(lambda: taken(self.tracker, self.now_ms, count))
        due = sorted((time_ms, position) for position, time_ms in self.pending.items() if time_ms <= self.now_ms)
        assert got == [position for _, position in due[:count]]
        for position in got:
            self.taken[position] = self.pending.pop(position)

    def checkpoint(self) -> None:
        """What was taken is safe."""
        self.log.append(Event((self.last_ledger, -1), None))  # so that no two marks are alike
        mark = len(self.log)
        self.checkpoints[mark] = dict(self.pending)
        self.retried(lambda: self.tracker.checkpoint(b"%d" % mark))
        self.taken.clear()
        self.checkpoints = {mark: dict(self.pending)}

    def trim(self) -> None:
        """Now and then: the log begins later."""
        if self.chance.random() < 0.3:
            self.floor_asked = max(self.floor_asked, self.last_ledger - self.chance.randrange(3))
            self.retried(lambda: self.tracker.trim(self.floor_asked))
            self.floor = self.floor_asked
            for known in (self.pending, self.taken, *self.checkpoints.values()):
                for position in [position for position in known if position[0] < self.floor]:
                    del known[position]

    def upkeep(self) -> None:
        """Merge all that there is to merge."""
        self.retried(lambda: self.tracker.upkeep(1 << 30))

    def restart(self) -> None:
        """Crash, and go on with what is left: so later steps build on what an opening has made."""
        files = self.files.crashed(self.chance.getrandbits(32))
        actual = self._repeated(self.open(files.crashed(0)), self._mark_of(files))
        mark = self._mark_of(files)
        self.checkpoints = {mark: self.checkpoints[mark]}
        files.on_step, files.steps = self.files.on_step, self.files.steps
        self.files = files
        self.taken.clear()
        self.tracker = self.retried(lambda: self.open(files))
        self.retried(lambda: self._repeat(self.tracker, mark))
        self.pending = actual
        assert len(self.tracker) == len(actual)

    def _mark_of(self, files: SimulatedFiles) -> int:
        return int(self.open(files.crashed(0)).mark or b"0")

    def check_crash(self, seed: int) -> None:
        """Crash now, and look at what is left; then once more, in the recovery."""
        files = self.files.crashed(seed)
        self.check_recovered(self.open(files))
        self.check_recovered(self.open(files.crashed(seed + 1)))

    def check_recovered(self, tracker: BucketTracker) -> None:
        """Nothing is lost, nothing comes back that must not, no time is wrong, and the order is right."""
        mark = int(tracker.mark or b"0")
        assert mark in self.checkpoints, "the mark is neither the last one nor the one before"
        found = {position: (time_ms,) for position, time_ms in rows_of(tracker).items()}
        assert all(position[0] >= self.floor for position in found), "trimmed entries came back"
        # An entry that was known at the mark has the time that it had, or one that the log says later.
        allowed = {position: {time_ms} for position, time_ms in self.checkpoints[mark].items()}
        for position, time_ms in self.log[mark:]:
            if time_ms is not None:
                allowed.setdefault(position, set()).add(time_ms)
        for position, times in found.items():
            assert times[0] in allowed.get(position, ()), f"{position} came back, due at {times}"
        reopened = self._repeated(tracker, mark)
        assert reopened.keys() == self._must_be(mark).keys()
        for position, time_ms in reopened.items():
            assert time_ms in self._must_be(mark)[position], position

    def _repeated(self, tracker: BucketTracker, mark: int) -> dict[Position, int]:
        tracker._files.on_step = None  # type: ignore[attr-defined]
        restored = self.open(tracker._files)  # type: ignore[arg-type]  # rows_of has emptied the first one
        self._repeat(restored, mark)
        return rows_of(restored)

    def _repeat(self, tracker: BucketTracker, mark: int) -> None:
        """What the log says; where it was trimmed, it has nothing to say any more."""
        for position, time_ms in self.log[mark:]:
            if position[0] < self.floor_asked or position[1] < 0:
                continue
            if time_ms is None:
                tracker.cancel(*position)
            else:
                tracker.add_message(*position, time_ms)
        tracker.trim(self.floor_asked)

    def _must_be(self, mark: int) -> dict[Position, set[int]]:
        """By the log alone: what was taken since the mark is pending again, at its first time or at a later one."""
        times = {position: {time_ms} for position, time_ms in self.checkpoints[mark].items()}
        for position, time_ms in self.log[mark:]:
            if time_ms is None:
                times.pop(position, None)
            else:
                times.setdefault(position, set()).add(time_ms)
        return {position: found for position, found in times.items() if position[0] >= self.floor_asked}


def rows_of(tracker: BucketTracker) -> dict[Position, int]:
    """Everything that is pending, with its time; it is taken, and the order and the count are checked."""
    rows: dict[Position, int] = {}
    count, last = len(tracker), (-1, (-1, -1))
    while (now_ms := tracker.next_deadline_ms) is not None:
        for position in taken(tracker, now_ms):
            assert position not in rows, f"{position} came twice"
            assert (now_ms, position) > last
            last = now_ms, position
            rows[position] = now_ms
    assert count == len(rows)
    return rows
