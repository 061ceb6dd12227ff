"""A file by Linux's own calls: past the page cache where it can be so, written and forced by one call, with leases.

Each of the calls may be refused by a kernel, a file system or a sandbox: then it is done as `PosixFile` does it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ...portable import REFUSED
from .descriptor import Descriptor, open_descriptor
from .lease import OsLease
from .log_file import Buffer, LogFile
from .posix_file import PosixFile
from .prefault import populate

RWF_DSYNC: int = getattr(os, "RWF_DSYNC", 0)  # 0 where it is missing: then a force follows the write
RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
_WRITE = 2  # SYNC_FILE_RANGE_WRITE: begin, and wait for nothing

_BEGIN: Callable[[int, int, int, int], int] | None = None
with contextlib.suppress(OSError, TypeError, AttributeError):  # Linux alone has the call
    _call = ctypes.CDLL(None, use_errno=True).sync_file_range  # without the interpreter lock
    _call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    _BEGIN = _call


@contextlib.contextmanager
def _refusable() -> Iterator[None]:
    """Leave the block without an error if the system refuses a call in it."""
    try:
        yield
    except OSError as error:
        if error.errno not in REFUSED:
            raise


class LinuxFile(PosixFile):
    """A file of the operating system, with O_DIRECT where the file system takes it. `LogFile` has the contracts."""

    is_leasable = False  # nobody but the store opens the file for writing
    _force_flag = RWF_DSYNC  # 0 once the system has refused it

    def _opened(self, flags: int, *, direct: bool) -> Descriptor:
        if direct:
            try:
                owner = open_descriptor(self.path, flags | os.O_DIRECT)
                self.direct = True
                return owner
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                    raise
        return open_descriptor(self.path, flags)

    def write(self, parts: Sequence[Buffer], position: int, *, force: bool = False) -> None:
        total = sum(map(len, parts))
        # One system call in place of two: each return from the kernel waits for the interpreter lock.
        flags = self._force_flag if force else 0
        direct = self.direct  # as of now: another thread may leave it during the call
        try:
            done = os.pwritev(self._fd, parts, position, flags)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            done, flags = self._write_plainly(error, parts, position, flags, direct=direct)
        if done < total:
            while done < total:
                done += self._write_rest(parts, position, done)
            flags = 0
        if force and not flags:
            self.force()

    def _write_plainly(
        self, refusal: OSError, parts: Sequence[Buffer], position: int, flags: int, *, direct: bool
    ) -> tuple[int, int]:
        """Try again with one thing less each time (O_DIRECT, flags, `pwritev` itself): (bytes written, flags taken).

        A call that was refused has written nothing.
        """
        if direct and refusal.errno == errno.EINVAL:
            # Some file systems take O_DIRECT at open and refuse it at the first write.
            self._leave_direct()
            with _refusable():
                return os.pwritev(self._fd, parts, position, flags), flags
        if flags:
            with _refusable():
                done = os.pwritev(self._fd, parts, position)
                self._force_flag = 0
                return done, 0
        self._leave_direct()
        done = os.pwrite(self._fd, b"".join(parts), position)  # Python's pwritev is the call with flags in any case
        self._force_flag = 0
        return done, 0

    def _write_rest(self, parts: Sequence[Buffer], position: int, done: int) -> int:
        """Write on after a short write; the kernel then says why it was short, if there is a reason."""
        rest = memoryview(b"".join(parts))[done:]
        self._leave_direct()  # the rest need not be aligned
        count = os.pwrite(self._fd, rest, position + done)
        if count == 0:
            raise OSError(errno.EIO, "the device took no more bytes", str(self.path))
        return count

    def _leave_direct(self) -> None:
        if self.direct:
            fcntl.fcntl(self._fd, fcntl.F_SETFL, fcntl.fcntl(self._fd, fcntl.F_GETFL) & ~os.O_DIRECT)
            self.direct = False

    def force(self) -> None:
        os.fdatasync(self._fd)

    def begin_write_back(self, position: int, size: int) -> bool:
        """Have the kernel begin to write a range to the device; False where it does not know the call."""
        if _BEGIN is None:
            return False
        if _BEGIN(self._fd, position, size, _WRITE):
            number = ctypes.get_errno()
            if number not in REFUSED:
                raise OSError(number, os.strerror(number))
            return False
        return True

    def read_into(self, views: Sequence[memoryview], position: int) -> int:
        """Read into `views` from `position`; the number of bytes read."""
        direct = self.direct
        try:
            return os.preadv(self._fd, views, position)
        except OSError as error:
            if error.errno != errno.EINVAL or not direct:
                raise
            self._leave_direct()  # unaligned, or refused by the file system
            return os.preadv(self._fd, views, position)

    def will_need(self, position: int, size: int) -> None:
        """Ask the kernel to bring a range into the page cache; it does so in the background."""
        with contextlib.suppress(OSError):  # a hint
            os.posix_fadvise(self._fd, position, size, os.POSIX_FADV_WILLNEED)

    def populate(self, position: int, size: int) -> bool:
        """Have the page cache filled from `position` on; False where the system cannot do it so."""
        return populate(self._fd, position, size)

    def is_cached(self, position: int) -> bool:
        try:
            os.preadv(self._fd, [bytearray(1)], position, RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:  # the file system does not know the flag
            return True
        return True

    def drop_cached(self, position: int, size: int) -> None:
        """Tell the kernel that a range is not needed in the page cache (R24)."""
        with contextlib.suppress(OSError):  # a hint
            os.posix_fadvise(self._fd, position, size, os.POSIX_FADV_DONTNEED)

    def lease(self) -> OsLease:
        """Map the file under a lease. Raises OSError."""
        if not self.is_leasable:
            raise OSError("this file has no lease")
        return OsLease(self._owner)

    def data_from(self, position: int) -> int:
        try:
            return os.lseek(self._fd, position, os.SEEK_DATA)
        except OSError as error:
            return max(position, self.size()) if error.errno == errno.ENXIO else position

    def hole_from(self, position: int) -> int:
        try:
            return os.lseek(self._fd, position, os.SEEK_HOLE)
        except OSError:
            return max(position, self.size())

    def reserve(self, size: int) -> bool:
        with _refusable():
            os.posix_fallocate(self._fd, 0, size)
            return True
        return False

    def advise_random(self) -> None:
        """Have the kernel read nothing but what is asked for."""
        with contextlib.suppress(OSError):  # a hint
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)

    def sequential(self) -> LogFile:
        """This file opened once more, past the page cache where possible; also after a rename."""
        return LinuxFile(Path(f"/proc/self/fd/{self._fd}"), create=False, direct=True, write=False)
