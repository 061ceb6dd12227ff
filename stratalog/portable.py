"""Which calls of the system a process makes: Linux's own, or those that every POSIX system has. Decided here alone.

`STRATALOG_DEVICE=posix` in the environment chooses the latter; on another system than Linux they are taken anyway. What
they do not give is in docs/reference/systems.md. The variable counts as it is when the package is loaded.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from typing import Final

SWITCH: Final = "STRATALOG_DEVICE"
LINUX, POSIX = "linux", "posix"
CHOSEN: Final = os.environ.get(SWITCH, "") or (LINUX if sys.platform == LINUX else POSIX)
POSIX_ALONE: Final = CHOSEN == POSIX or sys.platform != LINUX

ZEROS: Final = bytes(1 << 20)
FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: there `fsync` leaves bytes in the device's memory
# What a system or file system answers to a call, or a flag of one, that it does not have. Nothing was done.
NOT_THERE: Final = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS, errno.ENOTTY})
REFUSED: Final = NOT_THERE | {errno.EPERM}  # and what a sandbox answers


def why_wrong() -> str | None:
    """What is wrong with the choice in the environment; None if nothing is."""
    if CHOSEN not in (LINUX, POSIX):
        return f"{SWITCH} is {CHOSEN!r}, and it can be {LINUX!r} or {POSIX!r}; change it, or leave it out"
    if CHOSEN == LINUX and sys.platform != LINUX:
        return f"{SWITCH} is {LINUX!r}, and this system is {sys.platform!r}; leave it out"
    return None


def force(descriptor: int) -> None:
    """Return when all that was written to an open file is on the device. Raises OSError."""
    if POSIX_ALONE:
        force_names(descriptor)
    else:
        os.fdatasync(descriptor)


def force_names(descriptor: int) -> None:
    """Return when an open folder's names, or all of an open file, are on the device. Raises OSError.

    On macOS that is F_FULLFSYNC; where a file system does not have it (a network's), `fsync`, which is less there.
    """
    if POSIX_ALONE and FULL_SYNC is not None:
        try:
            fcntl.fcntl(descriptor, FULL_SYNC)
            return
        except OSError as error:
            if error.errno not in NOT_THERE:
                raise  # the device failed: it is not asked again
    os.fsync(descriptor)


def take_space(descriptor: int, size_bytes: int) -> None:
    """Have an empty file take its space on the device: a mapping of it can be touched then. Raises OSError (ENOSPC)."""
    if not POSIX_ALONE:
        os.posix_fallocate(descriptor, 0, size_bytes)
        return
    at = 0
    while at < size_bytes:
        at += os.pwrite(descriptor, memoryview(ZEROS)[: size_bytes - at], at)
