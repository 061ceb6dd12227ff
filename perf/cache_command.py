"""The command `cache`: what the message cache's techniques bring and cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from perf import ablation, append_cost, capacity, hit_cost
from perf import options as opts
from perf.folders import run_folder
from perf.options import Json, Repeat, Seed, Short, Where
from perf.progress import Parts
from perf.report import Figures
from perf.settings import space_bytes
from perf.tiers import BLOCK_BYTES
from perf.workload import CONTEST_QUEUES, CONTEST_TOPICS

ADMISSION_QUEUES = 64
SHORT_BLOCK_BYTES = 4 << 10


class Section(StrEnum):
    """What can be measured alone."""

    ABLATION = "ablation"
    APPENDS = "appends"
    HITS = "hits"
    ADMISSION = "admission"
    REMAINDER = "remainder"


@dataclass(frozen=True)
class Run:
    """What was asked for."""

    size_bytes: int
    threads: int
    queues: int
    block_bytes: int
    seed: int
    repeat: int
    short: bool
    where: Path | None


def measure(run: Run, sections: Iterable[Section]) -> Figures:
    """The figures of each section asked for."""
    figures: Figures = {"seed": run.seed, "repeat": run.repeat}
    for section in sections:
        parts = Parts(section)
        with run_folder(run.where, space_bytes(run.size_bytes)) as base:
            figures[section] = MEASURES[section](run, base, parts)
    return figures


def _ablation(run: Run, _base: Path, parts: Parts) -> Figures:
    shape = ablation.Shape(
        run.size_bytes,
        run.threads,
        run.queues,
        min(CONTEST_TOPICS, run.queues),
        run.block_bytes,
        run.seed,
        run.where,
    )
    return ablation.measure(shape, run.repeat, parts)


def _appends(run: Run, base: Path, parts: Parts) -> Figures:
    return append_cost.measure(
        base,
        size_bytes=opts.either(run.short, 1 << 20, 256 << 20),
        threads=run.threads,
        queues=run.queues,
        repeat=run.repeat,
        seed=run.seed,
        parts=parts,
    )


def _hits(run: Run, base: Path, parts: Parts) -> Figures:
    rounds = opts.either(run.short, 8, 32)
    return hit_cost.measure(base, rounds=rounds, passes=opts.either(run.short, 2, 9), seed=run.seed, parts=parts)


def _admission(run: Run, base: Path, parts: Parts) -> Figures:
    rows = capacity.admission(
        base,
        messages=opts.either(run.short, 2_000, 40_000),
        queues=opts.either(run.short, 8, ADMISSION_QUEUES),
        block_bytes=opts.either(run.short, SHORT_BLOCK_BYTES, BLOCK_BYTES),
        seed=run.seed,
        parts=parts,
    )
    return {"rows": rows}


def _remainder(run: Run, base: Path, parts: Parts) -> Figures:
    return capacity.remainder(base, queues=run.queues, seed=run.seed, parts=parts)


MEASURES: dict[Section, Callable[[Run, Path, Parts], Figures]] = {
    Section.ABLATION: _ablation,
    Section.APPENDS: _appends,
    Section.HITS: _hits,
    Section.ADMISSION: _admission,
    Section.REMAINDER: _remainder,
}


def show(figures: Figures, console: Console) -> None:
    """The tables of the sections that were measured."""
    if "ablation" in figures:
        ablation.show(figures["ablation"], console)
    if "appends" in figures:
        append_cost.show(figures["appends"], console)
    if "hits" in figures:
        hit_cost.show(figures["hits"], console)
    if "admission" in figures:
        capacity.show_admission(figures["admission"]["rows"], console)
    if "remainder" in figures:
        capacity.show_remainder(figures["remainder"], console)


def command(
    *,
    section: Annotated[list[Section] | None, typer.Option(help="only this one (can be given again)")] = None,
    size: Annotated[str | None, typer.Option(help="payload of the ablation's runs (768MiB)")] = None,
    threads: Annotated[int, typer.Option(min=1, help="blocking producers")] = 40,
    queues: Annotated[int | None, typer.Option(min=1, help="default 20,000")] = None,
    block: Annotated[str | None, typer.Option(help="bytes a block of the ablation's caches (32KiB)")] = None,
    where: Where = None,
    json: Json = None,
    seed: Seed = 2021,
    repeat: Repeat = None,
    short: Short = False,
) -> None:
    """The message cache: each technique's worth, and what appends and hits cost."""
    run = Run(
        size_bytes=opts.bytes_option(size, opts.either(short, 4 << 20, 768 << 20)),
        threads=min(threads, 4) if short else threads,
        queues=queues or opts.either(short, opts.SHORT_QUEUES, CONTEST_QUEUES),
        block_bytes=opts.bytes_option(block, opts.either(short, SHORT_BLOCK_BYTES, BLOCK_BYTES)),
        seed=seed,
        repeat=repeat or opts.either(short, 1, 3),
        short=short,
        where=where,
    )
    opts.finish(measure(run, section or Section), json, show)
