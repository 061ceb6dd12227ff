"""The style that a machine can check: linter, types, and the sizes of files and functions."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from .checkout import copy_of_the_checkout

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("store", "cache", "index", "pipeline", "perf", "stratalog")  # the last has links to the others
PACKAGES = [name for name in FOLDERS if any((ROOT / name).glob("*.py"))]
SOURCES = [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py")) if not path.parent.is_symlink()]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 70
MAP_AT = 24  # the column at which the names of a package's map begin


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_types_are_shipped_with_the_package() -> None:
    """Without the marker, and without it in the wheel, type checkers take every name of the package for Any."""
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert (ROOT / "stratalog" / "py.typed").exists()
    assert "py.typed" in shipped["stratalog"]


def test_every_part_is_linked_into_the_package() -> None:
    parts = [name for name in PACKAGES if name != "stratalog"]
    assert [name for name in parts if (ROOT / "stratalog" / name).resolve() == ROOT / name] == parts


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_linter_finds_nothing() -> None:
    run("ruff", "check", *PACKAGES, "tests")


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """The rules of pyproject.toml about what may import what, held against the sources of a checkout."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command.append("--no-cache")
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def test_imports_go_one_way_and_in_no_circle() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("cache/tier.py", "from ..store import errors as _errors"),
        ("index/levels.py", "from ..store import errors as _errors"),
        ("index/columns.py", "from ..cache import tier as _tier"),
        ("cache/errors.py", "from ..index import clock as _clock"),
        ("perf/workload/contest.py", "from ...index import levels as _levels"),
        ("store/device/ring.py", "from ..log import queue as _queue"),
        ("store/segment/segment.py", "from . import sealed as _sealed"),
        ("perf/workload/contest.py", "from ...store.log import lane as _lane"),
        ("pipeline/session.py", "from ..store.log import lane as _lane"),
        ("pipeline/session.py", "from ..perf import machine as _machine"),
    ],
)
def test_a_wrong_import_is_noticed(tmp_path: Path, file: str, line: str) -> None:
    with copy_of_the_checkout(tmp_path / "sources") as sources:
        path = sources / file
        first = "from __future__ import annotations\n"
        path.write_text(path.read_text().replace(first, f"{first}\n{line}\n"))
        done = lint_imports(sources)
    assert done.returncode != 0
    assert "BROKEN" in done.stdout


def test_types_are_right() -> None:
    run("mypy", "--strict", "-p", "stratalog", "-p", "tests")


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_file_is_not_too_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_FILE_LINES


@pytest.mark.parametrize("path", SOURCES + TESTS, ids=name_of)
def test_no_function_is_too_long(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            assert lines <= MAX_FUNCTION_LINES, f"{path}:{node.lineno} {node.name} has {lines} lines"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_what_is_public_has_a_docstring(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "the module has none"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{node.name} has none"


@pytest.mark.parametrize("path", [path for path in SOURCES if path.name == "__init__.py"], ids=name_of)
def test_map_of_a_package_has_files_that_are_there(path: Path) -> None:
    """The map: lines of the docstring that are indented, a heading and then names of modules."""
    text = (ast.get_docstring(ast.parse(path.read_text())) or "") if path.parent.parent.name == "store" else ""
    assert [name for name in mapped_in(text) if not (path.parent / f"{name}.py").exists()] == []


@pytest.mark.parametrize("path", sorted((ROOT / "store").glob("*/__init__.py")), ids=name_of)
def test_map_of_a_package_has_all_of_its_modules(path: Path) -> None:
    """In its lines, or where the text before them says where to begin, as in `lane`."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    named = {*mapped_in(text), *re.findall(r"`(\w+)`", text)}
    assert {one.stem for one in path.parent.glob("*.py") if not one.stem.startswith("__")} - named == set()


def mapped_in(text: str) -> list[str]:
    return [name for line in text.splitlines() if line.startswith("    ") for name in line[MAP_AT:].split(", ")]
