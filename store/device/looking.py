"""A disk that keeps nothing: a store is recovered on it in memory, and its files stay as they are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .disk import ReadingDisk
from .log_file import Buffer
from .os_file import OsFile
from .shared_memory import SharedMemory


class _LookingFile(OsFile):
    """A file to look at: what is written to it goes nowhere."""

    def write(self, parts: Sequence[Buffer], position: int, *, force: bool = False) -> None:
        pass

    def force(self) -> None:
        pass

    def truncate(self, size: int) -> None:
        pass

    def reserve(self, size: int) -> bool:
        return True

    def begin_write_back(self, position: int, size: int) -> bool:
        return False


class LookingDisk(ReadingDisk):
    """A disk to look at: nothing of it changes."""

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        there = path if not create or path.exists() else Path(os.devnull)
        return _LookingFile(there, create=False, direct=False, write=False)

    def make_folder(self, folder: Path) -> None:
        pass

    def rename(self, old: Path, new: Path) -> None:
        pass

    def link(self, old: Path, new: Path) -> None:
        pass

    def remove(self, path: Path) -> None:
        pass

    def remove_folder(self, folder: Path) -> None:
        pass

    def force_folder(self, folder: Path) -> None:
        pass

    def make_shared(self, name: str, size_bytes: int) -> SharedMemory | None:
        return None  # nobody follows what is not there
