"""An open file of a simulated disk: a `LogFile` with all that the store needs."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..device.log_file import Buffer
from .content import Content
from .memory import SimulatedLease
from .survivors import BLOCK_BYTES

if TYPE_CHECKING:
    from .disk import SimulatedDisk


class SimulatedFile:
    """Belongs to its file through renames and removal, as a descriptor does.

    Attributes:
        direct: it reads whole blocks alone, as O_DIRECT does.
    """

    __slots__ = ("_content", "_disk", "_is_leasable", "_open", "_shares", "_writes", "direct", "path")

    def __init__(
        self, disk: SimulatedDisk, path: Path, content: Content, *, direct: bool, writes: bool = True,
        is_leasable: bool = False,
    ) -> None:  # fmt: skip
        self.path = path
        self.direct = direct
        self._disk = disk
        self._content = content
        self._open = True
        self._shares = False
        self._writes = writes
        self._is_leasable = is_leasable
        if writes:
            content.ask_for()
            content.writers += 1
        disk.open_files += 1

    def write(self, parts: Sequence[Buffer], position: int, *, force: bool = False) -> None:
        """Write; with `force` these bytes, and no others, are on the device when it returns."""
        data = b"".join(parts)
        disk, content = self._disk, self._content
        with disk.lock:
            fault = disk.begin("write", self.path, position, len(data))
            if fault is not None:
                self._write(position, data[: int(len(data) * fault.short)])
                raise fault.make_error(str(self.path))
            self._write(position, data)
            if force and data:
                self._begin_force(position, len(data))
                content.force_range(position, position + len(data))

    def _write(self, position: int, data: bytes) -> None:
        if data:
            self._disk.take_space(self._content, position + len(data))
            if self.direct and (position | len(data)) % self._disk.unit_bytes:
                self._content.endanger(position, position + len(data), self._disk.unit_bytes)
            self._content.write(position, data)

    def _begin_force(self, position: int, size: int) -> None:
        fault = self._disk.begin("force", self.path, position, size)
        if fault is not None:
            self._content.fail_force()
            raise fault.make_error(str(self.path))

    def force(self) -> None:
        """Bring all written bytes to the device."""
        with self._disk.lock:
            self._begin_force(0, self._content.size)
            self._content.force()

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes as written; fewer only at the end. Raises OSError where a block is bad."""
        content = self._content
        with self._disk.lock:
            self._disk.look(self.path)
            if content.bad and content.is_bad(position, min(position + size, content.size)):
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
            return content.read(position, size)

    def read_into(self, views: Sequence[memoryview], position: int) -> int:
        """Read into `views`. Returns the number of bytes read. A read of other than whole blocks turns O_DIRECT off."""
        sizes = [len(view) for view in views]
        if self.direct and any(number % BLOCK_BYTES for number in (position, *sizes)):
            self.direct = False
        data = self.read(position, sum(sizes))
        at = 0
        for view, size in zip(views, sizes, strict=True):
            part = data[at : at + size]
            view[: len(part)] = part
            at += size
        return len(data)

    def begin_write_back(self, position: int, size: int) -> bool:
        """True. The kernel may write at any time: this settles nothing."""
        return True

    def is_cached(self, position: int) -> bool:
        """True: nothing is slow here."""
        return True

    def will_need(self, position: int, size: int) -> None:
        """A hint; nothing happens."""

    def advise_random(self) -> None:
        """A hint; nothing happens."""

    def populate(self, position: int, size: int) -> bool:
        """Whether the range can be read: all readable bytes are in memory."""
        return self._content.can_read(position, size)

    def lease(self) -> SimulatedLease:
        """Map the file under a lease. Raises OSError."""
        if not self._is_leasable:
            raise OSError("this file has no lease")
        with self._disk.lock:
            return SimulatedLease(self._content)

    def fileno(self) -> int:
        """Raises io.UnsupportedOperation, an OSError: the system does not know the file."""
        raise io.UnsupportedOperation("a simulated file has no descriptor")

    def drop_cached(self, position: int, size: int) -> None:
        """A hint; nothing happens."""

    def size(self) -> int:
        """Length as written, in bytes."""
        return self._content.size

    def data_from(self, position: int) -> int:
        """The first byte from `position` on in a block that was ever written; the file's length if there is none."""
        with self._disk.lock:
            self._disk.look(self.path)
            return self._content.data_from(position)

    def hole_from(self, position: int) -> int:
        """The first byte from `position` on in a block that was never written; the file's length if there is none."""
        with self._disk.lock:
            self._disk.look(self.path)
            return self._content.hole_from(position)

    def is_in_place(self) -> bool:
        """True if the path that it was opened by still leads to it."""
        return self._disk.leads_to(self.path, self._content)

    def truncate(self, size: int) -> None:
        """Cut or grow; not durable before a force."""
        with self._disk.lock:
            fault = self._disk.begin("truncate", self.path, size, 0)
            if fault is not None:
                raise fault.make_error(str(self.path))
            self._content.truncate(size)

    def reserve(self, size: int) -> bool:
        """Take space for the first `size` bytes: True. ENOSPC if the disk has not enough."""
        with self._disk.lock:
            fault = self._disk.begin("reserve", self.path, size, 0)
            if fault is not None:
                raise fault.make_error(str(self.path))
            self._disk.take_space(self._content, size)
            self._content.reserve(size)
            return True

    def share(self) -> bool:
        """Keep the file from being reused for another segment while this object is open."""
        if not self._shares:
            self._shares = True
            self._content.sharers += 1
        return True

    def is_shared(self) -> bool:
        """Whether somebody keeps the file from being reused."""
        return self._content.sharers > 0

    def sequential(self) -> SimulatedFile:
        """This file, opened once more; works after a rename, too."""
        self._disk.look(self.path)
        return SimulatedFile(self._disk, self.path, self._content, direct=True, writes=False)

    def close(self) -> None:
        """Close the file. Nothing is forced by it."""
        if self._open:
            self._open = False
            self._content.sharers -= self._shares
            self._content.writers -= self._writes
            self._disk.open_files -= 1

    def __del__(self) -> None:
        self.close()
