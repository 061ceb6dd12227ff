"""The files of a lane as a reader in another process opens them."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..device.disk import Disk
from ..device.lane_start import read_start
from ..device.log_file import LogFile
from ..device.ring import Ring
from ..errors import StoreCorrupt
from ..format.layout import BLOCK_BYTES, SegmentHeader, segment_name
from ..segment.evidence import first_number
from ..segment.files import SegmentFile, first_blocks, segment_numbers
from ..segment.scanner import PieceReader
from ..segment.sealed import SealedSegment
from ..segment.segment import Segment

PIECE_BYTES = 32 << 10


class SegmentIsGone(FileNotFoundError):
    """Retention has removed a segment since the reader came to know of it."""


def _gone(path: Path) -> SegmentIsGone:
    return SegmentIsGone(errno.ENOENT, "retention has removed the segment", str(path))


class FollowedSegment(Segment):
    """A segment of another process's log.

    Invariant: a file that is open here is not used again for another segment. It is locked (shared) as long as it is
    open or mapped, and the writer asks for the lock before it uses a file again. It asks after it has taken the file's
    name away. So the lock counts if the file still has its name when the lock is held.
    """

    def __init__(self, disk: Disk, folder: Path, header: SegmentHeader, *, grows: bool) -> None:
        """`grows`: the writer still appends to it."""
        super().__init__(disk, folder, header, direct=False)
        # In a file that grows, what follows a place may be no message yet: the kernel must not read ahead.
        self.without_windows = self._grows = grows

    def _opened_to_read(self) -> LogFile:
        """The reading side, locked. Raises SegmentIsGone."""
        data = open_shared(self._disk, self.path)
        if self._grows:
            data.advise_random()
        return data

    def _map(self) -> None:
        """Map nothing: a lease of ours would hold up the writer."""

    def open_sequential(self) -> LogFile:
        """The file for reading from front to back, locked as well."""
        data = self.data  # locked until the other one is
        file = super().open_sequential()
        _share(file, self.path)
        del data
        return file


def open_shared(disk: Disk, path: Path) -> LogFile:
    """Open a segment's file and keep it from being used again. Raises SegmentIsGone."""
    try:
        file = disk.open_to_read(path)
    except FileNotFoundError:
        raise _gone(path) from None
    _share(file, path)
    if not file.is_in_place():
        raise _gone(path)
    return file


def _share(file: LogFile, path: Path) -> None:
    if not file.share():
        raise _gone(path)


def read_shared(disk: Disk, folder: Path, lane: int, store_id: bytes, sequence: int) -> SegmentFile:
    """A segment's file by its first two blocks; `header` and `record` are None where they are not its own.

    Raises SegmentIsGone.
    """
    path = folder / segment_name(sequence)
    file = open_shared(disk, path)
    try:
        return first_blocks(file, path, sequence, lane, store_id, sequence)
    finally:
        file.close()


@contextmanager
def sealed_in(disk: Disk, folder: Path, lane: int, store_id: bytes, sequence: int) -> Iterator[SealedSegment]:
    """A sealed segment, opened by itself and closed after the context. Raises StoreCorrupt, SegmentIsGone."""
    file = read_shared(disk, folder, lane, store_id, sequence)
    if file.header is None or file.record is None or not file.is_sealed:
        raise StoreCorrupt("a segment's first blocks are damaged", file.path, BLOCK_BYTES)
    segment = FollowedSegment(disk, folder, file.header, grows=False)
    try:
        yield SealedSegment(segment, file.record)
    finally:
        segment.close()


def log_start(disk: Disk, folder: Path, lane: int, store_id: bytes) -> int:
    """The number of the first segment of a lane's log, by its folder."""
    return first_number(read_start(disk, folder, lane, store_id), segment_numbers(disk, folder))


class TailReader(PieceReader):
    """Ranges of a segment that grows, read in small pieces and never past `size_bytes`.

    Past it there are blocks that the writer is still writing, past the page cache. Read too early, they would stay in
    it. What the ring has is not read from the device, where the writer's forces would wait for it.
    """

    def __init__(self, segment: Segment, ring: Ring | None) -> None:
        super().__init__(segment.data, 0, PIECE_BYTES)
        self._segment = segment
        self._ring = ring

    def _read(self, position: int, size: int) -> bytes | memoryview:
        return self._segment.fetch(self._ring, position, size)[0]

    def forget(self) -> None:
        """Read anew, from the device: another process may have read a block before it was written."""
        self._piece, self._ring = memoryview(b""), None
        self.file.drop_cached(0, self.size_bytes)
