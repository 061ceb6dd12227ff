"""Latency by rate: appends, reads and jobs that arrive at a fixed rate, up to what the store sustains."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from ...store import MessageStore
from ..machine.folders import sub_folder
from ..report.progress import Run
from ..report.record import Chapter, Chart, Measure
from ..report.words import amount
from ..workload import paced, timed
from ..workload.latencies import Latencies
from ..workload.paced import Rate
from ..workload.timed import HEAD
from .experiment import repeats, setting
from .parts import TAILS
from .reported import Reported, Study

MESSAGE_BYTES = 1024
READ_MESSAGES = 8_192
MOST_STEPS = 30
SUSTAINED = 0.9  # of the offered rate: below it the store is saturated
KINDS = {
    "append": ("appends", "`submit`; another thread waits for each ticket"),
    "read": ("reads", "`get_range` of one message that memory has, one thread"),
    "job": (
        "jobs",
        f"a message is submitted, received by one consumer in groups of up to {paced.JOBS}, and acknowledged",
    ),
}
MARKS = tuple(TAILS)
Figures = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Latency(Reported):
    """Latency against rate, at fixed rates of arrival: appends, reads, receive and acknowledge, up to saturation."""

    NAME: ClassVar[str] = "latency"
    TITLE: ClassVar[str] = "Latency by rate"
    WRITES_HERE: ClassVar[bool] = True
    METHOD: ClassVar[str] = (
        "requests arrive at a fixed rate, and a latency counts from the moment at which its request was due, so that a "
        "slow answer does not put off those after it (no coordinated omission); HdrHistogram of 3 digits; a fresh "
        "store a step"
    )

    seconds: float = setting(1.5, "seconds of a step", short=0.05, least=0.01)
    first: int = setting(1_000, "requests a second of the first step; each step doubles them", short=500, least=1)
    steps: int = setting(9, "steps at the most, 30 or fewer; one that is not sustained is the last", short=3, least=1)
    repeat: int = repeats()

    def __post_init__(self) -> None:
        Reported.__post_init__(self)
        if self.steps > MOST_STEPS:
            raise ValueError(f"--steps: {self.steps} are more than {MOST_STEPS}: each doubles the rate")

    def need_bytes(self) -> float:
        """The space of the last step, and of segments written ahead."""
        return 4.0 * self.first * (1 << self.steps) * self.seconds * MESSAGE_BYTES + (256 << 20)

    def study(self, base: Path, run: Run) -> Study:
        """A ladder of rates for each kind, a round after the other."""
        Latencies()  # raises before the work if its package is missing
        body = random.Random(self.seed).randbytes(MESSAGE_BYTES - HEAD.size)
        ladders: dict[str, list[dict[int, Figures]]] = {kind: [] for kind in KINDS}
        run.expect(self.repeat * len(KINDS))
        for _ in range(self.repeat):
            for kind in KINDS:
                ladders[kind].append(self._ladder(partial(step, kind, base, run, body, self.seed)))
                run.one_done()
        chapters = tuple(chapter(kind, ladders[kind]) for kind in KINDS)
        return Study(summary=summary(chapters), chapters=chapters)

    def _ladder(self, one: Callable[[Rate], Figures]) -> dict[int, Figures]:
        """Rate -> figures, up to the first one that is not sustained, which is in it."""
        found: dict[int, Figures] = {}
        for number in range(self.steps):
            rate = self.first << number
            found[rate] = one(Rate(rate, self.seconds))
            if not sustained(rate, found[rate]):
                break
        return found


def sustained(rate: float, figures: Figures) -> bool:
    """Whether the answers came at the rate of the requests."""
    return bool(figures["per_s"] >= SUSTAINED * rate)


def step(kind: str, base: Path, run: Run, body: bytes, seed: int, rate: Rate) -> Figures:
    """The figures of one kind at one rate, in a fresh store whose messages are compared."""
    with sub_folder(base, "store") as folder, MessageStore.open(folder) as store:
        if kind == "read":
            done = timed.filled(store, READ_MESSAGES, body)
            places = list(range(READ_MESSAGES))
            random.Random(seed).shuffle(places)
            answered = paced.reads(store, rate, READ_MESSAGES, body, places)
        else:
            answered, done = (paced.appends if kind == "append" else paced.jobs)(store, rate, body)
        run.checked(done.check(store))
    return answered.figures()


def chapter(kind: str, ladders: Sequence[dict[int, Figures]]) -> Chapter:
    """A curve, the rate that is sustained, and the latencies at the steps that each round has."""
    name, told = KINDS[kind]
    common = sorted(set.intersection(*(set(one) for one in ladders)))
    most = tuple(float(max((rate for rate in one if sustained(rate, one[rate])), default=0)) for one in ladders)
    reached = tuple(max(figures["per_s"] for figures in one.values()) for one in ladders)
    measures = [
        Measure(
            name=f"latency.{kind}.reached",
            what=f"{name}: the most answers a second",
            unit="1/s",
            values=reached,
            meaning="what the store does when more is asked for than it can do",
            noise=0.2,
        ),
        Measure(
            name=f"latency.{kind}.sustained",
            what=f"{name}: the highest rate tried that was sustained",
            unit="1/s",
            values=most,
            better="neither",
            meaning="rates double from step to step: the real one is up to twice it",
        ),
    ]
    for rate in common:
        held = all(sustained(rate, one[rate]) for one in ladders)
        for mark in MARKS:
            measures.append(
                Measure(
                    name=f"latency.{kind}.{rate}.{mark}",
                    what=f"{name} at {rate:,} a second, {mark}",
                    unit="us",
                    values=tuple(one[rate][mark] for one in ladders),
                    better="lower" if held else "neither",
                    noise=TAILS[mark],
                    meaning="" if held else "not sustained: the wait grows for as long as the step lasts",
                )
            )
    lines = {mark: tuple(_middle(ladders, rate, mark) for rate in common) for mark in MARKS}
    chart = Chart(
        title=f"{name.capitalize()}: latency by rate",
        x_what=f"{name} a second, as they arrive",
        y_what="us",
        log_x=True,
        log_y=True,
        x=tuple(map(float, common)),
        lines=lines,
        meaning="Where the lines turn up, the store is full: below that rate a caller waits as long as the line says.",
    )
    text = f"{told[0].upper()}{told[1:]}. Messages of 1 KiB; requests arrive at a fixed rate, whatever the store does."
    return Chapter(title=f"{name.capitalize()}: latency by rate", text=text, measures=tuple(measures), charts=(chart,))


def _middle(ladders: Sequence[dict[int, Figures]], rate: int, mark: str) -> float:
    return statistics.median(one[rate][mark] for one in ladders)


def summary(chapters: Sequence[Chapter]) -> tuple[str, ...]:
    """For each kind: the rate that is sustained, and the latencies at half of it."""
    lines = []
    for kind, one in zip(KINDS, chapters, strict=True):
        measures = {measure.name: measure for measure in one.measures}
        rate = int(measures[f"latency.{kind}.sustained"].value)
        at = rate // 2 if f"latency.{kind}.{rate // 2}.p50" in measures else rate
        reached = amount(measures[f"latency.{kind}.reached"].value, "a second")
        found = [
            f"{mark} {amount(measures[name].value, 'us')}"
            for mark in MARKS
            if (name := f"latency.{kind}.{at}.{mark}") in measures
        ]
        waits = f"; at {at:,} a second a caller waits {', '.join(found)}" if found else ""
        lines.append(f"{KINDS[kind][0].capitalize()}: {reached} at the most{waits}.")
    return (*lines, "(p50: half of the requests are quicker; p99: 99 of 100; p99.9: 999 of 1,000.)")
