"""Message ids on their way to the log: from an append that was the first with them to their durable record.

A request of many messages has its ids in its extras, a `PendingIds` for each topic; one message of a coroutine has a
`PendingId` in their place. A message of `submit` is its own (`IdRequest`): nothing else is made for it. The frame that
they get into has one record more for each topic with ids, in the same lane and after all messages (`FrameIds`), and is
ATOMIC. So one record, and not one a message, goes with the ids of all producers that share a frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Protocol, cast

import numpy as np

from ..errors import StoreError
from ..format.arrays import Int64s
from ..format.extras import NO_EXTRAS, Extras, ExtrasWithIds
from ..format.layout import MAX_FRAME_MESSAGES
from ..format.message_ids import FEW, ID_BYTES, STAMP_BITS, pack_seen, seen_bytes
from .queue import RequestQueue
from .request import Barrier, Request
from .streams import Stream
from .ticket import SubmitRequest

MOST_WITH_IDS = MAX_FRAME_MESSAGES // 2  # messages of a frame: each may have a record of ids beside it
RECORD_COST_BYTES = 64  # of a record beside its ids, at the most, with its columns in the frame


class IdTable(Protocol):
    """What ids on their way need of the table of their topic; `topics.id_window` is one."""

    def find_durable(self, digests: Sequence[bytes], now_ms: int) -> Sequence[int] | None:
        """The offset of each id whose message is durable, and -1 for each other one; None if all are others."""

    def stamp(self, now_ms: int) -> int:
        """The stamp of a frame's record, larger than those of all before: an opening puts the ids in this order, also
        if the clock was set back, and of several lanes.
        """

    def settle(self, ids: FrameIds) -> None:
        """A frame with ids is durable."""

    def fail(self, ids: PendingIds, error: StoreError | None) -> None:
        """Ids did not get to the log; with None, nothing of them was ever queued. Again is fine."""

    def free(self, ids: PendingIds | IdRequest) -> None:
        """Forget those of ids that are on their way with these. Again is fine."""


class IdTarget:
    """Where the ids of one topic go, of messages in one lane: the topic's table, and the stream of their records.

    It is also the extras of each `IdRequest` that has no columns: an id costs what another one does.
    """

    __slots__ = ("stream", "table")
    due_ms = key = properties = None
    ids = ()
    size_bytes = ID_BYTES + RECORD_COST_BYTES

    def __init__(self, table: IdTable, stream: Stream) -> None:
        self.table = table
        self.stream = stream


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
        error: the outcome: None if they are durable, or if nothing of them was ever queued.
        promise: answered with the outcome; made by the first append that waits for it, under the table's lock.
        queue: that its request is put into; None for the lane's.
    """

    # As long as they are not set.
    frame: FrameIds | None = None
    is_over = False
    error: StoreError | None = None
    promise: IdPromise | None = None
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
            error: what was raised. A queue that raises a StoreError has not taken them. After an interrupt, and with
                None, it is searched: a request goes from the queue to a builder, and into a frame, and they are asked
                in this order.

        It may be called again with the same error. Callers do so, as an interrupt may come before anything was done.
        """
        if isinstance(error, StoreError):
            self.fail(None)
            return
        requests = (self.queue or self.target.stream.lane.queue).requests
        is_queued = any(self in request.ids for request in requests)
        if not (is_queued or self.frame is not None):
            self.fail(None)

    def offset_of(self, digest: bytes) -> int | None:
        """The offset of an id's message, once they have their outcome; None if it did not get to the log."""
        return None if self.frame is None or not self.frame.is_durable else self.frame.offset_of(digest)


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
    def digests(self) -> Sequence[bytes]:  # type: ignore[override]  # read only: nobody sets it
        """That of the one id."""
        return (self.digest,)

    @property
    def queue_ids(self) -> Sequence[int]:  # type: ignore[override]  # as above
        """That of the one message."""
        return (self.queue_id,)

    @property
    def ids(self) -> Sequence[PendingIds]:
        """Those of the request."""
        return (self,)

    def beside(self, extras: Extras | None) -> Extras:
        """The extras of a request with this id and these columns."""
        # It has the attributes of `Extras`.
        return self if extras is None else ExtrasWithIds.of(extras, (self,))  # type: ignore[return-value]


class IdRequest(SubmitRequest):
    """One message of `submit` with an id. It is also what its topic's table has of the id until it is durable.

    An append with the same id waits for this one's answer. If nothing of it was ever queued, as its thread found no
    room in the publish buffer, nobody has its ticket, and it is answered without an offset.
    """

    __slots__ = ("_is_repeat", "digest", "target")
    rows = (0,)

    def __init__(self, stream: Stream, data: bytes, extras: Extras | None, target: IdTarget, digest: bytes) -> None:
        # Written out, as each message comes here: a call saved shows.
        self.stream = stream
        self.data = data
        self.size_bytes = len(data)
        # A target has the attributes of `Extras`.
        self.extras = target if extras is None else ExtrasWithIds.of(extras, (self,))  # type: ignore[assignment]
        self.offset = -1
        self._done = False
        self._error = None
        self._waiters = None
        self._is_repeat = False
        self.target = target
        self.digest = digest

    @property
    def is_repeat(self) -> bool:
        return self._is_repeat

    def be_repeat(self, offset: int) -> None:
        """The topic has the id already, with this offset: nothing is stored, and the answer is the next step."""
        self.target.table.free(self)
        self.offset, self._is_repeat = offset, True

    @property
    def ids(self) -> Sequence[IdRequest]:
        """Itself: see `Request.ids`."""
        return (self,)

    @property
    def digests(self) -> Sequence[bytes]:
        """That of the one id."""
        return (self.digest,)

    @property
    def queue_ids(self) -> Sequence[int]:
        """That of the one message."""
        return (self.stream.queue_id,)

    def fail(self, error: StoreError | None) -> None:
        """Have the id free again: see `IdTable.free`. Whoever waits for it hears the request's answer."""
        self.target.table.free(self)  # first: whoever waits looks at the table
        if error is None and self.offset < 0 and self._error is None:
            self.answer()  # perhaps again: an interrupt may have left somebody who waits

    def take_back(self, error: BaseException) -> None:
        """The append has raised: see `PendingIds.take_back`."""
        is_in = not isinstance(error, StoreError) and (
            self in self.stream.lane.queue.requests or self.offset >= 0 or self._error is not None
        )
        if not is_in:
            self.fail(None)

    def offset_of(self, _: bytes) -> int | None:
        """The offset of the message; None if it did not get to the log, or has no answer yet."""
        return self.offset if self._done and self._error is None and self.offset >= 0 else None

    def follow(self, call: Callable[[], object]) -> None:
        """As `then`, and also in a forked child."""
        self.then(_Following(call))

    def forget_waiters(self) -> None:
        calls = [one for one in self._waiters or () if isinstance(one, list)]
        self._waiters = [one for one in calls if one and isinstance(one[0], _Following)]


class _Following(partial[object]):
    """The call of an append with the same id."""


class IdPromise(Barrier):
    """Answered when ids have their outcome. Two threads may answer it, with one outcome: each waiter hears it once."""

    __slots__ = ()

    def follow(self, call: Callable[[], object]) -> None:
        """As `then`."""
        self.then(call)

    def answer(self, error: StoreError | None = None) -> None:
        with suppress(RuntimeError):  # the lock of a thread that the other one has woken
            super().answer(error)


OnTheWay = PendingIds | IdRequest


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
        queue_ids: Sequence[int] | Int64s, entries: slice | Sequence[int] | Int64s,
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


def queue_ids_of(streams: Sequence[Stream]) -> Sequence[int] | Int64s:
    """The queue of each message."""
    if len(streams) > FEW and streams.count(streams[0]) == len(streams):
        return np.full(len(streams), streams[0].queue_id)
    return [stream.queue_id for stream in streams]


def ids_of(request: Request) -> Sequence[OnTheWay]:
    """The message ids that a request has on their way, by topic."""
    return cast("Sequence[OnTheWay]", request.ids)


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
