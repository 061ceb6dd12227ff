"""The store's needs of the interpreter and the system. Opening a store checks them."""

from __future__ import annotations

import sys
from pathlib import Path

from ...portable import POSIX_ALONE, SWITCH, why_wrong
from ..errors import StoreUnusable

OPEN_FILES = Path("/proc/self/fd")


def check_system() -> None:
    """Raises StoreUnusable where a store would give wrong answers, or fail later."""
    has_lock = getattr(sys, "_is_gil_enabled", None)  # Python 3.13
    if has_lock is not None and not has_lock():
        raise StoreUnusable(
            "this interpreter runs without its global lock (it is free-threaded), and the store's threads rely on that "
            "lock; use a usual build of Python, or start this one with PYTHON_GIL=1"
        )
    if sys.byteorder != "little":
        raise StoreUnusable(
            "this machine is big-endian, and the store's files have their numbers in little-endian order; use the "
            "store on a little-endian machine (x86-64, ARM)"
        )
    wrong = why_wrong()
    if wrong is not None:
        raise StoreUnusable(wrong)
    if not (POSIX_ALONE or OPEN_FILES.is_dir()):
        raise StoreUnusable(
            f"there is no {OPEN_FILES}, by which the store opens its files again; mount /proc, or start the program "
            f"with {SWITCH}=posix"
        )
