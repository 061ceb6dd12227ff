"""A file of any POSIX system: positioned writes and reads, forces, and locks by flock. `LogFile` has the contracts.

Linux's own file (`linux_file`) is this one with more. What is not here has the plain answer of `LogFile`.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from ...portable import force
from .descriptor import Descriptor, open_descriptor, owned
from .log_file import Buffer, Lease, LogFile, Range


class PosixFile:
    """A file of the operating system, through the page cache."""

    direct = False
    _fd = -1

    def __init__(self, path: Path, *, create: bool, direct: bool, write: bool = True) -> None:
        """`direct` is what the caller would like; the attribute says what there is."""
        self.path = path
        flags = os.O_RDWR if write else os.O_RDONLY
        flags |= os.O_CREAT if create else 0
        self._owner = self._opened(flags, direct=direct)
        self._fd = self._owner.fileno()

    def _opened(self, flags: int, *, direct: bool) -> Descriptor:
        return open_descriptor(self.path, flags)

    def write(self, parts: Sequence[Buffer], position: int, *, force: bool = False) -> None:
        rest = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
        count = -1
        while rest:
            before, count = count, os.pwrite(self._fd, rest, position)
            if count == before == 0:  # once is a short write; the next one says why, if there is a reason
                raise OSError(errno.EIO, "the device took no more bytes", str(self.path))
            rest, position = rest[count:], position + count
        if force:
            self.force()

    def force(self) -> None:
        force(self._fd)

    def begin_write_back(self, position: int, size: int) -> bool:
        """False: there is no such call."""
        return False

    def read(self, position: int, size: int) -> bytes:
        chunk = os.pread(self._fd, size, position)
        if len(chunk) == size:
            return chunk
        chunks: list[bytes] = [chunk]
        position += len(chunk)
        size -= len(chunk)
        while chunk and size > 0:
            chunk = os.pread(self._fd, size, position)
            chunks.append(chunk)
            position += len(chunk)
            size -= len(chunk)
        return b"".join(chunks)

    def read_into(self, views: Sequence[memoryview], position: int) -> int:
        """Read into `views` from `position`; the number of bytes read."""
        done = 0
        for view in views:
            data = os.pread(self._fd, len(view), position + done)
            view[: len(data)] = data
            done += len(data)
            if len(data) < len(view):
                break
        return done

    def will_need(self, position: int, size: int) -> None:
        """A hint that nobody takes."""

    def advise_random(self) -> None:
        """A hint that nobody takes."""

    def drop_cached(self, position: int, size: int) -> None:
        """A hint that nobody takes."""

    def populate(self, position: int, size: int) -> bool:
        """False: there is no such call."""
        return False

    def is_cached(self, position: int) -> bool:
        """True: it cannot be told."""
        return True

    def lease(self) -> Lease:
        """Raises OSError: there are no leases."""
        raise OSError(errno.ENOTSUP, "this file has no lease", str(self.path))

    def fileno(self) -> int:
        """The file descriptor."""
        return self._fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def is_in_place(self) -> bool:
        mine = os.fstat(self._fd)
        try:
            there = os.stat(self.path)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def data_from(self, position: int) -> int:
        """`position`: nothing is known of holes."""
        return position

    def hole_from(self, position: int) -> int:
        """The file's size: nothing is known of holes."""
        return max(position, self.size())

    def reserve(self, size: int) -> bool:
        """False, and nothing happens: the zeros that are written next take the space."""
        return False

    def share(self) -> bool:
        """Keep the file from being used again for another segment while this object is open. False: it is too late.

        The lock belongs to the open file, and to the mappings that are made of it.
        """
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_shared(self) -> bool:
        """Whether another process keeps the file from being used again."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return False

    def sequential(self) -> LogFile:
        """This file by a second descriptor, with the lock of the first; also after a rename."""
        return _SecondDescriptor(self.path, self._fd)

    def close(self) -> None:
        # If this is not called, the owner closes it when the last reader inside a call lets go of the file.
        self._fd = -1
        self._owner.close()


class _SecondDescriptor(PosixFile):
    """An open file once more. All reads are by position, so the two do not disturb each other."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._of = descriptor
        super().__init__(path, create=False, direct=False, write=False)

    def _opened(self, flags: int, *, direct: bool) -> Descriptor:
        return owned(os.dup, self._of)


class NoRangeReads:
    """Reads of many ranges at once that a system does not have."""

    is_refused = True

    def read(self, ranges: Sequence[Range]) -> tuple[list[bytes], int, int] | None:
        """None: there are no such reads."""
        return None

    def clear(self) -> None:
        """There is no memory to let go of."""
