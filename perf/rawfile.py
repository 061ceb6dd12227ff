"""Files written and read past the page cache, without the engine: what the references stand on."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

BLOCK_BYTES = 4096
STEP_BYTES = 4 << 20
Preparation = Literal["prewritten", "fallocated", "growing"]


def round_up(size_bytes: int) -> int:
    """Bytes rounded up to whole 4 KiB blocks, at least one."""
    return max(BLOCK_BYTES, (size_bytes + BLOCK_BYTES - 1) // BLOCK_BYTES * BLOCK_BYTES)


def open_direct(path: Path, flags: int) -> tuple[int, bool]:
    """A descriptor with O_DIRECT, or without where the file system refuses it; and which of the two."""
    try:
        return os.open(path, flags | os.O_DIRECT, 0o644), True
    except OSError:
        return os.open(path, flags, 0o644), False


def incompressible(size_bytes: int) -> mmap.mmap:
    """A page-aligned buffer of random bytes, a whole number of blocks."""
    block = os.urandom(min(round_up(size_bytes), 1 << 20))
    buffer = mmap.mmap(-1, round_up(size_bytes))
    while buffer.tell() < len(buffer):
        buffer.write(block[: len(buffer) - buffer.tell()])
    return buffer


class RawFile:
    """A file that is overwritten in a circle with write + fdatasync; one thread at a time.

    `preparation`: "prewritten" (every block written once, R7), "fallocated" (reserved, never written) or
    "growing" (empty); the last two are made anew when the circle closes.
    """

    def __init__(self, path: Path, size_bytes: int, preparation: Preparation = "prewritten") -> None:
        self.size_bytes = round_up(size_bytes)
        self.path = path
        self.preparation = preparation
        self.descriptor, self.direct = open_direct(path, os.O_RDWR | os.O_CREAT)
        self._position = 0
        self._buffer = memoryview(incompressible(4 << 20))
        if preparation == "prewritten":
            zeros = mmap.mmap(-1, STEP_BYTES)
            for position in range(0, self.size_bytes, STEP_BYTES):
                step = min(STEP_BYTES, self.size_bytes - position)
                os.pwrite(self.descriptor, memoryview(zeros)[:step], position)
        elif preparation == "fallocated":
            os.posix_fallocate(self.descriptor, 0, self.size_bytes)
        os.fsync(self.descriptor)

    def write_forced(self, size_bytes: int) -> int:
        """Writes `size_bytes` (rounded up to blocks) at the next position and forces; bytes written."""
        size = min(round_up(size_bytes), len(self._buffer), self.size_bytes)
        if self._position + size > self.size_bytes:
            self._position = 0
            # What was written once is no longer new: these start again from nothing.
            if self.preparation != "prewritten":
                os.ftruncate(self.descriptor, 0)
            if self.preparation == "fallocated":
                os.posix_fallocate(self.descriptor, 0, self.size_bytes)
        os.pwrite(self.descriptor, self._buffer[:size], self._position)
        os.fdatasync(self.descriptor)
        self._position += size
        return size

    def close(self) -> None:
        """Closes and removes the file."""
        os.close(self.descriptor)
        self.path.unlink(missing_ok=True)


def read_sequential(paths: Iterable[Path], limit_bytes: int, direct: bool = True) -> int:
    """Reads the files one after another, 4 MiB at a time, until `limit_bytes` are read; the bytes read."""
    buffer = memoryview(mmap.mmap(-1, STEP_BYTES))
    total = 0
    for path in paths:
        descriptor = open_direct(path, os.O_RDONLY)[0] if direct else os.open(path, os.O_RDONLY)
        try:
            position = 0
            while total < limit_bytes:
                got = os.preadv(descriptor, [buffer], position)
                position += got
                total += min(got, limit_bytes - total)
                if got < STEP_BYTES:
                    break
        finally:
            os.close(descriptor)
    return total
