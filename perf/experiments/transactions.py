"""Transactions: the time and the rate of one with three appends and an acknowledgement, beside a plain append."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from ...store import Delivery, MessageStore, Subscription
from ..machine.folders import sub_folder
from ..machine.threads import run_together
from ..report.figures import counted
from ..report.progress import Run
from ..report.record import Chapter
from ..report.words import sentence
from ..workload.checker import Patience, WrongResult
from ..workload.latencies import Latencies
from ..workload.rocketmq import body_of
from .experiment import repeats, setting
from .parts import Count, Part, measured
from .reported import Reported, Study

TOPIC = "jobs"
APPENDS = 3
SOME = 64  # messages of a receive
VISIBLE_MS = 3_600_000  # nothing times out in a run
Work = Callable[[MessageStore, bytes, Delivery], None]


def append_one(store: MessageStore, data: bytes, _: Delivery) -> None:
    """One message."""
    store.append("results", 0, data)


def transact(store: MessageStore, data: bytes, delivery: Delivery) -> None:
    """Three messages to three topics, and an acknowledgement."""
    with store.transaction() as tx:
        for number in range(APPENDS):
            tx.append(f"results {number}", number, data)
        tx.ack(delivery)


WAYS: dict[str, Work] = {"append": append_one, "transaction": transact}


@dataclass(frozen=True, kw_only=True)
class Transactions(Reported):
    """A transaction of 3 appends and 1 acknowledgement beside an append: one thread, and many."""

    NAME: ClassVar[str] = "transactions"
    TITLE: ClassVar[str] = "Transactions beside appends"
    METHOD: ClassVar[str] = "each durable; the messages to acknowledge are received before; a store a round"

    calls: int = setting(2_000, "calls of one thread a round", short=20, least=1)
    threads: int = setting(40, "threads of the other runs", short=4, least=1)
    calls_each: int = setting(250, "calls of each of them", short=5, least=1)
    size_bytes: int = setting(100, "of a message", least=1)
    repeat: int = repeats(5)

    def need_bytes(self) -> float:
        """The space of a round."""
        calls = self.calls + self.threads * self.calls_each
        return 4.0 * calls * (8192 + APPENDS * self.size_bytes) + (512 << 20)

    def study(self, base: Path, run: Run) -> Study:
        """The ways by turns, each transaction beside an append by as many threads."""
        Latencies()  # raises before the work if its package is missing
        parts = [
            Part(f"{name}.{group}", partial(self._round, base, run, work, threads, calls), _counts(name, group),
                 f"{name}, {counted(threads, 'thread')}")
            for group, threads, calls in (("one", 1, self.calls), ("many", self.threads, self.calls_each))
            for name, work in WAYS.items()
        ]  # fmt: skip
        found = measured(parts, self.repeat, run)
        text = "An append of one message; a transaction of 3 appends to 3 topics and 1 acknowledgement. All durable."
        chapter = Chapter(title="Transactions", text=text, measures=tuple(found.values()))
        names = ("transaction.one.p50", "transaction.many.per_s")
        return Study(summary=tuple(sentence(found[name]) for name in names), chapters=(chapter,))

    def _round(self, base: Path, run: Run, work: Work, threads: int, calls: int) -> dict[str, float]:
        with sub_folder(base, "store") as folder, MessageStore.open(folder) as store:
            total = threads * calls
            written = [b"job %d" % at for at in range(total)]
            store.append_batch([(TOPIC, at % 4, job) for at, job in enumerate(written)])
            sub = store.subscribe(TOPIC, "workers")
            given = _received(sub, total)
            if sorted(one.message.data for one in given) != sorted(written):
                raise WrongResult(f"what was received are not the {total:,} jobs that were written")
            results = [body_of(at, self.size_bytes) for at in range(total)]
            taken: list[int] = []
            jobs = [
                partial(_job, store, work, given[at : at + calls], results[at : at + calls], taken)
                for at in range(0, total, calls)
            ]
            used, seconds = time.process_time(), run_together(jobs)
            used = time.process_time() - used
            run.checked(total + _check(store, sub, results, is_append=work is append_one))
        times = Latencies()
        times.add(taken)
        return {"calls": total, "per_s": total / seconds, "processor_us": used / total * 1e6, **times.marks_us()}


def _job(
    store: MessageStore, work: Work, given: Sequence[Delivery], results: Sequence[bytes], taken: list[int]
) -> None:
    mine = []
    for delivery, data in zip(given, results, strict=True):
        began = time.perf_counter_ns()
        work(store, data, delivery)
        mine.append(time.perf_counter_ns() - began)
    taken += mine


def _check(store: MessageStore, sub: Subscription, results: Sequence[bytes], *, is_append: bool) -> int:
    """Compare all results, in any order; returns their number. Raises WrongResult."""
    names = [("results", 0)] if is_append else [(f"results {number}", number) for number in range(APPENDS)]
    total, ends = len(results), [store.queue_bounds(*name)[1] for name in names]
    left = sub.backlog().total
    if ends != [total] * len(names) or left != (total if is_append else 0):
        raise WrongResult(f"there are {ends} results of {total}, and {left} messages are not acknowledged")
    for name in names:
        if sorted(store.get_range(*name, 0, total).values()) != sorted(results):
            raise WrongResult(f"the {total:,} results of {name[0]!r} are not those that were appended")
    return total * len(names)


def _counts(name: str, group: str) -> tuple[Count, ...]:
    beside = {} if name == "append" else {"beside_what": "an append", "beside_is_store": True}

    def at(figure: str) -> dict[str, Any]:
        return {"figure": figure, **beside, "beside": f"append.{group}.{figure}" if beside else ""}

    return (
        Count(**at("per_s"), what="rate", unit="calls/s"),
        Count(**at("p50"), what="time, p50", unit="us", better="lower", noise=0.2,
              meaning="of a caller that waits for each answer: a stalled caller asks for less"),
        Count(figure="p99", what="time, p99", unit="us", better="lower", noise=0.5),
        Count(**at("processor_us"), what="processor time a call", unit="us", better="lower"),
    )  # fmt: skip


def _received(sub: Subscription, count: int) -> list[Delivery]:
    found: list[Delivery] = []
    while len(found) < count:
        patience = Patience(f"after {len(found):,} of {count:,} messages no other one came")
        while not (taken := sub.receive(SOME, visibility_timeout_ms=VISIBLE_MS)):
            patience.check()
        found += taken
    return found
