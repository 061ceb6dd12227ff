"""An open file, as the store sees it: all that it may ask of one, and plain answers where a file has no such ability.

Nothing of this is optional. A file that cannot be leased raises OSError in `lease`, one whose pages cannot be populated
answers False: the store then goes another way, and no code asks which kind of file it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class Memory(Protocol):
    """A mapping of a whole file. Look at it by the rule of `device/leased.py` alone."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> bytes: ...


class Lease(Protocol):
    """A file mapped as a whole, which nobody cuts or writes to without waiting for `give_back`."""

    @property
    def memory(self) -> Memory:
        """The mapping."""

    def is_whole(self) -> bool:
        """True if no program waits for the file, and the lease is this process's."""

    def is_resident(self, position: int, size: int) -> bool:
        """Whether the page cache has all pages of a range, which begins with a page."""

    def populate(self, position: int, size: int) -> bool:
        """Have the page cache, and the mapping, filled from `position` on; False where it cannot be done so."""

    def give_back(self) -> None:
        """Let the programs that wait go on. From now on nothing looks at `memory`."""


class LogFile(Protocol):
    """One open file. Errors are OSError; after a failed write or force nothing is retried.

    Attributes:
        direct: it is written and read past the page cache, in whole blocks.
    """

    direct: bool

    def write(self, parts: Sequence[Buffer], position: int, *, force: bool = False) -> None:
        """Write all parts, back to back, at `position`; returns when the kernel has them.

        With `force`, returns when these bytes (not those of earlier writes) are on the device.
        """

    def force(self) -> None:
        """Return when everything written before the call is on the device."""

    def begin_write_back(self, position: int, size: int) -> bool:
        """Have the kernel begin to write a range to the device, without a wait; False where it has no such call.

        Raises OSError: the device took no more, and the file is lost.
        """

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""

    def read_into(self, views: Sequence[memoryview], position: int) -> int:
        """Read into `views` from `position`; the number of bytes read."""

    def will_need(self, position: int, size: int) -> None:
        """A hint that a range is read soon."""

    def advise_random(self) -> None:
        """A hint that what lies around the bytes that are read is not wanted."""

    def populate(self, position: int, size: int) -> bool:
        """Have the page cache filled from `position`, a page's, on; False where it cannot be done so."""

    def is_cached(self, position: int) -> bool:
        """Whether a byte can be read without the device; True where that cannot be told."""

    def drop_cached(self, position: int, size: int) -> None:
        """A hint that a range is not needed in the page cache."""

    def lease(self) -> Lease:
        """Map the file under a lease. Raises OSError where it cannot be had, or not safely."""

    def sequential(self) -> LogFile:
        """The file opened once more to read, past the page cache where possible; also after a rename."""

    def fileno(self) -> int:
        """The system's number of the open file. Raises OSError where the system does not know the file."""

    def share(self) -> bool:
        """Keep the file from being used again for another segment while this object is open. False: it is too late."""

    def is_shared(self) -> bool:
        """Whether another process keeps the file from being used again."""

    def size(self) -> int:
        """Length of the file in bytes."""

    def is_in_place(self) -> bool:
        """True if the path that the file was opened by still leads to it."""

    def truncate(self, size: int) -> None:
        """Cut or grow the file to `size` bytes."""

    def reserve(self, size: int) -> bool:
        """Take space on the device for the first `size` bytes; False where the system has no such call.

        Raises OSError: there is not so much.
        """

    def data_from(self, position: int) -> int:
        """The first byte from `position` on that may be other than zero; the file's size where there is none.

        What lies before it was never written, by the word of the file system; `position` where that has none.
        """

    def hole_from(self, position: int) -> int:
        """The first byte from `position` on that was never written, though its space may be reserved.

        The file's size where there is none, or where the file system does not tell.
        """

    def close(self) -> None:
        """Let go of the file."""


Range = tuple[LogFile, int, int]  # file, position, bytes


class RangeReads(Protocol):
    """Reads of many ranges at once past the page cache, for any number of threads.

    Attributes:
        is_refused: the system has no such reads.
    """

    is_refused: bool

    def read(self, ranges: Sequence[Range]) -> tuple[list[bytes], int, int] | None:
        """The bytes of each range, how many bytes were read for them, and with how many requests.

        None where they cannot all be had so: a range is too long or past the end of its file, the device reports an
        error. Ranges of a file that follow one another, and share a block or touch, are read with one request.
        """

    def clear(self) -> None:
        """Let go of the memory that nobody uses."""
