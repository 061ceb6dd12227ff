"""The results of a receive: messages with receipts, as objects or columns; and fetching them by place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import OffsetOutOfRange, StoreError
from ..filters.message_filter import MessageFilter
from ..format.arrays import Indexes, Int64s
from ..format.blobs import ExtraColumns, gathered
from ..format.extras import Extras
from ..read.message import Message, MessageBatch, packed_properties
from ..read.picking import Picks
from .in_flight import Places

Copied = Callable[[int, int], Message | None]
FETCHED = 4096  # places at once
RETRY_MS = 1000  # a message that cannot be fetched or moved is tried again after this time
MOST_BAD = 8  # of a call, looked for one by one: with a broken device all are bad
_NONE = np.empty(0, np.intp)


class Delivery(NamedTuple):
    """A message that was given out. Acknowledge it, or it comes again after its visibility time-out.

    Attributes:
        message: the message.
        attempt: how often it was given out, this time included: with `max_attempts` in all, else since the store was
            opened.
        receipt: the number that acknowledges it. A receipt is good for this delivery alone.
        subscription: the name of the subscription that gave it out.
    """

    message: Message
    attempt: int
    receipt: int
    subscription: str = ""


class DeliveryBatch(MessageBatch):
    """n messages that were given out, as columns: those of `MessageBatch`, and three more.

    Attributes:
        receipts: int64 (n), the number that acknowledges each, see `Subscription.ack_batch`.
        attempts: int64 (n), how often each was given out, see `Delivery`.
        subscription: the name of the subscription.
    """

    __slots__ = ("attempts", "receipts", "subscription")

    def __init__(self, batch: MessageBatch, receipts: Int64s, attempts: Int64s, subscription: str) -> None:
        super().__init__(
            batch.buffer, batch.positions, batch.lengths, batch.offsets, batch.times_ms, batch.stream_index,
            batch.stream_names, batch.extras,
        )  # fmt: skip
        self.receipts = receipts
        self.attempts = attempts
        self.subscription = subscription

    @classmethod
    def empty(cls) -> DeliveryBatch:
        """A batch without a message."""
        nothing = np.empty(0, np.int64)
        batch = MessageBatch(memoryview(b""), nothing, nothing, nothing, nothing, np.empty(0, np.uint32), [])
        return cls(batch, nothing, nothing, "")

    def __repr__(self) -> str:
        return f"<DeliveryBatch of {len(self)} messages, {int(self.lengths.sum())} bytes>"

    def deliveries(self) -> list[Delivery]:
        """All messages as objects, each with its own copy of the data. Slower than the columns."""
        pairs = zip(self.attempts.tolist(), self.receipts.tolist(), strict=True)
        name = self.subscription
        return [Delivery(self.message(at), attempt, receipt, name) for at, (attempt, receipt) in enumerate(pairs)]


def taken(batch: MessageBatch, rows: npt.NDArray[np.intp]) -> MessageBatch:
    """Some messages of a batch, by row; they share its buffer."""
    extras = None if batch.extras is None else ExtraColumns.of(batch.extras).take(rows)
    return MessageBatch(
        batch.buffer, batch.positions[rows], batch.lengths[rows], batch.offsets[rows], batch.times_ms[rows],
        batch.stream_index[rows], batch.stream_names, extras,
    )  # fmt: skip


def filtered(batches: Iterable[MessageBatch], wanted: MessageFilter) -> Iterator[MessageBatch]:
    """What passes a filter; no batch is empty."""
    for batch in batches:
        mask = wanted.mask(None if batch.extras is None else ExtraColumns.of(batch.extras), len(batch))
        if mask.any():
            yield batch if mask.all() else taken(batch, np.flatnonzero(mask))


def batch_of(message: Message) -> MessageBatch:
    """A batch of one message."""
    extras = Extras(message.deliver_at_ms, message.key, packed_properties(message.properties))
    zero = np.zeros(1, np.int64)
    return MessageBatch(
        memoryview(message.data), zero, zero + len(message.data), zero + message.offset, zero + message.timestamp_ms,
        np.zeros(1, np.uint32), [(message.topic, message.queue_id)], [extras],
    )  # fmt: skip


def part_of(batch: MessageBatch, begin: int, end: int) -> MessageBatch:
    """The messages begin .. end - 1 of a batch, without a copy."""
    if begin == 0 and end == len(batch):
        return batch
    extras = None
    if batch.extras is not None:
        extras = ExtraColumns.of(batch.extras).take(np.arange(begin, end))
    return MessageBatch(
        batch.buffer, batch.positions[begin:end], batch.lengths[begin:end], batch.offsets[begin:end],
        batch.times_ms[begin:end], batch.stream_index[begin:end], batch.stream_names, extras,
    )  # fmt: skip


def queue_ids_of(batch: MessageBatch) -> Int64s:
    """(n,) the queue id of each message."""
    ids = np.array([queue_id for _, queue_id in batch.stream_names], np.int64)
    return ids[batch.stream_index]


def joined(batches: Sequence[MessageBatch]) -> MessageBatch:
    """Batches one after another: a copy, unless there is only one."""
    if len(batches) == 1:
        return batches[0]
    payloads = [gathered(batch.buffer, batch.positions, batch.lengths, np.arange(len(batch))) for batch in batches]
    lengths = _concatenated([batch.lengths for batch in batches])
    names: dict[tuple[str, int], int] = {}
    index = []
    for batch in batches:
        places = [names.setdefault(name, len(names)) for name in batch.stream_names]
        index.append(np.array(places, np.uint32)[batch.stream_index])
    extras = None
    if any(batch.extras is not None for batch in batches):
        extras = ExtraColumns.joined(
            [(None if batch.extras is None else ExtraColumns.of(batch.extras), len(batch)) for batch in batches]
        )
    return MessageBatch(
        memoryview(b"".join(payloads)), lengths.cumsum() - lengths, lengths,
        _concatenated([batch.offsets for batch in batches]), _concatenated([batch.times_ms for batch in batches]),
        np.concatenate([*index, np.empty(0, np.uint32)]), list(names), extras,
    )  # fmt: skip


def _concatenated(columns: Sequence[Int64s]) -> Int64s:
    return np.concatenate([*columns, np.empty(0, np.int64)])


class Fetches(NamedTuple):
    """The messages found at some places.

    Attributes:
        batches: the messages, one batch after another.
        rows: (n,) for each message the number of the place that asked for it.
        gone: (m,) places whose message was trimmed, removed by retention, or given up by a repair.
        looked: how many places were looked at, from the first one on; the messages of the others did not fit.
    """

    batches: list[MessageBatch]
    rows: Indexes
    gone: Indexes
    looked: int


class PlaceReads(Protocol):
    """The reads that fetch messages by place."""

    def read_batch(self, topic: str, queue_id: int, offset: int, max_messages: int, max_bytes: int) -> MessageBatch:
        """The messages from `offset` on, in columns. Raises OffsetOutOfRange, StoreCorrupt, StoreUnreadable."""

    def read_at(self, topic: str, queue_ids: Int64s, offsets: Int64s, max_bytes: int, *, is_first: bool) -> Picks:
        """The messages at some places (n,), as far as they exist and fit. Raises as `read_batch` does."""


def fetch_into(room: Room, reads: PlaceReads, topic: str, queues: Int64s, offsets: Int64s, copied: Copied) -> Fetches:
    """Fetch the messages at the first of some places (n,), by queue and offset, as far as they fit into `room`.

    `room` has that much less afterwards. No message that does not fit is read, except one copy. `copied` gives the copy
    of a message whose segment is gone, or None. Raises StoreCorrupt, StoreUnreadable.
    """
    parts: list[Fetches] = []
    at = 0
    while at < len(offsets) and room.is_open:
        end = at + min(FETCHED, room.messages, len(offsets) - at)
        part = _fetch(room, reads, topic, queues[at:end], offsets[at:end], copied)
        room.take(part.batches)
        parts.append(Fetches(part.batches, part.rows + at, part.gone + at, part.looked))
        at += part.looked
        if at < end:
            room.close()
    return _together(parts)


def fetch_readable(
    room: Room, fetch: Callable[[Room, Places], Fetches], places: Places, failed: list[StoreError]
) -> tuple[Fetches, Indexes]:
    """Fetch as `fetch` does, and pass over places that cannot be read. Returns the messages, and the bad places (n,).

    Their errors are added to `failed`.
    """
    parts: list[Fetches] = []
    bad: list[int] = []
    left = [(0, places.size)]  # halved where a place cannot be read
    while left and room.is_open:
        begin, end = left.pop()
        if len(bad) >= MOST_BAD:
            bad += range(begin, end)
            continue
        try:
            part = fetch(room, places.take(np.arange(begin, end)))
        except StoreError as error:
            if end - begin > 1:
                left += [((begin + end) // 2, end), (begin, (begin + end) // 2)]
            else:
                bad.append(begin)
                failed.append(error)
            continue
        parts.append(Fetches(part.batches, part.rows + begin, part.gone + begin, part.looked))
        if part.looked < end - begin:
            break  # there is no room for the next one
    return _together(parts), np.array(bad, np.intp)


def in_turn(found: Fetches) -> Fetches:
    """The messages sorted by the places that asked for them."""
    if len(found.batches) <= 1 and (found.rows[1:] > found.rows[:-1]).all():
        return found
    order = np.argsort(found.rows, kind="stable")
    return found._replace(batches=[taken(joined(found.batches), order)], rows=found.rows[order])


def _together(parts: Sequence[Fetches]) -> Fetches:
    """Several fetches as one, each of the places after those of the one before."""
    rows = np.concatenate([_NONE, *(part.rows for part in parts)])
    gone = np.concatenate([_NONE, *(part.gone for part in parts)])
    return Fetches([batch for part in parts for batch in part.batches], rows, gone, sum(part.looked for part in parts))


def _fetch(room: Room, reads: PlaceReads, topic: str, queues: Int64s, offsets: Int64s, copied: Copied) -> Fetches:
    try:
        picks = reads.read_at(topic, queues, offsets, room.size_bytes, is_first=room.is_empty)
    except OffsetOutOfRange:  # retention removed a segment meanwhile, or a queue is gone
        alone = partial(_alone, reads, topic, copied)
        return _completed(room, Fetches([], _NONE, np.arange(len(offsets)), len(offsets)), queues, offsets, alone)
    missing = np.ones(picks.looked, np.bool_)
    missing[picks.rows] = False
    batches = [picks.batch] if len(picks.rows) else []
    found = Fetches(batches, picks.rows, np.flatnonzero(missing), picks.looked)
    return _completed(room, found, queues, offsets, partial(_copy, copied)) if len(found.gone) else found


def _completed(
    room: Room,
    found: Fetches,
    queues: Int64s,
    offsets: Int64s,
    find: Callable[[int, int], MessageBatch | None],
) -> Fetches:
    """Look for missing messages place by place, as long as all fit."""
    lengths, size = np.zeros(found.looked, np.int64), 0
    for batch in found.batches:
        lengths[found.rows] = batch.lengths
    before = lengths.cumsum()
    batches, rows, gone, end = list(found.batches), found.rows.tolist(), list[int](), found.looked
    for row in found.gone.tolist():
        one = find(int(queues[row]), int(offsets[row]))
        if one is None:
            gone.append(row)
            continue
        lengths[row] = len(one.buffer)
        size += len(one.buffer)
        batches.append(one)
        rows.append(row)
        if int(before[row]) + size > room.size_bytes:
            end = row + 1
            break
    count = min(end, int(lengths.cumsum().searchsorted(room.size_bytes, side="right")))
    if room.is_empty and rows:
        count = max(count, min(rows) + 1)
    return _cut(Fetches(batches, np.array(rows, np.intp), np.array(gone, np.intp), found.looked), count)


def _cut(found: Fetches, count: int) -> Fetches:
    """The messages of the first `count` places."""
    if count >= found.looked:
        return found
    batches, at = [], 0
    for batch in found.batches:
        kept = np.flatnonzero(found.rows[at : at + len(batch)] < count)
        at += len(batch)
        if len(kept):
            batches.append(batch if len(kept) == len(batch) else taken(batch, kept))
    return Fetches(batches, found.rows[found.rows < count], found.gone[found.gone < count], count)


def _copy(copied: Copied, queue_id: int, offset: int) -> MessageBatch | None:
    message = copied(queue_id, offset)
    return None if message is None else batch_of(message)


def _alone(reads: PlaceReads, topic: str, copied: Copied, queue_id: int, offset: int) -> MessageBatch | None:
    """One message of a queue, or its copy."""
    try:
        batch = reads.read_batch(topic, queue_id, offset, 1, 1)
    except OffsetOutOfRange:
        return _copy(copied, queue_id, offset)
    return batch if len(batch) and batch.offsets[0] == offset else _copy(copied, queue_id, offset)


class Room:
    """Room for a number of messages and payload bytes; the first message always fits.

    Attributes:
        messages, size_bytes: the room that is left.
        is_empty: no message was taken yet.
    """

    def __init__(self, messages: int, size_bytes: int) -> None:
        self.messages = messages
        self.size_bytes = size_bytes
        self.is_empty = True

    @property
    def is_open(self) -> bool:
        """Whether one more message may fit."""
        return self.messages > 0 and self.size_bytes > 0

    def take(self, batches: Sequence[MessageBatch]) -> None:
        """Take the room of these messages."""
        for batch in batches:
            self.messages -= len(batch)
            self.size_bytes -= int(batch.lengths.sum())
            self.is_empty = False

    def close(self) -> None:
        """Take no more: the next message does not fit."""
        self.messages = 0
