"""Whether a plain opening would refuse a lane: recovery itself is asked, on a disk that keeps nothing.

So verify and inspect cannot miss what an opening finds, whatever rules they have of their own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..device.disk import Buffer, OsFile, ReadingDisk
from ..errors import StoreCorrupt
from ..recovery.lane_recovery import LaneRecovery
from .report import Damage


class _LookingFile(OsFile):
    """A file to look at: what is written to it goes nowhere."""

    def write(self, parts: Sequence[Buffer], position: int, *, force: bool = False) -> None:
        pass

    def force(self) -> None:
        pass

    def truncate(self, size: int) -> None:
        pass


class _LookingDisk(ReadingDisk):
    """A disk to look at: nothing of it changes."""

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        there = path if not create or path.exists() else Path(os.devnull)
        return _LookingFile(there, create=False, direct=False, write=False)

    def rename(self, old: Path, new: Path) -> None:
        pass

    def remove(self, path: Path) -> None:
        pass

    def force_folder(self, folder: Path) -> None:
        pass


def refusal(folder: Path, lane: int, store_id: bytes) -> Damage | None:
    """What a plain opening would say of a lane, in this folder, that it refuses; None if it takes it.

    Raises OSError.
    """
    recovery = LaneRecovery(_LookingDisk(), folder, lane, store_id, folder, repair=False, direct=False)
    try:
        found = recovery.run()
    except StoreCorrupt as error:
        return Damage(error.what, error.file, error.position)
    for sealed in found.sealed:
        sealed.close()
    if found.resumable is not None:
        found.resumable[0].segment.close()
    return None
