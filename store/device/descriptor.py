"""Descriptors that are closed once, whatever interrupts the program.

Python runs a signal's handler between two of its steps, and the handler may raise (KeyboardInterrupt does). A
descriptor that is a plain number at that moment is lost: nobody closes it. And a number that was closed a moment ago
and is still remembered is closed again later, when it may be another file's. So a number never stands alone here:
`os.open` and the object that owns its result are called by one `map`, in C, with no step of Python in between. The
owner closes its number and forgets it in C as well, when it is told to or when nobody refers to it any more.

The owner is a `select.epoll`: the one type of the standard library that takes over a number of any kind, folders
too, without asking the system what it is. Nothing is ever polled with it. Only Linux has it; elsewhere the owner is a
`FileIO`, which asks, and takes no folder. A folder's is a `select.kqueue` there, macOS's and BSD's. Nothing is read,
written or waited for with either.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Protocol

from ...portable import POSIX_ALONE


class Descriptor(Protocol):
    """The owner of a descriptor."""

    @property
    def closed(self) -> bool:
        """True once it was closed."""

    def fileno(self) -> int:
        """The number. Raises ValueError once it was closed."""

    def close(self) -> None:
        """Close it, if that was not done."""


def open_descriptor(path: Path | str, flags: int, mode: int = 0o644) -> Descriptor:
    """`os.open`, with an owner for what it returns. Never inherited by another program. Raises OSError."""
    return owned(os.open, path, flags | os.O_CLOEXEC, mode)


def owned(make: Callable[..., int], *given: object) -> Descriptor:
    """What `make(*given)` returns, with an owner. Raises what it raises."""
    return next(map(_OWNER, map(make, *[(one,) for one in given])))


class _FileOwner(FileIO):
    """A `FileIO` that is closed without a warning when nobody refers to it any more, in C as well."""

    __del__ = FileIO.close


def open_folder(path: Path) -> Descriptor:
    """An open folder, to be forced, with an owner on any system. Raises OSError."""
    return next(map(_FOLDER_OWNER, map(os.open, [path], [os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC])))


_OWNER: Callable[[int], Descriptor] = _FileOwner if POSIX_ALONE else select.epoll.fromfd
_FOLDER_OWNER: Callable[[int], Descriptor] = (getattr(select, "kqueue", None) or select.epoll).fromfd
