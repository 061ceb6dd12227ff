"""Pages brought in ahead of need, without the interpreter lock: a file's into the page cache, fresh ones of memory."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np

from ...portable import POSIX_ALONE

MADV_POPULATE_READ = 22  # Linux 5.14; not in the mmap module, whose madvise keeps the interpreter lock
MADV_POPULATE_WRITE = 23
# The device is asked for so much at a time: as fast as all at once, and a forced write meanwhile waits less.
STEP_BYTES = 1 << 20

try:
    _LIBC: ctypes.CDLL | None = None if POSIX_ALONE else ctypes.CDLL(None)
except (OSError, TypeError):
    _LIBC = None


def populate(descriptor: int, position: int, size: int, mapped: mmap.mmap | None = None) -> bool:
    """Have the page cache filled from `position` of a file on; False where that cannot be done this way.

    The kernel reads a mapping in larger pages than it takes for a hint, for a fifth of the processor time, and
    reads from these pages are quicker as well. The mapping is not looked into, so neither a bad sector nor a file that
    was cut is a signal that kills the process: the call fails, and so does the read that comes after it. `position` is
    a multiple of the page size.

    `mapped`: a mapping of the whole file that is copied from later. The pages are in its tables then, and no copy has
    to wait for the kernel to put them there.
    """
    if _LIBC is None:
        return False
    size = min(size, (os.fstat(descriptor).st_size if mapped is None else len(mapped)) - position)
    if size <= 0:
        return False
    if mapped is not None:  # the array keeps it, also where another thread lets go of it meanwhile
        pages = np.frombuffer(mapped, np.uint8, size, position)
    else:
        try:
            pages = np.frombuffer(mmap.mmap(descriptor, size, prot=mmap.PROT_READ, offset=position), np.uint8)
        except (OSError, ValueError):  # cut since its size was asked for
            return False
    first, end = pages.ctypes.data, pages.ctypes.data + size
    failed = 0
    for at in range(first, end, STEP_BYTES):
        length = ctypes.c_size_t(min(STEP_BYTES, end - at))
        failed = failed or _LIBC.madvise(ctypes.c_void_p(at), length, MADV_POPULATE_READ)
    return not failed


def provide(address: int, size: int) -> None:
    """Have the kernel provide the pages of fresh memory; contents stay. A hint: else they come when touched."""
    if _LIBC is not None:
        _LIBC.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), MADV_POPULATE_WRITE)
