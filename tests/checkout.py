"""A copy of the sources in which a test may change the code under test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHANGING = "STRATALOG_SOURCES_CHANGE"  # set for tests in a copy whose sources change: nothing compiled is kept
ROOT = Path(__file__).resolve().parents[1]
PARTS = ("store", "cache", "index", "pipeline", "endpoint", "perf")
FOLDERS = ("stratalog", *PARTS, "tests", "docs", "examples")
COPIED = (*FOLDERS, "pytest_stratalog.py", "pyproject.toml", "README.md", "LICENSE")


def copy_checkout(to: Path) -> Path:
    """The sources as they are now: what is edited while a run goes on does not change them."""
    skip = shutil.ignore_patterns("__pycache__", "*.pyc")
    to.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=skip, symlinks=True)
        elif source.exists():
            shutil.copy(source, to / name)
    return to


@contextmanager
def copy_of_the_checkout(to: Path) -> Iterator[Path]:
    """The same for a while."""
    try:
        yield copy_checkout(to)
    finally:
        shutil.rmtree(to, ignore_errors=True)
