"""Two folders change their places in one step of the file system."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

EXCHANGE = 2  # RENAME_EXCHANGE, RENAME_SWAP
# Linux's call and macOS's, and the number that each has for the working directory (AT_FDCWD). POSIX has none.
CALLS = {"renameat2": -100, "renameatx_np": -2}


def exchange(one: Path, other: Path) -> None:
    """Give each of two folders the other's name, both at once; not durable before their parents are forced.

    Raises OSError; one of `portable.NOT_THERE` where the system or the file system cannot do it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    found = [(getattr(libc, name), here) for name, here in CALLS.items() if hasattr(libc, name)]
    if not found:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(one))
    rename, here = found[0]
    if rename(here, os.fsencode(one), here, os.fsencode(other), ctypes.c_uint(EXCHANGE)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one), None, str(other))
