"""Memory that a process shares with others of the same user, with no name in any folder: it leaves no file.

Others find it among the open files of its maker (`/proc/PID/fd`), where the kernel lets no other user look. A reader
holds a shared lock on it, so its maker knows whether there are readers.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from contextlib import suppress
from pathlib import Path

from .descriptor import Descriptor, open_descriptor, owned

# To touch a page that was cut off is a signal that kills.
_SEALS = getattr(fcntl, "F_SEAL_SHRINK", 2) | getattr(fcntl, "F_SEAL_GROW", 4) | getattr(fcntl, "F_SEAL_SEAL", 1)
_ADD_SEALS: int = getattr(fcntl, "F_ADD_SEALS", 1033)


def _quick_flock() -> ctypes._NamedFuncPointer | None:
    try:
        # With the interpreter lock: the call is over sooner than the lock is had again.
        return ctypes.PyDLL(None, use_errno=True)["flock"]
    except (OSError, TypeError, AttributeError):
        return None


_FLOCK = _quick_flock()


class SharedMemory:
    """Some bytes of memory, by an open descriptor. Its maker writes, the others read."""

    def __init__(self, owner: Descriptor, size_bytes: int, *, write: bool) -> None:
        self._owner = owner
        self._write = write
        self.size_bytes = size_bytes

    @classmethod
    def make(cls, name: str, size_bytes: int) -> SharedMemory | None:
        """New memory, zeros, that takes no room before it is written to; None where the system has no such thing."""
        create = getattr(os, "memfd_create", None)
        if create is None or _FLOCK is None:
            return None
        try:
            owner = owned(create, name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(owner.fileno(), size_bytes)
            fcntl.fcntl(owner.fileno(), _ADD_SEALS, _SEALS)
        except OSError:
            return None
        return cls(owner, size_bytes, write=True)

    @classmethod
    def find(cls, pid: int, name: str) -> SharedMemory | None:
        """The memory that another process has made under this name, and a lock on it; None if there is none.

        Raises BlockingIOError if its maker looks at the lock right now.
        """
        wanted = f"/memfd:{name} (deleted)"
        try:
            folder = Path(f"/proc/{pid}/fd")
            paths = [entry for entry in folder.iterdir() if _leads_to(entry) == wanted]
            if not paths:
                return None
            owner = open_descriptor(paths[0], os.O_RDONLY)
            size = os.fstat(owner.fileno()).st_size
        except OSError:  # another user's, or it has ended
            return None
        fcntl.flock(owner.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
        return cls(owner, size, write=False)

    def map(self, at: int, size_bytes: int) -> mmap.mmap:
        """A mapping of a range. Raises OSError, ValueError."""
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if self._write else 0)
        return mmap.mmap(self._owner.fileno(), size_bytes, prot=protection, offset=at)

    def is_wanted(self) -> bool:
        """Whether another process has found it. Some 0.3 us; keeps the interpreter lock."""
        if _FLOCK is None or self._owner.closed:
            return False
        number = self._owner.fileno()
        if _FLOCK(number, fcntl.LOCK_EX | fcntl.LOCK_NB):
            return ctypes.get_errno() == errno.EWOULDBLOCK  # else locks are refused here, to readers as well
        _FLOCK(number, fcntl.LOCK_UN)
        return False

    def provide(self) -> bool:
        """Have the kernel provide all of it; False if it has no room. Without the interpreter lock, some 20 ms.

        To touch a page for which there is no room is a signal that kills.
        """
        try:
            os.posix_fallocate(self._owner.fileno(), 0, self.size_bytes)
        except (OSError, ValueError):
            return False
        return True

    def close(self) -> None:
        """Let go of the descriptor and the lock. Mappings stay, and would keep the lock."""
        if not (self._write or self._owner.closed):
            fcntl.flock(self._owner.fileno(), fcntl.LOCK_UN)
        self._owner.close()


def _leads_to(entry: Path) -> str:
    try:
        return os.readlink(entry)
    except OSError:  # closed meanwhile
        return ""


def give_back(mapping: mmap.mmap) -> None:
    """Free the memory of a shared mapping, for all processes that have it: they find zeros. A hint."""
    with suppress(OSError, AttributeError):  # a system that does not know it
        mapping.madvise(mmap.MADV_REMOVE)
