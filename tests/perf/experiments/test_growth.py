from __future__ import annotations

from pathlib import Path

from rich.console import Console

from stratalog.perf.experiments.growth import chapter, most_grown
from stratalog.perf.report.files import read_report
from stratalog.perf.report.terminal import show
from tests.browser import PHONE, complaints

from ..short import figures_of

CHAPTERS = (
    "calls, by sealed segments", "calls, by streams that are alive", "commits, by named transactions",
    "readers beside a writer", "consumers, by queues of the topic", "consumers that wait for one topic",
    "subscriptions of one topic", "delayed messages, one in so many",
)  # fmt: skip


def test_growth_gives_each_call_at_each_step_and_draws_how_it_grows(tmp_path: Path) -> None:
    figures_of(tmp_path, "growth", "--report", str(tmp_path))
    report = read_report(tmp_path / "growth.json")
    assert tuple(one.title for one in report.chapters) == tuple(f"Growth: {title}" for title in CHAPTERS)
    for one in report.chapters:
        for chart in one.charts:
            assert list(chart.x) == sorted(chart.x) and chart.lines
            assert all(value is None or value >= 0 for line in chart.lines.values() for value in line), chart
    calls = {what for chart in report.chapters[0].charts for what in chart.lines}
    assert {"get_range, idle queue", "read, a random old message", "offset_at, idle queue", "open, close"} <= calls
    assert complaints((tmp_path / "growth.html").as_uri(), tmp_path / "home", PHONE) == []
    console = Console(record=True, width=200)
    show(report, console)
    text = console.export_text()
    assert [title for title in CHAPTERS if f"Growth: {title}" not in text] == []
    assert "Of what a store may hold more of, this costs most" in text


def test_curves_tell_the_growth_from_the_first_step_to_the_last() -> None:
    rows = [
        {"what": f"call {number}", "10": 2.0, "100": 2.0 * number, "growth": float(number)} for number in range(1, 12)
    ]
    made = chapter("segments", "calls, by segments", (10, 100), rows)
    assert [len(chart.lines) for chart in made.charts] == [8, 3]
    assert made.measures[10].name == "growth.segments.call 11"
    assert (made.measures[10].value, made.measures[10].share) == (22.0, 11.0)
    assert most_grown(rows) == "Of what a store may hold more of, this costs most: call 11, x 11.0."


def test_a_row_without_a_figure_at_some_step_is_left_out_there() -> None:
    rows = [{"what": "a", "1": 1.0, "10": None, "growth": None}, {"what": "b", "1": 0.0, "10": 2.0, "growth": None}]
    made = chapter("readers", "readers", (1, 10), rows)
    assert made.charts[0].lines["a"] == (1.0, None)
    assert [one.name for one in made.measures] == ["growth.readers.b"]
    assert most_grown(rows) == "Nothing was measured at two steps."


def test_a_single_step_is_a_chapter_too() -> None:
    made = chapter("delays", "delays", (5,), [{"what": "a", "5": 1.0, "growth": None}])
    assert made.measures[0].value == 1.0
