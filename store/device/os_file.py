"""`OsFile`, the file of this operating system: Linux's, or that of any POSIX system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...portable import POSIX_ALONE

if TYPE_CHECKING or not POSIX_ALONE:  # for a type checker: whoever derives from it can have either
    from .linux_file import LinuxFile as OsFile
else:
    from .posix_file import PosixFile as OsFile

__all__ = ["OsFile"]
