"""Progress on a terminal that costs the measured threads next to nothing.

One thread looks at their counters five times a second, or a line is written between two parts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from . import figures

INTERVAL_S = 0.2
NOWHERE = Console(force_terminal=False, quiet=True)  # for a run inside a run, which shows nothing
LINE_LETTERS = 40  # so that a shorter line hides the one before


class Count(NamedTuple):
    """The progress that a bar shows: `done()` of `total`; without a total, only that work goes on."""

    label: str
    total: int | None = None
    done: Callable[[], int] = lambda: 0


@contextmanager
def watched(console: Console, *counts: Count) -> Iterator[None]:
    """Show one bar for each count while the body runs; nothing without a terminal."""
    if not console.is_terminal:
        yield
        return
    numbers = [MofNCompleteColumn()] if all(count.total is not None for count in counts) else []
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *numbers, TimeElapsedColumn())
    # auto_refresh off: the bars are drawn by the thread below and by no other.
    with Progress(*columns, console=console, auto_refresh=False) as bars:
        tasks = [bars.add_task(count.label, total=count.total) for count in counts]
        ended = threading.Event()

        def draw() -> None:
            for task, count in zip(tasks, counts, strict=True):
                if count.total is not None:
                    bars.update(task, completed=count.done())
            bars.refresh()

        def watch() -> None:
            while not ended.wait(INTERVAL_S):
                draw()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            for task, count in zip(tasks, counts, strict=True):
                if count.total is None:
                    bars.update(task, total=1, completed=1)
            draw()


class Run:
    """One call of a command: says "NAME: part N of M" on a terminal, and counts the messages that were compared.

    Attributes:
        checked_messages: how many were compared.
        counted_messages: how many were counted, and not compared.
    """

    def __init__(self, name: str, console: Console | None = None) -> None:
        self.name = name
        self.console = figures.messages_console() if console is None else console
        self.checked_messages = self.counted_messages = 0
        self._done = self._total = 0

    def stage(self, label: str) -> AbstractContextManager[None]:
        """Say that this goes on, and for how long, while the body runs."""
        return watched(self.console, Count(f"{self.name}: {label}"))

    def expect(self, parts: int) -> None:
        """So many more parts come."""
        self._total += parts
        self._say()

    def one_done(self) -> None:
        """Count one part as done; the next one begins."""
        self._done += 1
        self._say()

    def checked(self, messages: int) -> None:
        """Note that so many messages were compared with the written ones, and were equal."""
        self.checked_messages += messages

    def counted(self, messages: int) -> None:
        """Note that as many messages came as were written. Their bytes were not looked at."""
        self.counted_messages += messages

    def verdict(self) -> str:
        """What was compared, and what was only counted, in words."""
        compared = f"{figures.counted(self.checked_messages, 'message')} read and compared with what was written"
        compared += ": no difference"
        if not self.counted_messages:
            return compared
        only = f"{figures.counted(self.counted_messages, 'message')} counted, and not compared: none is missing"
        return f"{compared}; {only}" if self.checked_messages else only

    def _say(self) -> None:
        if self.console.is_terminal:
            over = self._done >= self._total
            line = f"{self.name}: part {min(self._done + 1, self._total)} of {self._total}{' done' if over else ''}"
            self.console.print(line.ljust(LINE_LETTERS), end="\n" if over else "\r", highlight=False)
