"""Message ids on their way to the log: from an append that was the first with them to their durable record.

A request has its ids in `extras.ids`. The frame that it gets into has one record more for each topic with ids, in the
same lane and after all messages (`FrameIds`), and is ATOMIC. So one record, and not one a message, goes with the ids of
all producers that share a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np

from ..errors import StoreError
from ..format.arrays import Int64s
from ..format.layout import MAX_FRAME_MESSAGES
from ..format.message_ids import ID_BYTES, pack_seen, seen_bytes
from .request import Barrier, Request
from .streams import Stream

MOST_WITH_IDS = MAX_FRAME_MESSAGES // 2  # messages of a frame: each may have a record of ids beside it
RECORD_COST_BYTES = 64  # of a record beside its ids, at the most, with its columns in the frame

QUEUE_BITS = 31
QUEUE_MASK = (1 << QUEUE_BITS) - 1


class IdTable(Protocol):
    """What ids on their way need of the table of their topic; `topics.id_window` is one."""

    def settle(self, ids: FrameIds) -> None:
        """A frame with ids is durable."""

    def fail(self, ids: PendingIds, error: StoreError | None) -> None:
        """Ids did not get to the log; with None, nothing of them was ever queued. Again is fine."""


class PendingIds:
    """The ids of one request that belong to one topic.

    Invariant: it has exactly one outcome: `IdTable.settle`, or `IdTable.fail`.

    Attributes:
        table: of the topic.
        stream: the hidden stream that gets their record.
        digests, queue_ids: of each id and its message.
        rows: the number of its message in the request.
        places: once they are durable, what `place_of` makes of each message; None if they failed, or before.
        is_taken: a frame has them.
        is_over: they have their outcome.
        promise: answered with the outcome; made by the first append that waits for it, under the table's lock.
    """

    __slots__ = ("digests", "is_over", "is_taken", "places", "promise", "queue_ids", "rows", "stream", "table")

    def __init__(
        self, table: IdTable, stream: Stream, digests: Sequence[bytes], queue_ids: Sequence[int], rows: Sequence[int]
    ) -> None:
        self.table = table
        self.stream = stream
        self.digests = digests
        self.queue_ids = queue_ids
        self.rows = rows
        self.places: Sequence[int] | None = None
        self.is_taken = self.is_over = False
        self.promise: Barrier | None = None

    @property
    def size_bytes(self) -> int:
        """What they add to a frame, at the most."""
        return ID_BYTES * len(self.digests) + RECORD_COST_BYTES

    def fail(self, error: StoreError | None) -> None:
        """See `IdTable.fail`."""
        self.table.fail(self, error)

    def take_back(self) -> None:
        """The append has raised: unless a queue has them, they fail, and others with these ids try by themselves.

        A request goes from the queue to a builder, and into a frame: they are asked in this order.
        """
        requests = self.stream.lane.queue.requests
        is_queued = any(request.extras is not None and self in request.extras.ids for request in requests)
        if not (is_queued or self.is_taken or self.is_over):
            self.fail(None)

    def place_of(self, digest: bytes) -> int | None:
        """Where the message of an id is; None if it did not get to the log."""
        return None if self.places is None else self.places[self.digests.index(digest)]


def place_of(queue_id: int, offset: int) -> int:
    """Queue and offset as one number: a small one for small offsets."""
    return offset << QUEUE_BITS | queue_id


def queue_of(place: int) -> int:
    """The queue of a place."""
    return place & QUEUE_MASK


def offset_of(place: int) -> int:
    """The offset of a place."""
    return place >> QUEUE_BITS


class FrameIds:
    """The ids of one topic in one frame, of several requests.

    Attributes:
        parts: of the requests.
        digests, queue_ids: of each id.
        record: its bytes, once `fill` has them; before that as many zeros.
        places: of each message, see `place_of`.
        time_ms, record_offset: of the record.
    """

    __slots__ = ("digests", "entries", "parts", "places", "queue_ids", "record", "record_offset", "stream", "time_ms")

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.parts: list[PendingIds] = []
        self.digests: list[bytes] = []
        self.queue_ids: list[int] = []
        self.entries: list[int] = []  # the number of each message in the frame
        self.record = bytearray()
        self.places: list[int] = []
        self.time_ms = 0
        self.record_offset = -1

    def add(self, part: PendingIds, first: int) -> None:
        """Add the ids of a request, whose first message has the number `first` in the frame."""
        part.is_taken = True
        self.parts.append(part)
        self.digests += part.digests
        self.queue_ids += part.queue_ids
        self.entries += [first + row for row in part.rows]

    def fill(self, offsets: Sequence[int], record_offset: int, time_ms: int) -> None:
        """The messages of the frame have these offsets: write the record."""
        mine = [offsets[entry] for entry in self.entries]
        self.places = [offset << QUEUE_BITS | queue_id for offset, queue_id in zip(mine, self.queue_ids, strict=True)]
        self.record_offset, self.time_ms = record_offset, time_ms
        self.record[:] = pack_seen(self.digests, self.queue_ids, mine, time_ms)

    def settle(self) -> None:
        """All of the frame is durable."""
        self.parts[0].table.settle(self)


def ids_in(requests: Sequence[Request]) -> list[FrameIds]:
    """The ids of some requests, by topic: each is one record, to be added after the messages of the requests."""
    found: dict[Stream, FrameIds] = {}
    first = 0
    for request in requests:
        extras = request.extras
        if extras is not None and extras.ids:
            for part in cast("Sequence[PendingIds]", extras.ids):
                frame_ids = found.get(part.stream)
                if frame_ids is None:
                    frame_ids = found[part.stream] = FrameIds(part.stream)
                frame_ids.add(part, first)
        first += request.count
    for frame_ids in found.values():
        frame_ids.record = bytearray(seen_bytes(len(frame_ids.digests)))
    return list(found.values())


def fill_all(ids: Sequence[FrameIds], offsets: Sequence[int] | Int64s, time_ms: int) -> None:
    """Write the records: they are the last messages of the frame, and `offsets` has those of all."""
    first = len(offsets) - len(ids)
    each = offsets.tolist() if isinstance(offsets, np.ndarray) else offsets
    for at, frame_ids in enumerate(ids, first):
        frame_ids.fill(each, each[at], time_ms)
