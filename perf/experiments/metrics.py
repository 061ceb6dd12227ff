"""Metrics: what it costs the process of a store that `stratalog top` or a collector of metrics watches it."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ...store import MessageStore, Subscription
from ..machine.folders import sub_folder
from ..machine.usage import Turns, cpu_seconds, ran_by_thread, turns_of
from ..report.progress import Run
from ..report.record import Chapter, Measure
from ..workload.checker import Patience, WrongResult
from ..workload.settings import space_bytes
from .experiment import repeats, setting
from .reported import Reported, Study

ALONE, CONTROL, TOP, SCRAPED = "alone", "control", "top", "scraped"
WAYS = {
    ALONE: "nobody watches",
    CONTROL: "nobody watches, once more",
    TOP: "`stratalog top` watches",
    SCRAPED: "`metrics()` once a second",
}
BESIDE = (TOP, CONTROL, SCRAPED)
BATCH = 64  # messages a call
EVERY_S = 1.0  # between two scrapes; `top` asks for figures as often
MOST_PER_S = 1_000_000
PATIENCE_S = 30.0  # with a `top` that does not begin, or does not end
LOOK_S = 0.01  # between two looks whether it has begun
MOST_TOLD_BYTES = 64 << 10  # of its error
WARM_PART = 0.2  # of a slice comes before it and does not count
QUEUES = 4  # of a topic


@dataclass(frozen=True)
class Slice:
    """What a while of one way took: processor time of the store's process, its messages, and the time of `top`."""

    seconds: float
    messages: int
    cpu_s: float
    top_cpu_s: float | None = None
    ran_s: Mapping[int, float] = field(default_factory=dict)  # of each thread of the store's process

    @property
    def us(self) -> float:
        """Processor time a message, or a second of an idle store, in us."""
        return 1e6 * self.cpu_s / (self.messages or self.seconds)


class Worker:
    """Appends messages, receives and acknowledges them, topic after topic, in one thread."""

    def __init__(self, store: MessageStore, topics: int, message_bytes: int) -> None:
        self._store = store
        self._body = bytes(range(256)) * (message_bytes // 256 + 1)
        self._body = self._body[:message_bytes]
        self._batches = [
            [(f"topic-{number}", queue % QUEUES, self._body) for queue in range(BATCH)] for number in range(topics)
        ]
        self._subscriptions: list[Subscription] = [store.subscribe(batch[0][0], "metrics") for batch in self._batches]
        self._turn = 0
        self.messages = 0

    def work(self, seconds: float) -> int:
        """Work for so long; returns how many messages. Raises WrongResult."""
        over, done = time.perf_counter() + seconds, 0
        while time.perf_counter() < over:
            at = self._turn = (self._turn + 1) % len(self._batches)
            self._store.append_batch(self._batches[at])
            taken = self._subscriptions[at].receive(max_messages=BATCH)
            self._subscriptions[at].ack_batch(list(taken))
            if len(taken) != BATCH or any(one.message.data != self._body for one in taken):
                raise WrongResult(f"{len(taken)} of {BATCH} messages were received, or one of them is another")
            done += BATCH
        self.messages += done
        return done


@dataclass(frozen=True, kw_only=True)
class Metrics(Reported):
    """What `stratalog top` and a collector of metrics cost the process whose store they watch."""

    NAME: ClassVar[str] = "metrics"
    TITLE: ClassVar[str] = "What watching a store costs"
    METHOD: ClassVar[str] = (
        "one thread appends batches of 64, receives and acknowledges them as fast as it can; slices by turns, each "
        "watched one between two that nobody watches; processor time of the store's process a message over the mean "
        "of these two; before it the same while the store does nothing; `top` is a process of its own"
    )

    seconds: float = setting(1.0, "seconds of a slice; figures are asked for once a second", short=0.1, least=0.01)
    topics: int = setting(10, "topics, of 4 queues and a subscription each", short=2, least=1)
    message_bytes: int = setting(100, "bytes per message", least=1, option="size")
    repeat: int = repeats(7)

    def need_bytes(self) -> float:
        """The space of what is appended at most."""
        seconds = (1 + WARM_PART) * self.seconds * (2 * len(BESIDE) * self.repeat + 2)
        return space_bytes(MOST_PER_S * seconds * (self.message_bytes + 40))

    def study(self, base: Path, run: Run) -> Study:
        """Slices of an idle store, then of work; what each way adds."""
        run.expect(2 * self.repeat)
        with sub_folder(base, "store") as folder, MessageStore.open(folder) as store:
            worker = Worker(store, self.topics, self.message_bytes)
            worker.work(self.seconds)  # the first messages make what later ones find
            idle = self._rounds(store, folder, _rest, run)
            busy = self._rounds(store, folder, worker.work, run)
            run.checked(worker.messages)
        return Study(summary=summary(busy, idle), chapters=chapters(busy, idle))

    def _rounds(
        self, store: MessageStore, folder: Path, work: Callable[[float], int], run: Run
    ) -> dict[str, list[tuple[Slice, Slice, Slice]]]:
        """Of each way: its slices, each with that alone before it and that after it."""
        found: dict[str, list[tuple[Slice, Slice, Slice]]] = {way: [] for way in BESIDE}
        before = self._slice(store, folder, ALONE, work)
        for number in range(self.repeat):
            for way in BESIDE[:: 1 if number % 2 == 0 else -1]:
                beside = self._slice(store, folder, way, work)
                after = self._slice(store, folder, ALONE, work)
                found[way].append((before, beside, after))
                before = after
            run.one_done()
        return found

    def _slice(self, store: MessageStore, folder: Path, way: str, work: Callable[[float], int]) -> Slice:
        with watched(store, folder, way) as pid:
            work(WARM_PART * self.seconds)  # while `top` began, the processor did something else
            top = None if pid is None else turns_of(pid)
            ran, began_s, cpu_s = ran_by_thread(), time.perf_counter(), cpu_seconds()
            messages = work(self.seconds)
            cpu_s, took_s = cpu_seconds() - cpu_s, time.perf_counter() - began_s
            by_thread = {thread: (ns - ran.get(thread, 0)) / 1e9 for thread, ns in ran_by_thread().items()}
            return Slice(took_s, messages, cpu_s, _ran_s(top, None if pid is None else turns_of(pid)), by_thread)


def _rest(seconds: float) -> int:
    time.sleep(seconds)
    return 0


def _ran_s(before: Turns | None, after: Turns | None) -> float | None:
    return None if before is None or after is None else (after.ran - before.ran) / 1e9


@contextmanager
def watched(store: MessageStore, folder: Path, way: str) -> Iterator[int | None]:
    """A block in which the store is watched that way; the process of `top`, or None."""
    if way == TOP:
        with top_beside(folder) as pid:
            yield pid
    elif way == SCRAPED:
        with scraped(store):
            yield None
    else:
        yield None


@contextmanager
def top_beside(folder: Path) -> Iterator[int]:
    """`stratalog top --json` in a process of its own, from its first frame on."""
    command = [sys.executable, "-m", "stratalog", "top", str(folder), "--json"]
    with (  # files, as a pipe would be full after a while, and a thread that reads it would be measured
        tempfile.TemporaryFile() as shown,
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdout=shown, stderr=errors) as child,
    ):
        try:
            patience = Patience("`stratalog top` has shown nothing", PATIENCE_S)
            while not os.pread(shown.fileno(), 1, 0):
                if child.poll() is not None:
                    told = os.pread(errors.fileno(), MOST_TOLD_BYTES, 0).decode(errors="replace")
                    raise WrongResult(f"`stratalog top` has shown nothing: {told}")
                patience.check()
                time.sleep(LOOK_S)  # it begins as any program of Python: within a second
            yield child.pid
            _end(child)
        finally:
            child.kill()


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()  # SIGINT is ignored in what a shell has put into the background
    try:
        child.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise WrongResult(f"`stratalog top` has not ended {PATIENCE_S:g} s after SIGTERM") from None


@contextmanager
def scraped(store: MessageStore) -> Iterator[None]:
    """A thread that asks for `store.metrics()` once a second, the first time after half of one."""
    over = threading.Event()

    def scrape() -> None:
        wait_s = EVERY_S / 2
        while not over.wait(wait_s):
            store.metrics()
            wait_s = EVERY_S

    thread = threading.Thread(target=scrape, name="scraping")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


Sides = tuple[Slice, Slice, Slice]  # one that is watched between two that nobody watches
Rounds = Mapping[str, Sequence[Sides]]


def shares(rounds: Sequence[Sides]) -> tuple[float, ...]:
    """What each slice took more than the two beside it, in percent."""
    return tuple(100 * (beside.us / ((before.us + after.us) / 2) - 1) for before, beside, after in rounds)


def added_ms(rounds: Sequence[Sides]) -> tuple[float, ...]:
    """What each slice of an idle store took more than the two beside it, in ms of processor time a second."""
    return tuple((beside.us - (before.us + after.us) / 2) / 1e3 for before, beside, after in rounds)


def teller_of(rounds: Sequence[Sides]) -> int:
    """The thread that tells the figures: the one that takes the most more while `top` watches an idle store."""
    more: dict[int, list[float]] = {}
    for before, beside, after in rounds:
        for thread, ran_s in beside.ran_s.items():
            more.setdefault(thread, []).append(ran_s - (before.ran_s.get(thread, 0) + after.ran_s.get(thread, 0)) / 2)
    return max(more, key=lambda thread: statistics.median(more[thread]), default=0)


def telling_ms(rounds: Sequence[Sides], teller: int) -> tuple[float, ...]:
    """What each slice took more than the two beside it in the thread that tells and in threads that those two do not
    have, in ms of processor time a second. The other threads work, and vary by more than the telling takes.
    """
    found = []
    for before, beside, after in rounds:
        others = before.ran_s.keys() | after.ran_s.keys()
        more = sum(ran_s for thread, ran_s in beside.ran_s.items() if thread == teller or thread not in others)
        alone = sum(one.ran_s.get(teller, 0) / one.seconds for one in (before, after)) / 2
        found.append(1e3 * (more / beside.seconds - alone))
    return tuple(found)


def summary(busy: Rounds, idle: Rounds) -> tuple[str, ...]:
    """What watching costs at full speed and while the store does nothing, with what is noise."""
    teller = teller_of(idle[TOP])
    used = statistics.median(1e3 * before.cpu_s / before.seconds for before, _, _ in busy[TOP])
    lines = []
    for way in (TOP, SCRAPED):
        at_work, at_rest = (statistics.median(telling_ms(one[way], teller)) for one in (busy, idle))
        lines.append(
            f"If {WAYS[way]}, a store at full speed takes {at_work:.2f} ms more of processor time a second, "
            f"{100 * at_work / used:.2f} % of its {used:,.0f} ms; one that does nothing takes {at_rest:.2f} ms more."
        )
    told = ", ".join(f"{statistics.median(shares(busy[way])):+.1f} % if {WAYS[way]}" for way in BESIDE)
    lines.append(f"Processor time a message of the whole process, which has the noise of the machine: {told}.")
    own = [beside.top_cpu_s / beside.seconds for _, beside, _ in busy[TOP] if beside.top_cpu_s is not None]
    if own:
        lines.append(f"`stratalog top` itself takes {1e3 * statistics.median(own):.1f} ms of processor time a second.")
    return tuple(lines)


def chapters(busy: Rounds, idle: Rounds) -> tuple[Chapter, ...]:
    """The figures of each way."""
    teller = teller_of(idle[TOP])
    alone = tuple(before.us for way in BESIDE for before, _, _ in busy[way])
    measures = [
        Measure(name=f"metrics.{ALONE}.us", what=f"processor time a message, {WAYS[ALONE]}", unit="us", values=alone,
                better="lower"),
        *(_added(f"metrics.{way}.telling", f"more a second in the threads that tell: {WAYS[way]}",
                 "ms", telling_ms(busy[way], teller)) for way in BESIDE),
        *(_added(f"metrics.{way}.share", f"more of it: {WAYS[way]}", "%", shares(busy[way])) for way in BESIDE),
    ]  # fmt: skip
    own = tuple(1e3 * one.top_cpu_s / one.seconds for _, one, _ in busy[TOP] if one.top_cpu_s is not None)
    if own:
        what = "processor time of `stratalog top` itself, a second"
        measures.append(Measure(name="metrics.top.own", what=what, unit="ms", values=own, better="lower", noise=0.3))
    rest = [_added(f"metrics.idle.{way}", f"more a second: {WAYS[way]}", "ms", added_ms(idle[way])) for way in BESIDE]
    return (
        Chapter(
            title="At full speed",
            text="One thread appends, receives and acknowledges. More than in the two slices beside it, which nobody "
            "watches.",
            measures=tuple(measures),
        ),
        Chapter(title="A store that does nothing", text="Processor time of its process.", measures=tuple(rest)),
    )


def _added(name: str, what: str, unit: str, values: tuple[float, ...]) -> Measure:
    told: dict[str, Any] = {"better": "neither", "meaning": "around 0 it costs nothing; its spread is the machine's"}
    return Measure(name=name, what=what, unit=unit, values=values, **told)
