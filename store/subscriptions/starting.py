"""Where a subscription begins, or goes on: positions as users name them, as offsets of queues."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import OffsetOutOfRange
from .parts import Parts
from .settings import Start


def offsets_of(parts: Parts, topic: str, start: Start) -> dict[int, int]:
    """The first offset of each queue that is to be given out. A queue that comes later begins at its first message.

    Raises OffsetOutOfRange for an offset behind a queue's next one.
    """
    if isinstance(start, Mapping):
        for queue_id, offset in start.items():
            first, next_offset = parts.reads.queue_bounds(topic, queue_id)
            if offset > next_offset:
                raise OffsetOutOfRange(topic, queue_id, offset, first, next_offset)
        return dict(start)
    queues = parts.queues(topic)
    if start == "earliest":
        return dict.fromkeys(queues, 0)
    if start == "latest":
        return {queue_id: parts.reads.queue_bounds(topic, queue_id)[1] for queue_id in queues}
    return {queue_id: parts.reads.offset_at(topic, queue_id, int(start)) for queue_id in queues}
