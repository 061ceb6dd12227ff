"""A report on a terminal: its summary, its advice, and a table of each chapter's measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .record import Advice, Chapter, Measure, Report
from .tables import plain
from .words import amount

WORDS_LEAST = 12  # letters of a column of words, which folds; a column of figures never does


def show(report: Report, console: Console) -> None:
    """Show it but for its charts, which the page has, and for how it was measured."""
    for line in report.summary:
        console.print(Text(plain(line)))
    if report.advice:
        console.print(_advice(report.advice))
    for chapter in report.chapters:
        if chapter.measures:
            console.print(_measures(chapter))


def _measures(chapter: Chapter) -> Table:
    """A row a measure. Columns that would be empty are left out."""
    cells: dict[str, Callable[[Measure], str]] = {"figure": lambda one: amount(one.value, one.unit)}
    if any(len(one.values) > 1 for one in chapter.measures):
        cells["low to high"] = _low_to_high
    if any(one.share is not None for one in chapter.measures):
        cells["share"] = _share
    return _table(
        chapter.title,
        {"": [one.what for one in chapter.measures]},
        {name: [cell(one) for one in chapter.measures] for name, cell in cells.items()},
        {"beside": [_beside(one) for one in chapter.measures]} if "share" in cells else {},
    )


def _low_to_high(measure: Measure) -> str:
    low, high = (amount(value, "") for value in (measure.low, measure.high))
    return f"{low} to {high}" if len(measure.values) > 1 else ""


def _share(measure: Measure) -> str:
    return "" if measure.share is None else f"{measure.share:.2f}"


def _beside(measure: Measure) -> str:
    if measure.reference is None or measure.share is None:
        return ""
    return f"{amount(measure.reference, measure.unit)}, {measure.reference_what}"


def _advice(advice: Sequence[Advice]) -> Table:
    settings = {"setting": [f"{one.setting}={one.value}" for one in advice]}
    told = {"why": [one.why for one in advice], "worth here": [one.worth for one in advice]}
    return _table("What to set here", settings, {}, told)


def _table(title: str, first: dict[str, list[str]], figures: dict[str, list[str]], last: dict[str, list[str]]) -> Table:
    """Words, then figures to the right, then words."""
    made = Table(title=Text(plain(title), style="italic"), title_justify="left")
    columns = {**first, **figures, **last}
    for name, column in columns.items():
        width = max(map(len, (name, *column)))
        if name in figures:
            made.add_column(name, justify="right", no_wrap=True, min_width=width)
        else:
            made.add_column(name, overflow="fold", min_width=min(WORDS_LEAST, width))
    for row in zip(*columns.values(), strict=True):
        made.add_row(*(Text(plain(cell)) for cell in row))
    return made
