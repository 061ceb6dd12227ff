"""The message ids of a frame: it has one record more for each topic with ids, and is ATOMIC.

The record is in the same lane and after all messages. So one record, and not one a message, goes with the ids of all
producers that share a frame.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain
from typing import cast

import numpy as np

from ..format.arrays import Int64s
from ..format.extras import NO_EXTRAS, Extras, ExtrasWithIds
from ..format.message_ids import FEW, STAMP_BITS, QueueIds, pack_seen, seen_bytes
from .message_ids import IdRequest, IdTarget, OnTheWay, PendingId, PendingIds, ids_of
from .request import Request
from .streams import Stream


class FrameIds:
    """The ids of one topic in one frame, of several requests.

    Attributes:
        target: of the topic.
        parts: of the requests with many messages; none once it is durable.
        digests, queue_ids: of each id, which are all different.
        packed: the digests, one after the other.
        entries: the number of each id's message in the frame.
        record: its bytes, once `fill` has them; before that as many zeros.
        offsets: of each message.
        time_ms, record_offset: of the record.
        is_durable: the frame is.
    """

    __slots__ = (
        "_by_digest", "digests", "entries", "is_durable", "offsets", "packed", "parts", "queue_ids", "record",
        "record_offset", "target", "time_ms",
    )  # fmt: skip

    def __init__(
        self, target: IdTarget, parts: Sequence[PendingIds], digests: Sequence[bytes],
        queue_ids: QueueIds, entries: slice | Sequence[int] | Int64s,
    ) -> None:  # fmt: skip
        self.target = target
        self.parts = parts
        for pending in parts:
            pending.frame = self
        self.digests = digests
        self.queue_ids = queue_ids
        self.entries = entries
        self.packed = b"".join(digests)
        self.record = bytearray(seen_bytes(len(digests)))
        self.offsets: Sequence[int] | Int64s = ()
        self._by_digest: dict[bytes, int] | None = None
        self.time_ms = 0
        self.record_offset = -1
        self.is_durable = False

    @classmethod
    def of(cls, parts: Sequence[OnTheWay], firsts: Sequence[int]) -> FrameIds:
        """`firsts`: for each part the number of its request's first message in the frame."""
        first, target = parts[0], parts[0].target
        pending = [part for part in parts if isinstance(part, PendingIds)]
        if len(parts) == 1 and isinstance(first.rows, range):
            entries = slice(firsts[0] + first.rows.start, firsts[0] + first.rows.stop)
            return cls(target, pending, first.digests, first.queue_ids, entries)
        digests = list(chain.from_iterable([part.digests for part in parts]))
        if {*map(type, parts)} <= {IdRequest, PendingId}:
            return cls(target, pending, digests, [part.queue_ids[0] for part in parts], firsts)
        queue_ids = np.concatenate([np.array(part.queue_ids, np.int64) for part in parts])
        rows = [_column(part.rows) + first for first, part in zip(firsts, parts, strict=True)]
        return cls(target, pending, digests, queue_ids, np.concatenate(rows))

    def fill(self, offsets: Sequence[int] | Int64s, record_offset: int, time_ms: int) -> None:
        """The messages of the frame have these offsets: write the record."""
        entries = self.entries
        if isinstance(entries, slice):
            self.offsets = offsets[entries]
        elif len(entries) <= FEW:
            self.offsets = [offsets[entry] for entry in entries]
        else:
            self.offsets = np.asarray(offsets, np.int64)[entries]
        stamp = self.target.table.stamp(time_ms)
        self.record_offset, self.time_ms = record_offset, stamp >> STAMP_BITS
        self.record[:] = pack_seen(self.packed, self.queue_ids, self.offsets, stamp)

    def settle(self) -> None:
        """All of the frame is durable."""
        self.target.table.settle(self)

    def offset_of(self, digest: bytes) -> int | None:
        """The offset of an id's message; None if it is not in this frame. The first call costs by the frame."""
        found = self._by_digest
        if found is None:
            found = self._by_digest = dict(zip(self.digests, np.asarray(self.offsets).tolist(), strict=True))
        return found.get(digest)


def _column(rows: Sequence[int]) -> Int64s:
    return np.arange(rows.start, rows.stop) if isinstance(rows, range) else np.array(rows, np.int64)


def queue_ids_of(streams: Sequence[Stream]) -> QueueIds:
    """The queue of each message."""
    queue_ids = [stream.queue_id for stream in streams]
    # An array of the standard library takes a third of the time of one of numpy.
    return queue_ids if len(queue_ids) <= FEW else np.frombuffer(array("I", queue_ids), np.uint32)


def ids_in(requests: Sequence[Request]) -> list[FrameIds]:
    """The ids of some requests, by topic: each is one record, to be added after the messages of the requests."""
    parts: dict[IdTarget, tuple[list[OnTheWay], list[int]]] = {}
    first = 0
    for request in requests:
        if request.extras is not None:
            for part in ids_of(request):
                found = parts.get(part.target)
                if found is None:
                    found = parts[part.target] = [], []
                found[0].append(part)
                found[1].append(first)
        first += request.count
    return [FrameIds.of(*found) for found in parts.values()]


def split(requests: Sequence[Request], given: list[Extras], plain: bool) -> tuple[list[FrameIds], list[Extras]]:
    """The ids of some requests, as `ids_in` has them; and those of their extras that are more than ids."""
    # Most frames with messages of `submit` have those of one topic alone.
    kind: type = type(given[0]) if given else type(None)
    if kind is IdTarget and given.count(given[0]) == len(given) == len(requests):
        mine = cast("Sequence[IdRequest]", requests)
        queue_ids = queue_ids_of([request.stream for request in mine])
        digests = [request.digest for request in mine]
        return [FrameIds(mine[0].target, (), digests, queue_ids, slice(0, len(mine)))], []
    kinds: set[type] = {*map(type, given if plain else [request.extras for request in requests])}
    if kinds.isdisjoint({ExtrasWithIds, IdTarget, PendingId}):
        return [], given
    return ids_in(requests), [extra for extra in given if isinstance(extra, tuple) and extra != NO_EXTRAS]


def take_repeats(requests: list[Request], now_ms: int) -> tuple[list[Request], list[IdRequest]]:
    """Take the messages of `submit` out whose ids are durable: the others, and these, which are to be answered."""
    asked = [request for request in requests if type(request) is IdRequest]
    by_target: dict[IdTarget, list[IdRequest]] = {}
    targets = [request.target for request in asked]
    if targets and targets.count(targets[0]) == len(targets):  # as in most frames
        by_target[targets[0]] = asked
    else:
        for request in asked:
            by_target.setdefault(request.target, []).append(request)
    repeats: list[IdRequest] = []
    for target, mine in by_target.items():
        offsets = target.table.find_durable([request.digest for request in mine], now_ms)
        if offsets is not None:
            for request, offset in zip(mine, offsets, strict=True):
                if offset >= 0:
                    request.be_repeat(offset)
                    repeats.append(request)
    if not repeats:
        return requests, repeats
    taken = {*map(id, repeats)}
    return [request for request in requests if id(request) not in taken], repeats


def fill_all(ids: Sequence[FrameIds], offsets: Sequence[int] | Int64s, time_ms: int) -> None:
    """Write the records: they are the last messages of the frame, and `offsets` has those of all."""
    for at, one in enumerate(ids, len(offsets) - len(ids)):
        one.fill(offsets, int(offsets[at]), time_ms)
