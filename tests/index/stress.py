"""Operations that many threads complete while they time out: each ends exactly once, and nothing is left."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stratalog.index import DelayedOperation, Purgatory, TimerThread, TimingWheel

KEYS = 20
HELD = 30  # operations that a thread has open
ENDS_WITHIN_S = 60.0


class Stressed(DelayedOperation):
    """Counts its ends; some raise in them, or call the purgatory."""

    __slots__ = ("completions", "do", "expirations", "key", "ready")

    def __init__(self, timeout_ms: int, key: int, do: Callable[[Stressed], None] | None) -> None:
        super().__init__(timeout_ms)
        self.key = key
        self.do = do
        self.ready = False
        self.completions = self.expirations = 0

    def try_complete(self) -> bool:
        """As its thread has set it."""
        return self.ready

    def on_complete(self) -> None:
        """Count, then do what may go wrong."""
        self.completions += 1
        if self.do is not None:
            self.do(self)

    def on_expiration(self) -> None:
        """Count."""
        self.expirations += 1


@contextmanager
def switching_often() -> Iterator[None]:
    """The interpreter goes to another thread after 10 us in place of 5 ms."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class Stress:
    """One run: `threads` of them watch, complete, force and check, until each has made its share or time is over."""

    def __init__(self, seed: int, threads: int, operations: int, until_s: float = float("inf")) -> None:
        self.seed = seed
        self.threads = threads
        self.share = operations // threads
        self.until_s = until_s
        self.made = self.expired = 0
        self.wrong: list[str] = []
        self._counting = threading.Lock()

    def run(self) -> None:
        """Raises AssertionError if an operation has ended more or less than once, or something is left."""
        with TimerThread(wheel := TimingWheel()) as timers, switching_often():
            purgatory = Purgatory(timers, 100)
            workers = [
                threading.Thread(target=self._work, args=(number, purgatory), daemon=True)
                for number in range(self.threads)
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join(max(0.0, min(self.until_s, 1e6) + ENDS_WITHIN_S - time.monotonic()))
                assert not worker.is_alive(), "a thread does not come to its end: a deadlock"
            limit = time.monotonic() + ENDS_WITHIN_S
            while purgatory.pending and time.monotonic() < limit:
                time.sleep(0.01)  # the timer's thread ends what is left; the limit is for a deadlock
            left = (purgatory.pending, purgatory.watched, purgatory.estimate, len(wheel))
        assert not self.wrong, self.wrong[:3]
        assert left == (0, 0, 0, 0), left

    def _work(self, number: int, purgatory: Purgatory) -> None:
        chance = random.Random(f"{self.seed}/{number}")

        def again(operation: Stressed) -> None:
            purgatory.check_and_complete(operation.key)

        def fail(operation: Stressed) -> None:
            raise StressError

        held: list[Stressed] = []
        ended: list[Stressed] = []
        made = 0
        try:
            while made < self.share and time.monotonic() < self.until_s:
                do = chance.choice((None, None, None, again, fail))
                operation = Stressed(chance.choice((0, 1, 3, 20)), chance.randrange(KEYS), do)
                purgatory.try_complete_else_watch(operation, (operation.key, KEYS + chance.randrange(3)))
                held.append(operation)
                made += 1
                if len(held) > HELD:
                    one = held.pop(chance.randrange(len(held)))
                    self._end(one, purgatory, by_force=chance.random() < 0.5)
                    ended.append(one)
                if len(ended) >= 1000:
                    self._count(ended)
            for one in held:
                self._end(one, purgatory, by_force=False)
            self._count(ended + held, made)
        except BaseException as error:
            self.wrong.append(repr(error))

    def _end(self, operation: Stressed, purgatory: Purgatory, *, by_force: bool) -> None:
        if by_force:
            operation.force_complete()
        else:
            operation.ready = True
            purgatory.check_and_complete(operation.key)

    def _count(self, ended: list[Stressed], made: int = 0) -> None:
        """Look at operations that have ended. Another thread may be in the midst of one's end: it gets some time."""
        with self._counting:
            for one in ended:
                limit = time.monotonic() + ENDS_WITHIN_S
                while not one.completions and time.monotonic() < limit:
                    time.sleep(0.001)  # lets the other thread go on; the limit is for an end that never comes
                if one.completions != 1 or one.expirations > 1:
                    self.wrong.append(f"{one.completions} completions, {one.expirations} expirations")
                self.expired += one.expirations
            self.made += made
        ended.clear()


class StressError(Exception):
    """Raised by an operation on purpose."""
