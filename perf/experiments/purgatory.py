"""The benchmark of the purgatory (R40): rising rates of requests, by the old design and by the new one."""

from __future__ import annotations

import gc
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console

from ...index import Purgatory as NewPurgatory
from ...index import TimerThread, TimingWheel
from ..references.old_purgatory import NoPurgatory, OldPurgatory
from ..report import figures as report
from ..report.figures import Figures, median_of
from ..report.progress import Run
from ..workload.requests import PROFILES, Drive, Profile
from . import purgatory_virtual
from .experiment import Experiment, repeats, setting

DESIGNS = ("old", "new")
NONE = "none"  # what the run itself costs: its ceiling
RATES = (10_000, 20_000, 40_000, 70_000, 105_000, 150_000, 200_000)
SHORT_RATES = (2_000,)
SUSTAINED = 0.97  # of the target; and the last end is late by the rest of the run's time, at most
GIVEN_UP = 0.8  # below this no higher rate is tried ..
GIVEN_UP_VIRTUAL = 0.2  # .. and below this on a virtual clock, where a higher one can still be cheaper by the request
BAR = 40
SHOWN = {
    "latencies": "profile", "design": "design", "target/s": "target_per_s", "achieved/s": "achieved_per_s",
    "made late ms": "behind_ms", "ended late ms": "backlog_ms", "CPU us/request": "cpu_us_per_request",
    "CPUs used": "cpus",
    "timed out": "timed_out", "late p99 ms": "late_p99_ms", "late > 5 ms": "late_expiries",
    "early": "early_expiries", "pending at most": "most_pending", "memory MB": "grown_mb",
}  # fmt: skip
SHOWN_VIRTUAL = {
    "latencies": "profile", "design": "design", "target/s": "target_per_s", "interpreters": "interpreters",
    "CPU us/request": "cpu_us_per_request", "timed out": "timed_out", "pending": "pending",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Purgatory(Experiment):
    """Waiting requests at rising rates: a heap of timers and scanned lists against wheels and an estimate."""

    NAME: ClassVar[str] = "purgatory"
    METHOD: ClassVar[str] = (
        "three threads, with --virtual one: requests arrive (exponential), are completed after their latency "
        "(log-normal) or expired; three watched keys each; with the design 'none' nobody watches them. The "
        "collector of cycles is set to 50,000 new objects, for all designs"
    )

    requests: int = setting(1_000_000, "requests of a run, at most", short=1_000, least=1)
    seconds: float = setting(10.0, "arrivals of a run, at most", short=0.5, least=0.01)
    rate: int = setting(0, "one target rate in place of the rising ones", least=0)
    timeout_ms: int = setting(200, "time-out of a request", least=1)
    message_bytes: int = setting(100, "bytes of a request", least=0, option="size")
    purge_interval: int = setting(1_000, "completed requests in the lists before a purge, for both designs", least=1)
    virtual: bool = setting(False, "on a virtual clock in one thread: its cost, whatever else the machine does")
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """Not disk space: a number that tells the short form from the whole one."""
        return self.requests

    @property
    def _rates(self) -> tuple[int, ...]:
        if self.rate:
            return (self.rate,)
        return RATES if self.requests > 10_000 else SHORT_RATES

    def measure(self, base: Path, run: Run) -> Figures:
        """One row for each profile, design and rate; designs take turns. A design that is far too late is stopped."""
        designs = DESIGNS if self.virtual else (NONE, *DESIGNS)
        run.expect(len(PROFILES) * len(self._rates) * len(designs) * self.repeat)
        rows: list[Figures] = []
        for profile in PROFILES:
            given_up: set[str] = set()
            for rate in self._rates:
                rounds: dict[str, list[Figures]] = {design: [] for design in designs if design not in given_up}
                once = self._once_virtual if self.virtual else self._once
                for _ in range(self.repeat):
                    for design in designs:
                        if design in rounds:
                            rounds[design].append(once(profile, design, rate))
                        run.one_done()
                for design, found in rounds.items():
                    rows.append(median_of(found))
                    if rows[-1]["achieved_per_s"] < (GIVEN_UP_VIRTUAL if self.virtual else GIVEN_UP) * rate:
                        given_up.add(design)
        return {"rows": rows, "sustained_per_s": sustained(rows)}

    def _once_virtual(self, profile: Profile, design: str, rate: int) -> Figures:
        requests = max(1, min(self.requests, int(rate * self.seconds)))
        gc.collect()
        figures = purgatory_virtual.run(
            design, profile, rate, requests, self.timeout_ms, self.message_bytes, self.purge_interval, self.seed
        )
        return {"profile": profile.name, "design": design, "target_per_s": rate, "early_expiries": 0,
                "achieved_per_s": rate / max(figures["interpreters"], 1.0), **figures}  # fmt: skip

    def _once(self, profile: Profile, design: str, rate: int) -> Figures:
        requests = max(1, min(self.requests, int(rate * self.seconds)))
        drive = Drive(profile, rate, requests, self.timeout_ms, self.message_bytes, self.seed, times_out=design != NONE)
        with ExitStack() as stack:
            figures: dict[str, Any]
            purges = None
            if design == NONE:
                figures = drive.run(NoPurgatory())
            elif design == "old":
                old = OldPurgatory(self.purge_interval)
                stack.callback(old.close)
                figures = drive.run(old)
            else:
                timers = stack.enter_context(TimerThread(TimingWheel()))
                new = NewPurgatory(timers, self.purge_interval)
                figures = drive.run(new)
                purges = new.purges
        seconds = requests / figures["achieved_per_s"]
        figures["cpus"] = figures["cpu_us_per_request"] * requests / 1e6 / seconds
        return {"profile": profile.name, "design": design, "target_per_s": rate, "requests": requests, **figures,
                "purges": purges}  # fmt: skip

    def show(self, figures: Figures, console: Console) -> None:
        """Show the rows, the curve, and the highest rate that each design sustains."""
        config = figures["config"]
        title = f"requests of {config['message_bytes']} B, time-out {config['timeout_ms']} ms"
        shown = SHOWN_VIRTUAL if self.virtual else SHOWN
        console.print(report.table(title, report.chosen(figures["rows"], shown), labels=3))
        for profile in PROFILES:
            what = "what one interpreter achieves of the rate" if self.virtual else "achieved over target rate"
            console.print(f"{what}, {profile.name} "
                          f"(p75 {profile.p75_ms:g} ms, p50 {profile.p50_ms:g} ms)", style="italic")  # fmt: skip
            for row in figures["rows"]:
                if row["profile"] == profile.name:
                    console.print(bar(row), highlight=False)
        title = "sustained: 0.97 of the target, no backlog at the end; requests/s"
        console.print(report.table(title, figures["sustained_per_s"]))

    def verdict(self, figures: Figures) -> tuple[bool, str]:
        """Each request has ended once, and none early: a run checks this itself."""
        early = sum(row["early_expiries"] for row in figures["rows"])
        total = sum(row["requests"] for row in figures["rows"]) * figures["config"]["repeat"]
        return early == 0, f"{total:,} requests, each ended exactly once; {early:,} expired early"


def bar(row: Figures) -> str:
    """A line of the curve: the achieved part of the target as a bar."""
    part = min(row["achieved_per_s"] / row["target_per_s"], 1.0)
    drawn = "#" * round(part * BAR)
    return f"  {row['target_per_s']:>9,}/s {row['design']} |{drawn:<{BAR}}| {row['achieved_per_s']:,.0f}/s"


def has_backlog(row: Figures) -> bool:
    """Whether requests of a run on the real clock ended later and later."""
    run_ms = row["requests"] / row["target_per_s"] * 1000
    return bool(row.get("backlog_ms", 0.0) > (1 - SUSTAINED) * run_ms)


def sustained(rows: list[Figures]) -> list[Figures]:
    """The highest target that each design has reached, by profile; None if it has reached none."""
    found: list[Figures] = []
    for profile in dict.fromkeys(row["profile"] for row in rows):
        line: Figures = {"latencies": profile}
        for design in dict.fromkeys(row["design"] for row in rows):
            kept = [
                row["target_per_s"] for row in rows
                if row["profile"] == profile and row["design"] == design
                and row["achieved_per_s"] >= SUSTAINED * row["target_per_s"] and not has_backlog(row)
            ]  # fmt: skip
            line[design] = max(kept, default=None)
        found.append(line)
    return found
