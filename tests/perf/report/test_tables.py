"""Tables on consoles of any width: every figure appears whole, and names are shown as they are."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import pytest
from rich.console import Console

from stratalog.perf.report import figures as report
from stratalog.perf.report.figures import Figures
from stratalog.perf.report.tables import figure

Show = Callable[[Figures, Console], None]
ROWS = 12


def figures_by_name(*names: str) -> Iterator[Figures]:
    """Rows of long figures, no two alike."""
    for row in range(ROWS):
        yield {name: 31_000_000 + 1000 * row + column for column, name in enumerate(names)}


def shown(width: int, show: Show, figures: Figures) -> list[str]:
    """The lines, none of them wider than the console."""
    console = Console(file=io.StringIO(), width=width)
    show(figures, console)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return lines


def cells(lines: list[str]) -> set[str]:
    return {cell.strip() for line in lines if line.startswith("│") for cell in line.split("│")}


@pytest.mark.parametrize("width", [60, 80, 140])
def test_every_figure_of_a_wide_table_appears_whole_and_each_part_says_which_row_it_is(width: int) -> None:
    names = [f"a_figure_{number}_with_a_long_name" for number in range(11)]
    rows = [{"sizes": "contest", "producers": 200, **row} for row in figures_by_name(*names)]
    lines = shown(width, lambda them, console: console.print(report.table("wide", them["rows"], 2)), {"rows": rows})
    assert cells(lines) >= {figure(value) for row in rows for value in row.values()}
    of_rows = [line for line in lines if "contest" in line]
    assert len(of_rows) > ROWS or width == 140
    assert all("200" in line for line in of_rows)


@pytest.mark.parametrize("name", ["[/orders]", "[red]x[/red]", ":smile:"])
@pytest.mark.parametrize("width", [20, 80])
def test_names_in_tables_are_no_markup(name: str, width: int) -> None:
    lines = shown(width, lambda rows, console: console.print(report.pairs(name, rows)), {name: name, "n": 1})
    assert name in lines[0]
    if width == 80:
        assert cells(lines) >= {name, "1"}


def test_long_name_is_folded_beside_a_whole_figure() -> None:
    lines = shown(40, lambda rows, console: console.print(report.pairs("t", rows)), {"n" * 60: 1_234_567, "x": "y" * 9})
    assert "1,234,567" in cells(lines)
    assert "".join(lines).count("n") == 60


def test_columns_say_how_wide_the_results_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert report.console().width == 60
    monkeypatch.delenv("COLUMNS")
    assert report.console().width == report.WIDTH_WITHOUT_TERMINAL
