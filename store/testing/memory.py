"""Mappings of a simulated disk's files under a lease, and reads of many ranges. SIGBUS is an exception here."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..device.direct_reads import SLOT_BYTES
from ..device.log_file import Range
from .survivors import BLOCK_BYTES

if TYPE_CHECKING:
    from .content import Content


class BusError(BaseException):
    """The process would have ended by SIGBUS: it touched a mapped page that does not exist.

    Not an `Exception`: code that goes on after errors must not go on after this.
    """


class SimulatedLease:
    """A `Lease`, and the mapping itself.

    Reading the mapping raises BusError after a cut of the file, on an unreadable page, and after `give_back`.
    """

    def __init__(self, content: Content) -> None:
        """Raises OSError for an empty file, and while it is open for writing."""
        if content.writers:
            raise OSError(errno.EAGAIN, "somebody has the file open for writing")
        if not content.size:
            raise OSError(errno.EINVAL, "an empty file is not mapped")
        self._content = content
        self._size = content.size
        self._is_given_back = False
        content.leases.add(self)
        self._is_wanted = False

    @property
    def memory(self) -> SimulatedLease:
        """The mapping."""
        return self

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice, /) -> bytes:
        """A copy of mapped bytes. Raises BusError."""
        begin, end, _ = part.indices(self._size)
        content = self._content
        if self._is_given_back:
            raise BusError("a mapping is looked at after its lease was given back")
        if end > begin and (end - 1) // BLOCK_BYTES > (content.size - 1) // BLOCK_BYTES:
            raise BusError("a mapping is looked at past the end of its file, which was cut")
        if content.is_bad(begin, end):
            raise BusError("a mapping is looked at where the device cannot read the page")
        return content.read(begin, max(0, end - begin)).ljust(max(0, end - begin), b"\0")

    def is_whole(self) -> bool:
        """True while nobody waits for the file."""
        return not (self._is_given_back or self._is_wanted)

    def is_resident(self, position: int, size: int) -> bool:
        """Whether the pages can be touched: all readable ones are in memory."""
        return self._content.can_read(position, size)

    def populate(self, position: int, size: int) -> bool:
        """Whether the pages can be read; they are in memory anyway."""
        return self._content.can_read(position, size)

    def ask_for(self) -> None:
        """Note that another object waits for the file."""
        self._is_wanted = True

    def give_back(self) -> None:
        """Give the lease back: objects that wait go on."""
        self._is_given_back = True
        self._content.given_back(self)


class SimulatedReads:
    """Reads of many ranges at once (`RangeReads`), without any delay."""

    is_refused = False

    def read(self, ranges: Sequence[Range]) -> tuple[list[bytes], int, int] | None:
        """The bytes of each range, their sum in whole blocks, and the number of requests; None if one is unreadable."""
        found: list[bytes] = []
        size = 0
        for file, position, length in ranges:
            low = position & -BLOCK_BYTES
            whole = (position + (length or 1) + BLOCK_BYTES - 1 - low) & -BLOCK_BYTES
            try:
                data = b"" if whole > SLOT_BYTES else file.read(low, whole)[position - low :][:length]
            except OSError:
                return None
            if len(data) < length or whole > SLOT_BYTES:
                return None
            found.append(data)
            size += whole
        return found, size, len(ranges)

    def clear(self) -> None:
        """Do nothing: no memory is held."""
