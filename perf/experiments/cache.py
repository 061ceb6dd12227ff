"""The message cache: the effect of each technique, and the cost of appends and hits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from rich.console import Console

from ..report.figures import Figures
from ..report.progress import Run
from ..workload.memory import BLOCK_BYTES
from ..workload.settings import space_bytes
from . import cache_ablation, cache_appends, cache_capacity, cache_hits
from .experiment import Experiment, queues, repeats, setting


class Section(StrEnum):
    """The sections; each can be measured alone."""

    ABLATION = "ablation"
    APPENDS = "appends"
    HITS = "hits"
    ADMISSION = "admission"
    REMAINDER = "remainder"


@dataclass(frozen=True, kw_only=True)
class Cache(Experiment):
    """The message cache: the effect of each technique, and what appends and hits cost."""

    NAME: ClassVar[str] = "cache"
    METHOD: ClassVar[str] = "a fresh store a row; with and without, and the layers, by turns"

    section: list[Section] | None = setting(None, "measure only this section (may be repeated)")
    size_bytes: int = setting(768 << 20, "payload of the ablation's runs", short=4 << 20)
    append_bytes: int = setting(256 << 20, "payload of the appends' runs", short=1 << 20)
    threads: int = setting(40, "blocking producers", short=4, least=1)
    queues: int = queues()
    block_bytes: int = setting(BLOCK_BYTES, "bytes per block of the ablation's caches", short=4 << 10)
    hit_rounds: int = setting(32, "rounds of the hits, each of 32 messages per queue", short=8, least=4)
    hit_passes: int = setting(9, "passes over the hits", short=2, least=1)
    admission_messages: int = setting(40_000, "messages of each distribution", short=2_000, least=1)
    admission_queues: int = setting(64, "queues of these messages", short=8, least=1)
    repeat: int = repeats()

    def need_bytes(self) -> float:
        """The space of the largest section."""
        return space_bytes(max(self.size_bytes, self.append_bytes))

    def measure(self, base: Path, run: Run) -> Figures:
        """The figures of each wanted section."""
        ways: dict[Section, Callable[[], Figures]] = {
            Section.ABLATION: lambda: cache_ablation.measure(
                base,
                cache_ablation.Shape(self.size_bytes, self.threads, self.queues, self.block_bytes, self.seed),
                self.repeat,
                run,
            ),
            Section.APPENDS: lambda: cache_appends.measure(
                base, size_bytes=self.append_bytes, threads=self.threads, queues=self.queues, repeat=self.repeat,
                seed=self.seed, run=run,
            ),
            Section.HITS: lambda: cache_hits.measure(
                base, rounds=self.hit_rounds, passes=self.hit_passes, seed=self.seed, run=run
            ),
            Section.ADMISSION: lambda: cache_capacity.admission(
                base, messages=self.admission_messages, queues=self.admission_queues, block_bytes=self.block_bytes,
                seed=self.seed, run=run,
            ),
            Section.REMAINDER: lambda: cache_capacity.remainder(base, queues=self.queues, seed=self.seed, run=run),
        }  # fmt: skip
        return {section.value: ways[section]() for section in self.section or Section}

    def show(self, figures: Figures, console: Console) -> None:
        """Show the tables of the measured sections."""
        tables = {
            Section.ABLATION: cache_ablation.show,
            Section.APPENDS: cache_appends.show,
            Section.HITS: cache_hits.show,
            Section.ADMISSION: cache_capacity.show_admission,
            Section.REMAINDER: cache_capacity.show_remainder,
        }
        for section, show in tables.items():
            if section.value in figures:
                show(figures[section.value], console)
