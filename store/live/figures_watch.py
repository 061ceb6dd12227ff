"""A watcher's side of FIGURES: the figures of a store that another process has open."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..device.descriptor import Descriptor, open_descriptor
from ..device.disk import ReadingDisk
from ..device.folder import LOCK_FILE, STORE_FILE, check_store_folder, fixed_path, noted_holder
from ..errors import StoreUnusable
from ..format.figures_page import FIGURES_BYTES, FIGURES_FILE, FiguresPage

LOOK_S = 0.05
GONE_S = 1.2  # without news: then the watcher looks whether the store's process is there
PATIENCE_S = 4.0  # a writer looks twice a second and tells once


class FolderWatch:
    """The figures of a store as its writer tells them, about once a second. One thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._serial = _serial_of(_page_in(folder))

    def next(self, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """The next figures that the writer tells: those of `stats()`, and others, see docs/reference/metrics.md.

        Raises StoreUnusable: nobody has the store open (any more), or its process has told nothing in `patience_s`.
        """
        until, look_at = time.monotonic() + patience_s, time.monotonic() + GONE_S
        while True:
            page = _page_in(self._folder)
            if page is not None and page.serial != self._serial:
                self._serial = page.serial
                with suppress(ValueError):  # it is no JSON: the next page may be some
                    figures = json.loads(page.body)
                    if isinstance(figures, dict):
                        return figures
            if time.monotonic() >= min(look_at, until):
                look_at = time.monotonic() + GONE_S
                holder = writer_of(self._folder)
                if holder is None:
                    raise _nobody(self._folder)
                if time.monotonic() >= until:
                    _check_readable(self._folder / FIGURES_FILE)
                    raise StoreUnusable(
                        f"{self._folder} is open in process {holder}, which has told no figures for {patience_s:.1f} "
                        f"s: it hangs, it finds no room for its page, it compacts or rebuilds the store, or it is of "
                        f"an earlier version"
                    )
            time.sleep(LOOK_S)


@contextmanager
def watch_folder(path: str | Path) -> Iterator[FolderWatch]:
    """Watch a store that another process has open, as a context manager. It changes no file.

    As long as the context lasts, that process tells its figures once a second; each call of `next` waits for the next
    ones.

    Raises StoreUnusable: the folder is not a store, or nobody has it open.
    """
    folder = fixed_path(path)
    check_store_folder(ReadingDisk(), folder)
    if writer_of(folder) is None:
        raise _nobody(folder)
    try:
        owner = open_descriptor(folder / STORE_FILE, os.O_RDONLY)
    except OSError as error:
        raise _unreadable(folder / STORE_FILE, error) from error
    try:
        watch = FolderWatch(folder)
        try:
            fcntl.flock(owner.fileno(), fcntl.LOCK_SH)  # the writer holds it for an instant when it looks
        except OSError as error:
            raise StoreUnusable(f"{folder} cannot be watched: {error.strerror or error}") from error
        yield watch
    finally:
        owner.close()


def writer_of(folder: Path) -> str | None:
    """The number of the process that has a store open, "unknown" if it is not noted; None if there is none.

    Raises StoreUnusable: that cannot be found out.
    """
    try:
        owner: Descriptor = open_descriptor(folder / LOCK_FILE, os.O_RDONLY)
    except FileNotFoundError:
        return None  # a process that opens the store makes this file
    except OSError as error:
        raise _unreadable(folder / LOCK_FILE, error) from error
    try:
        fcntl.flock(owner.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return noted_holder(owner.fileno())
    else:
        return None
    finally:
        owner.close()  # and the lock with it


def _nobody(folder: Path) -> StoreUnusable:
    return StoreUnusable(
        f"nobody has the store {folder} open: its figures are those of the process that writes it. `stratalog inspect` "
        f"shows a closed one"
    )


def _unreadable(file: Path, error: OSError) -> StoreUnusable:
    return StoreUnusable(f"{file} cannot be read: {error.strerror or error}")


def _check_readable(file: Path) -> None:
    """Raises StoreUnusable if the file is there and cannot be read."""
    try:
        open_descriptor(file, os.O_RDONLY).close()
    except FileNotFoundError:
        pass  # it has not been made yet
    except OSError as error:
        raise _unreadable(file, error) from error


def _page_in(folder: Path) -> FiguresPage | None:
    with suppress(OSError):  # there is no page yet, or none any more
        return FiguresPage.unpack((folder / FIGURES_FILE).read_bytes()[:FIGURES_BYTES])
    return None


def _serial_of(page: FiguresPage | None) -> int | None:
    return None if page is None else page.serial
