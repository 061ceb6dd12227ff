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

_MINCORE: Any = None
try:
    # With the interpreter lock: the call is over sooner than the lock could be had again.
    _MINCORE = ctypes.PyDLL(None)["mincore"]
    _MINCORE.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)
except (OSError, TypeError, AttributeError):
    pass


class OsLease:
    """A `Lease` of the operating system (`F_SETLEASE`).

    As long as we have it, the kernel holds up whoever wants to open the file for writing or to cut it, for
    `/proc/sys/fs/lease-break-time` (45 s).
    """

    def __init__(self, owner: Descriptor) -> None:
        """Of an open file; the lease goes with its descriptor. Raises OSError."""
        if _MINCORE is None:
            raise OSError("this system does not say which pages are in memory")
        if int(PATIENCE.read_text()) < LEAST_PATIENCE_S:
            raise OSError("the kernel does not wait long enough for a lease")
        self._owner = owner
        descriptor = owner.fileno()
        self._pid = os.getpid()
        # The signal of a waiting opener: one that programs ignore unless they ask for it; the usual one ends them.
        fcntl.fcntl(descriptor, F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        try:
            self.memory = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        except BaseException as error:  # also an interrupt: the lease must not outlive it
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            if isinstance(error, ValueError):
                raise OSError("an empty file is not mapped") from error
            raise
        self._address = np.frombuffer(self.memory, np.uint8).ctypes.data

    def is_whole(self) -> bool:
        """Nobody waits for the file, and the lease is this process's."""
        if self._pid != os.getpid() or self._owner.closed:
            return False
        return fcntl.fcntl(self._owner.fileno(), fcntl.F_GETLEASE) == fcntl.F_RDLCK

    def is_resident(self, position: int, size: int) -> bool:
        """Whether the page cache has all pages of a range, which begins with a page."""
        count = -(-size // mmap.PAGESIZE)
        pages = ctypes.create_string_buffer(count)
        return not _MINCORE(self._address + position, size, pages) and pages.raw == b"\1" * count

    def populate(self, position: int, size: int) -> bool:
        """Have the page cache and the mapping filled. It is not looked into: what fails is no signal."""
        return populate(self._owner.fileno(), position, size, self.memory)

    def give_back(self) -> None:
        """Let those go on who wait."""
        if self._pid == os.getpid():  # else it is the parent's
            with contextlib.suppress(OSError, ValueError):  # the kernel has taken it away, or it was closed
                fcntl.fcntl(self._owner.fileno(), fcntl.F_SETLEASE, fcntl.F_UNLCK)
