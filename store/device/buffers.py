"""Buffers for large batches that are used again: the first touch of fresh pages costs more than filling them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from io import BytesIO

POOLED_BYTES = 128 << 10  # smaller ones are used again by malloc as well
LEAST_BYTES = 256 << 10
WASTED_TIMES = 4  # a buffer so much larger than what is wanted is left for others: a view keeps all of it
KEPT_BYTES = 32 << 20


class BufferPool:
    """Lends buffers to readers. Any number of threads may use one.

    A BytesIO refuses every write while there is a view of it, or an array or a slice made of a view: so a buffer that
    can be written to is one that nobody can see, and there is nothing to give back. A lent buffer just stays in the
    pool, and is passed over until its last view is gone.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        """`kept_bytes`: of all buffers that are kept for later use."""
        self._most_bytes = kept_bytes
        self._kept: deque[BytesIO] = deque()
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> BytesIO:
        """A buffer of at least `size_bytes`, at its beginning, for the caller alone until it is lent."""
        if size_bytes < POOLED_BYTES:
            return BytesIO(bytes(size_bytes))
        most = WASTED_TIMES * max(LEAST_BYTES, size_bytes)
        with self._lock:
            for buffer in self._kept:
                capacity = _capacity(buffer)
                if size_bytes <= capacity <= most and _is_free(buffer):
                    self._kept.remove(buffer)
                    return buffer
        # Zeros from the system: no page is touched before it is filled.
        return BytesIO(bytes(max(LEAST_BYTES, 1 << (size_bytes - 1).bit_length())))

    def joined(self, datas: Sequence[bytes], size_bytes: int) -> memoryview:
        """A read-only view of all `datas`, back to back, `size_bytes` in all."""
        if size_bytes < POOLED_BYTES:
            return memoryview(b"".join(datas))
        buffer = self.take(size_bytes)
        buffer.writelines(datas)
        return self.lend(buffer, size_bytes)

    def lend(self, buffer: BytesIO, size_bytes: int) -> memoryview:
        """A view of the first `size_bytes`, to read only. The buffer is used again once nothing refers to it."""
        view = buffer.getbuffer()[:size_bytes].toreadonly()
        if _capacity(buffer) < POOLED_BYTES:
            return view
        with self._lock:
            self._kept.append(buffer)
            # Summed up each time: an interrupt would leave a running number wrong for good.
            while sum(map(_capacity, self._kept)) > self._most_bytes:
                self._kept.popleft()  # it lives as long as its views
        return view

    def clear(self) -> None:
        """Let go of all buffers."""
        with self._lock:
            self._kept.clear()


def _capacity(buffer: BytesIO) -> int:
    return buffer.seek(0, 2)


def _is_free(buffer: BytesIO) -> bool:
    buffer.seek(0)
    try:
        buffer.write(b"\0")
    except BufferError:
        return False
    buffer.seek(0)
    return True
