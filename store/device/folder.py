"""The folder of a store: its lock, so that one process writes, and its identity."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import StoreCorrupt, StoreLocked, StoreUnusable
from ..format.layout import BLOCK_BYTES, FORMAT_VERSION, START_FILE, lane_name
from ..format.store_files import LaneStart, StoreHeader, version_in
from .descriptor import Descriptor, open_descriptor
from .disk import Disk
from .lane_start import write_start
from .system import check_system

STORE_FILE = "STORE"
LOCK_FILE = "LOCK"
QUARANTINE = "quarantine"
HEADER_IS_DAMAGED = "the store's header is damaged"
SHARED_LOOKS, SHARED_S = 100, 0.002  # how often an opening looks whether watchers have let go of the lock
# What an interrupted creation leaves. Not `quarantine`: a repair made that, so there was a store.
_OURS = frozenset({STORE_FILE, STORE_FILE + ".new", LOCK_FILE})


def fixed_path(path: str | Path) -> Path:
    """The path as it leads now: absolute, and through no link. Raises StoreUnusable.

    All files are opened by paths below it, so a change of the working directory or of a link changes nothing for them.
    """
    try:
        fixed = Path(os.path.realpath(path))
    except (OSError, ValueError) as error:
        raise StoreUnusable(f"{str(path)!r} cannot be used as a store: {error}") from error
    return path if isinstance(path, Path) and path == fixed else fixed


def _lock_alone(number: int) -> None:
    """Take the lock of an open file. Raises OSError; BlockingIOError if another one has it.

    A program that watches a store holds a shared lock for an instant, to find out whether somebody has the store. That
    is waited for.
    """
    for _ in range(SHARED_LOOKS):
        with suppress(BlockingIOError):
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)  # refused where one has it alone
        fcntl.flock(number, fcntl.LOCK_UN)
        time.sleep(SHARED_S)
    fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)


def noted_holder(number: int) -> str:
    """The process that has noted itself in a lock file, of which this is a descriptor; "unknown" if none has."""
    return os.pread(number, 64, 0).decode(errors="replace").strip() or "unknown"


class FolderLock:
    """The lock of a folder, from `take` to `release`. It ends with the process, however that ends.

    The object is made before the lock is taken, so whatever ends an interrupted opening has it. An object that is
    dropped releases its lock.
    """

    _owner: Descriptor | None = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pid = os.getpid()

    def take(self, *, only_look: bool = False) -> None:
        """Lock the folder. Raises StoreLocked or OSError.

        With `only_look` the file need not be writable: to be locked, it only has to be open. The process's number is
        then not noted in it.
        """
        path = self._folder / LOCK_FILE
        try:
            self._owner = open_descriptor(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            if not only_look or error.errno not in (errno.EROFS, errno.EACCES) or not path.exists():
                raise
            self._owner = open_descriptor(path, os.O_RDONLY)
        number = self._owner.fileno()
        try:
            _lock_alone(number)
        except BlockingIOError:
            holder = noted_holder(number)
            self._owner.close()
            raise StoreLocked(
                f"{self._folder} is open already (by process {holder}); one process and one store object at a time. "
                f"Close that one first."
            ) from None
        except OSError:
            self._owner.close()
            raise
        with suppress(OSError):  # a note for a process that finds it locked; a full or read-only disk need not take it
            os.ftruncate(number, 0)
            os.pwrite(number, f"{self._pid}\n".encode(), 0)

    @property
    def held(self) -> bool:
        """True from `take` to `release`."""
        return self._owner is not None and not self._owner.closed

    def is_in_place(self) -> bool:
        """True if the folder's path still leads to the folder that is locked, and the lock is one for others."""
        owner = self._owner
        if owner is None or owner.closed:
            return False
        mine = os.fstat(owner.fileno())
        try:
            there = os.stat(self._folder / LOCK_FILE)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def release(self) -> None:
        """Let others open the folder. After an interrupt, call it again.

        The lock itself is given back, not only our descriptor, of which a forked child has a copy. In such a child the
        lock is the parent's, and only the copy is closed.
        """
        owner = self._owner
        if owner is not None and not owner.closed:
            try:
                if os.getpid() == self._pid:
                    with suppress(OSError):  # refused: the lock goes with the last descriptor
                        fcntl.flock(owner.fileno(), fcntl.LOCK_UN)
            finally:
                owner.close()

    def __del__(self) -> None:
        self.release()


def enter_folder(disk: Disk, folder: Path, lock: FolderLock, *, create: bool = True) -> None:
    """Make the folder if need be, and take its lock. Without `create`, the folder is only looked at.

    Raises StoreUnusable if it cannot be a store's folder, StoreLocked if it is open. The lock may be taken even then:
    the caller releases it.
    """
    check_system()
    try:
        if not folder.exists():
            if not create:
                raise StoreUnusable(f"{folder} does not exist")
            disk.make_folder(folder)
        if not folder.is_dir():
            raise StoreUnusable(f"{folder} is not a folder; give the path of a folder")
        # The process that has the lock may be making the store just now: do not judge by half of its names.
        if (folder / LOCK_FILE).exists():
            lock.take(only_look=not create)
        _check_names(disk, folder, create=create)
        if not lock.held:
            lock.take(only_look=not create)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreUnusable(f"{folder} cannot be used as a store: {reason}") from error


def check_store_folder(disk: Disk, folder: Path) -> None:
    """Raises StoreUnusable if the folder is not that of a store. It takes no lock and makes nothing."""
    check_system()
    try:
        if not folder.is_dir():
            raise StoreUnusable(f"{folder} is not a folder; give the folder of a store")
        _check_names(disk, folder, create=False)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreUnusable(f"{folder} cannot be used as a store: {reason}") from error


@contextmanager
def looking_at(disk: Disk, folder: Path) -> Iterator[None]:
    """Hold the lock of a closed store's folder while it is looked at. Raises StoreUnusable, StoreLocked."""
    lock = FolderLock(folder)
    try:
        enter_folder(disk, folder, lock, create=False)
        yield
    finally:
        lock.release()


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
    """True for the remains of an interrupted creation."""
    return path.name.startswith("lane-") and path.is_dir() and disk.list(path) in ([], [START_FILE])


def check_version(block: bytes, folder: Path) -> None:
    """Raises StoreUnusable if this is the STORE file of another version of the format."""
    version = version_in(block)
    if version not in (None, FORMAT_VERSION):
        raise StoreUnusable(
            f"{folder} is a store of format {version}, and this version of stratalog reads format {FORMAT_VERSION}; "
            f"open it with the version that wrote it"
        )


def read_header(disk: Disk, folder: Path) -> StoreHeader | None:
    """Which store this is; None in a new folder. Raises StoreCorrupt."""
    if STORE_FILE not in disk.list(folder):
        return None
    file = disk.open(folder / STORE_FILE)
    try:
        block = file.read(0, BLOCK_BYTES)
    finally:
        file.close()
    check_version(block, folder)
    header = StoreHeader.unpack(block)
    if header is None:
        raise StoreCorrupt(
            HEADER_IS_DAMAGED,
            folder / STORE_FILE,
            0,
            "Restore this one file from a copy of the store.",
        )
    return header


def create_store(disk: Disk, folder: Path, lanes: int) -> StoreHeader:
    """Make a new store of the folder. The name of its header comes last: with it there is a store."""
    disk.make_folder(folder)  # it may be there, and its name not yet be durable
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
