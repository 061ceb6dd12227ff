"""A progress bar that costs the measured threads nothing: one thread looks at their counters five times a
second."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

INTERVAL_S = 0.2


@contextmanager
def watched(console: Console, label: str, total: int, done: Callable[[], int]) -> Iterator[None]:
    """Shows `done()` of `total` while the body runs; nothing at all without a terminal."""
    if not console.is_terminal:
        yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # auto_refresh off: the bar is drawn by the thread below and by no other.
    with Progress(*columns, console=console, auto_refresh=False) as bar:
        task = bar.add_task(label, total=total)
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(INTERVAL_S):
                bar.update(task, completed=done(), refresh=True)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            bar.update(task, completed=done(), refresh=True)
