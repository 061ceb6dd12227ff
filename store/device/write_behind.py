"""Bytes on their way to the device while more are made: the force at the end then has little to wait for."""

from __future__ import annotations

import mmap

from .log_file import LogFile

STEP_BYTES = 8 << 20


class WriteBehind:
    """Tells the kernel to write what a file got, a step at a time. It forces nothing."""

    def __init__(self, file: LogFile) -> None:
        self._file: LogFile | None = file  # until it turns out that the kernel cannot be told
        self._begun = 0

    def reached(self, end: int) -> None:
        """Note that all up to `end` was written. Raises OSError: the device took no more, and the file is lost."""
        size = end - end % mmap.PAGESIZE - self._begun  # the last page gets more, and would be written twice
        if self._file is None or size < STEP_BYTES:
            return
        if not self._file.begin_write_back(self._begun, size):
            self._file = None
        self._begun += size
