"""What writes a segment's file: zeros before it is used, frames by the log, and its seal record."""

from __future__ import annotations

import contextlib
import mmap
from pathlib import Path

from ..device.disk import Disk
from ..device.log_file import LogFile
from ..format.layout import BLOCK_BYTES, DATA_START, SealRecord

ZEROS = bytes(1 << 20)


class SegmentWriter:
    """The writing side of one segment. Readers have a file of their own (`Segment`).

    The two are apart because O_DIRECT wants aligned reads as well, and readers want the page cache.
    """

    __slots__ = ("_direct", "_disk", "_file", "_may_be_sealed", "_path")

    def __init__(self, disk: Disk, path: Path, *, direct: bool) -> None:
        self._disk = disk
        self._path = path
        self._direct = direct
        self._file: LogFile | None = None
        self._may_be_sealed = False  # this object has begun to write the seal record

    @property
    def direct(self) -> bool:
        """True while frames are written past the page cache, or will be once there is one."""
        return self._direct if self._file is None else self._file.direct

    @property
    def wants_direct(self) -> bool:
        """Whether frames were to be written past the page cache in this opening."""
        return self._direct

    @property
    def is_open(self) -> bool:
        """Whether frames may be written."""
        return self._file is not None

    @property
    def file(self) -> LogFile:
        """The file to write frames to. Raises OSError."""
        return self._file if self._file is not None else self.open()

    def open(self) -> LogFile:
        """Open the file for frames. Raises OSError."""
        self._file = self._disk.open(self._path, direct=self._direct)
        return self._file

    def close(self) -> None:
        """Write no more frames."""
        self._file = None

    def drop_pages(self, position: int, size: int) -> None:
        """Have the kernel forget forced pages, where its page cache has them at all. A hint."""
        if self._file is not None:
            self._file.drop_cached(position, size)

    def write_seal(self, record: SealRecord | None) -> None:
        """Write and force the seal record; None takes it back. Raises OSError."""
        self._may_be_sealed |= record is not None
        file = self._disk.open(self._path)
        try:
            file.write([record.pack() if record is not None else bytes(BLOCK_BYTES)], BLOCK_BYTES)
            file.force()
        finally:
            file.close()
        self._may_be_sealed = record is not None

    def take_back_seal(self) -> None:
        """Take the seal record back before sealing is tried again. Raises OSError.

        Otherwise a crash in the middle of the next attempt would leave a record without its footer.
        """
        if self._may_be_sealed:
            self.write_seal(None)


def prewrite(disk: Disk, path: Path, capacity_bytes: int, *, direct: bool, begin: int = 0) -> None:
    """Write zeros to [begin, capacity) and force them (R7): later writes then change no file metadata.

    Raises OSError, in particular when the space is not there: it is reserved first, so a full disk is an
    error here and not in the middle of the log.
    """
    file = disk.open(path, create=True, direct=direct)
    try:
        file.reserve(capacity_bytes)
        aligned = _aligned_zeros() if file.direct else memoryview(ZEROS)
        for position in range(begin, capacity_bytes, len(aligned)):
            file.write([aligned[: capacity_bytes - position]], position)
        file.force()
    except OSError:
        with contextlib.suppress(OSError):
            file.truncate(begin)  # on a full disk what was reserved would be missing elsewhere
        raise
    finally:
        file.close()
    assert capacity_bytes >= DATA_START


def _aligned_zeros() -> memoryview:
    return memoryview(mmap.mmap(-1, len(ZEROS)))
