"""Two folders change their places in one step of the file system."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

AT_FDCWD = -100
RENAME_EXCHANGE = 2


def exchange(one: Path, other: Path) -> None:
    """Give each of two folders the other's name, both at once; not durable before their parents are forced.

    Raises OSError; ENOSYS or EINVAL where the system or the file system cannot do it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    rename = getattr(libc, "renameat2", None)
    if rename is None:
        raise OSError(38, os.strerror(38), str(one))
    if rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one), None, str(other))
