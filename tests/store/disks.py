"""Disks for tests: real files, with a gate before them or a failure in them.

Fault model: `GatedDisk` is slow (nothing passes while the gate is shut) and `FailingDisk` breaks for good at
the Nth write or force of a segment (the call raises EIO and has no effect; later ones raise as well). `StillDisk`
has no fault: it stands still while a copy is made, so that the copy is of one moment.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stratalog.store.device.disk import OsDisk
from stratalog.store.device.log_file import Buffer
from stratalog.store.device.os_file import OsFile


class GatedDisk(OsDisk):
    """The system's disk; writes to segments wait while the gate is shut."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Semaphore(0)
        self.passes = threading.Semaphore(0)  # writes that go through a shut gate

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        return _GatedFile(self, path, create=create, direct=direct)


class _GatedFile(OsFile):
    def __init__(self, disk: GatedDisk, path: Path, *, create: bool, direct: bool) -> None:
        super().__init__(path, create=create, direct=direct)
        self._disk = disk

    def write(self, parts: Sequence[Buffer], position: int, **how: Any) -> None:
        if not self._disk.gate.is_set():
            self._disk.waiting.release()
            while not self._disk.gate.wait(0.002) and not self._disk.passes.acquire(blocking=False):
                pass
        super().write(parts, position, **how)


class OneSlowDisk(GatedDisk):
    """The system's disk; once the gate is shut, the next write of frames waits for it, and no other write does."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = threading.Event()  # it waits now

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        return _OneSlowFile(self, path, create=create, direct=direct)


class _OneSlowFile(_GatedFile):
    _disk: OneSlowDisk

    def write(self, parts: Sequence[Buffer], position: int, **how: Any) -> None:
        frames = how.get("force", False)  # segments are made without
        if frames and not self._disk.gate.is_set() and self._disk.waiting.acquire(blocking=False):
            self._disk.holds.set()
            self._disk.gate.wait()
        OsFile.write(self, parts, position, **how)


class FailingDisk(OsDisk):
    """The system's disk; once `fail` is set to "write" or "force", these calls raise EIO."""

    def __init__(self) -> None:
        self.fail = ""

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        return _FailingFile(self, path, create=create, direct=direct)


class _FailingFile(OsFile):
    def __init__(self, disk: FailingDisk, path: Path, *, create: bool, direct: bool) -> None:
        super().__init__(path, create=create, direct=direct)
        self._disk = disk

    def write(self, parts: Sequence[Buffer], position: int, **how: Any) -> None:
        if self._disk.fail == "write" or (self._disk.fail == "force" and how.get("force")):
            raise OSError(errno.EIO, "the test's disk is broken")
        super().write(parts, position, **how)

    def force(self) -> None:
        if self._disk.fail == "force":
            raise OSError(errno.EIO, "the test's disk is broken")
        super().force()


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

    def reserve(self, size: int) -> None:
        with self._disk.moving():
            super().reserve(size)


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


class _RecordingFile(_GatedFile):
    _disk: RecordingDisk

    def write(self, parts: Sequence[Buffer], position: int, **how: Any) -> None:
        super().write(parts, position, **how)
        end = position + sum(map(len, parts))
        with self._disk.lock:
            blocks = self._disk.unforced.setdefault(str(self.path), set())
            touched = set(range(position // 4096, (end + 4095) // 4096))
            if how.get("force"):
                blocks -= touched
            else:
                blocks |= touched

    def force(self) -> None:
        with self._disk.lock:
            before = set(self._disk.unforced.get(str(self.path), ()))
        super().force()
        with self._disk.lock:
            self._disk.unforced.get(str(self.path), set()).difference_update(before)
