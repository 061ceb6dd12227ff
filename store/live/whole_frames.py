"""The newest frames of a followed lane, copied and compared as wholes, for a reader that wants most of their messages.

To copy a message of 100 bytes and to compare its checksum takes the interpreter 0.2 us. To do both with all of a frame
takes 0.02 us a message. So a reader that wants much of what it follows gets its messages out of such copies, and
nothing is done for a single one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..device.buffers import BufferPool
from ..device.ring import Ring, Span
from ..format.layout import BLOCK_BYTES, HAS_PAYLOAD_CHECKSUM, FrameHead, checksum64

LEAST_MESSAGES = 128  # of a frame, in the mean: smaller ones are as cheap one by one
LEAST_SHARE = 6  # one message in so many is read: below that it costs more to copy all of them
BUFFER_BYTES = 2 << 20
KEPT_BYTES = 4 * BUFFER_BYTES  # of all lanes; frames of more than a lane's share are read one message at a time
LEAST_KEPT_BYTES = 256 << 10  # of a lane
REMEMBERED = 1 << 16  # messages, after which older ones count half


class WholeFrames:
    """Makes the spans of one ring. One thread at a time adds to it; readers take a span as it is.

    Invariants:
        * the bytes of a span were intact in the ring after they were copied, and were compared with the checksums of
          their frames in the copy;
        * between the frames of a span there is nothing but padding;
        * a span's bytes stay as they are: a buffer is filled after its spans only, and used again when nothing has it.
    """

    def __init__(self, lanes: int = 1) -> None:
        """`lanes`: how many lanes have such copies."""
        self._kept_bytes = max(LEAST_KEPT_BYTES, KEPT_BYTES // lanes)
        self._pool = BufferPool(self._kept_bytes)
        self._buffer = memoryview(b"")
        self._begin = self._used = 0  # in the buffer: of the span, and of what is filled
        self._chain = 0  # the checksum of the span's newest frame
        self._seen = self._read = 0
        self.span: Span | None = None

    def note_read(self, messages: int) -> None:
        """Count messages that were read."""
        self._read += messages

    def add(self, ring: Ring, base: int, heads: Sequence[FrameHead], end: int) -> None:
        """Take some frames that follow one another, if that is worth it. `end`: the lane position that is shown."""
        is_worth_it = 0 < self._seen <= LEAST_SHARE * self._read
        count = sum([head.header.count for head in heads])
        self._seen += count
        if self._seen > REMEMBERED:
            self._seen, self._read = self._seen // 2, self._read // 2
        last = base + heads[-1].header.end
        size = heads[-1].header.end - heads[0].header.position
        if is_worth_it and count >= LEAST_MESSAGES * len(heads) and size <= self._kept_bytes and last <= end:
            self._add(ring, base, heads, last)
        elif is_worth_it:
            self.close()
        else:
            self.let_go()

    def _add(self, ring: Ring, base: int, heads: Sequence[FrameHead], last: int) -> None:
        span, first = self.span, base + heads[0].header.position
        follows = span is not None and heads[0].header.chain == self._chain and 0 <= first - span.end <= BLOCK_BYTES
        if span is None or not follows or not self._has_room(last - span.end):
            if not self._has_room(last - first):
                self._begin_buffer(last - first)
            span = Span(first, first, self._buffer)
            self._begin = self._used
        at, low = self._used, span.end
        if ring.low > low:
            self.close()
            return
        self._used += last - low
        # Copied first, and then looked at: what is overwritten meanwhile is seen by the ring's low.
        for part in ring.parts(low, last):
            self._buffer[at : at + len(part)] = part
            at += len(part)
        if ring.low <= low and self._are_right(base + self._begin - span.begin, heads):
            self.span = Span(span.begin, last, self._buffer[self._begin : self._used].toreadonly())
            self._chain = heads[-1].checksum
        else:
            self.close()

    def _are_right(self, shift: int, heads: Sequence[FrameHead]) -> bool:
        """Whether the payloads of all frames are those that they were written with."""
        for header, _, _ in heads:
            begin = header.position + header.header_bytes + shift
            payload = self._buffer[begin : begin + header.payload_bytes]
            if not header.flags & HAS_PAYLOAD_CHECKSUM or checksum64(payload) != header.payload_checksum:
                return False
        return True

    def _has_room(self, size_bytes: int) -> bool:
        return size_bytes <= len(self._buffer) - self._used

    def _begin_buffer(self, least_bytes: int) -> None:
        self.close()
        size = max(min(BUFFER_BYTES, self._kept_bytes // 4), least_bytes)
        buffer = self._pool.take(size)
        view = buffer.getbuffer()[:size]
        self._pool.lend(buffer, size)
        self._buffer = view

    def close(self) -> None:
        """Let go of the copies; readers that have one keep it."""
        self.span = None
        self._buffer = memoryview(b"")
        self._used = 0

    def let_go(self) -> None:
        """Let go of the copies, and keep no buffer for others."""
        self.close()
        self._pool.clear()
