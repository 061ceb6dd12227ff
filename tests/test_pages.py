"""The pages for users: their tables are whole, and those that list something list all of it."""

from __future__ import annotations

import dataclasses
import re
from itertools import groupby
from pathlib import Path

import pytest

from stratalog import MessageStore, StoreConfig
from stratalog.perf.commands.app import EXPERIMENTS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
CELL_END = re.compile(r"(?<!\\)\|")
LINE = re.compile(r"\|(\s*:?-+:?\s*\|)+")


def faults_of_tables(text: str) -> list[str]:
    """Rows that are not shown as rows of a table with as many cells as its head."""
    text = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)
    faults = []
    for is_table, block in groupby(text.splitlines(), lambda line: line.startswith("|")):
        if not is_table:
            continue
        rows = [row.rstrip() for row in block]
        if len(rows) < 2 or not LINE.fullmatch(rows[1]):
            faults.append(rows[0])
            continue
        cells = len(CELL_END.findall(rows[0]))
        faults += [row for row in rows if not row.endswith("|") or len(CELL_END.findall(row)) != cells]
    return faults


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_are_whole_and_the_page_ends_with_a_line(page: Path) -> None:
    text = page.read_text()
    assert faults_of_tables(text) == []
    assert text.endswith("\n") and not text.endswith("\n\n")


def test_a_row_that_is_cut_or_apart_is_a_fault() -> None:
    head = "| a | b |\n|---|---|\n"
    assert faults_of_tables(head + "| 1 | `x\\|y` |\n\ntext\n```\n| no table\n```\n") == []
    assert faults_of_tables(head + "| 1 | two\nlines |\n") == ["| 1 | two"]
    assert faults_of_tables(head + "| 1 | 2 |\n\n| 3 | 4 |\n| 5 | 6 |\n") == ["| 3 | 4 |"]
    assert faults_of_tables(head + "| 1 |\n") == ["| 1 |"]


def first_cells(page: str) -> list[list[str]]:
    """The words in code style of the first cell of each row of a page's tables, and of the second one."""
    rows = [line.split("|")[1:3] for line in (DOCS / page).read_text().splitlines() if line.startswith("| `")]
    return [[word for cell in row for word in re.findall(r"`([^`]+)`", cell)] for row in rows]


def test_every_setting_is_listed_with_its_default() -> None:
    listed = {words[0]: words[1] for words in first_cells("operating.md") if len(words) == 2}
    assert {field.name: repr(field.default) for field in dataclasses.fields(StoreConfig)}.items() <= listed.items()


def test_every_part_of_the_statistics_is_explained(tmp_path: Path) -> None:
    explained = {word for words in first_cells("operating.md") for word in words}
    with MessageStore.open(tmp_path / "store") as store:
        figures = store.stats()
    assert set(figures) - {"path", "durability", "alignment"} <= explained  # these three are what was asked for


def test_every_measurement_is_listed() -> None:
    listed = {words[0] for words in first_cells("benchmarks.md")}
    assert {experiment.NAME for experiment in EXPERIMENTS} <= listed
