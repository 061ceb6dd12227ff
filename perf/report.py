"""Tables, JSON, medians and human figures, shared by all commands."""

from __future__ import annotations

import json
import resource
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Figures = dict[str, Any]
SUMMED = frozenset({"lost", "duplicated", "out_of_order", "corrupted", "wrong_offsets"})
WIDTH_WITHOUT_TERMINAL = 140


class WrongResult(Exception):
    """A measurement got something else than what was written: its figures would mean nothing."""


def console() -> Console:
    """The console of the results: as wide as the terminal, or wide enough for a table when there is none."""
    return Console() if sys.stdout.isatty() else Console(width=WIDTH_WITHOUT_TERMINAL)


def human_bytes(size_bytes: float) -> str:
    """ "1.50 GiB", "12.0 KiB"."""
    for unit in ("B", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{size_bytes:,.0f} {unit}" if unit == "B" else f"{size_bytes:,.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:,.2f} GiB"


def figure(value: object) -> str:
    """A cell's text: thousands grouped, three or four digits that matter."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3f}" if abs(value) < 10 else f"{value:.2f}"


def table(title: str, rows: Sequence[Mapping[str, object]]) -> Table:
    """A table with a column a key; numbers to the right."""
    made = Table(title=title, title_justify="left")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for column in columns:
        numeric = all(not isinstance(row.get(column), str) for row in rows)
        made.add_column(column, justify="right" if numeric else "left")
    for row in rows:
        made.add_row(*(figure(row.get(column)) for column in columns))
    return made


def pairs(title: str, figures: Mapping[str, object]) -> Table:
    """A table of one figure a line."""
    return table(title, [{"figure": name, "value": figure(value)} for name, value in figures.items()])


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
