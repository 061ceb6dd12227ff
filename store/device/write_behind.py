"""Bytes on their way to the device while more are made: the force at the end then has little to wait for."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Callable

from .disk import LogFile
from .os_file import REFUSED

STEP_BYTES = 8 << 20
_WRITE = 2  # SYNC_FILE_RANGE_WRITE: begin, and wait for nothing

_BEGIN: Callable[[int, int, int, int], int] | None = None
with contextlib.suppress(OSError, TypeError, AttributeError):  # Linux alone has the call
    _call = ctypes.CDLL(None, use_errno=True).sync_file_range  # without the interpreter lock
    _call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    _BEGIN = _call


class WriteBehind:
    """Tells the kernel to write what a file got, a step at a time. It forces nothing."""

    def __init__(self, file: LogFile) -> None:
        self._fileno: Callable[[], int] | None = getattr(file, "fileno", None)  # None: a file that tests think up
        self._begun = 0

    def reached(self, end: int) -> None:
        """All up to `end` was written to the file. Raises OSError: the device took no more, and the file is lost."""
        size = end - end % mmap.PAGESIZE - self._begun  # the last page gets more, and would be written twice
        if _BEGIN is None or self._fileno is None or size < STEP_BYTES:
            return
        if _BEGIN(self._fileno(), self._begun, size, _WRITE):
            number = ctypes.get_errno()
            if number not in REFUSED:
                raise OSError(number, os.strerror(number))
            self._fileno = None
        self._begun += size
