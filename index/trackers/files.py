"""The files of one tracker: the few operations that it needs, so that tests can put others in their place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

WRITABLE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
READABLE = os.O_RDONLY | os.O_CLOEXEC


class Files(Protocol):
    """Files in one folder, by name. A file is written once from its begin to its end, forced, and then only read.

    Nothing is durable before `force` for bytes, and `force_folder` for names.
    """

    def names(self) -> list[str]:
        """Of all files that are there."""

    def append(self, name: str, data: bytes | memoryview) -> None:
        """Write behind what was written to the file, which the first call makes. It must not be there before."""

    def flush(self, name: str) -> None:
        """The bytes that were written to the file so far are durable; more may follow."""

    def force(self, name: str) -> None:
        """The bytes of a file that was written are durable. Nothing more is appended to it."""

    def force_folder(self) -> None:
        """The names are durable as they are now."""

    def rename(self, name: str, to: str) -> None:
        """In one step; a file of the new name is replaced."""

    def remove(self, name: str) -> None:
        """No error if it is not there."""

    def read(self, name: str, at: int, size: int) -> bytes:
        """So many bytes, or as many as there are. Raises FileNotFoundError."""

    def size(self, name: str) -> int:
        """In bytes. Raises FileNotFoundError."""

    def close(self) -> None:
        """Let go of what is open."""


class FolderFiles:
    """The files of a real folder, which is made if it is not there. Descriptors stay open: one a file that is read."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._readers: dict[str, int] = {}
        self._writers: dict[str, int] = {}
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True)
            _force(self._folder.parent)

    def names(self) -> list[str]:
        """Of all files that are there."""
        return sorted(path.name for path in self._folder.iterdir() if path.is_file())

    def append(self, name: str, data: bytes | memoryview) -> None:
        """Write behind what was written."""
        writer = self._writers.get(name)
        if writer is None:
            writer = self._writers[name] = os.open(self._folder / name, WRITABLE, 0o666)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(writer, rest) :]

    def flush(self, name: str) -> None:
        """What is there is durable."""
        os.fdatasync(self._writers[name])

    def force(self, name: str) -> None:
        """The file is durable, or an error is raised; it is not written to any more in either case."""
        writer = self._writers.pop(name)
        try:
            os.fdatasync(writer)
        finally:
            os.close(writer)

    def force_folder(self) -> None:
        """The names are durable."""
        _force(self._folder)

    def rename(self, name: str, to: str) -> None:
        """In one step."""
        self._forget(to)
        os.replace(self._folder / name, self._folder / to)

    def remove(self, name: str) -> None:
        """No error if it is not there."""
        self._forget(name)
        (self._folder / name).unlink(missing_ok=True)

    def read(self, name: str, at: int, size: int) -> bytes:
        """So many bytes, or as many as there are."""
        reader = self._readers.get(name)
        if reader is None:
            reader = self._readers[name] = os.open(self._folder / name, READABLE)
        data = os.pread(reader, size, at)
        while len(data) < size and (more := os.pread(reader, size - len(data), at + len(data))):
            data += more
        return data

    def size(self, name: str) -> int:
        """In bytes."""
        return (self._folder / name).stat().st_size

    def _forget(self, name: str) -> None:
        for known in (self._readers, self._writers):
            if (descriptor := known.pop(name, None)) is not None:
                os.close(descriptor)

    def close(self) -> None:
        """Close all descriptors."""
        for name in [*self._readers, *self._writers]:
            self._forget(name)


def _force(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
