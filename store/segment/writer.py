"""What writes a segment's file: zeros before it is used, frames by the log, and its seal record."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ..device.disk import Disk
from ..device.log_file import LogFile
from ..format.layout import BLOCK_BYTES, DATA_START, SealRecord
from .zeros import NOTHING, Zeros


class SegmentWriter:
    """The writing side of one segment. Readers have a file of their own (`Segment`).

    The two are apart because O_DIRECT wants aligned reads as well, and readers want the page cache.

    Attributes:
        zeros: None where the log may write to all of the file without asking.
    """

    __slots__ = ("_direct", "_disk", "_file", "_may_be_sealed", "_path", "zeros")

    def __init__(self, disk: Disk, path: Path, *, direct: bool) -> None:
        self._disk = disk
        self._path = path
        self._direct = direct
        self._file: LogFile | None = None
        self._may_be_sealed = False  # this object has begun to write the seal record
        self.zeros: Zeros | None = None

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

    def find_zeros(self, begin: int = 0) -> None:
        """Look how far the file is pre-written; the log goes on at `begin`. Raises OSError."""
        self.zeros = Zeros.of(self.file, begin, lambda: self._disk.open(self._path, direct=True))

    def reach(self, end: int) -> None:
        """The log is about to write up to `end`."""
        zeros = self.zeros
        if zeros is not None and end > zeros.ready:
            zeros.claim(end)

    def end_zeros(self) -> None:
        """Write no more zeros to the file."""
        if self.zeros is not None:
            self.zeros.stop()

    def close(self) -> None:
        """Write no more frames."""
        self.end_zeros()
        self._file = self.zeros = None

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


def prewrite(
    disk: Disk, path: Path, capacity_bytes: int, *, direct: bool, begin: int = 0, first_bytes: int | None = None
) -> int:
    """Write zeros to [begin, capacity) and force them (R7): later writes then change no file metadata.

    With `first_bytes`, so many are enough where the space of all is reserved; `Zeros` writes the others. Returns where
    the zeros end. Raises OSError, in particular when the space is not there: it is reserved first, so a full disk is an
    error here and not in the middle of the log.
    """
    file = disk.open(path, create=True, direct=direct)
    try:
        is_reserved, position = file.reserve(capacity_bytes), begin
        enough = capacity_bytes if first_bytes is None else min(capacity_bytes, begin + first_bytes)
        while position < (end := enough if is_reserved and file.direct else capacity_bytes):
            part = NOTHING[: end - position]
            file.write([part], position)
            position += len(part)
        file.force()
    except OSError:
        with contextlib.suppress(OSError):
            file.truncate(begin)  # on a full disk what was reserved would be missing elsewhere
        raise
    finally:
        file.close()
    assert capacity_bytes >= DATA_START
    return position
