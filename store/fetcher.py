"""The reading half of the public face."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .base import OpenStore
from .checks import check_counts
from .config import StoreConfig
from .errors import InvalidMessage, OffsetOutOfRange, StoreClosed, StoreUnreadable
from .message import Message, MessageBatch
from .reader import Reader
from .scan import scan_lane
from .streams import Stream, check_name


class Fetcher(OpenStore):
    """Gives messages out."""

    def __init__(self, path: Path, config: StoreConfig) -> None:
        super().__init__(path, config)
        self._arrivals = threading.Condition()
        self._reader = Reader()
        self._waiting_readers = 0

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int = 0,
        max_messages: int = 32,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
    ) -> list[Message]:
        """Durable messages from `offset` on, in offset order; each checksum is verified.

        Args:
            offset: of the first message wanted; the queue's next offset gives an empty list.
            max_messages: at most so many.
            max_bytes: stops before this many bytes of data, but gives at least one message.
            wait_ms: how long to wait for a message if there is none.

        Raises:
            OffsetOutOfRange: the offset is before the queue's first or after its next one.
            StoreCorrupt: a message's bytes are damaged on the device.
        """
        stream = self._readable(topic, queue_id, offset, max_messages, max_bytes)
        if type(wait_ms) is not int:
            raise InvalidMessage(f"wait_ms is an int, not {type(wait_ms).__name__}")
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            seen = offset
            if stream is not None:
                try:
                    seen = max(offset, self._reader.bounds(stream)[1])
                    found = self._reader.read(stream, offset, max_messages, max_bytes)
                    if found:
                        return found
                    self._check_not_past(stream, offset)
                except OSError as error:
                    raise self._unreadable(error) from error
            elif offset > 0:
                raise OffsetOutOfRange(topic, queue_id, offset, 0, 0)
            if wait_ms <= 0 or not max_messages or not self._wait_for_message(topic, queue_id, seen, deadline):
                return []
            stream = self._streams.get(topic, queue_id)

    def get_range(self, topic: str, queue_id: int, offset: int, fetch_num: int) -> dict[int, bytes]:
        """{0: data, 1: data, ..}: up to `fetch_num` messages from `offset` on (R1, the contest's call).

        Empty behind the queue's end. Raises OffsetOutOfRange before its first offset, StoreCorrupt.
        """
        stream = None
        if type(offset) is type(fetch_num) is type(queue_id) is int and type(topic) is str and not self._closed:
            stream = self._streams.get(topic, queue_id)
        if stream is None or offset < 0 or fetch_num < 0:
            stream = self._readable(topic, queue_id, offset, fetch_num, 1)
        try:
            return self._reader.get_range(stream, offset, fetch_num) if stream is not None else {}
        except OSError as error:
            raise self._unreadable(error) from error

    def read_batch(
        self, topic: str, queue_id: int, offset: int = 0, max_messages: int = 4096, max_bytes: int = 64 << 20
    ) -> MessageBatch:
        """The same messages as `read` gives, as columns over one buffer: for who reads in bulk."""
        stream = self._readable(topic, queue_id, offset, max_messages, max_bytes)
        if stream is None:
            if offset > 0:
                raise OffsetOutOfRange(topic, queue_id, offset, 0, 0)
            return _empty_batch(topic, queue_id)
        try:
            batch = self._reader.read_batch(stream, offset, max_messages, max_bytes)
            if not len(batch):
                self._check_not_past(stream, offset)
            return batch
        except OSError as error:
            raise self._unreadable(error) from error

    def scan(self) -> Iterator[MessageBatch]:
        """Everything that is durable, in log order (lane by lane), a batch a frame.

        Raises StoreCorrupt at a damaged frame or message.
        """
        self._check_open()
        for lane in self._lanes:
            batches = scan_lane(lane)
            while True:
                try:
                    batch = next(batches, None)
                except OSError as error:
                    raise self._unreadable(error) from error
                if batch is None:
                    break
                yield batch
                self._check_open()

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(first, next): the queue holds the offsets first .. next - 1; (0, 0) if it was never used."""
        self._check_open()
        stream = self._streams.get(*check_name(topic, queue_id))
        try:
            return self._reader.bounds(stream) if stream is not None else (0, 0)
        except OSError as error:
            raise self._unreadable(error) from error

    def _readable(
        self, topic: str, queue_id: int, offset: int, max_messages: int, max_bytes: int
    ) -> Stream | None:
        self._check_open()
        if not type(offset) is type(max_messages) is type(max_bytes) is int or min(offset, max_messages, max_bytes) < 0:
            check_counts(offset=offset, max_messages=max_messages, max_bytes=max_bytes)
        stream = self._found(topic, queue_id)
        return stream if stream is not None else self._streams.get(*check_name(topic, queue_id))

    def _unreadable(self, error: OSError) -> StoreUnreadable:
        # Here and no deeper: recovery and sealing want to know what the system said.
        return StoreUnreadable(f"{self.path}: a read was refused: {error}. Nothing is lost by that; read again.")

    def _check_not_past(self, stream: Stream, offset: int) -> None:
        first, next_offset = self._reader.bounds(stream)
        if offset > next_offset:
            raise OffsetOutOfRange(stream.topic, stream.queue_id, offset, first, next_offset)

    def _wait_for_message(self, topic: str, queue_id: int, offset: int, deadline: float) -> bool:
        """Sleep until the queue has a message at `offset`; False when the time is up."""
        with self._arrivals:
            self._waiting_readers += 1  # before the look: what becomes visible after it is told of
            try:
                while not self._closed:
                    stream = self._streams.get(topic, queue_id)
                    if stream is not None and self._reader.bounds(stream)[1] > offset:
                        return True
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return False
                    self._arrivals.wait(left)
            finally:
                self._waiting_readers -= 1
        raise StoreClosed(self._why_closed)

    def _arrived(self) -> None:
        """Something became durable: wake the readers that wait, if there are any."""
        if self._waiting_readers:
            with self._arrivals:
                self._arrivals.notify_all()


def _empty_batch(topic: str, queue_id: int) -> MessageBatch:
    nothing = np.empty(0, np.int64)
    return MessageBatch(
        memoryview(b""), nothing, nothing, nothing, nothing, np.empty(0, np.uint32), [(topic, queue_id)]
    )

