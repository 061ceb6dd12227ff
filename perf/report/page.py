"""A report as one HTML page that asks for nothing else: its style, its script and its charts' library are inside.

Text and tables are made here, so that they are there without a script and in print. A chart is drawn by uPlot, whose
minified file and licence lie in `assets`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files

from .record import Advice, Chapter, Chart, Report
from .words import HEADINGS, amount, row

NOTHING_ELSE = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


def page(report: Report) -> str:
    """The whole page."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{NOTHING_ELSE}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">'
    yield f"<title>{escape(report.title)}</title>"
    yield f"<style>\n{_asset('uplot.min.css')}\n{_asset('page.css')}</style>\n</head>\n<body>\n<main>"
    yield f"<h1>{escape(report.title)}</h1>"
    yield '<ul class="summary">'
    yield from (f"<li>{escape(line)}</li>" for line in report.summary)
    yield "</ul>"
    yield from _advice(report.advice)
    charts: list[Chart] = []
    for chapter in report.chapters:
        yield from _chapter(chapter, charts)
    yield "<section>\n<h2>The machine, and how it was measured</h2>"
    yield from _table(("", ""), list(report.machine.items()))
    yield f"<p>{escape(report.how)}</p>\n<p>{escape(report.verdict)}</p>\n</section>\n</main>"
    yield f'<script type="application/json" id="charts">{_inlined(charts)}</script>'
    yield f"<script>{_asset('uplot.min.js')}</script>\n<script>\n{_asset('page.js')}</script>\n</body>\n</html>"


def _advice(advice: Sequence[Advice]) -> Iterator[str]:
    if advice:
        yield "<section>\n<h2>What to set here</h2>"
        rows = [(f"{one.setting}={one.value}", one.why, one.worth) for one in advice]
        yield from _table(("setting", "why", "worth here"), rows)
        yield "</section>"


def _chapter(chapter: Chapter, charts: list[Chart]) -> Iterator[str]:
    """The chapter; its charts are added to `charts`, which has those of the chapters before it."""
    yield f"<section>\n<h2>{escape(chapter.title)}</h2>\n<p>{escape(chapter.text)}</p>"
    for chart in chapter.charts:
        yield f"<figure>\n<figcaption><b>{escape(chart.title)}.</b> {escape(chart.meaning)}</figcaption>"
        yield f'<div class="chart" id="chart-{len(charts)}" role="img" aria-label="{escape(chart.title)}"></div>'
        yield "<details><summary>the figures of this chart</summary>"
        yield from _table((chart.x_what, *chart.lines), _rows(chart))
        yield "</details>\n</figure>"
        charts.append(chart)
    if chapter.measures:
        yield from _table(HEADINGS, [row(measure) for measure in chapter.measures])
    yield "</section>"


def _rows(chart: Chart) -> list[list[str]]:
    return [
        [amount(x, ""), *("-" if line[at] is None else amount(line[at] or 0.0, "") for line in chart.lines.values())]
        for at, x in enumerate(chart.x)
    ]


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield '<div class="wide"><table>'
    if any(heading):
        yield f"<thead><tr>{''.join(f'<th>{escape(name)}</th>' for name in heading)}</tr></thead>"
    yield "<tbody>"
    for cells in rows:
        told = zip(heading, cells, strict=True)
        made = [f'<td data-name="{escape(name)}">{escape(cell)}</td>' for name, cell in told]
        yield f"<tr>{''.join(made)}</tr>"
    yield "</tbody></table></div>"


def _inlined(charts: Sequence[Chart]) -> str:
    """JSON that ends no script, whatever names it has."""
    return json.dumps([asdict(chart) for chart in charts], allow_nan=False).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text()
