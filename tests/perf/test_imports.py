"""What imports what: the measurements use the public names of the store, and the store knows nothing of them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A package of perf -> those that it may import.
BELOW = {
    "machine": set[str](),
    "workload": {"machine"},
    "references": {"machine", "workload"},
    "report": {"machine"},
    "experiments": {"machine", "workload", "references", "report"},
    "commands": {"machine", "workload", "references", "report", "experiments"},
}


def imported(path: Path, source: str) -> set[str]:
    """The modules that a file imports, by their full names."""
    found, package = set[str](), path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            found |= {module} if node.module else {f"{module}.{alias.name}" for alias in node.names}
    return found


def wrong(path: Path, source: str) -> list[str]:
    """The imports of a file that break a rule."""
    top, *rest = path.relative_to(ROOT).parts
    found = []
    for module in sorted(imported(path, source)):
        first, *inner = module.split(".")
        if top in ("store", "cache") and first in ("perf", "console"):
            found.append(module)
        if top in ("perf", "console") and first in ("store", "cache") and inner:
            found.append(module)
        if top == "perf" and first == "console":
            found.append(module)
        if top == "perf" and first == "perf" and len(rest) > 1 and inner[0] not in {rest[0], *BELOW[rest[0]]}:
            found.append(module)
    return found


@pytest.mark.parametrize("top", ["store", "cache", "perf", "console"])
def test_imports_go_one_way(top: str) -> None:
    for path in sorted((ROOT / top).rglob("*.py")):
        assert wrong(path, path.read_text()) == [], path


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("store/x.py", "import perf.machine"), ("cache/x.py", "from console import app"),
        ("perf/workload/x.py", "from stratalog.store.device.disk import OsDisk"), ("perf/workload/x.py", "from ..report import figures"),
        ("perf/report/x.py", "from ..workload.contest import Sizes"), ("perf/machine/x.py", "from .. import report"),
        ("perf/experiments/x.py", "from console.app import app"), ("console/x.py", "import store.verify"),
    ],
)  # fmt: skip
def test_wrong_import_is_seen(path: str, source: str) -> None:
    assert wrong(ROOT / path, source) != []
