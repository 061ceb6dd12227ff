"""How much a subscription has left to do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..delayed.reckoning import Pending
from .cursor import Cursor
from .in_flight import InFlight, Is
from .parts import Parts


class Backlog(NamedTuple):
    """Messages that are not acknowledged.

    Attributes:
        ready: to be given out now; for a subscription with a filter, with those that it will leave out.
        in_flight: a consumer has them, and their visibility time-out has not passed.
        delayed: given back for later, or their delivery time has not come.
    """

    ready: int
    in_flight: int
    delayed: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.ready + self.in_flight + self.delayed


class Bounds(NamedTuple):
    """What a topic has, read before the subscription's lock is taken: nobody waits for other locks while he holds it.

    Attributes:
        queues: (first, next) offset by queue id.
        delayed: messages that wait for their time.
    """

    queues: dict[int, tuple[int, int]]
    delayed: int


def bounds_of(parts: Parts, topic: str, delayed: int) -> Bounds:
    """The bounds of a topic. Raises StoreUnreadable."""
    return Bounds({queue_id: parts.reads.queue_bounds(topic, queue_id) for queue_id in parts.queues(topic)}, delayed)


def delayed_of(parts: Parts, topic: str, cursor: Cursor, pending: Pending | None) -> int:
    """How many messages of a topic wait for their time: by the log those of this subscription, else by the index."""
    if pending is None:
        index = None if parts.delays is None else parts.delays.find(topic)
        return 0 if index is None else index.pending
    count = 0
    for queue_id, offsets in pending.offsets.get(topic, {}).items():
        acked = cursor.queues.get(queue_id)
        count += len(offsets) if acked is None else int(np.count_nonzero(~acked.are_in(offsets)))
    return count


def backlog_of(bounds: Bounds, cursor: Cursor, table: InFlight | None) -> Backlog:
    """The backlog by what is acknowledged. Under the subscription's lock."""
    total = out = held = 0
    rows = np.empty(0, np.intp) if table is None else table.live()
    for queue_id, (first, next_offset) in bounds.queues.items():
        acked = cursor.queues.get(queue_id)
        total += next_offset - first
        if acked is not None and next_offset > first:
            total -= acked.count_from(first, next_offset)
        if table is not None:
            places = table.places(rows)
            mine = (places.queues == queue_id) & (places.offsets >= first) & (places.offsets < next_offset)
            states = table.states(rows[mine])
            out += int(np.count_nonzero(states == Is.OUT))
            held += int(np.count_nonzero(states == Is.HELD))
    held += max(0, min(bounds.delayed, total - out - held))  # some may be skipped here, and wait for others
    return Backlog(max(0, total - out - held), out, held)
