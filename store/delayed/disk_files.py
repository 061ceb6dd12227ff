"""The files of an index on the store's device, as `index` calls them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ..device.disk import Disk
from ..device.log_file import LogFile


class DiskFiles:
    """The files of one folder. Makes the folder durably if it does not exist; opens a file for each read of it.

    It implements `Files` of `index.trackers`, which has the contract of each call.
    """

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder
        self._writers: dict[str, tuple[LogFile, int]] = {}  # by name, with the end of the file
        disk.make_folder(folder)

    def names(self) -> list[str]:
        """The names of all files."""
        return self._disk.list(self._folder)

    def append(self, name: str, data: bytes | memoryview) -> None:
        """Append to a file, which the first call makes."""
        known = self._writers.get(name)
        file, end = known or (self._disk.open(self._folder / name, create=True), 0)
        self._writers[name] = file, end
        file.write([data], end)
        self._writers[name] = file, end + len(data)

    def flush(self, name: str) -> None:
        """Make the bytes written so far durable."""
        self._writers[name][0].force()

    def force(self, name: str) -> None:
        """Make a file durable. It is not written to after that."""
        file, _ = self._writers.pop(name)
        try:
            file.force()
        finally:
            file.close()

    def force_folder(self) -> None:
        """Make the names durable."""
        self._disk.force_folder(self._folder)

    def rename(self, name: str, to: str) -> None:
        """Rename a file in one step; a file of the new name is replaced."""
        self._disk.rename(self._folder / name, self._folder / to)

    def remove(self, name: str) -> None:
        """Remove a file. No error if it does not exist."""
        self._let_go(name)
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove(self._folder / name)

    def read(self, name: str, at: int, size: int) -> bytes:
        """`size` bytes from `at` on, or fewer at the file's end."""
        file = self._disk.open(self._folder / name)
        try:
            return file.read(at, size)
        finally:
            file.close()

    def size(self, name: str) -> int:
        """The size in bytes."""
        file = self._disk.open(self._folder / name)
        try:
            return file.size()
        finally:
            file.close()

    def _let_go(self, name: str) -> None:
        known = self._writers.pop(name, None)
        if known is not None:
            known[0].close()

    def close(self) -> None:
        """Close the files that are open."""
        for name in list(self._writers):
            self._let_go(name)

    def clear(self) -> None:
        """Remove all files; the folder stays."""
        self.close()
        for name in self.names():
            self.remove(name)
        self.force_folder()
