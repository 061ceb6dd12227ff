"""A report on a terminal of any width: every figure is whole, and names are shown as they are."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from stratalog.perf.report.record import Advice, Chapter, Measure, Report
from stratalog.perf.report.terminal import show
from tests.perf.report.reports import report


def measure(name: str, *values: float, **more: object) -> Measure:
    return Measure(name=name, what=f"what {name} is", unit="msg/s", values=values, **more)  # type: ignore[arg-type]  # any field


def shown(one: Report, width: int = 100) -> str:
    out = io.StringIO()
    show(one, Console(file=out, width=width, markup=False, emoji=False))
    return out.getvalue()


def of(*measures: Measure) -> Report:
    return replace(report(), chapters=(Chapter(title="Rates", text="how", measures=measures),))


def row_of(text: str, what: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if what in line]
    return [cell.strip() for cell in line.split("│") if cell.strip()]


def test_each_measure_is_a_row_with_its_spread_and_what_it_stands_beside() -> None:
    text = shown(of(measure("a", 2_000, 1_000, 3_000, reference=4_000.0, reference_what="the device"), measure("b", 7)))
    assert row_of(text, "what a is") == [
        "what a is",
        "2,000 msg/s",
        "1,000 to 3,000",
        "0.50",
        "4,000 msg/s, the device",
    ]
    assert row_of(text, "what b is") == ["what b is", "7 msg/s"]


def test_columns_that_would_be_empty_are_left_out() -> None:
    assert row_of(shown(of(measure("a", 2_000))), "what a is") == ["what a is", "2,000 msg/s"]


def test_summary_and_advice_come_first_and_a_chapter_without_measures_is_left_out() -> None:
    advice = (Advice(setting="lanes", value="2", why="more writers", worth="x 1.2"),)
    one = replace(of(measure("a", 1)), summary=("The answer.", "More."), advice=advice)
    empty = Chapter(title="Nothing here", text="t")
    text = shown(replace(one, chapters=(*one.chapters, empty)))
    assert text.splitlines()[:2] == ["The answer.", "More."]
    assert text.index("lanes=2") < text.index("what a is")
    assert "Nothing here" not in text
    console = Console(file=io.StringIO(), width=100)
    show(one, console, tables=False)
    answer = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert "lanes=2" in answer and "what a is" not in answer


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_figure_is_cut_beside_long_names(width: int) -> None:
    long = Measure(
        name="a", what="many words " * 20, unit="msg/s", values=(31_234_567.0, 41_234_567.0), reference=51_234_567.0,
        reference_what="something else of many words",
    )  # fmt: skip
    text = shown(of(long), width)
    for whole in ("36,234,567 msg/s", "31,234,567 to 41,234,567", "0.71"):
        assert whole in text
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("name", ["[/orders]", "[red]x[/red]", ":smile:", "a\x1b[31m"])
def test_names_are_no_markup_and_steer_no_terminal(name: str) -> None:
    text = shown(of(replace(measure("a", 1), what=name)))
    assert name.replace("\x1b", "\\x1b") in text and "\x1b" not in text
