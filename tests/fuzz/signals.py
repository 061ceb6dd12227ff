"""A fuzzer of interrupts: KeyboardInterrupt in the middle of every call of the store.

    python -m tests.fuzz signals --interrupts 10000 [--seed N]

Interrupts come in two ways. *Stepwise*: `open` and `close` run under a trace function that raises at one of the
places where the interpreter looks for signals in the project's own code. *Timed*: a real signal from a
timer of the kernel, after a random time, hits any call; the interpreter raises KeyboardInterrupt from its handler as
it does for Ctrl-C.

After each interrupt the store is closed, dropped, or interrupted again in its `close`. Then the folder is opened
once more, which must work at once; all that was acknowledged must be there, nothing that was not handed over, nothing
twice; and no descriptor or thread may be left.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import random
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from stratalog.store import MessageStore, StoreConfig, StoreError
from tests.seeds import draw_seed
from tests.store.helpers import KIB, ROOT, memory_folder, tiny
from tests.store.interrupts import Interrupter

PATIENCE_S = 20.0
QUEUES = [("a", 0), ("a", 1), ("b", 0)]
CODE = (str(ROOT / "stratalog") + "/",)
STEPWISE_PART = 0.5  # of the interrupts

Work = Callable[[], object]


class Broken(AssertionError):
    """An interrupt has broken a promise."""


# -- interrupts ---------------------------------------------------------------------------------------


def stepwise(work: Work, at: int = 0) -> Interrupter:
    """Do the work until it is interrupted at the Nth place in the project's code where a signal could."""
    interrupter = Interrupter(lambda code: code.co_filename.startswith(CODE), at)
    with contextlib.suppress(KeyboardInterrupt), interrupter.watching():
        work()
    return interrupter


def timed(work: Work, delay_s: float) -> bool:
    """Do the work, with a signal after a while; True if it was interrupted."""
    try:
        signal.setitimer(signal.ITIMER_REAL, max(delay_s, 1e-6))
        try:
            work()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        return True
    return False


@contextlib.contextmanager
def alarms_interrupt() -> Iterator[None]:
    """The timer's signal does what SIGINT does in a program that sets no handler."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- what may be left ---------------------------------------------------------------------------------


def descriptors() -> set[str]:
    """What the process has open."""
    found = set[str]()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(f"{name}: {os.readlink(f'/proc/self/fd/{name}')}")
    return {one for one in found if "/proc/" not in one}


def threads() -> int:
    """Threads of the process, as the system counts them."""
    return len(os.listdir("/proc/self/task"))


class Left:
    """Says what is there that was not there at the beginning."""

    def __init__(self) -> None:
        self._descriptors, self._threads = descriptors(), threads()

    def check(self) -> None:
        """Raises Broken. What ends a moment later is waited for."""
        deadline = time.monotonic() + PATIENCE_S
        while extra := self._extra():
            if time.monotonic() > deadline:
                raise Broken(f"left behind: {extra}")
            gc.collect()
            time.sleep(0.001)  # lets a thread that is ending end; the limit is above

    def _extra(self) -> list[str]:
        extra = sorted(descriptors() - self._descriptors)
        if threads() > self._threads:
            extra.append(f"threads {[thread.name for thread in threading.enumerate()]}")
        return extra


# -- the store under attack ---------------------------------------------------------------------------


class Attacked:
    """A folder, and what a program knows of the store in it."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.path = path
        self.chance = chance
        self.lanes = chance.choice((1, 1, 2))
        self.store: MessageStore | None = None
        self.acknowledged: dict[tuple[str, int], dict[int, bytes]] = {queue: {} for queue in QUEUES}
        self.sent: set[bytes] = set()
        self._serial = 0

    def config(self) -> StoreConfig:
        """The smallest segments, so that spares and footers are made all the time."""
        cached = self.chance.random() < 0.2
        return tiny(
            lanes=self.lanes, memory_limit_bytes=0, prewrite_bytes=self.chance.choice((0, 128 * KIB)),
            durability=self.chance.choice(("force", "force", "os")),
            read_cache_bytes=64 * KIB if cached else 0,
        )  # fmt: skip

    def open(self) -> None:
        """Open, as a program does."""
        config = self.config()
        self.store = MessageStore.open(self.path, config)

    def close(self) -> None:
        """Close and forget it."""
        if self.store is not None:
            self.store.close()
            self.store = None

    def drop(self) -> None:
        """Forget it."""
        self.store = None

    def message(self) -> tuple[tuple[str, int], bytes]:
        """One that was never sent."""
        self._serial += 1
        data = b"%d;" % self._serial + bytes(self.chance.choice((10, 10, 300, 5000)))
        self.sent.add(data)
        return self.chance.choice(QUEUES), data

    def works(self) -> list[Work]:
        """The calls of an open store."""
        return [self.append, self.submit, self.append_batch, self.scan, self.wait, self.flush]

    def _opened(self) -> MessageStore:
        assert self.store is not None
        return self.store

    def append(self) -> None:
        """Some messages, one by one."""
        for _ in range(3):
            queue, data = self.message()
            self.acknowledged[queue][self._opened().append(*queue, data)] = data

    def submit(self) -> None:
        """Some messages at once."""
        given = [self.message() for _ in range(5)]
        tickets = [self._opened().submit(*queue, data) for queue, data in given]
        for ticket, (queue, data) in zip(tickets, given, strict=True):
            self.acknowledged[queue][ticket.result(PATIENCE_S)] = data

    def append_batch(self) -> None:
        """A batch."""
        given = [self.message() for _ in range(8)]
        offsets = self._opened().append_batch([(*queue, data) for queue, data in given]).tolist()
        for offset, (queue, data) in zip(offsets, given, strict=True):
            self.acknowledged[queue][offset] = data

    def scan(self) -> None:
        """All messages."""
        for batch in self._opened().scan():
            len(batch)

    def wait(self) -> None:
        """For a message that does not come."""
        queue = self.chance.choice(QUEUES)
        end = self._opened().queue_bounds(*queue)[1]
        self._opened().read(*queue, end, wait_ms=5)

    def flush(self) -> None:
        """All of it."""
        self._opened().flush()

    def check(self) -> None:
        """Open the store, which must work at once, and look at all of it. Raises Broken."""
        try:
            store = MessageStore.open(self.path, tiny(memory_limit_bytes=0))
        except StoreError as error:
            raise Broken(f"the next open: {type(error).__name__}: {error}") from error
        self.lanes = store.config.lanes or 1
        with store:
            seen = list[bytes]()
            for queue, known in self.acknowledged.items():
                first, end = store.queue_bounds(*queue)
                payloads = store.read_batch(*queue, first, max_messages=end + 1, max_bytes=1 << 40).payloads()
                found = dict(enumerate(map(bytes, payloads), first))
                lost = [offset for offset, data in known.items() if found.get(offset) != data]
                if lost or len(found) != end:
                    raise Broken(f"{queue} has {len(found)} of {end} messages, without the acknowledged {lost[:5]}")
                seen += found.values()
            if len(set(seen)) < len(seen) or not self.sent.issuperset(seen):
                raise Broken("a message is there twice, or was never sent")


# -- rounds -------------------------------------------------------------------------------------------


class Fuzzer:
    """Attacks stores in one folder until there were enough interrupts."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder
        self.chance = chance
        self.interrupts = 0
        self.calls = 0
        self._left = Left()
        self._took: dict[str, float] = {}

    def fresh(self) -> Attacked:
        """A new folder."""
        path = self.folder / "store"
        shutil.rmtree(path, ignore_errors=True)
        return Attacked(path, self.chance)

    def stepwise(self, interrupts: int) -> None:
        """At each event of an open of a new folder, of a crashed and of a closed store, and of a close."""
        for number in range(interrupts):
            kind = ("new", "closed", "left", "close")[number % 4]
            attacked = self.fresh()
            if kind != "new":
                attacked.open()
                attacked.append_batch()
                if kind != "close":
                    attacked.close()
            if kind == "left":
                self._leave_a_crash(attacked)
            events = self._took.get(f"events {kind}", 4000.0)
            step = stepwise(
                attacked.close if kind == "close" else attacked.open, 1 + self.chance.randrange(int(events))
            )
            hit = bool(step.place)  # in a finalizer nobody else hears of it
            if not hit:
                self._took[f"events {kind}"] = max(step.steps, 1)
            self.interrupts += hit
            self.calls += 1
            with self._telling(f"{kind}, stepwise, {step.place or 'not reached'}"):
                self._end(attacked)

    def _leave_a_crash(self, attacked: Attacked) -> None:
        """Take the notes of a clean close back, so that the lanes are recovered by a scan."""
        for path in attacked.path.glob("lane-*/*.seg"):
            with path.open("r+b") as file:
                file.seek(4096)
                file.write(bytes(4096))

    def timed(self, interrupts: int) -> None:
        """Lives of stores with a signal in nearly every call."""
        goal = self.interrupts + interrupts
        while self.interrupts < goal:
            attacked = self.fresh()
            for _ in range(self.chance.randrange(1, 4)):
                self._live(attacked)

    def _live(self, attacked: Attacked) -> None:
        told = list[str]()
        self._strike(attacked.open, "open", told)
        for _ in range(self.chance.randrange(0, 12)):
            if attacked.store is not None:
                work = self.chance.choice(attacked.works())
                self._strike(work, work.__name__, told)
        while attacked.store is not None and self.chance.random() < 0.6:
            self._strike(attacked.close, "close", told)
        with self._telling(", ".join(told)):
            self._end(attacked)

    def _strike(self, work: Work, name: str, told: list[str]) -> None:
        """Do the work once, with a signal at a time when it is likely to be at it."""
        usual = self._took.get(name, 0.002)
        began = time.perf_counter()
        hit = timed(work, self.chance.uniform(0, usual * 1.2))
        took = time.perf_counter() - began
        if not hit:
            self._took[name] = 0.8 * usual + 0.2 * min(took, 0.1)
        told.append(f"{name} {'interrupted' if hit else 'done'} after {took * 1000:.2f} ms")
        self.interrupts += hit
        self.calls += 1

    def _end(self, attacked: Attacked) -> None:
        """Close or drop what is open, and look at what is left."""
        if self.chance.random() < 0.5:
            attacked.drop()
        attacked.close()
        attacked.check()
        self._left.check()

    @contextlib.contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            error.add_note(f"interrupt {self.interrupts}: {what}")
            raise


def fuzz(interrupts: int, seed: int) -> Fuzzer:
    """Interrupt so often. Raises Broken, or whatever a call should not have raised."""
    with memory_folder() as folder, alarms_interrupt(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of stores that are dropped
        fuzzer = Fuzzer(folder, random.Random(seed))
        fuzzer.stepwise(int(interrupts * STEPWISE_PART))
        fuzzer.timed(interrupts - fuzzer.interrupts)
    return fuzzer


def main(options: Sequence[str]) -> int:
    """The command. 0: nothing found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz signals", description=__doc__)
    parser.add_argument("--interrupts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args(options)
    seed = given.seed if given.seed is not None else draw_seed()
    began = time.monotonic()
    try:
        fuzzer = fuzz(given.interrupts, seed)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", *getattr(error, "__notes__", []), sep="\n")
        print(f"run it again with --seed {seed}")
        if not isinstance(error, Broken):
            raise
        return 1
    print(f"{fuzzer.interrupts} interrupts of {fuzzer.calls} calls in {time.monotonic() - began:.0f} s: nothing broken")
    return 0
