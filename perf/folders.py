"""Folders for a run: made beside the current directory, emptied of page cache, and removed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def run_folder(where: Path | None) -> Iterator[Path]:
    """A fresh folder below `where` (default: the current directory, since /tmp is often memory); removed
    after."""
    base = where if where is not None else Path.cwd()
    base.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="stratalog-perf-", dir=base))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def sub_folder(base: Path, name: str) -> Iterator[Path]:
    """`base/name`, empty at first, removed after."""
    made = base / name
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def files_of(folder: Path) -> list[Path]:
    """All files below the folder, by name."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def bytes_of(folder: Path) -> int:
    """Bytes that the folder's files occupy on the device (blocks, not lengths)."""
    return sum(path.stat().st_blocks * 512 for path in files_of(folder))


def drop_page_cache(folder: Path) -> None:
    """Forces the folder's files and takes their pages out of the page cache."""
    for path in files_of(folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
