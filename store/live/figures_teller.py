"""The writer's side of FIGURES: figures for programs that watch the store, while there are any."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from ..device.disk import Disk
from ..device.folder import STORE_FILE
from ..device.log_file import LogFile
from ..format.figures_page import FIGURES_BYTES, FIGURES_FILE, MOST_BODY_BYTES, FiguresPage

EVERY_S = 1.0


class FiguresTeller:
    """Tells the figures, once a second at most. The store's upkeep calls `look`, from one thread at a time.

    Invariants:
        * without a watcher it makes no file, and asks for no figures: a look asks the kernel, no more;
        * the page is written and never mapped: whatever another program does to the file, the writer goes on;
        * the page is replaced as a whole, and has a checksum: a watcher that meets half of one reads it again;
        * no append and no other work of the upkeep fails because of it: where there is no room for the page there is
          none, and the next look tries again.
    """

    def __init__(self, disk: Disk, folder: Path, figures: Callable[[], dict[str, Any] | None]) -> None:
        """`figures` is None if there is nothing to tell any more."""
        self._disk = disk
        self._folder = folder
        self._path = folder / FIGURES_FILE
        self._figures = figures
        self._page: LogFile | None = None
        self._told_at = float("-inf")
        self._serial = int.from_bytes(os.urandom(4), "little")  # not that of the writer before, whose page may be left

    def look(self) -> None:
        """Tell the figures, if somebody watches and it is time."""
        if monotonic() - self._told_at < EVERY_S or not self._is_watched():
            return
        self._told_at = monotonic()
        figures = self._figures()
        if figures is None:
            return
        with suppress(OSError):  # no room: see the invariants
            if self._page is None or not self._page.is_in_place():
                self._let_go()
                self._page = self._made()
            self._serial += 1
            self._page.write([FiguresPage(self._serial, body_of(figures)).pack()], 0)

    def _is_watched(self) -> bool:
        with suppress(OSError):  # it cannot be asked now, as without free descriptors: nothing is told
            file = self._disk.open_to_read(self._folder / STORE_FILE)
            try:
                return file.is_shared()
            finally:
                file.close()
        return False

    def _let_go(self) -> None:
        page, self._page = self._page, None
        if page is not None:
            page.close()

    def _made(self) -> LogFile:
        """A new page. Raises OSError."""
        fresh = self._path.with_name(FIGURES_FILE + ".new")
        file = self._disk.open(fresh, create=True)
        try:
            file.truncate(0)
            file.write([bytes(FIGURES_BYTES)], 0)  # all of it: later writings need no space
        finally:
            file.close()
        self._disk.rename(fresh, self._path)
        return self._disk.open(self._path)

    def close(self) -> None:
        """Remove the page: the store is closed. It may be called again."""
        if self._page is not None:
            self._let_go()
            with suppress(OSError):  # it is gone, or stays: the next watcher sees that it does not change
                self._disk.remove(self._path)


def body_of(figures: dict[str, Any]) -> bytes:
    """The figures as JSON. If they are too large, the lists of names are halved until there is room."""
    named = {name: figures["named"][name] for name in ("topics", "subscriptions")}  # 100 rows each at the most
    delayed = list(figures["delayed"].items())
    while True:
        told = {**figures, "named": {**figures["named"], **named}, "delayed": dict(delayed)}
        body = json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
        if len(body) <= MOST_BODY_BYTES or not (any(named.values()) or delayed):
            return body[:MOST_BODY_BYTES]  # without any name there is room: the other figures are a few KiB
        named = {name: rows[: len(rows) // 2] for name, rows in named.items()}
        del delayed[len(delayed) // 2 :]
