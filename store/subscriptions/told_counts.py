"""COUNTS: what retention has removed and what has expired, by subscription, for readers in other processes.

A small file of JSON beside the log, of the subscriptions that have lost something. The writer replaces it at most twice
a second, and only after counts have changed; one that opens the store removes it. Nothing depends on it: it is not
forced, and a file that cannot be read says nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..device.disk import Disk
from .life_counts import LifeCounts

COUNTS_FILE: Final = "COUNTS"
MOST_BYTES = 64 << 20  # of a file that is read

Counts = Mapping[tuple[str, str, int], tuple[int, int]]  # by topic, name and life: removed, expired


class ToldCounts:
    """Writes the file. Any number of threads may use it."""

    def __init__(self, disk: Disk, folder: Path, removed: LifeCounts, expired: LifeCounts) -> None:
        """A file that an earlier writer has left is removed; until then, or if it cannot be, it may be read."""
        self._disk = disk
        self._path = folder / COUNTS_FILE
        self._removed = removed
        self._expired = expired
        self._told = 0, 0
        self._telling = threading.Lock()  # the background, and a close
        with suppress(OSError):
            if COUNTS_FILE in disk.list(folder):
                disk.remove(self._path)

    def tell(self) -> None:
        """Write the counts if they have changed. Raises OSError: then the next call tries again."""
        with self._telling:
            now = self._removed.total, self._expired.total
            if now != self._told:
                self._write()
                self._told = now

    def _write(self) -> None:
        removed, expired = self._removed.all(), self._expired.all()
        rows = [[*key, removed.get(key, 0), expired.get(key, 0)] for key in sorted(removed.keys() | expired.keys())]
        fresh = self._path.with_name(COUNTS_FILE + ".new")
        file = self._disk.open(fresh, create=True)
        try:
            file.truncate(0)
            file.write([json.dumps(rows).encode()], 0)
        finally:
            file.close()
        self._disk.rename(fresh, self._path)


def read_counts(disk: Disk, folder: Path) -> Counts:
    """What the newest writer has told; nothing if it has told nothing, or a crash has damaged the file."""
    found: dict[tuple[str, str, int], tuple[int, int]] = {}
    with suppress(OSError, ValueError, TypeError, RecursionError):
        if COUNTS_FILE not in disk.list(folder):
            return found
        file = disk.open_to_read(folder / COUNTS_FILE)
        try:
            rows = json.loads(file.read(0, min(file.size(), MOST_BYTES)))
        finally:
            file.close()
        for topic, name, life, removed, expired in rows:
            found[str(topic), str(name), int(life)] = int(removed), int(expired)
    return found
