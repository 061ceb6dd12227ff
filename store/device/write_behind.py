"""Bytes on their way to the device while more are made: the force at the end then has little to wait for."""

from __future__ import annotations

import ctypes
import os

from .disk import LogFile
from .os_file import REFUSED

STEP_BYTES = 8 << 20
_WRITE = 2  # SYNC_FILE_RANGE_WRITE: begin, and wait for nothing

try:
    _BEGIN = ctypes.CDLL(None, use_errno=True).sync_file_range  # Linux; without the interpreter lock
    _BEGIN.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
except (OSError, TypeError, AttributeError):
    _BEGIN = None


class WriteBehind:
    """Tells the kernel to write what a file got, a step at a time. It forces nothing."""

    def __init__(self, file: LogFile) -> None:
        fileno = getattr(file, "fileno", None)  # not of a file of the tests
        self._descriptor: int | None = None if fileno is None or _BEGIN is None else fileno()
        self._begun = 0

    def reached(self, end: int) -> None:
        """All up to `end` was written to the file. Raises OSError: the device took no more, and the file is lost."""
        size = end - self._begun
        if self._descriptor is None or size < STEP_BYTES:
            return
        if _BEGIN(self._descriptor, self._begun, size, _WRITE):
            number = ctypes.get_errno()
            if number not in REFUSED:
                raise OSError(number, os.strerror(number))
            self._descriptor = None
        self._begun = end
