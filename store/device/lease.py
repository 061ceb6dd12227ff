"""A lease of the kernel's on a file, and the mapping of it. When it may be looked at: `leased`."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

from .descriptor import Descriptor
from .prefault import populate

LEAST_PATIENCE_S = 10  # of the kernel
PATIENCE = Path("/proc/sys/fs/lease-break-time")
F_SETSIG = 10  # not in the fcntl module

MAP_FIXED = 0x10  # not in the mmap module

_MINCORE: Any = None
_MMAP: Any = None
try:
    # With the interpreter lock: the calls are over sooner than the lock could be had again.
    _C = ctypes.PyDLL(None, use_errno=True)
    _MINCORE, _MMAP = _C["mincore"], _C["mmap"]
    _MINCORE.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)
    _MMAP.argtypes = (ctypes.c_size_t, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    _MMAP.restype = ctypes.c_size_t
except (OSError, TypeError, AttributeError):
    pass


def mapped(descriptor: int) -> tuple[mmap.mmap, int]:
    """The whole of a file, mapped for reading, and its address. Raises OSError.

    A mapping that Python makes of a file holds a descriptor of its own until it is gone, so that each mapped file would
    cost two. So Python makes one of no file, and the kernel puts the file's pages in the place of that.
    """
    size = os.fstat(descriptor).st_size
    if not size:
        raise OSError("an empty file is not mapped")
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
    address: int = np.frombuffer(memory, np.uint8).ctypes.data
    if _MMAP(address, size, mmap.PROT_READ, mmap.MAP_SHARED | MAP_FIXED, descriptor, 0) != address:
        raise OSError(ctypes.get_errno(), "the file cannot be mapped")
    return memory, address


class OsLease:
    """A `Lease` of the operating system (`F_SETLEASE`).

    As long as we have it, the kernel holds up a program that opens the file for writing or cuts it, for
    `/proc/sys/fs/lease-break-time` (45 s).
    """

    def __init__(self, owner: Descriptor) -> None:
        """Take a lease on an open file; it goes with the file's descriptor. Raises OSError."""
        if _MMAP is None:
            raise OSError("this system does not say which pages are in memory")
        if int(PATIENCE.read_text()) < LEAST_PATIENCE_S:
            raise OSError("the kernel does not wait long enough for a lease")
        self._owner = owner
        descriptor = owner.fileno()
        self._pid = os.getpid()
        # The signal for a waiting opener: programs ignore this one unless they ask for it; the default one ends them.
        fcntl.fcntl(descriptor, F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        try:
            self.memory, self._address = mapped(descriptor)
        except BaseException:  # also an interrupt: the lease must not outlive it
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            raise

    def is_whole(self) -> bool:
        """True if no program waits for the file, and the lease is this process's."""
        if self._pid != os.getpid() or self._owner.closed:
            return False
        return fcntl.fcntl(self._owner.fileno(), fcntl.F_GETLEASE) == fcntl.F_RDLCK

    def is_resident(self, position: int, size: int) -> bool:
        """Whether the page cache has all pages of a range, which begins with a page."""
        count = -(-size // mmap.PAGESIZE)
        pages = ctypes.create_string_buffer(count)
        return not _MINCORE(self._address + position, size, pages) and pages.raw == b"\1" * count

    def populate(self, position: int, size: int) -> bool:
        """Have the page cache and the mapping filled. It touches no page, so a failure is no signal."""
        return populate(self._owner.fileno(), position, size, self.memory)

    def give_back(self) -> None:
        """Let the programs that wait go on."""
        if self._pid == os.getpid():  # else it is the parent's
            with contextlib.suppress(OSError, ValueError):  # the kernel has taken it away, or it was closed
                fcntl.fcntl(self._owner.fileno(), fcntl.F_SETLEASE, fcntl.F_UNLCK)
