"""A column of numbers that stays in its file."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import StoreCorrupt
from .layout import checksum64

CHUNK_BYTES = 16384  # has a checksum: of one number no more is read and compared
FEW_OF = 64  # to read a number by itself costs as much as so many of a column that is read whole


class Source(Protocol):
    """The source of a footer: a file, or a segment that opens its file when it is wanted."""

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end. Raises OSError."""

    def size(self) -> int:
        """Length in bytes."""


class CheckedSource:
    """A part of a footer that stays where it is; each read compares the checksums of the chunks that it touches."""

    def __init__(self, source: Source, path: str, position: int, size_bytes: int, sums: bytes) -> None:
        self._source, self._path, self._size = source, path, size_bytes
        self.position = position
        self._sums = memoryview(sums).cast("Q")

    @property
    def end(self) -> int:
        """The position after its last byte."""
        return self.position + self._size

    def size(self) -> int:
        """The end of the source, for callers that read by positions in it."""
        return self.end

    def read(self, position: int, size: int) -> bytes:
        """Some bytes. Raises StoreCorrupt if they are not those that were written, OSError."""
        low = (position - self.position) // CHUNK_BYTES
        begin = low * CHUNK_BYTES
        end = min(-(-(position + size - self.position) // CHUNK_BYTES) * CHUNK_BYTES, self._size)
        data = self._source.read(self.position + begin, end - begin)
        for number, at in enumerate(range(0, end - begin, CHUNK_BYTES), low):
            if checksum64(data[at : at + CHUNK_BYTES]) != self._sums[number]:
                raise StoreCorrupt("the footer is damaged", self._path, self.position + begin + at)
        return data[position - self.position - begin :][:size]


class StoredColumn:
    """A column that stays in the file: each look reads the numbers that it wants, and nothing is held.

    Raises OSError, and StoreCorrupt where the file has become shorter. Its source compares the checksums.
    """

    __slots__ = ("_code", "_count", "_path", "_position", "_size", "_source", "_type")

    def __init__(self, source: Source, path: str, position: int, kind: str, count: int) -> None:
        self._source, self._path, self._position, self._count = source, path, position, count
        self._type: np.dtype[Any] = np.dtype(kind)
        self._code: Any = self._type.char
        self._size = self._type.itemsize

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, key: Any) -> Any:
        """An integer, or the numbers of a slice (begin and end, none of them negative) as a view."""
        if isinstance(key, slice):
            begin, end = key.start, min(key.stop, self._count)
            return memoryview(self._read(begin, end)).cast(self._code) if end > begin else memoryview(b"")
        if not 0 <= key < self._count:
            raise IndexError(key)
        return memoryview(self._read(key, key + 1)).cast(self._code)[0]

    def _read(self, begin: int, end: int) -> bytes:
        size = self._size * (end - begin)
        data = self._source.read(self._position + self._size * begin, size)
        if len(data) != size:
            raise StoreCorrupt("the footer is cut short", self._path, self._position)
        return data

    def part(self, begin: int, end: int) -> npt.NDArray[Any]:
        """The numbers begin .. end - 1."""
        return np.frombuffer(self._read(begin, end), self._type) if end > begin else np.empty(0, self._type)

    def taken(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[Any]:
        """The numbers of some rows, read one by one where they are few."""
        if len(rows) * FEW_OF < self._count:
            return np.array([self[row] for row in rows.tolist()], self._type)
        return np.asarray(self.part(0, self._count)[rows])
