"""Tables, JSON, medians and human figures, shared by all commands."""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from perf.tables import Sheet

Figures = dict[str, Any]
SUMMED = frozenset({"lost", "duplicated", "out_of_order", "corrupted", "wrong_offsets"})
WIDTH_WITHOUT_TERMINAL = 140


class WrongResult(Exception):
    """A measurement got something else than what was written: its figures would mean nothing."""


def console() -> Console:
    """The console of the results: as wide as the terminal, or wide enough for a table when there is none and COLUMNS
    says nothing. Brackets and colons in what is printed, as in names of topics, are letters like others."""
    known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if known else WIDTH_WITHOUT_TERMINAL, markup=False, emoji=False)


def messages_console() -> Console:
    """The console of everything that is no result: standard error."""
    return Console(stderr=True, markup=False, emoji=False)


def human_bytes(size_bytes: float) -> str:
    """ "1.50 GiB", "12.0 KiB"."""
    for unit in ("B", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{size_bytes:,.0f} {unit}" if unit == "B" else f"{size_bytes:,.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:,.2f} GiB"


def table(title: str, rows: Sequence[Mapping[str, object]], labels: int = 1) -> Sheet:
    """A table with a column a key, numbers to the right; the first `labels` columns say which row it is."""
    return Sheet(title, rows, labels)


def pairs(title: str, figures: Mapping[str, object]) -> Sheet:
    """A table of one figure a line."""
    return Sheet(title, [{"figure": name, "value": value} for name, value in figures.items()])


def counted(count: int, what: str) -> str:
    """ "1 message", "2 messages"."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def median_of(runs: Sequence[Any], key: str = "") -> Any:
    """Medians over runs of the same shape, leaf by leaf; broken promises are summed; what is no number is the
    first run's."""
    first = runs[0]
    if isinstance(first, Mapping):
        return {name: median_of([run[name] for run in runs], name) for name in first}
    if any(isinstance(run, bool) or not isinstance(run, (int, float)) for run in runs):
        return first
    if key in SUMMED:
        return sum(runs)
    middle = statistics.median(runs)
    return int(middle) if all(isinstance(run, int) for run in runs) else middle


def median_rows(repeats: Sequence[Sequence[Figures]]) -> list[Figures]:
    """Medians of tables: row i over all repeats."""
    return [median_of(rows) for rows in zip(*repeats, strict=True)]


def write_json(path: Path | None, figures: Mapping[str, Any]) -> None:
    """Writes the figures to `path`; "-" is the standard output; None is nowhere."""
    if path is None:
        return
    text = json.dumps(figures, indent=2, default=_plain) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
    else:
        path.write_text(text)


def _plain(value: object) -> object:
    """numpy scalars as Python numbers."""
    item = getattr(value, "item", None)
    return item() if item is not None else str(value)


def cpu_seconds() -> float:
    """User and system seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_rss_mb() -> float:
    """The process's peak resident memory in MB (10^6 bytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def resident_bytes() -> int:
    """The process's resident memory now, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
