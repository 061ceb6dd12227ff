"""The benchmark of the purgatory (R40): rising rates of requests, by the old design and by the new one."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from ...index import Purgatory as NewPurgatory
from ...index import TimerThread, TimingWheel
from ..references.old_purgatory import NoPurgatory, OldPurgatory
from ..report.progress import Run
from ..report.record import Chapter, Chart
from ..workload.latencies import Latencies
from ..workload.requests import PROFILES, Drive, Load, Profile
from . import purgatory_virtual
from .experiment import repeats, setting
from .ladder import Ladder, Round, climbed, measures_of, medians_by_rate, rates_of
from .parts import TAILS, Count
from .reported import Reported, Study

OLD, NEW = "old", "new"
NONE = "none"  # what the run itself costs: its ceiling
DESIGNS = {
    NONE: "requests that nobody watches",
    OLD: "requests of the old design",
    NEW: "requests of the new design",
}
RATES = (10_000, 20_000, 40_000, 70_000, 105_000, 150_000, 200_000)
SHORT_RATES = (2_000,)
SHORT_REQUESTS = 1_000
SUSTAINED = 0.97  # of the rate: so late are requests made, or ended, at most
GIVEN_UP = 0.8  # below this no higher rate is tried ..
GIVEN_UP_VIRTUAL = 0.2  # .. and below this on a virtual clock, where a higher one can still be cheaper by the request
SOURCE = "the source's own new design"
SOURCE_PER_S = 105_000.0
CPU = Count(figure="cpu_us", what="processor time of one", unit="us", better="lower")
LATE = Count(
    figure="p99", what="lateness of time-outs, p99", unit="us", better="lower", noise=TAILS["p99"],
    meaning="from the time-out to the end; requests arrive at a fixed rate, however slow their ends are",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Purgatory(Reported):
    """Waiting requests at rising rates: a heap of timers and scanned lists against wheels and an estimate."""

    NAME: ClassVar[str] = "purgatory"
    TITLE: ClassVar[str] = "Requests that wait"
    METHOD: ClassVar[str] = (
        "three threads, with --virtual one: requests arrive (exponential), are completed after their latency "
        "(log-normal) or expired; three watched keys each; without a design nobody watches them. A rate is sustained "
        "if requests are made and ended late by 3 % of the run at most. The collector of cycles is set to 50,000 new "
        "objects, for all designs"
    )

    requests: int = setting(1_000_000, "requests of a run, at most", short=SHORT_REQUESTS, least=1)
    seconds: float = setting(10.0, "arrivals of a run, at most", short=0.5, least=0.01)
    rate: int = setting(0, "one rate in place of the rising ones", least=0)
    timeout_ms: int = setting(200, "time-out of a request", least=1)
    message_bytes: int = setting(100, "bytes of a request", least=0, option="size")
    purge_interval: int = setting(1_000, "completed requests in the lists before a purge, for both designs", least=1)
    virtual: bool = setting(False, "on a virtual clock in one thread: its cost, whatever else the machine does")
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """It writes nothing."""
        return 0

    @property
    def _rates(self) -> tuple[int, ...]:
        if self.rate:
            return (self.rate,)
        return RATES if self.requests > SHORT_REQUESTS else SHORT_RATES

    def study(self, base: Path, run: Run) -> Study:
        """A chapter for each profile of latencies, in which the designs take turns at each rate."""
        Latencies()  # raises before the work if its package is missing
        chapters, summary = [], []
        for profile in PROFILES:
            ladders = self._ladders(profile)
            climbs = climbed(ladders, self._rates, self.repeat, run)
            measures = tuple(one for ladder in ladders for one in measures_of(ladder, climbs))
            most = [f"{one.value:,.0f} {one.what.split(':')[0]}" for one in measures if one.name.endswith(".sustained")]
            summary.append(f"Sustained a second, {profile.name}: {'; '.join(most)}.")
            chapters.append(
                Chapter(
                    title=f"Requests of which {profile.name}",
                    text=f"Requests of {self.message_bytes} B with a time-out of {self.timeout_ms} ms; three of four "
                    f"take {profile.p75_ms:g} ms at most, and half of them {profile.p50_ms:g} ms. "
                    + ("A virtual clock, one thread." if self.virtual else "The machine's clock, three threads.")
                    + " The old design is a heap of timers and scanned lists, the new one wheels and an estimate.",
                    measures=measures,
                    charts=charts(ladders, climbs),
                )
            )
        return Study(summary=tuple(summary), chapters=tuple(chapters))

    def _ladders(self, profile: Profile) -> list[Ladder]:
        name = f"purgatory.{'virtual' if self.virtual else 'real'}.{profile.p50_ms:g}"
        found = []
        for design, what in DESIGNS.items():
            if self.virtual and design == NONE:
                continue
            counts = (CPU,) if self.virtual or design == NONE else (CPU, LATE)
            found.append(
                Ladder(
                    name=f"{name}.{design}",
                    what=what,
                    step=partial(self._step, profile, design),
                    counts=counts,
                    sustained=SUSTAINED,
                    given_up=GIVEN_UP_VIRTUAL if self.virtual else GIVEN_UP,
                    beside=(f"{name}.{OLD}", "the old design") if design == NEW else None,
                )
            )
        return found

    def _step(self, profile: Profile, design: str, rate: int) -> dict[str, float]:
        requests = max(1, min(self.requests, int(rate * self.seconds)))
        load = Load(profile, rate, requests, self.timeout_ms, self.message_bytes, self.seed)
        if self.virtual:
            gc.collect()
            return purgatory_virtual.run(design == NEW, load, self.purge_interval)
        drive = Drive(load, times_out=design != NONE)
        with ExitStack() as stack:
            if design == NONE:
                return drive.run(NoPurgatory())
            if design == OLD:
                old = OldPurgatory(self.purge_interval)
                stack.callback(old.close)
                return drive.run(old)
            timers = stack.enter_context(TimerThread(TimingWheel()))
            return drive.run(NewPurgatory(timers, self.purge_interval))


def charts(ladders: Sequence[Ladder], climbs: Mapping[str, Sequence[Round]]) -> tuple[Chart, Chart]:
    """The rate that is achieved, and the processor time of a request, by the rate of arrivals: a line a design."""
    rates = sorted({rate for ladder in ladders for rate in rates_of(climbs[ladder.name])})

    def chart(figure: str, title: str, unit: str, meaning: str, marks: Mapping[str, float]) -> Chart:
        lines = {ladder.what: medians_by_rate(climbs[ladder.name], rates, figure) for ladder in ladders}
        x = tuple(map(float, rates))
        return Chart(
            title=title, x_what="requests a second", y_what=unit, x=x, lines=lines, meaning=meaning, marks=marks
        )

    achieved = "Where a line leaves the diagonal, the design has had enough; after that no higher rate is tried."
    marks = {SOURCE: SOURCE_PER_S}
    return (
        chart("per_s", "Requests that are made and ended a second", "1/s", achieved, marks),
        chart(
            "cpu_us", "Processor time of a request", "us", "A line that rises costs more, the more requests wait.", {}
        ),
    )
