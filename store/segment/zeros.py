"""Zeros ahead of the log (R7): how far the file of a segment that takes frames is pre-written."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from contextlib import suppress

from ..device.log_file import LogFile
from ..format.layout import align_down, align_up

STEP_BYTES = 1 << 20
MOST_FIRST_BYTES = 4 << 20
NOTHING = memoryview(mmap.mmap(-1, STEP_BYTES)).toreadonly()  # zeros that begin with a page, as O_DIRECT wants it


def first_bytes(capacity_bytes: int) -> int:
    """With how many zeros a segment of this size stands ready: a small one with all."""
    return max(min(align_down(capacity_bytes >> 3), MOST_FIRST_BYTES), STEP_BYTES)


class Zeros:
    """The zeros of a file that takes frames. Behind them its space is reserved, and was never written.

    A forced write into blocks that were written before changes no metadata of the file; one into reserved space does,
    and waits for it. So zeros are written in steps ahead of the log. A log that comes to their end waits for the step
    that is under way, if there is one, and goes on in the reserved space. Both kinds of space are read as zeros, also
    after a crash.

    They have an open file of their own. The kernel tells each open file once of what it could not write back, also of
    others' writes; a step must not hear of a write of the log in its place. Some file systems take O_DIRECT and go
    through the page cache all the same.

    Invariants:
        * zeros are written from `ready` on, and frames only before it: `claim` moves it first. Both happen under one
          lock, so a step of zeros and a write of the log never touch the same bytes;
        * once `stop` has returned, no step is under way, and none is begun.

    Attributes:
        ready: the log may write before it without asking. It only grows.
        is_outrun: the log has come to the end of the zeros since this was last set to False.
    """

    __slots__ = ("_end", "_file", "_log", "_stepping", "is_outrun", "ready")

    def __init__(self, log: LogFile, file: LogFile, ready: int, end: int) -> None:
        """`file` takes the zeros, `log` the frames; all before `ready` was written, or belongs to the log."""
        self.ready = ready
        self.is_outrun = False
        self._log, self._file = log, file
        self._end = end
        self._stepping = threading.Lock()

    @classmethod
    def of(cls, log: LogFile, begin: int, again: Callable[[], LogFile]) -> Zeros | None:
        """Those of a file whose `log` goes on at `begin`; None where all of it was written, or may not be left so.

        `again` opens the file once more. Raises OSError: what is not written is not reserved either, as in a copy of
        the file, and there is no space.
        """
        end, ready = align_down(log.size()), align_up(log.hole_from(begin))
        if ready < end and log.reserve(end) and log.direct:
            with suppress(OSError):  # no descriptor is left: the log goes on in the reserved space
                return cls(log, again(), ready, end)
        return None

    @property
    def is_stepping(self) -> bool:
        """Whether zeros are on their way to the device; `claim` waits for them."""
        return self._stepping.locked()

    def claim(self, end: int) -> None:
        """The log is about to write up to `end`: no zeros from now on before it."""
        self.is_outrun = True  # first: the one who steps would take the lock again and again
        with self._stepping:
            self.ready = max(self.ready, align_up(end))

    def step(self) -> int:
        """Write more zeros and force them: how many; 0 if the file has all of them, or takes none any more.

        Raises OSError; then the file takes none any more. What was written of them is in nobody's way.
        """
        with self._stepping:
            begin = self.ready
            size = min(STEP_BYTES, self._end - begin)
            if size <= 0 or not (self._file.direct and self._log.direct):  # else the two may meet in a page
                return 0
            try:
                self._file.write([NOTHING[:size]], begin, force=True)
            except OSError:
                self._end = 0
                raise
            self.ready = begin + size
        return size

    def stop(self) -> None:
        """Write no more zeros: the file is cut, or others write to it."""
        with self._stepping:
            self._end = 0
