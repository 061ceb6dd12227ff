"""Disks for tests: real files, with a gate before them or a failure in them.

Fault model: `GatedDisk` is slow (nothing passes while the gate is shut) and `FailingDisk` breaks for good at
the Nth write or force of a segment (the call raises EIO and has no effect; later ones raise as well). `StillDisk`
has no fault: it stands still while a copy is made, so that the copy is of one moment.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stratalog.store.device.disk import OsDisk
from stratalog.store.device.log_file import Buffer
from stratalog.store.device.os_file import OsFile
from stratalog.store.testing import Kind


class WatchedDisk(OsDisk):
    """The system's disk; a subclass hears of each operation before it is done, and may wait or raise there."""

    def meet(self, kind: Kind, path: Path, position: int = 0, size: int = 0) -> None:
        """An operation is about to be done. A write that forces is met as "write", and then as "force"."""
        raise NotImplementedError

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        self.meet("create" if create else "open", path)
        return _WatchedFile(self, path, create=create, direct=direct)

    def make_folder(self, folder: Path) -> None:
        self.meet("make_folder", folder)
        super().make_folder(folder)

    def rename(self, old: Path, new: Path) -> None:
        self.meet("rename", old)
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self.meet("remove", path)
        super().remove(path)

    def force_folder(self, folder: Path) -> None:
        self.meet("force_folder", folder)
        super().force_folder(folder)


class _WatchedFile(OsFile):
    def __init__(
        self, disk: WatchedDisk, path: Path, *, create: bool = False, direct: bool, write: bool = True
    ) -> None:
        super().__init__(path, create=create, direct=direct, write=write)
        self._disk = disk

    def sequential(self) -> OsFile:
        return _WatchedFile(self._disk, Path(f"/proc/self/fd/{self.fileno()}"), direct=True, write=False)

    def write(self, parts: Sequence[Buffer], position: int, *, force: bool = False) -> None:
        self._disk.meet("write", self.path, position, sum(map(len, parts)))
        if force:
            self._disk.meet("force", self.path)
        super().write(parts, position, force=force)

    def force(self) -> None:
        self._disk.meet("force", self.path)
        super().force()

    def read(self, position: int, size: int) -> bytes:
        self._disk.meet("read", self.path, position, size)
        return super().read(position, size)

    def read_into(self, views: Sequence[memoryview], position: int) -> int:
        self._disk.meet("read", self.path, position, sum(map(len, views)))
        return super().read_into(views, position)

    def truncate(self, size: int) -> None:
        self._disk.meet("truncate", self.path)
        super().truncate(size)

    def reserve(self, size: int) -> bool:
        self._disk.meet("reserve", self.path)
        return super().reserve(size)


class MortalDisk(WatchedDisk):
    """The system's disk until its Nth operation of some kinds; then the process is dead, or interrupted."""

    def __init__(self, operations: int, kinds: Sequence[Kind], death: type[BaseException]) -> None:
        self.left = operations
        self._kinds = kinds
        self._death = death

    def meet(self, kind: Kind, path: Path, position: int = 0, size: int = 0) -> None:
        if kind in self._kinds:
            self.left -= 1
            if self.left < 0:
                raise self._death


class BadSectors(WatchedDisk):
    """A disk on which some bytes of one file, by its inode, cannot be read."""

    def __init__(self, path: Path, begin: int, end: int) -> None:
        self._path = path
        self.bad = path.stat().st_ino, begin, end

    def meet(self, kind: Kind, path: Path, position: int = 0, size: int = 0) -> None:
        _, begin, end = self.bad
        if kind == "read" and position < end and position + size > begin and self._is_bad(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _is_bad(self, path: Path) -> bool:
        try:
            return path.stat().st_ino == self.bad[0]
        except FileNotFoundError:  # it has another name by now
            return path == self._path


class GatedDisk(WatchedDisk):
    """The system's disk; writes to segments wait while the gate is shut."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Semaphore(0)
        self.passes = threading.Semaphore(0)  # writes that go through a shut gate

    def meet(self, kind: Kind, path: Path, position: int = 0, size: int = 0) -> None:
        if kind == "write" and not self.gate.is_set():
            self.waiting.release()
            while not self.gate.wait(0.002) and not self.passes.acquire(blocking=False):
                pass


class OneSlowDisk(GatedDisk):
    """The system's disk; once the gate is shut, the next write of frames waits for it, and no other write does."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = threading.Event()  # it waits now
        self._writes = threading.local()

    def meet(self, kind: Kind, path: Path, position: int = 0, size: int = 0) -> None:
        was_write, self._writes.last = getattr(self._writes, "last", False), kind == "write"
        frames = was_write and kind == "force"  # segments are made without
        if frames and not self.gate.is_set() and self.waiting.acquire(blocking=False):
            self.holds.set()
            self.gate.wait()


class FailingDisk(WatchedDisk):
    """The system's disk; once `fail` is set to "write" or "force", these calls raise EIO."""

    def __init__(self) -> None:
        self.fail = ""

    def meet(self, kind: Kind, path: Path, position: int = 0, size: int = 0) -> None:
        if kind == self.fail:
            raise OSError(errno.EIO, "the test's disk is broken")


class StillDisk(OsDisk):
    """The system's disk, which can be made to stand still: what is under way ends, and nothing new begins."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._moving = 0
        self._still = False

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nothing on the disk changes meanwhile: a copy of it is what a crash at this moment would leave."""
        with self._changed:
            self._still = True
            self._changed.wait_for(lambda: not self._moving)
        try:
            yield
        finally:
            with self._changed:
                self._still = False
                self._changed.notify_all()

    @contextmanager
    def moving(self) -> Iterator[None]:
        """A call that changes something; it waits while the disk stands still."""
        with self._changed:
            self._changed.wait_for(lambda: not self._still)
            self._moving += 1
        try:
            yield
        finally:
            with self._changed:
                self._moving -= 1
                self._changed.notify_all()

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        with self.moving():
            return _StillFile(self, path, create=create, direct=direct)

    def rename(self, old: Path, new: Path) -> None:
        with self.moving():
            super().rename(old, new)

    def remove(self, path: Path) -> None:
        with self.moving():
            super().remove(path)


class _StillFile(OsFile):
    def __init__(self, disk: StillDisk, path: Path, *, create: bool, direct: bool) -> None:
        super().__init__(path, create=create, direct=direct)
        self._disk = disk

    def write(self, parts: Sequence[Buffer], position: int, **how: Any) -> None:
        with self._disk.moving():
            super().write(parts, position, **how)

    def truncate(self, size: int) -> None:
        with self._disk.moving():
            super().truncate(size)

    def reserve(self, size: int) -> bool:
        with self._disk.moving():
            return super().reserve(size)


class RecordingDisk(GatedDisk):
    """A disk with a gate that knows of each file which blocks were written and not forced since."""

    def __init__(self) -> None:
        super().__init__()
        self.unforced: dict[str, set[int]] = {}  # path -> blocks
        self.lock = threading.Lock()

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        return _RecordingFile(self, path, create=create, direct=direct)

    def unforced_blocks(self) -> int:
        """Blocks that a power cut could take now."""
        with self.lock:
            return sum(map(len, self.unforced.values()))


class _RecordingFile(_WatchedFile):
    _disk: RecordingDisk

    def write(self, parts: Sequence[Buffer], position: int, *, force: bool = False) -> None:
        super().write(parts, position, force=force)
        end = position + sum(map(len, parts))
        with self._disk.lock:
            blocks = self._disk.unforced.setdefault(str(self.path), set())
            touched = set(range(position // 4096, (end + 4095) // 4096))
            if force:
                blocks -= touched
            else:
                blocks |= touched

    def force(self) -> None:
        with self._disk.lock:
            before = set(self._disk.unforced.get(str(self.path), ()))
        super().force()
        with self._disk.lock:
            self._disk.unforced.get(str(self.path), set()).difference_update(before)
