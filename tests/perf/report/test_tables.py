"""Tables on consoles of any width: every figure appears whole, and names are shown as they are."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rich.console import Console

from stratalog.perf.experiments.alignment import SHOWN as ALIGNMENT_NAMES
from stratalog.perf.experiments.alignment import Alignment
from stratalog.perf.experiments.hotcold import REFERENCE_NAMES, RUN_NAMES, HotCold
from stratalog.perf.experiments.hotcold_run import COUNT_NAMES
from stratalog.perf.experiments.lanes import SHOWN as LANES_NAMES
from stratalog.perf.experiments.lanes import Lanes
from stratalog.perf.report import figures as report
from stratalog.perf.report.figures import Figures
from stratalog.perf.report.tables import figure

Show = Callable[[Figures, Console], None]
ROWS = 12


def figures_by_name(*names: str) -> Iterator[Figures]:
    """Rows of long figures, no two alike."""
    for row in range(ROWS):
        yield {name: 31_000_000 + 1000 * row + column for column, name in enumerate(names)}


def hotcold_figures(**references: float | None) -> Figures:
    latency = {"p50": 1_234_567.0, "p99": 2_345_678.0, "p999": 3_456_789.0}
    phase = {"seconds": 12_345.6, "messages": 312_345_678, "messages_per_s": 41_234.5, "mb_per_s": 3_601.25,
             "latency_us": latency}  # fmt: skip
    layer = {"messages": 212_345_678, "share": 0.98765, "bytes": 987_654_321_012}
    pairs = ("dram_share", "ring_and_dram_share", "device_reads", "device_mb", "device_least_bytes", "kernel_read_mb",
             "edge_messages", "edge_mb", "unsound_messages")  # fmt: skip
    return {
        **dict.fromkeys(COUNT_NAMES, 0),
        **{name: 1_987_654_000 + index for index, name in enumerate(RUN_NAMES)},
        **{name: 7_654_321_000 + index for index, name in enumerate(REFERENCE_NAMES)},
        **references,
        "config": {"size_bytes": 1 << 40, "drive": {"api": "blocking"}, "threads": 40},
        "phase1": phase,
        "phase2": {**phase, "messages": 298_765_432},
        "reads": {**phase, "device_mb": 123_456_789},
        "stats": {"recent_bytes": 64 << 20},
        "served": {"layers": {"ring": layer, "read cache": layer, "device": {**layer, "bytes": None}},
                   **dict.fromkeys(pairs, 4_321_987_650)},
        "cache_after_phase1": {
            "capacity_bytes": 2_345_678_901,
            "tiers": {"persistent": {"kind": "map-sync", "capacity_mb": 61_234.5, "used_mb": 59_876.5}},
        },
    }  # fmt: skip


def alignment_figures() -> Figures:
    names = tuple(ALIGNMENT_NAMES.values())[3:]
    rows = [{"sizes": "contest", "producers": 200, "alignment": "adaptive", **row} for row in figures_by_name(*names)]
    compared = {"sizes": "small", "producers": 40, "throughput_over_best": 0.987, "amplification_over_trim": 1.003}
    return {"rows": rows, "adaptive": [compared]}


def lanes_figures() -> Figures:
    names = LANES_NAMES[2:]
    return {"rows": [{"api": "pipelined", "lanes": 4, **row} for row in figures_by_name(*names)]}


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


def leaves(value: Any) -> Iterator[object]:
    """Everything in nested figures."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


@pytest.mark.parametrize("width", [60, 80, 140])
@pytest.mark.parametrize(
    ("show", "figures"),
    [(Alignment().show, alignment_figures()), (Lanes().show, lanes_figures())],
    ids=["alignment", "lanes"],
)
def test_every_figure_of_a_wide_table_appears_whole(width: int, show: Show, figures: Figures) -> None:
    assert cells(shown(width, show, figures)) >= {figure(value) for value in leaves(figures)}


@pytest.mark.parametrize("width", [60, 80, 140])
def test_every_figure_of_hotcold_appears_whole(width: int) -> None:
    figures = hotcold_figures()
    lines = shown(width, HotCold().show, figures)
    found = cells(lines)
    for part in ("phase1", "phase2"):
        assert found >= {figure(value) for name, value in figures[part].items() if name != "latency_us"}
        assert found >= {figure(value) for value in figures[part]["latency_us"].values()}
    for name in (*RUN_NAMES, *REFERENCE_NAMES):
        assert figure(figures[name]) in found
    assert found >= {"212,345,678", "98.77", "987,654", "4,321,987,650", "2,345,678,901", "61,234", "59,876"}
    assert HotCold().verdict(figures) == (True, "lost 0  duplicated 0  out_of_order 0  corrupted 0  wrong_offsets 0")


def test_reference_that_was_not_measured_has_no_line() -> None:
    lines = shown(140, HotCold().show, hotcold_figures(thread_floor_ratio=None))
    assert not any("phase 1 over these " in line and "making" not in line and "CPUs" not in line for line in lines)
    assert any("phase 1 over the raw device" in line for line in lines)


def test_each_of_several_tables_says_which_row_it_is() -> None:
    lines = shown(60, Alignment().show, alignment_figures())
    rows = [line for line in lines if "contest" in line]
    assert len(rows) > ROWS
    assert all("200" in line and "adaptive" in line for line in rows)


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
