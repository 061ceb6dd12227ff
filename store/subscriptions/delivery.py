"""What a subscription gives out: messages with their receipts, as objects or as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..format.blobs import ExtraColumns, gathered
from ..format.extras import Extras
from ..read.message import Message, MessageBatch, packed_properties

Int64s = npt.NDArray[np.int64]


class Delivery(NamedTuple):
    """A message that was given out. Acknowledge it, or it comes again after its visibility time-out.

    Attributes:
        message: the message.
        attempt: how often it was given out, this time included: with `max_attempts` in all, else since the store was
            opened.
        receipt: what acknowledges it; a receipt is good for this delivery alone.
    """

    message: Message
    attempt: int
    receipt: int


class DeliveryBatch(MessageBatch):
    """n messages that were given out, as columns: those of `MessageBatch`, and two more.

    Attributes:
        receipts: int64 (n), what acknowledges each, see `Subscription.ack_batch`.
        attempts: int64 (n), how often each was given out, see `Delivery`.
    """

    __slots__ = ("attempts", "receipts")

    def __init__(self, batch: MessageBatch, receipts: Int64s, attempts: Int64s) -> None:
        super().__init__(
            batch.buffer, batch.positions, batch.lengths, batch.offsets, batch.times_ms, batch.stream_index,
            batch.stream_names, batch.extras,
        )  # fmt: skip
        self.receipts = receipts
        self.attempts = attempts

    def __repr__(self) -> str:
        return f"<DeliveryBatch of {len(self)} messages, {int(self.lengths.sum())} bytes>"

    def deliveries(self) -> list[Delivery]:
        """All messages as objects, each with its own copy of the data. Slower than the columns."""
        pairs = zip(self.attempts.tolist(), self.receipts.tolist(), strict=True)
        return [Delivery(self.message(at), attempt, receipt) for at, (attempt, receipt) in enumerate(pairs)]


def taken(batch: MessageBatch, rows: npt.NDArray[np.intp]) -> MessageBatch:
    """Some messages of a batch, over the same buffer."""
    extras = None if batch.extras is None else ExtraColumns.of(batch.extras).take(rows)
    return MessageBatch(
        batch.buffer, batch.positions[rows], batch.lengths[rows], batch.offsets[rows], batch.times_ms[rows],
        batch.stream_index[rows], batch.stream_names, extras,
    )  # fmt: skip


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


def singles(batches: Sequence[MessageBatch]) -> list[MessageBatch]:
    """Each message as a batch of its own."""
    return [part_of(batch, at, at + 1) for batch in batches for at in range(len(batch))]


def queue_ids_of(batch: MessageBatch) -> Int64s:
    """(n,) the queue id of each message."""
    ids = np.array([queue_id for _, queue_id in batch.stream_names], np.int64)
    return ids[batch.stream_index]


def joined(batches: Sequence[MessageBatch]) -> MessageBatch:
    """Some batches behind each other: a copy, unless there is only one."""
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
