"""The checker of reads: it counts the messages that are lost, repeated, reordered or damaged."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from ...store import OffsetOutOfRange
from .contest import HEADER, HEADER_BYTES, Content, QueueAddress

SURPLUS_READS = 100
PATIENCE_S = 60.0  # with what must come soon

GetRange = Callable[[str, int, int, int], dict[int, bytes]]


class WrongResult(Exception):
    """A measurement got other bytes than those written: its figures would mean nothing."""


class Patience:
    """Ends a wait for something that does not come."""

    def __init__(self, what: str, seconds: float | None = None) -> None:
        self._what, self._seconds = what, PATIENCE_S if seconds is None else seconds
        self._end_s = time.monotonic() + self._seconds

    def check(self) -> None:
        """Raises WrongResult if the time is over."""
        if time.monotonic() > self._end_s:
            raise WrongResult(f"{self._what} in {self._seconds:g} s")


@dataclass
class Counts:
    """Messages that broke a promise. All must be 0."""

    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    corrupted: int = 0
    wrong_offsets: int = 0

    def add(self, other: Counts) -> None:
        """Add the counts of another reader or producer."""
        self.lost += other.lost
        self.duplicated += other.duplicated
        self.out_of_order += other.out_of_order
        self.corrupted += other.corrupted
        self.wrong_offsets += other.wrong_offsets

    @property
    def clean(self) -> bool:
        """Whether every count is 0."""
        return not (self.lost or self.duplicated or self.out_of_order or self.corrupted or self.wrong_offsets)

    def line(self) -> str:
        """All of them in a line: "lost 0  duplicated 0 ..."."""
        return "  ".join(f"{name} {count}" for name, count in asdict(self).items())


class QueueReader:
    """Reads queues through `get_range` and checks each message; used by one thread.

    Invariants, for each queue: `next_offset` is the first offset not asked for yet; `expected` is one above the highest
    serial number seen; `missing` holds the serials below `expected` that were jumped over. So a lost message is either
    in `missing` or not below `expected`.
    """

    def __init__(self, get_range: GetRange, addresses: list[QueueAddress], content: Content) -> None:
        self._get_range = get_range
        self._addresses = addresses
        self._content = content
        self.next_offset: dict[int, int] = {}
        self._expected: dict[int, int] = {}
        self._missing: dict[int, set[int]] = {}
        self.counts = Counts()
        self.messages = 0
        self.bytes = 0

    def start(self, queue: int, offset: int) -> None:
        """Begin to read `queue` at `offset`."""
        self.next_offset[queue] = self._expected[queue] = offset

    def read(self, queue: int, fetch_messages: int) -> int:
        """Call `get_range` once. Returns the number of messages."""
        offset = self.next_offset[queue]
        topic, queue_id = self._addresses[queue]
        try:
            found = self._get_range(topic, queue_id, offset, fetch_messages)
        except OffsetOutOfRange:
            return 0  # what should be there is not: finish() counts it as lost
        matches, expected = self._content.matches, self._expected[queue]
        size = 0
        for index, data in found.items():
            size += len(data)
            # The one fast path: the next serial, at its own offset, with every byte as written.
            if offset + index == expected and matches(data, queue, expected):
                expected += 1
            else:
                self._expected[queue] = expected
                self._judge(queue, offset + index, data)
                expected = self._expected[queue]
        self._expected[queue] = expected
        self.next_offset[queue] = offset + len(found)
        self.messages += len(found)
        self.bytes += size
        return len(found)

    def _judge(self, queue: int, offset: int, data: bytes) -> None:
        """Classify a message that is not the expected one."""
        serial = self._serial_of(queue, data)
        if serial is None:
            self.counts.corrupted += 1
            # It came at this offset, damaged: it does not count as lost too.
            serial = offset
            if serial < self._expected[queue]:
                self._missing.get(queue, set()).discard(serial)
                return
        missing = self._missing.setdefault(queue, set())
        expected = self._expected[queue]
        if serial >= expected:
            missing.update(range(expected, serial))
            self._expected[queue] = serial + 1
        elif serial in missing:
            missing.remove(serial)
            self.counts.out_of_order += 1
        else:
            self.counts.duplicated += 1

    def _serial_of(self, queue: int, data: bytes) -> int | None:
        """The serial number of an unharmed message of this queue, else None."""
        if len(data) < HEADER_BYTES:
            return None
        found_queue, serial, _, _ = HEADER.unpack_from(data)
        if found_queue != queue or not self._content.matches(data, queue, serial):
            return None
        return int(serial)

    def finish(self, queue: int, end_offset: int) -> None:
        """End a queue that holds messages up to `end_offset`: count lost messages and surplus ones."""
        for _ in range(SURPLUS_READS):
            if not self.read(queue, 1):
                break
        unseen = sum(1 for serial in self._missing.get(queue, ()) if serial < end_offset)
        self.counts.lost += unseen + max(0, end_offset - self._expected[queue])
        self.counts.duplicated += max(0, self._expected[queue] - end_offset)
