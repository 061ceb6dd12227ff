"""The lock of the folder `incoming`: one process at a time commits, or sweeps leftovers."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..device.descriptor import open_descriptor
from ..device.disk import Disk
from ..format.shard import INCOMING

LOCK = "LOCK"


@contextmanager
def committing(disk: Disk, store: Path, *, waits: bool = True) -> Iterator[None]:
    """Hold the lock. The system releases it if the process dies.

    Raises OSError; BlockingIOError if another process has it and `waits` is False.
    """
    folder = store / INCOMING
    disk.make_folder(folder)
    owner = open_descriptor(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(owner.fileno(), fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        disk.force_folder(folder)  # a committer may have died before it forced the folder
        yield
    finally:
        owner.close()
