"""Read-ahead of a segment by the kernel: windows around the places that readers touch."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from time import monotonic

from ..device.leased import LeasedMap
from ..device.log_file import LogFile
from ..format.layout import BLOCK_BYTES

WINDOW_BYTES = 128 << 10
LARGEST_SPAN = 64  # windows: 8 MiB
POPULATE_BYTES = 1 << 20
TOUCHES_A_DOUBLING = 2
LOOK_S = 0.1
REGION_BYTES = 1 << 20
LARGEST_ALONE_BYTES = 128 << 10  # a longer message is read by windows
ALONE_BYTES = 3 * REGION_BYTES // 2
SPARSE_BYTES = 1 << 20  # from one message of a stream to the next: a window for each would be too much
ASKED, TOUCHED = 1, 2  # of a window: the kernel was asked for it; one message of it was read by itself


class Windows:
    """The windows of one segment. Any number of threads may use it.

    In a file that is still written to, a window is asked for at its second touch. Most reads of such a file are of
    single messages that the ring has just lost; 128 KiB for each would be most of what the device reads.

    These are notes of what the kernel was asked for; if a race loses one, the kernel is asked twice.

    The page cache forgets what was not read for long, and then reading would go on place by place. So once in a while
    a reader looks whether a place that was asked for is still there; if not, nothing counts as asked for any more.

    Attributes:
        all_asked: every window was asked for, to the end of a file that nobody writes to.
        look_at: when a reader looks again (`time.monotonic`). Until then there is nothing to do if all was asked for.
    """

    __slots__ = ("_alone", "_asked", "_touches", "all_asked", "look_at")

    def __init__(self) -> None:
        self._alone: array[int] = array("I")  # bytes of each region
        self._asked = bytearray()  # ASKED or TOUCHED or 0 a window
        self._touches = 0
        self.all_asked = False
        self.look_at = 0.0

    def forget(self) -> None:
        """Take nothing for asked for any more: the pages are gone, or zeros that are written to now."""
        self._asked = bytearray()
        self._alone = array("I")
        self._touches = 0
        self.all_asked = False

    @property
    def are_used(self) -> bool:
        """Whether the kernel was asked for any window."""
        return self._touches > 0

    def has(self, flat: Sequence[int], entries: Sequence[int]) -> bool:
        """Whether the kernel was asked for all windows of some messages, given as for `reads_singly`."""
        asked = self._asked
        if not asked:
            return False
        try:
            for entry in entries:
                at = flat[3 * entry]
                end = at + flat[3 * entry + 1]
                if asked[at // WINDOW_BYTES] != ASKED or asked[(end - 1) // WINDOW_BYTES] != ASKED:
                    return False
        except IndexError:  # the file was shorter when the kernel was asked
            return False
        return True

    def were_asked(self, begin: int, length: int) -> bool:
        """Whether the kernel was asked for all of a message, and nobody has to look again whether it has it."""
        asked = self._asked
        last = (begin + (length or 1) - 1) // WINDOW_BYTES  # also of no bytes, at the end of the file
        return (
            last < len(asked)
            and asked[begin // WINDOW_BYTES] == ASKED == asked[last]
            and begin // WINDOW_BYTES >= last - 1
            and monotonic() < self.look_at
        )

    def reads_singly(self, flat: Sequence[int], entries: Sequence[int]) -> bool:
        """Whether a call reads its messages, which lie far apart, one by one and not by windows. If so, note the bytes.

        The position and length of entry n are at 3 n and 3 n + 1 of `flat`. True until 1.5 times a region's bytes were
        read of it: then its messages are read more than once, and it is worth the page cache. At most so much is read
        in vain.
        """
        read = self._alone  # once: another thread may begin a new one
        for entry in entries:
            region, length = flat[3 * entry] // REGION_BYTES, flat[3 * entry + 1]
            if region >= len(read):
                read.extend([0] * (region + 1 - len(read)))
            if read[region] >= ALONE_BYTES or length > LARGEST_ALONE_BYTES:
                return False
            read[region] += length + BLOCK_BYTES  # about what the device reads for it
        return True

    def asked(self) -> set[int]:
        """The windows that were asked for."""
        return {index for index, flag in enumerate(self._asked) if flag == ASKED}

    def prepare(
        self, data: LogFile, starts: Sequence[int], lengths: Sequence[int], *, written: bool,
        leased: LeasedMap | None = None,
    ) -> None:  # fmt: skip
        """Have the kernel asked for all of a call's places before the first is read: the device has them at once.

        `written`: the file is still written to. `leased`: what the messages are copied from, if it is mapped.
        """
        if self._touches and monotonic() >= self.look_at:
            self._look(data, starts[0])
        if self.all_asked:
            return
        asked = self._asked  # once: `forget` of another thread puts an empty one in its place
        if (starts[-1] + lengths[-1] - 1) // WINDOW_BYTES >= len(asked):
            windows = -(-data.size() // WINDOW_BYTES)
            starts = [start for start in starts if start < windows * WINDOW_BYTES]  # past the end there is nothing
            asked = self._asked = asked.ljust(windows, b"\0")
        for begin, length in zip(starts, lengths, strict=False):
            window, last = begin // WINDOW_BYTES, (begin + length - 1) // WINDOW_BYTES
            if asked[window] != ASKED:
                self._touch(data, asked, window, leased, written=written)
            if last != window and last < len(asked) and asked[last] != ASKED:
                self._touch(data, asked, last, leased, written=written)

    def _touch(self, data: LogFile, asked: bytearray, window: int, leased: LeasedMap | None, *, written: bool) -> None:
        """A message of a window that was not asked for is read."""
        if written and asked[window] != TOUCHED:
            asked[window] = TOUCHED
        else:
            self._ask(data, asked, window, leased, written=written)

    def _look(self, data: LogFile, position: int) -> None:
        """Does the page cache still have a place that was asked for?"""
        self.look_at = monotonic() + LOOK_S
        window, asked = position // WINDOW_BYTES, self._asked
        if window < len(asked) and asked[window] == ASKED and not data.is_cached(position):
            self.forget()

    def _ask(self, data: LogFile, asked: bytearray, window: int, leased: LeasedMap | None, *, written: bool) -> None:
        """Have the kernel read around a first touch: the more places were touched, the more it reads.

        A reader of one message of a cold segment may want no other; one of queue after queue wants it all.
        """
        self._touches += 1
        span = min(LARGEST_SPAN, 1 << (self._touches // TOUCHES_A_DOUBLING))
        first = window & -span
        # A file that is still written to may have zeros after this place: to read them ahead would be of no use.
        limit = window + 1 if written else min(first + span, len(asked))
        begin, end = window, window + 1
        while begin > first and asked[begin - 1] != ASKED:
            begin -= 1
        while end < limit and asked[end] != ASKED:
            end += 1
        asked[begin:end] = bytes((ASKED,)) * (end - begin)
        self.all_asked = not written and asked.count(ASKED) == len(asked)
        self.look_at = monotonic() + LOOK_S  # until then the device may still be at it
        position, size = begin * WINDOW_BYTES, (end - begin) * WINDOW_BYTES
        source = data if leased is None or leased.memory is None else leased
        if size < POPULATE_BYTES or not source.populate(position, size):
            data.will_need(position, size)
