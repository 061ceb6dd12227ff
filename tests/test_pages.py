"""The pages for users: their tables are whole, their links lead somewhere, and what lists something lists all of it."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby
from pathlib import Path

import pytest

import stratalog
from docs.drawings import DRAWINGS
from stratalog import MessageStore
from stratalog.perf.commands.app import EXPERIMENTS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
CELL_END = re.compile(r"(?<!\\)\|")
LINE = re.compile(r"\|(\s*:?-+:?\s*\|)+")
FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!`)!?\[[^\[\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def faults_of_tables(text: str) -> list[str]:
    """Rows that are not shown as rows of a table with as many cells as its head."""
    text = FENCE.sub("", text)
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
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


def anchors_of(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    names: Counter[str] = Counter()
    found = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found.add(f"{name}-{names[name]}" if names[name] else name)
        names[name] += 1
    return found


def dead_links_of(page: Path, text: str) -> list[str]:
    """Links that lead to no file, or to no heading of one. Addresses of the web are not asked."""
    dead = []
    for target in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        is_dead = not there.exists() or (anchor and anchor not in anchors_of(there.read_text()))
        dead += [target] * bool(is_dead)
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_are_there(page: Path) -> None:
    assert dead_links_of(page, page.read_text()) == []


def test_a_dead_link_is_found() -> None:
    page = DOCS / "page.md"
    text = "# A topic's own `age`\n\n## Twice\n\n## Twice\n\n```\n[no](no.md)\n```\n[web](https://x.y/z)\n"
    assert dead_links_of(page, text + "[a](../README.md#install) ![p](drawings/plan.svg)") == []
    assert dead_links_of(page, text + "[a](gone.md) ![p](drawings/no.svg)") == ["gone.md", "drawings/no.svg"]
    assert dead_links_of(page, text + "[a](../README.md#gone)") == ["../README.md#gone"]
    assert anchors_of(text) == {"a-topics-own-age", "twice", "twice-1"}


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_what_the_code_says(name: str) -> None:
    assert (DOCS / "drawings" / f"{name}.svg").read_text() == DRAWINGS[name]()


def test_every_drawing_is_on_a_page() -> None:
    shown = {name for page in PAGES for name in re.findall(r"drawings/(\w+)\.svg", page.read_text())}
    assert {path.stem for path in (DOCS / "drawings").glob("*.svg")} == shown == set(DRAWINGS)


def test_each_public_name_is_on_one_page_of_the_reference() -> None:
    listed = [
        name
        for page in sorted(DOCS.rglob("*.md"))
        for name in re.findall(r"^::: stratalog\.(\w+)$", page.read_text(), re.M)
    ]
    modules = [path.stem for path in (ROOT / "stratalog").iterdir() if path.stem in listed]
    assert sorted(set(listed) - set(modules)) == sorted(stratalog.__all__)
    assert len(listed) == len(set(listed))


def first_cells(page: str) -> list[list[str]]:
    """The words in code style of the first cell of each row of a page's tables, and of the second one."""
    rows = [line.split("|")[1:3] for line in (DOCS / page).read_text().splitlines() if line.startswith("| `")]
    return [[word for cell in row for word in re.findall(r"`([^`]+)`", cell)] for row in rows]


def test_every_part_of_the_statistics_is_explained(tmp_path: Path) -> None:
    explained = {word for words in first_cells("how-to/operating.md") for word in words}
    with MessageStore.open(tmp_path / "store") as store:
        figures = store.stats()
    assert set(figures) - {"path", "durability", "alignment"} <= explained  # these three are what was asked for


def test_every_measurement_is_listed() -> None:
    listed = {words[0] for words in first_cells("reference/benchmarks.md")}
    assert {experiment.NAME for experiment in EXPERIMENTS} <= listed
