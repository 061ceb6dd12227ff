"""Calls of committers in other processes: a word of the live page by which they wake the writer's upkeep."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..device.background import Background, report
from ..device.disk import Disk
from ..device.mapped import Mapped
from ..format.live_page import CALLS_AT, LIVE_FILE, PAGE_BYTES

PATIENCE_S = 1.0  # of a sleep
NAP_S = 0.02  # where a sleep returns at once, for no reason


class WriterCalls:
    """The writer's side: a thread that sleeps until a committer calls.

    Invariants:
        * a call that comes after `start` has returned is answered: the word was read before;
        * nothing depends on it: without a page, or without a thread, upkeep looks twice a second in any case.
    """

    def __init__(self, disk: Disk, folder: Path, on_call: Callable[[], object]) -> None:
        self._disk = disk
        self._path = folder / LIVE_FILE
        self._on_call = on_call
        self._page: Mapped | None = None
        self._seen = 0
        self._closing = False
        self._thread: Background | None = None

    def start(self) -> None:
        """Listen from now on, if the store has a page. Raises NoThread."""
        with suppress(OSError):
            page = self._disk.map(self._path, PAGE_BYTES, CALLS_AT)
            self._seen = page.word(CALLS_AT)
            self._page = page
        if self._page is not None:
            self._thread = Background(self._run)
            self._thread.start()

    def _run(self) -> None:
        page = self._page
        assert page is not None
        while not self._closing:
            if page.word(CALLS_AT) == self._seen:
                page.sleep(self._seen, PATIENCE_S)
            found = page.word(CALLS_AT)
            if found == self._seen:
                if not self._closing:
                    time.sleep(NAP_S)  # also of a page on which nobody can sleep
                continue
            self._seen = found
            try:
                self._on_call()
            except Exception as error:
                report("upkeep could not be told of a commit", error)

    def close(self) -> None:
        """End the thread. It may be called again."""
        self._closing = True
        thread, page = self._thread, self._page
        if page is not None:
            if thread is not None:
                thread.join(page.wake)
            page.close()
            self._thread = self._page = None

    def after_fork(self) -> None:
        """In a child process: the thread is not here."""
        self._thread = self._page = None


def call(disk: Disk, store: Path) -> None:
    """Wake the upkeep of a store's writer, if there is one. `committing` is held: one process at a time does this."""
    with suppress(OSError, ValueError):
        page = disk.map(store / LIVE_FILE, PAGE_BYTES, CALLS_AT)
        page.set_word(CALLS_AT, page.word(CALLS_AT) + 1 & (1 << 64) - 1)
        page.wake()
        page.close()
