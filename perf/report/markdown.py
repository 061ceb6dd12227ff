"""A report as Markdown: what a mail or an issue takes. Charts are in the page alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .record import Report
from .tables import plain
from .words import HEADINGS, row


def markdown(report: Report) -> str:
    """The whole text."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"# {_cell(report.title)}"
    yield ""
    yield from (f"* {_cell(line)}" for line in report.summary)
    if report.advice:
        yield from ("", "## What to set here", "")
        rows = [(f"`{one.setting}={one.value}`", one.why, one.worth) for one in report.advice]
        yield from _table(("setting", "why", "worth here"), rows)
    for chapter in report.chapters:
        yield from ("", f"## {_cell(chapter.title)}", "", _cell(chapter.text))
        if chapter.measures:
            yield ""
            yield from _table(HEADINGS, [row(measure) for measure in chapter.measures])
        for chart in chapter.charts:
            yield from ("", f"Chart in the page: {_cell(chart.title)}. {_cell(chart.meaning)}".rstrip())
    yield from ("", "## The machine, and how it was measured", "")
    yield from _table(("", ""), list(report.machine.items()))
    yield from ("", _cell(report.how), "", _cell(report.verdict))


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heading)} |"
    yield "|" + "---|" * len(heading)
    for cells in rows:
        yield f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Text that stays in its line and its cell, and is no HTML."""
    kept = plain(" ".join(text.split())).replace("\\", "\\\\").replace("|", "\\|")
    return kept.replace("&", "&amp;").replace("<", "&lt;")
