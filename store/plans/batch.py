"""The result of a bulk read: messages as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..format.arrays import Int64s, Uint32s
from ..format.blobs import Blobs
from ..format.layout import NO_TIME
from ..read.wanted import StreamTable

NO_LENGTH = -1  # not known


@dataclass(slots=True)
class ScanBatch:
    """n messages in columns; all lie in one lane.

    Attributes:
        streams: the names of streams; some may have no message in this batch.
        stream_index: uint32 (n), each message's index into `streams`.
        offsets: int64 (n), in their queues.
        times_ms: int64 (n), when each was appended, ms since the epoch.
        lengths: int64 (n), bytes of each payload; NO_LENGTH if they were not asked for.
        payload: the payloads back to back; None if they were not asked for.
        deliver_at_ms: int64 (n), ms since the epoch, NO_TIME for none; None if no message has one, or they were not
            asked for.
        keys, properties: byte strings (properties are JSON); None if no message has one, or they were not asked for.
    """

    streams: StreamTable
    stream_index: Uint32s
    offsets: Int64s
    times_ms: Int64s
    lengths: Int64s
    payload: memoryview | bytes | None
    deliver_at_ms: Int64s | None = None
    keys: Blobs | None = None
    properties: Blobs | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """A copy or a pickle has bytes in place of views."""
        blobs = [one and Blobs(one.lengths, bytes(one.data)) for one in (self.keys, self.properties)]
        payload = None if self.payload is None else bytes(self.payload)
        columns = self.stream_index, self.offsets, self.times_ms, self.lengths, payload, self.deliver_at_ms
        return ScanBatch, (self.streams, *columns, *blobs)

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def topic_index(self) -> Uint32s:
        """uint32 (n), each message's index into `streams.topics`."""
        return self.streams.topic_index[self.stream_index]

    @property
    def queue_ids(self) -> Uint32s:
        """uint32 (n), each message's queue id."""
        return self.streams.queue_ids[self.stream_index]

    @staticmethod
    def joined(batches: Sequence[ScanBatch]) -> ScanBatch:
        """Batches with the same `streams` as one, in their order. A single batch is not copied."""
        first = batches[0]
        if len(batches) == 1:
            return first
        times = None
        if any(batch.deliver_at_ms is not None for batch in batches):
            missing = [
                np.full(len(batch), NO_TIME, np.int64) if batch.deliver_at_ms is None else batch.deliver_at_ms
                for batch in batches
            ]
            times = np.concatenate(missing)
        payloads = [batch.payload for batch in batches if batch.payload is not None]
        return ScanBatch(
            first.streams,
            np.concatenate([batch.stream_index for batch in batches]),
            np.concatenate([batch.offsets for batch in batches]),
            np.concatenate([batch.times_ms for batch in batches]),
            np.concatenate([batch.lengths for batch in batches]),
            b"".join(payloads) if payloads else None,
            times,
            Blobs.joined([(batch.keys, len(batch)) for batch in batches]),
            Blobs.joined([(batch.properties, len(batch)) for batch in batches]),
        )
