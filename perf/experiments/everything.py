"""All reports of a host in one: what it can do, latency by rate, and what calls cost while a store grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ...store import StoreError
from ..machine.folders import sub_folder, there
from ..report.progress import Run
from .experiment import repeats, setting
from .growth import Growth
from .host import Host
from .latency import KINDS, Latency
from .reported import Reported, Study

HOST_PART, LATENCY_PART, GROWTH_PART = 0.5, 0.25, 0.15  # of the minutes; the rest opens, fills and compares
GROWTH_CALLS, GROWTH_STEPS = 100, 3  # calls of the growth's chapters, about, and the stores that take each
SHORT_MINUTES = 0.1


@dataclass(frozen=True, kw_only=True)
class All(Reported):
    """The whole report: `host`, `latency` and `growth` in one page, in about the minutes that are given."""

    NAME: ClassVar[str] = "all"
    TITLE: ClassVar[str] = "What this host and the store can do"
    WRITES_HERE: ClassVar[bool] = True
    METHOD: ClassVar[str] = (
        "the chapters of `host`, `latency` and `growth`, each by the method of its own command; growth by stores of a "
        "fifth to a hundredth of its command's sizes"
    )

    pmem: Path | None = setting(None, "a folder on persistent memory or a tmpfs, for tiers of the cache")
    minutes: float = setting(30.0, "minutes of the run, about", short=0.002, least=0)
    repeat: int = repeats()

    def __post_init__(self) -> None:
        Reported.__post_init__(self)
        if self.pmem is not None:
            there(self.pmem)

    def parts(self) -> Sequence[Reported]:
        """The measurements, each with its share of the time."""
        if self.minutes < SHORT_MINUTES:
            return (
                Host(minutes=self.minutes, pmem=self.pmem, repeat=self.repeat, seed=self.seed, messages=512,
                     file_bytes=2 << 20),
                Latency(seconds=0.03, first=500, steps=2, repeat=self.repeat, seed=self.seed),
                Growth(seed=self.seed, only="transactions", transactions=4, factor=2, seconds=0.0),
            )  # fmt: skip
        latency = Latency(repeat=self.repeat, seed=self.seed)
        steps = latency.steps * len(KINDS) * self.repeat
        return (
            Host(minutes=HOST_PART * self.minutes, pmem=self.pmem, repeat=self.repeat, seed=self.seed),
            Latency(repeat=self.repeat, seed=self.seed, seconds=LATENCY_PART * self.minutes * 60 / steps),
            Growth(seed=self.seed, segments=100, streams=10_000, transactions=100, queues=100, consumers=10,
                   subscriptions=100, readers=10, delayed=10_000,
                   seconds=GROWTH_PART * self.minutes * 60 / GROWTH_CALLS / GROWTH_STEPS),
        )  # fmt: skip

    def need_bytes(self) -> float:
        """The space of the largest part."""
        return max(part.need_bytes() for part in self.parts())

    def study(self, base: Path, run: Run) -> Study:
        """All parts, one after the other. One that the store or the system refuses leaves the others their chapters."""
        studies = []
        for part in self.parts():
            with sub_folder(base, part.NAME) as folder:
                try:
                    studies.append(part.study(folder, run))
                except (StoreError, OSError) as error:
                    line = f"Missing here: the chapters of `{part.NAME}` ({type(error).__name__}: {error})."
                    studies.append(Study(summary=(line,), chapters=()))
        return Study(
            summary=tuple(line for study in studies for line in study.summary),
            advice=tuple(one for study in studies for one in study.advice),
            chapters=tuple(one for study in studies for one in study.chapters),
        )
