"""Folders of a run: made below the current directory, and removed at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class TooLittleSpace(Exception):
    """A run would fill the disk, so it was not started."""


class NoFolder(ValueError):
    """A folder that was named does not exist. It is not made: a mistyped name would be measured, or filled."""


def there(folder: Path) -> Path:
    """The folder, which exists. Raises NoFolder."""
    if folder.exists() and not folder.is_dir():
        raise NoFolder(f"{folder} is a file and no folder; nothing was made or measured. Give a folder")
    if not folder.is_dir():
        raise NoFolder(f"there is no folder {folder}; nothing was made or measured. Make it, or give another one")
    return folder


def human_bytes(size_bytes: float) -> str:
    """ "1.50 GiB", "12.0 KiB"."""
    for unit in ("B", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{size_bytes:,.0f} {unit}" if unit == "B" else f"{size_bytes:,.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:,.2f} GiB"


def check_space(folder: Path, need_bytes: float) -> None:
    """Raises TooLittleSpace if the folder's file system has less than that free."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < need_bytes:
        raise TooLittleSpace(
            f"{folder} has {human_bytes(free_bytes)} free, and the run needs about {human_bytes(need_bytes)}; "
            f"make the run smaller, or give another folder"
        )


@contextmanager
def run_folder(where: Path | None, need_bytes: float = 0) -> Iterator[Path]:
    """A fresh folder below `where`, removed after. The default is the current directory, since /tmp is often memory.

    Before anything is made it raises NoFolder if there is no folder `where`, and TooLittleSpace if `need_bytes` are
    not free.
    """
    base = there(where if where is not None else Path.cwd())
    check_space(base, need_bytes)
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
    """The bytes of the folder's files on the device (blocks, not lengths)."""
    return sum(path.stat().st_blocks * 512 for path in files_of(folder))


def drop_page_cache(folder: Path) -> None:
    """Force the folder's files and take their pages out of the page cache."""
    for path in files_of(folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
