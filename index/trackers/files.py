"""The files of one tracker: the few operations that it needs, so that tests can replace them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from ...portable import force, force_names

WRITABLE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
READABLE = os.O_RDONLY | os.O_CLOEXEC


class Files(Protocol):
    """Files in one folder, by name. A file is written once from start to end, forced, and then only read.

    Nothing is durable before `force` for bytes, and `force_folder` for names.
    """

    def names(self) -> list[str]:
        """The names of all files."""

    def append(self, name: str, data: bytes | memoryview) -> None:
        """Append to a file, which the first call makes. It must not exist before that."""

    def flush(self, name: str) -> None:
        """Make the bytes of the file so far durable; more may follow."""

    def force(self, name: str) -> None:
        """Make the bytes of a file durable. Nothing more is appended to it."""

    def force_folder(self) -> None:
        """Make the current names durable."""

    def rename(self, name: str, to: str) -> None:
        """Rename a file in one step; a file of the new name is replaced."""

    def remove(self, name: str) -> None:
        """Remove a file. No error if it does not exist."""

    def read(self, name: str, at: int, size: int) -> bytes:
        """`size` bytes from `at` on, or fewer at the file's end. Raises FileNotFoundError."""

    def size(self, name: str) -> int:
        """The size in bytes. Raises FileNotFoundError."""

    def close(self) -> None:
        """Close the files that are open."""


class FolderFiles:
    """The files of a real folder, which is made if it does not exist. A descriptor for each read file stays open."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._readers: dict[str, int] = {}
        self._writers: dict[str, int] = {}
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True)
            _force(self._folder.parent)

    def names(self) -> list[str]:
        """The names of all files."""
        return sorted(path.name for path in self._folder.iterdir() if path.is_file())

    def append(self, name: str, data: bytes | memoryview) -> None:
        """Append to a file."""
        writer = self._writers.get(name)
        if writer is None:
            writer = self._writers[name] = os.open(self._folder / name, WRITABLE, 0o666)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(writer, rest) :]

    def flush(self, name: str) -> None:
        """Make the bytes so far durable."""
        force(self._writers[name])

    def force(self, name: str) -> None:
        """Make the file durable, or raise; in either case it is not written to any more."""
        writer = self._writers.pop(name)
        try:
            force(writer)
        finally:
            os.close(writer)

    def force_folder(self) -> None:
        """Make the names durable."""
        _force(self._folder)

    def rename(self, name: str, to: str) -> None:
        """Rename a file in one step."""
        self._forget(to)
        os.replace(self._folder / name, self._folder / to)

    def remove(self, name: str) -> None:
        """Remove a file. No error if it does not exist."""
        self._forget(name)
        (self._folder / name).unlink(missing_ok=True)

    def read(self, name: str, at: int, size: int) -> bytes:
        """`size` bytes, or fewer at the file's end."""
        reader = self._readers.get(name)
        if reader is None:
            reader = self._readers[name] = os.open(self._folder / name, READABLE)
        data = os.pread(reader, size, at)
        while len(data) < size and (more := os.pread(reader, size - len(data), at + len(data))):
            data += more
        return data

    def size(self, name: str) -> int:
        """The size in bytes."""
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
        force_names(descriptor)
    finally:
        os.close(descriptor)
