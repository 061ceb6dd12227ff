"""Messages of a queue that a subscription has read ahead, and one memory limit for those of all subscriptions."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..log.streams import StreamMap
from ..read.message import Message, MessageBatch, make_message
from .delivery import part_of

READ_AHEAD_BYTES = 32 << 20  # if no memory plan sets the limit
IDLE_S = 10.0  # a subscription that has received nothing for so long gives back its memory when another one reads
NOTHING = (0, 0.0)


class ReadAheadOwner(Protocol):
    """A subscription's dispatcher."""

    def give_back(self) -> bool:
        """Drop messages that were read ahead; they are read again later. False if somebody receives just now."""


class ReadAhead:
    """Counts each owner's memory. The one that received longest ago gives back first. Any number of threads may use it.

    Attributes:
        limit_bytes: if the sum is larger, owners give back.
    """

    def __init__(self, limit_bytes: int, now_s: Callable[[], float]) -> None:
        self.limit_bytes = limit_bytes
        self._now_s = now_s
        self._lock = threading.Lock()
        self._held: OrderedDict[ReadAheadOwner, tuple[int, float]] = OrderedDict()  # bytes, and when it received last
        self._size_bytes: int | None = 0  # the sum; None while it changes: after an interrupt it is counted anew

    @property
    def size_bytes(self) -> int:
        """The sum of all owners."""
        with self._lock:
            return self._counted()

    def note(self, holder: ReadAheadOwner, size_bytes: int) -> None:
        """An owner has received, and holds so many bytes now. Others may have to give back."""
        now_s = self._now_s()
        with self._lock:
            self._set(holder, size_bytes, now_s)
            others = self._too_many(holder, now_s - IDLE_S)
        for other in others:
            if other.give_back():
                self.forget(other)

    def forget(self, holder: ReadAheadOwner) -> None:
        """An owner holds nothing any more."""
        with self._lock:
            self._set(holder, 0, 0.0)

    def _set(self, holder: ReadAheadOwner, size_bytes: int, now_s: float) -> None:
        left, self._size_bytes = self._counted(), None
        left -= self._held.pop(holder, NOTHING)[0]
        if size_bytes:
            self._held[holder] = size_bytes, now_s
        self._size_bytes = left + size_bytes

    def _counted(self) -> int:
        return sum(size for size, _ in self._held.values()) if self._size_bytes is None else self._size_bytes

    def _too_many(self, newest: ReadAheadOwner, idle_s: float) -> list[ReadAheadOwner]:
        """The owners that have to give back: idle ones, and the oldest while the sum is over the limit; never
        `newest`."""
        found, left = list[ReadAheadOwner](), self._counted()
        for holder, (size, used_s) in self._held.items():
            if holder is newest or (left <= self.limit_bytes and used_s > idle_s):
                break
            found.append(holder)
            left -= size
        return found


@dataclass(slots=True)
class ReadChunk:
    """Messages of a queue that were read and not given out, from row `begin` on."""

    batch: MessageBatch
    begin: int = 0
    rows: list[tuple[int, int, int, int]] | None = None  # begin and end in the buffer, offset, time; once used

    def messages(self, begin: int, end: int) -> list[Message]:
        """Some of its messages as objects, from lists: one by one that is quicker than from columns."""
        batch = self.batch
        if self.rows is None:
            begins, ends = batch.positions.tolist(), (batch.positions + batch.lengths).tolist()
            self.rows = list(zip(begins, ends, batch.offsets.tolist(), batch.times_ms.tolist(), strict=True))
        name, buffer, extras = batch.stream_names[0], batch.buffer, batch.extras
        return [
            make_message(*name, offset, bytes(buffer[low:high]), time_ms, None if extras is None else extras[at])
            for at, (low, high, offset, time_ms) in enumerate(self.rows[begin:end], begin)
        ]

    @property
    def first_offset(self) -> int:
        """The offset of its first message."""
        return int(self.batch.offsets[self.begin])

    @property
    def size_bytes(self) -> int:
        """The memory of its messages, also of those that were given out."""
        return len(self.batch.buffer)


class ChunksAhead:
    """What one subscription has read ahead, a chunk a queue. One thread at a time.

    Attributes:
        chunks: by queue id, the one whose turn is next first; none is empty.
        size_bytes: the memory of all of them.
    """

    def __init__(self, streams: StreamMap, topic: str) -> None:
        self._streams = streams
        self._topic = topic
        self.chunks: dict[int, ReadChunk] = {}
        self.size_bytes = 0

    def find(self, queue_id: int) -> ReadChunk | None:
        """The queue's chunk, without trimmed messages; None if it has none left."""
        chunk = self.chunks.get(queue_id)
        if chunk is None:
            return None
        stream = self._streams.get(self._topic, queue_id)
        if stream is not None and stream.low > chunk.first_offset:
            chunk.begin = int(chunk.batch.offsets.searchsorted(stream.low))
            if chunk.begin == len(chunk.batch):
                self.drop(queue_id)
                return None
        return chunk

    def add(self, queue_id: int, batch: MessageBatch) -> ReadChunk:
        """Add messages of a queue that has no chunk."""
        chunk = self.chunks[queue_id] = ReadChunk(batch)
        self.size_bytes += chunk.size_bytes
        return chunk

    def drop(self, queue_id: int) -> None:
        """Drop the queue's chunk, if it has one."""
        chunk = self.chunks.pop(queue_id, None)
        if chunk is not None:
            self.size_bytes = 0 if not self.chunks else self.size_bytes - chunk.size_bytes

    def put_last(self, queue_id: int) -> None:
        """The queue had its turn."""
        if queue_id in self.chunks:
            self.chunks[queue_id] = self.chunks.pop(queue_id)

    def take_few(self, count: int) -> tuple[ReadChunk, int] | None:
        """`count` messages of the first queue: its chunk, and their first row in it. None if it has fewer."""
        queue_id = next(iter(self.chunks))
        chunk = self.find(queue_id)
        if chunk is None:
            return None
        begin, left = chunk.begin, len(chunk.batch) - chunk.begin - count
        if left >= 0:
            chunk.begin += count
        if left:
            self.chunks[queue_id] = self.chunks.pop(queue_id)
        else:
            self.drop(queue_id)
        return (chunk, begin) if left >= 0 else None

    def cut(self, queue_id: int, chunk: ReadChunk, most: int, max_bytes: int, *, is_first: bool) -> MessageBatch | None:
        """The next messages of a queue's chunk; None if not even the first fits. With `is_first` it always does."""
        batch, begin = chunk.batch, chunk.begin
        end = min(len(batch), begin + most)
        ends = batch.lengths[begin:end].cumsum()
        if int(ends[-1]) > max_bytes:
            end = begin + max(int(ends.searchsorted(max_bytes, side="right")), int(is_first))
            if end == begin:
                return None
        if end == len(batch):
            self.drop(queue_id)
        else:
            chunk.begin = end
        return part_of(batch, begin, end)
