"""The delayed messages of a topic themselves: in their queues, or as copies."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..errors import OffsetOutOfRange
from ..read.message import Message
from .positions import places_of

if TYPE_CHECKING:
    from .topic import DelayedTopic

Int64s = npt.NDArray[np.int64]
_NOTHING = np.empty(0, np.int64)


def fetch(topic: DelayedTopic, queue_id: int, offset: int) -> Message | None:
    """A message, from its queue or from its copy; None if it was removed. Raises StoreCorrupt, OSError."""
    stream = topic.parts.stream(topic.name, queue_id)
    if stream is None or offset < stream.low:
        return None
    with suppress(OffsetOutOfRange):
        found = topic.parts.reader.read(stream, offset, 1, 1)
        if found and found[0].offset == offset:
            return found[0]
    with topic.lock:
        return topic.copies.find(queue_id, offset)


def due_copies(topic: DelayedTopic) -> tuple[Int64s, Int64s]:
    """(queue ids, offsets) of messages that live on as copies, and are neither pending nor cancelled."""
    with topic.lock:
        topic.advance()
        queues, offsets = [_NOTHING], [_NOTHING]
        for queue_id, rows, of_queue in topic.copies.of_queues():
            cancelled = topic.changes.are_cancelled(topic.copies.places[rows])
            gone = cancelled | topic.are_pending(queue_id, of_queue)
            offsets.append(of_queue[~gone])
            queues.append(np.full(len(offsets[-1]), queue_id))
        return np.concatenate(queues), np.concatenate(offsets)


def are_over(topic: DelayedTopic, queue_id: int, offsets: Int64s) -> npt.NDArray[np.bool_]:
    """(n,) which messages are cancelled or trimmed: nobody wants them any more."""
    stream = topic.parts.stream(topic.name, queue_id)
    with topic.lock:
        cancelled = topic.changes.are_cancelled(places_of(np.full(len(offsets), queue_id), offsets))
        return cancelled | (offsets < (0 if stream is None else stream.low))
