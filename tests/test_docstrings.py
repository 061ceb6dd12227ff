"""What `help()` shows to a user has no word that only the project's papers explain; and the rows of its sources."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "docs" / "developers" / "sources.md"
CITING = ("store", "cache", "index", "pipeline", "endpoint", "perf", "docs", "tests")
PACKAGES = ("stratalog", "stratalog.bulk", "stratalog.plans", "stratalog.tools", "stratalog.testing",
            "stratalog.endpoint", "stratalog.store",
            "stratalog.cache", "stratalog.index", "stratalog.index.trackers", "stratalog.pipeline",
            "stratalog.pipeline.jobs")  # fmt: skip
ROW = re.compile(r"\bR\d+\b")
INSIDE = re.compile(rf"{ROW.pattern}|\bcontest\b")


def shown(package: str) -> Iterator[tuple[str, str]]:
    """(name, docstring) of a package, of what it gives, and of the public members of its classes."""
    module = importlib.import_module(package)
    yield package, module.__doc__ or ""
    for name in getattr(module, "__all__", ()):
        one = getattr(module, name)
        if isinstance(one, str | int | tuple) or inspect.ismodule(one):
            continue
        yield f"{package}.{name}", inspect.getdoc(one) or ""
        for part in dir(one) if inspect.isclass(one) else ():
            if not part.startswith("_") or part == "__init__":
                yield f"{package}.{name}.{part}", inspect.getdoc(inspect.getattr_static(one, part)) or ""


@pytest.mark.parametrize("package", PACKAGES)
def test_no_docstring_of_the_public_face_has_a_number_of_a_requirement(package: str) -> None:
    docstrings = dict(shown(package))
    assert len(docstrings) > 3
    assert [name for name, text in docstrings.items() if INSIDE.search(text)] == []


def rows_of_the_sources() -> dict[str, list[str]]:
    """Number of each row -> the files and folders that it names."""
    rows = [line.split("|") for line in SOURCES.read_text().splitlines() if line.startswith("| R")]
    return {cells[1].strip(): re.findall(r"`([^`]+)`", cells[-2]) for cells in rows}


def test_each_row_of_the_sources_is_there_once_and_names_places_that_exist() -> None:
    numbers = re.findall(r"^\| (R\d+) \|", SOURCES.read_text(), re.MULTILINE)
    assert numbers == [f"R{number}" for number in range(1, 42)]
    places = rows_of_the_sources()
    assert [(row, place) for row, found in places.items() for place in found if not (ROOT / place).exists()] == []


def test_each_row_that_is_cited_is_a_row_of_the_sources() -> None:
    files = [path for name in CITING for kind in ("*.py", "*.md") for path in sorted((ROOT / name).rglob(kind))]
    cited = {path: ROW.findall(path.read_text()) for path in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *files]}
    assert sum(map(len, cited.values())) > 50
    rows = rows_of_the_sources()
    wrong = {path.relative_to(ROOT): set(found) - set(rows) for path, found in cited.items()}
    assert {path: numbers for path, numbers in wrong.items() if numbers} == {}
