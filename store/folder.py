"""The folder of a store: who may open it, and which store it is."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from contextlib import ExitStack, suppress
from pathlib import Path

from .disk import Disk
from .errors import StoreCorrupt, StoreLocked, StoreUnusable
from .format import BLOCK_BYTES, START_FILE, LaneStart, StoreHeader, lane_name
from .lane_start import write_start

STORE_FILE = "STORE"
LOCK_FILE = "LOCK"
QUARANTINE = "quarantine"
_OURS = frozenset({STORE_FILE, STORE_FILE + ".new", LOCK_FILE, QUARANTINE})


class FolderLock:
    """The lock of a folder, held until `release`. It ends with the process, however that ends.

    Who only looks at the folder need not be allowed to write the file: to be locked it only has to be open. The
    process's number is then not noted in it.
    """

    def __init__(self, folder: Path, *, only_look: bool = False) -> None:
        path, self._pid = folder / LOCK_FILE, os.getpid()
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if not only_look or error.errno not in (errno.EROFS, errno.EACCES) or not path.exists():
                raise
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(OSError):  # a note for who finds it locked, which a full or read-only disk need not take
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, f"{self._pid}\n".encode(), 0)
        except BlockingIOError:
            holder = os.pread(self._fd, 64, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise StoreLocked(
                f"{folder} is open already (by process {holder}); one process and one store object at a time. "
                f"Close that one first."
            ) from None
        except BaseException:
            os.close(self._fd)
            raise

    def release(self) -> None:
        """Let others open the folder.

        The lock itself is given back, and not only our descriptor: a child that was forked meanwhile has a copy of it.
        In such a child it is the parent's, and only the copy goes.
        """
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                if os.getpid() == self._pid:
                    fcntl.flock(fd, fcntl.LOCK_UN)
            finally:
                os.close(fd)


def enter_folder(disk: Disk, folder: Path, *, create: bool = True) -> FolderLock:
    """Make the folder if need be, and lock it. Without `create`, the folder is only looked at.

    Raises StoreUnusable if it cannot be a store's folder, StoreLocked if it is open.
    """
    try:
        if not folder.exists():
            if not create:
                raise StoreUnusable(f"{folder} does not exist")
            disk.make_folder(folder)
        if not folder.is_dir():
            raise StoreUnusable(f"{folder} is not a folder; give the path of a folder")
        # Whoever has the lock may be making the store just now: then its names are not judged by halves.
        lock = FolderLock(folder, only_look=not create) if (folder / LOCK_FILE).exists() else None
        with ExitStack() as undo:
            if lock is not None:
                undo.callback(lock.release)
            _check_names(disk, folder, create=create)
            undo.pop_all()
        return lock or FolderLock(folder, only_look=not create)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreUnusable(f"{folder} cannot be used as a store: {reason}") from error


def _check_names(disk: Disk, folder: Path, *, create: bool) -> None:
    """Raises StoreUnusable if this is neither a store nor a folder to make one of."""
    names = disk.list(folder)
    if STORE_FILE in names:
        return
    if not create:
        raise StoreUnusable(f"{folder} is no store: it has no {STORE_FILE} file; give the folder of a store")
    foreign = [name for name in names if name not in _OURS and not _is_empty_lane(disk, folder / name)]
    if foreign:
        raise StoreUnusable(
            f"{folder} is no store and is not empty (it has {', '.join(foreign[:3])}); give an empty or a new folder"
        )


def _is_empty_lane(disk: Disk, path: Path) -> bool:
    """True for what an interrupted creation leaves behind."""
    return path.name.startswith("lane-") and path.is_dir() and disk.list(path) in ([], [START_FILE])


def read_header(disk: Disk, folder: Path) -> StoreHeader | None:
    """Which store this is; None in a new folder. Raises StoreCorrupt."""
    if STORE_FILE not in disk.list(folder):
        return None
    file = disk.open(folder / STORE_FILE)
    try:
        header = StoreHeader.unpack(file.read(0, BLOCK_BYTES))
    finally:
        file.close()
    if header is None:
        raise StoreCorrupt(
            "the store's header is damaged or of a newer version",
            folder / STORE_FILE,
            0,
            "Restore this one file from a copy of the store, or use the version of stratalog that wrote it.",
        )
    return header


def create_store(disk: Disk, folder: Path, lanes: int) -> StoreHeader:
    """Make a new store of the folder. The name of its header comes last: with it there is a store."""
    header = StoreHeader(secrets.token_bytes(16), lanes)
    for lane in range(lanes):
        disk.make_folder(folder / lane_name(lane))
        write_start(disk, folder / lane_name(lane), LaneStart(lane, header.store_id))
    fresh = folder / (STORE_FILE + ".new")
    file = disk.open(fresh, create=True)
    try:
        file.write([header.pack()], 0)
        file.force()
    finally:
        file.close()
    disk.rename(fresh, folder / STORE_FILE)
    disk.force_folder(folder)
    return header
