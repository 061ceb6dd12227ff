"""The reserve of a lane: pre-written bytes that only the store's own records may use. So a full disk has a way out.

What frees space (a trim, the deletion of a topic, acknowledgements, what retention writes again) is a record in the
log, and so it needs space itself. The reserve is a file beside the segments, and becomes the lane's next one, by a
rename, when no other segment can be made.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import deque
from pathlib import Path

from ..config import KIB, MIB, StoreConfig
from ..device.disk import Disk
from ..errors import StoreFull
from ..format.hidden import hidden_parts, is_hidden
from ..format.layout import BLOCK_BYTES, DATA_START, RESERVE_FILE, align_down, align_up
from ..format.records import RECORDS_TOPIC
from ..segment.writer import prewrite

LEAST_BYTES, MOST_BYTES = 64 * KIB, MIB
LEAST_PART_BYTES = 2 * BLOCK_BYTES  # of records, in a reserve for which there was little space
SCARCE = 64  # below so many times the reserve there is little space
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
WAY_OUT = (
    "Free space on its file system; or remove messages: acknowledgements, trim, delete_topic and delete_subscription "
    "have a reserve for that, and so has retention. Appends go on by themselves once there is space."
)


class Reserve:
    """The reserve of one lane.

    Invariants:
        * an append goes into a frame only while the reserve stands ready (`secure`). So whatever appends fill, the
          records that come later have its bytes;
        * it is taken as a whole, by records, when nothing else can be had; the next one is made before an append;
        * its first `size_bytes` are on the disk, so that writing them takes no space.

    Attributes:
        size_bytes: of the file, as far as it is complete; 0 if there is none.
        is_ready: an append may go on: `secure` has found it large enough, and it was not taken since.
        nominal_bytes: its size in a lane with a small footer.
    """

    def __init__(
        self, disk: Disk, folder: Path, config: StoreConfig, recyclable: deque[Path], making: threading.RLock,
        *, direct: bool,
    ) -> None:  # fmt: skip
        """`making` is the lock of all that make files of the lane."""
        self.path = folder / RESERVE_FILE
        self.nominal_bytes = min(max(config.segment_bytes // 4, LEAST_BYTES), MOST_BYTES)
        self.size_bytes = 0
        self.is_ready = False
        self._disk = disk
        self._recyclable = recyclable
        self._making = making
        self._direct = direct

    def find(self) -> None:
        """Take on what an earlier opening has left. Raises OSError."""
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            return
        try:
            self.size_bytes = file.size() & -BLOCK_BYTES
        finally:
            file.close()

    def secure(self, footer_bytes: int) -> None:
        """Return when the reserve stands ready, at least a small one; make it if need be. Raises StoreFull.

        Args:
            footer_bytes: what the footer of a segment without messages takes.
        """
        least = DATA_START + align_up(footer_bytes) + records_bytes(LEAST_BYTES)
        self.is_ready = self.size_bytes >= least
        if self.is_ready:
            return
        what = f"the reserve of {least} bytes, which is there before an append,"
        try:
            self.fill(footer_bytes)
        except OSError as error:
            raise full(error, what) from error
        if self.size_bytes < least:
            raise full(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), what)
        self.is_ready = True

    def fill(self, footer_bytes: int) -> None:
        """Make the reserve as large as there is space for, up to what it should be. Raises OSError.

        So records find their bytes on a disk with room for them alone, as after a kill, which leaves what they used.
        """
        least = DATA_START + align_up(footer_bytes)
        size = self.nominal_bytes
        while size < least + records_bytes(self.nominal_bytes):
            size *= 2  # in doubles: a lane that gets more streams does not make it larger each time
        if size <= self.size_bytes:
            return
        with self._making:
            while size > self.size_bytes and size >= least + LEAST_PART_BYTES:
                try:
                    self._make(size)
                except OSError as error:
                    if error.errno not in NO_SPACE:
                        raise
                    left = align_down(self.size_bytes + self._disk.free_bytes(self.path.parent))
                    size = left if left < size else align_up(size // 2)  # `free_bytes` knows no quota

    def fill_at_opening(self, footer_bytes: int) -> None:
        """If there is little space, fill it at once: the space that this lane's recovery freed stays this lane's."""
        if self._disk.free_bytes(self.path.parent) < SCARCE * self.nominal_bytes:
            with contextlib.suppress(OSError):  # the background tries it again
                self.fill(footer_bytes)

    def _make(self, size: int) -> None:
        """Let the file grow to a size. Raises OSError; then it is as it was."""
        folder = self.path.parent
        try:
            if size - self.size_bytes > self._disk.free_bytes(folder):  # no file is made for nothing on a full disk
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            prewrite(self._disk, self.path, size, direct=self._direct, begin=self.size_bytes)
        except OSError as error:
            if error.errno not in NO_SPACE or not self._recycle(size):
                raise
        self._disk.force_folder(folder)
        self.size_bytes = size

    def _recycle(self, size: int) -> bool:
        """Make it of a removed segment's file, and free the rest of that file. False if there is none of that size."""
        if not self._recyclable:
            return False
        path = self._recyclable[0]
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return False
        try:
            if file.size() < size:
                return False
            file.truncate(size)
            file.force()
        finally:
            file.close()
        self._disk.rename(path, self.path)
        self._recyclable.popleft()
        return True

    def become(self, path: Path, at_least_bytes: int, footer_bytes: int) -> int:
        """Give the file a segment's name, durably, and return its size. `making` is held. Raises StoreFull."""
        if self.size_bytes < at_least_bytes:
            with contextlib.suppress(OSError):
                self.fill(footer_bytes)
        size = self.size_bytes
        if size < at_least_bytes:
            raise StoreFull(
                f"the disk of {path.parent} is full, and the reserve for acknowledgements, trims and deletions is used "
                f"up: {at_least_bytes} bytes are wanted, and {size} are left. Nothing was written. Free space on its "
                f"file system, or close the store and open it with a smaller retention_bytes."
            )
        try:
            file = self._disk.open(self.path)
            try:
                file.reserve(size)  # nothing happens, unless somebody has made a hole in it
            finally:
                file.close()
            self._disk.rename(self.path, path)
            self.size_bytes, self.is_ready = 0, False
            self._disk.force_folder(path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                if not self.size_bytes:
                    self._disk.rename(path, self.path)
                self.size_bytes, self.is_ready = 0, False
                self.find()
            raise full(error, f"the reserve of {size} bytes") from error
        return size

    def left_by(self, topic: str) -> int:
        """The bytes of a reserve in use that a record of a hidden topic must leave to others.

        Acknowledgements leave a quarter to what removes messages; copies, which may be any number, leave a half.
        """
        if topic == RECORDS_TOPIC:
            return 0
        parts = hidden_parts(topic)
        is_copy = parts is not None and parts.kind == "copies"
        return self.nominal_bytes // (2 if is_copy else 4)


def records_bytes(size_bytes: int) -> int:
    """The bytes of a reserve for records; the rest is for the segment's head and a small footer."""
    return size_bytes * 3 // 4


def may_use_reserve(topic: str) -> bool:
    """Whether messages of a topic are the store's own: those of users never touch the reserve."""
    return is_hidden(topic)


def full(error: OSError, what: str) -> Exception:
    """The error to raise when a file could not be made; `what` names the file."""
    if isinstance(error, FileNotFoundError):
        return error  # the folder has gone from under the store: no space would help
    if error.errno in NO_SPACE:
        return StoreFull(f"no space for {what} ({error.strerror}). Nothing was written. {WAY_OUT}")
    return StoreFull(f"{what} could not be made: {error}. Nothing was written.")
