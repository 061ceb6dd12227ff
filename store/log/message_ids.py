"""Message ids on their way to the log: from an append that was the first with them to their durable record.

A request has its ids in its extras: one message without other columns has a `PendingId` in their place. The frame that
it gets into has one record more for each topic with ids, in the same lane and after all messages (`FrameIds`), and is
ATOMIC. So one record, and not one a message, goes with the ids of all producers that share a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple, Protocol, cast

import numpy as np

from ..errors import StoreError
from ..format.arrays import Int64s
from ..format.extras import NO_EXTRAS, Extras, ExtrasWithIds
from ..format.layout import MAX_FRAME_MESSAGES
from ..format.message_ids import ID_BYTES, STAMP_BITS, pack_seen, seen_bytes
from .queue import RequestQueue
from .request import Barrier, Request
from .streams import Stream

MOST_WITH_IDS = MAX_FRAME_MESSAGES // 2  # messages of a frame: each may have a record of ids beside it
RECORD_COST_BYTES = 64  # of a record beside its ids, at the most, with its columns in the frame
QUEUE_BITS = 31  # of a place


class IdTable(Protocol):
    """What ids on their way need of the table of their topic; `topics.id_window` is one."""

    def stamp(self, now_ms: int) -> int:
        """The stamp of a frame's record, larger than those of all before: an opening puts the ids in this order, also
        if the clock was set back, and of several lanes.
        """

    def settle(self, ids: FrameIds) -> None:
        """A frame with ids is durable."""

    def fail(self, ids: PendingIds, error: StoreError | None) -> None:
        """Ids did not get to the log; with None, nothing of them was ever queued. Again is fine."""


class IdTarget(NamedTuple):
    """Where the ids of one topic go, of messages in one lane: the topic's table, and the stream of their records."""

    table: IdTable
    stream: Stream


class PendingIds:
    """The ids of one request that belong to one topic.

    Invariant: it has exactly one outcome: `IdTable.settle`, or `IdTable.fail`.

    Attributes:
        target: of the topic.
        digests, queue_ids: of each id and its message.
        rows: the number of its message in the request.
        size_bytes: what they add to a frame, at the most.
        frame: that has them; None before.
        is_over: they have their outcome.
        promise: answered with the outcome; made by the first append that waits for it, under the table's lock.
        queue: that its request is put into; None for the lane's.
    """

    # As long as they are not set. No slots: an object is made for each message, and sets few of them.
    frame: FrameIds | None = None
    is_over = False
    promise: Barrier | None = None
    queue: RequestQueue[Request] | None = None

    def __init__(
        self, target: IdTarget, digests: Sequence[bytes], queue_ids: Sequence[int] | Int64s, rows: Sequence[int]
    ) -> None:
        self.target = target
        self.digests = digests
        self.queue_ids = queue_ids
        self.rows = rows

    @property
    def size_bytes(self) -> int:
        """What they add to a frame, at the most."""
        return ID_BYTES * len(self.digests) + RECORD_COST_BYTES

    def fail(self, error: StoreError | None) -> None:
        """See `IdTable.fail`."""
        self.target.table.fail(self, error)

    def take_back(self, error: BaseException | None) -> None:
        """The append has raised: unless a queue has them, they fail, and others with these ids try by themselves.

        Args:
            error: what was raised. A queue that raises a StoreError has not taken them; after an interrupt, and with
                None, it is searched. A request goes from the queue to a builder, and into a frame: they are asked in
                this order.
        """
        if isinstance(error, StoreError):
            self.fail(None)
            return
        requests = (self.queue or self.target.stream.lane.queue).requests
        is_queued = any(request.extras is not None and self in request.extras.ids for request in requests)
        if not (is_queued or self.frame is not None):
            self.fail(None)

    def place_of(self, digest: bytes) -> int | None:
        """Where the message of an id is, once they have their outcome; None if it did not get to the log."""
        frame = self.frame
        return None if frame is None or not frame.is_durable else frame.places[frame.digests.index(digest)]


class PendingId(PendingIds):
    """The id of a request with one message. It is also the request's extras, if the message has no column of them."""

    due_ms = key = properties = None
    rows = (0,)
    size_bytes = ID_BYTES + RECORD_COST_BYTES

    def __init__(self, target: IdTarget, digest: bytes, queue_id: int) -> None:
        self.target = target
        self.digest = digest
        self.queue_id = queue_id

    @property
    def digests(self) -> Sequence[bytes]:  # type: ignore[override]
        """That of the one id."""
        return (self.digest,)

    @property
    def queue_ids(self) -> Sequence[int]:  # type: ignore[override]
        """That of the one message."""
        return (self.queue_id,)

    @property
    def ids(self) -> Sequence[PendingIds]:
        """Those of the request."""
        return (self,)

    def beside(self, extras: Extras | None) -> Extras:
        """The extras of a request with this id and these columns."""
        return self if extras is None else ExtrasWithIds.of(extras, (self,))  # type: ignore[return-value]


def place_of(queue_id: int, offset: int) -> int:
    """Queue and offset as one number: a small one for small offsets."""
    return offset << QUEUE_BITS | queue_id


def offset_of(place: int) -> int:
    """The offset of a place."""
    return place >> QUEUE_BITS


class FrameIds:
    """The ids of one topic in one frame, of several requests.

    Attributes:
        target: of the topic.
        parts: of the requests.
        digests, queue_ids: of each id, which are all different.
        entries: the number of each id's message in the frame.
        record: its bytes, once `fill` has them; before that as many zeros.
        places: of each message, see `place_of`.
        time_ms, record_offset: of the record.
        is_durable: the frame is.
    """

    __slots__ = (
        "digests", "entries", "is_durable", "parts", "places", "queue_ids", "record", "record_offset", "target",
        "time_ms",
    )  # fmt: skip

    def __init__(self, parts: Sequence[PendingIds], firsts: Sequence[int]) -> None:
        """`firsts`: for each part the number of its request's first message in the frame."""
        self.target = parts[0].target
        self.parts = parts
        if {*map(type, parts)} == {PendingId}:
            singles = cast("Sequence[PendingId]", parts)
            self.digests = [part.digest for part in singles]
            self.queue_ids = np.array([part.queue_id for part in singles], np.int64)
            self.entries = np.array(firsts, np.int64)
        else:
            self.digests = list(chain.from_iterable([part.digests for part in parts]))
            self.queue_ids = np.concatenate([np.array(part.queue_ids, np.int64) for part in parts])
            rows = [_column(part.rows) + first for first, part in zip(firsts, parts, strict=True)]
            self.entries = np.concatenate(rows)
        for part in parts:
            part.frame = self
        self.record = bytearray(seen_bytes(len(self.digests)))
        self.places: list[int] = []
        self.time_ms = 0
        self.record_offset = -1
        self.is_durable = False

    def fill(self, offsets: Int64s, record_offset: int, time_ms: int) -> None:
        """The messages of the frame have these offsets: write the record."""
        mine = offsets[self.entries]
        if int(mine.max()) >> (63 - QUEUE_BITS):
            self.places = [place_of(*one) for one in zip(self.queue_ids.tolist(), mine.tolist(), strict=True)]
        else:
            self.places = (mine << QUEUE_BITS | self.queue_ids).tolist()
        stamp = self.target.table.stamp(time_ms)
        self.record_offset, self.time_ms = record_offset, stamp >> STAMP_BITS
        self.record[:] = pack_seen(self.digests, self.queue_ids, mine, stamp)

    def settle(self) -> None:
        """All of the frame is durable."""
        self.target.table.settle(self)


def _column(rows: Sequence[int]) -> Int64s:
    return np.arange(rows.start, rows.stop) if isinstance(rows, range) else np.array(rows, np.int64)


def ids_of(request: Request) -> Sequence[PendingIds]:
    """The message ids that a request has on their way, by topic."""
    return () if request.extras is None else cast("Sequence[PendingIds]", request.extras.ids)


def ids_in(requests: Sequence[Request]) -> list[FrameIds]:
    """The ids of some requests, by topic: each is one record, to be added after the messages of the requests."""
    given = [request.extras for request in requests]
    if {*map(type, given)} == {PendingId}:  # one message each, all with ids and nothing else: mostly of one topic
        singles = cast("list[PendingIds]", given)
        if len({part.target for part in singles}) == 1:
            return [FrameIds(singles, range(len(singles)))]
    parts: dict[IdTarget, tuple[list[PendingIds], list[int]]] = {}
    first = 0
    for request, extras in zip(requests, given, strict=True):
        if extras is not None:
            for part in cast("Sequence[PendingIds]", extras.ids):
                found = parts.get(part.target)
                if found is None:
                    found = parts[part.target] = [], []
                found[0].append(part)
                found[1].append(first)
        first += request.count
    return [FrameIds(*found) for found in parts.values()]


def split(requests: Sequence[Request], given: list[Extras], plain: bool) -> tuple[list[FrameIds], list[Extras]]:
    """The ids of some requests, as `ids_in` has them; and those of their extras that are more than ids."""
    kinds: set[type] = {*map(type, given if plain else [request.extras for request in requests])}
    if ExtrasWithIds not in kinds and PendingId not in kinds:
        return [], given
    if kinds == {PendingId}:
        return ids_in(requests), []
    return ids_in(requests), [extra for extra in given if isinstance(extra, tuple) and extra != NO_EXTRAS]


def fill_all(ids: Sequence[FrameIds], offsets: Sequence[int] | Int64s, time_ms: int) -> None:
    """Write the records: they are the last messages of the frame, and `offsets` has those of all."""
    each = np.asarray(offsets, np.int64)
    for frame_ids, record_offset in zip(ids, each[len(each) - len(ids) :].tolist(), strict=True):
        frame_ids.fill(each, record_offset, time_ms)
