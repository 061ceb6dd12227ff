"""Latency by rate: appends, reads and jobs that arrive at a fixed rate, up to what the store sustains."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from ...store import MessageStore
from ..machine.folders import sub_folder
from ..report.progress import Run
from ..report.record import Chapter
from ..workload import paced, timed
from ..workload.latencies import Latencies
from ..workload.paced import Rate
from ..workload.timed import HEAD
from .experiment import repeats, setting
from .ladder import EXPLAINED, Ladder, capital, climbed, measures_of, waits_chart, waits_line
from .reported import Reported, Study

MESSAGE_BYTES = 1024
READ_MESSAGES = 8_192
MOST_STEPS = 30
KINDS = {
    "append": ("appends", "`submit`; another thread waits for each ticket"),
    "read": ("reads", "`get_range` of one message that memory has, one thread"),
    "job": (
        "jobs",
        f"a message is submitted, received by one consumer in groups of up to {paced.JOBS}, and acknowledged",
    ),
}


def rates(first: int, steps: int) -> tuple[int, ...]:
    """Rates that double. Raises ValueError if they are too many."""
    if steps > MOST_STEPS:
        raise ValueError(f"--steps: {steps} are more than {MOST_STEPS}: each doubles the rate")
    return tuple(first << number for number in range(steps))


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
        rates(self.first, self.steps)

    def need_bytes(self) -> float:
        """The space of the last step, and of segments written ahead."""
        return 4.0 * self.first * (1 << self.steps) * self.seconds * MESSAGE_BYTES + (256 << 20)

    def study(self, base: Path, run: Run) -> Study:
        """A ladder of rates for each kind."""
        Latencies()  # raises before the work if its package is missing
        body = random.Random(self.seed).randbytes(MESSAGE_BYTES - HEAD.size)
        ladders = [
            Ladder(name=f"latency.{kind}", what=what, step=partial(self._step, kind, base, run, body))
            for kind, (what, _) in KINDS.items()
        ]
        climbs = climbed(ladders, rates(self.first, self.steps), self.repeat, run)
        chapters = tuple(
            Chapter(
                title=f"{capital(ladder.what)}: latency by rate",
                text=f"{capital(told)}. Messages of 1 KiB; requests arrive at a fixed rate, whatever the store does.",
                measures=measures_of(ladder, climbs),
                charts=(waits_chart(ladder, climbs[ladder.name]),),
            )
            for ladder, (_, told) in zip(ladders, KINDS.values(), strict=True)
        )
        lines = [waits_line(ladder, one.measures) for ladder, one in zip(ladders, chapters, strict=True)]
        return Study(summary=(*lines, EXPLAINED), chapters=chapters)

    def _step(self, kind: str, base: Path, run: Run, body: bytes, per_s: int) -> dict[str, float]:
        """The figures of one kind at one rate, in a fresh store whose messages are compared."""
        rate = Rate(per_s, self.seconds)
        with sub_folder(base, "store") as folder, MessageStore.open(folder) as store:
            if kind == "read":
                done = timed.filled(store, READ_MESSAGES, body)
                places = list(range(READ_MESSAGES))
                random.Random(self.seed).shuffle(places)
                answered = paced.reads(store, rate, READ_MESSAGES, body, places)
            else:
                answered, done = (paced.appends if kind == "append" else paced.jobs)(store, rate, body)
            run.checked(done.check(store))
        return answered.figures()
