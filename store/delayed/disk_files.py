"""The files of an index, on the store's disk: what `index` asks of files, by the store's own way to the device."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ..device.disk import Disk
from ..device.log_file import LogFile


class DiskFiles:
    """The files of one folder, which is made durably if it is not there. A file is opened for each read of it.

    It is a `Files` of `index.trackers`; what each call promises is said there.
    """

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder
        self._writers: dict[str, tuple[LogFile, int]] = {}  # and where they end
        disk.make_folder(folder)

    def names(self) -> list[str]:
        """Of all files that are there."""
        return self._disk.list(self._folder)

    def append(self, name: str, data: bytes | memoryview) -> None:
        """Write behind what was written to the file, which the first call makes."""
        known = self._writers.get(name)
        file, end = known or (self._disk.open(self._folder / name, create=True), 0)
        self._writers[name] = file, end
        file.write([data], end)
        self._writers[name] = file, end + len(data)

    def flush(self, name: str) -> None:
        """What was written so far is durable."""
        self._writers[name][0].force()

    def force(self, name: str) -> None:
        """The file is durable, and is not written to any more."""
        file, _ = self._writers.pop(name)
        try:
            file.force()
        finally:
            file.close()

    def force_folder(self) -> None:
        """The names are durable."""
        self._disk.force_folder(self._folder)

    def rename(self, name: str, to: str) -> None:
        """In one step; a file of the new name is replaced."""
        self._disk.rename(self._folder / name, self._folder / to)

    def remove(self, name: str) -> None:
        """No error if it is not there."""
        self._let_go(name)
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove(self._folder / name)

    def read(self, name: str, at: int, size: int) -> bytes:
        """So many bytes, or as many as there are."""
        file = self._disk.open(self._folder / name)
        try:
            return file.read(at, size)
        finally:
            file.close()

    def size(self, name: str) -> int:
        """In bytes."""
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
        """Let go of what is open."""
        for name in list(self._writers):
            self._let_go(name)

    def clear(self) -> None:
        """Remove all files; the folder stays."""
        self.close()
        for name in self.names():
            self.remove(name)
        self.force_folder()
