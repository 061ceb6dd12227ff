"""Files written and read past the page cache, without an engine: the base of the references.

The store writes with one system call that also forces, pwritev2 with RWF_DSYNC. So do the references; where the kernel
does not take the flag, both write and then call fdatasync.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

BLOCK_BYTES = 4096
STEP_BYTES = 4 << 20
RWF_DSYNC: int = getattr(os, "RWF_DSYNC", 0)
REFUSED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
Preparation = Literal["prewritten", "fallocated", "growing"]


def round_up(size_bytes: int) -> int:
    """Bytes rounded up to whole 4 KiB blocks, at least one."""
    return max(BLOCK_BYTES, (size_bytes + BLOCK_BYTES - 1) // BLOCK_BYTES * BLOCK_BYTES)


def open_direct(path: Path, flags: int) -> tuple[int, bool]:
    """A descriptor with O_DIRECT, or without if the file system refuses it; and which of the two."""
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
    """A file that is overwritten in a circle with forced writes; one thread at a time.

    `preparation`: "prewritten" (every block written once, R7), "fallocated" (reserved, never written) or
    "growing" (empty). The last two start again from nothing when the circle closes. `direct`: past the page cache, if
    the file system takes it.
    """

    def __init__(
        self, path: Path, size_bytes: int, preparation: Preparation = "prewritten", *, direct: bool = True
    ) -> None:
        self.size_bytes = round_up(size_bytes)
        self.path = path
        self.preparation = preparation
        flags = os.O_RDWR | os.O_CREAT
        self.descriptor, self.direct = open_direct(path, flags) if direct else (os.open(path, flags, 0o644), False)
        self._position = 0
        self._buffer = memoryview(incompressible(min(STEP_BYTES, self.size_bytes)))
        self._flags = self._probe()
        if preparation == "prewritten":
            zeros = memoryview(mmap.mmap(-1, STEP_BYTES))
            for position in range(0, self.size_bytes, STEP_BYTES):
                os.pwrite(self.descriptor, zeros[: self.size_bytes - position], position)
        elif preparation == "fallocated":
            os.posix_fallocate(self.descriptor, 0, self.size_bytes)
        os.fsync(self.descriptor)

    def _probe(self) -> int:
        """RWF_DSYNC, or 0 if the kernel refuses it. Leaves the file empty."""
        try:
            os.pwritev(self.descriptor, [self._buffer[:BLOCK_BYTES]], 0, RWF_DSYNC)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            return 0
        finally:
            os.ftruncate(self.descriptor, 0)
        return RWF_DSYNC

    @property
    def call(self) -> str:
        """The way of writing the file, in words."""
        call = "pwritev2(RWF_DSYNC)" if self._flags else "pwritev + fdatasync"
        return f"{call}, {'O_DIRECT' if self.direct else 'page cache'}"

    def write_forced(self, size_bytes: int) -> int:
        """Write `size_bytes`, rounded up to blocks, at the next position and force them, in one call; bytes written.

        Raises ValueError if the file is smaller than that.
        """
        size = self._write(size_bytes, self._flags)
        if not self._flags:
            os.fdatasync(self.descriptor)
        return size

    def write_unforced(self, size_bytes: int) -> int:
        """`write_forced` without the force."""
        return self._write(size_bytes, 0)

    def _write(self, size_bytes: int, flags: int) -> int:
        size = round_up(size_bytes)
        if size > self.size_bytes:
            raise ValueError(f"a write of {size:,} bytes to a file of {self.size_bytes:,}: make the file larger")
        if self._position + size > self.size_bytes:
            self._begin_again()
        whole, rest = divmod(size, len(self._buffer))
        parts = [self._buffer] * whole + ([self._buffer[:rest]] if rest else [])
        written = os.pwritev(self.descriptor, parts, self._position, flags)
        if written != size:
            raise OSError(errno.EIO, f"{written} of {size} bytes were written", str(self.path))
        self._position += size
        return size

    def _begin_again(self) -> None:
        """Close the circle. Blocks that were written once are not new any more, so a new file starts from nothing."""
        self._position = 0
        if self.preparation != "prewritten":
            os.ftruncate(self.descriptor, 0)
        if self.preparation == "fallocated":
            os.posix_fallocate(self.descriptor, 0, self.size_bytes)

    def close(self) -> None:
        """Close and remove the file."""
        os.close(self.descriptor)
        self.path.unlink(missing_ok=True)


def read_sequential(paths: Iterable[Path], limit_bytes: int, direct: bool = True) -> int:
    """Read the files one after another, 4 MiB at a time, until `limit_bytes` are read; the bytes read."""
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
