"""The style that a machine can check: linter, types, and the sizes of files and functions."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from .checkout import copy_of_the_checkout

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("store", "cache", "index", "pipeline", "endpoint", "perf", "stratalog")  # the last has links to the others
PACKAGES = [name for name in FOLDERS if any((ROOT / name).glob("*.py"))]
PLUGIN = "pytest_stratalog.py"
SOURCES = [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py")) if not path.parent.is_symlink()]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
SOURCES += [
    ROOT / PLUGIN,
    *sorted((ROOT / "docs").rglob("*.py")),
    *(path for path in EXAMPLES if "tests" not in path.parts),
]
TESTS = [*sorted((ROOT / "tests").rglob("*.py")), *(path for path in EXAMPLES if "tests" in path.parts)]
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
    run("ruff", "check", *PACKAGES, PLUGIN, "examples", "tests", "docs")


def test_formatting_is_that_of_the_formatter() -> None:
    run("ruff", "format", "--check", *PACKAGES, PLUGIN, "examples", "tests", "docs")


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """The rules of pyproject.toml about what may import what, held against the sources of a checkout."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command.append("--no-cache")
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def test_imports_go_one_way_and_in_no_circle() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


WRONG = {
    "cache/tier.py": "from ..store import errors as _wrong",
    "index/levels.py": "from ..store import errors as _wrong",
    "index/columns.py": "from ..cache import tier as _wrong",
    "cache/errors.py": "from ..index import columns as _wrong",
    "perf/workload/contest.py": "from ...index import levels as _wrong",
    "store/device/ring.py": "from ..log import queue as _wrong",
    "store/segment/segment.py": "from . import sealed as _wrong",
    "perf/workload/settings.py": "from ...store.log import lane as _wrong",
    "pipeline/session.py": "from ..store.log import lane as _wrong",
    "pipeline/options.py": "from ..perf import machine as _wrong",
}


def test_each_wrong_import_is_noticed(tmp_path: Path) -> None:
    with copy_of_the_checkout(tmp_path / "sources") as sources:
        for file, line in WRONG.items():
            path = sources / file
            first = "from __future__ import annotations\n"
            assert path.read_text().count(first) == 1
            path.write_text(path.read_text().replace(first, f"{first}\n{line}\n"))
        done = lint_imports(sources)
    assert done.returncode != 0 and "BROKEN" in done.stdout
    told = " ".join(done.stdout.split())
    names = ["stratalog." + file.removesuffix(".py").replace("/", ".") for file in WRONG if "segment" not in file]
    assert [name for name in names if f"{name} -> " not in told] == []
    assert ".segment -> .sealed" in told  # a circle is told without the package


BELOW = {"format": {"format"}, "device": {"format"}, "segment": {"device", "format"}}


@pytest.mark.parametrize("folder", BELOW)
def test_lower_folders_know_nothing_above_them_as_types_either(folder: str) -> None:
    """import-linter leaves imports for types out; what they name is known at run time all the same."""
    packages = {path.parent.name for path in (ROOT / "store").glob("*/__init__.py")}
    named = {
        path.name: (set(re.findall(r"^ *from \.\.(\w+)", path.read_text(), re.MULTILINE)) & packages) - BELOW[folder]
        for path in (ROOT / "store" / folder).glob("*.py")
    }
    assert {name: names for name, names in named.items() if names} == {}


def test_types_are_right() -> None:
    run("mypy", "--strict", "-p", "stratalog", "-p", "tests", "-p", "docs", "-m", "pytest_stratalog")


def test_no_file_is_too_long() -> None:
    lines = {name_of(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: count for name, count in lines.items() if count > MAX_FILE_LINES} == {}


def functions_in(nodes: Iterable[ast.AST]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions of some statements, also inner ones; expressions are not looked at, which have none."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            yield from functions_in(getattr(node, part, ()))


def test_no_function_is_too_long() -> None:
    found = []
    for path in SOURCES + TESTS:
        for node in functions_in(ast.parse(path.read_text()).body):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            found += [f"{name_of(path)}:{node.lineno} {node.name}: {lines}"] * (lines > MAX_FUNCTION_LINES)
    assert found == []


def test_functions_are_found_wherever_they_stand() -> None:
    text = "class A:\n if x:\n  def a(): pass\n else:\n  try: pass\n  except E:\n   async def b():\n    def c(): pass\n"
    assert [one.name for one in functions_in(ast.parse(text).body)] == ["a", "b", "c"]


def test_what_is_public_has_a_docstring() -> None:
    without = []
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        without += [name_of(path)] * (not ast.get_docstring(tree))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                without += [f"{name_of(path)}:{node.lineno} {node.name}"] * (not ast.get_docstring(node))
    assert without == []


@pytest.mark.parametrize("path", sorted((ROOT / "store").glob("*/__init__.py")), ids=name_of)
def test_map_of_a_package_has_its_modules_and_no_others(path: Path) -> None:
    """The map: lines of the docstring that are indented, a heading and then names of modules. A module may also be in
    the text before them, where that says where to begin, as in `lane`."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    there = {one.stem for one in path.parent.glob("*.py") if not one.stem.startswith("__")}
    assert set(mapped_in(text)) - there == set()
    assert there - {*mapped_in(text), *re.findall(r"`(\w+)`", text)} == set()


def mapped_in(text: str) -> list[str]:
    return [name for line in text.splitlines() if line.startswith("    ") for name in line[MAP_AT:].split(", ")]
