"""How far a subscription is: its positions, and the messages that consumers have."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from ..errors import OffsetOutOfRange, StoreCorrupt
from ..format.arrays import Indexes
from .backlog import QueueBounds, SubscriptionSnapshot
from .in_flight import RowState
from .parts import Parts
from .settings import stale
from .state import State

MOST_QUEUES = 1000  # a read takes some 20 us
LEAST_S = 1.0  # between two looks that a rate is taken from


class Position(NamedTuple):
    """How far a subscription is in one queue. Only durable acknowledgements count.

    Attributes:
        mark_delete: all messages below this offset are acknowledged. It never passes a delayed message, or one that a
            consumer has.
        acknowledged_above: how many messages at or above it are acknowledged.
        next_offset: of the queue: the offset that its next message gets.
    """

    mark_delete: int
    acknowledged_above: int
    next_offset: int


class InFlightMessage(NamedTuple):
    """A message that a consumer has.

    Attributes:
        topic, queue_id, offset: where it lies.
        attempt: how often it was given out, this time included.
        until_ms: when its visibility time-out passes, ms since the epoch.
        receipt: what acknowledges it.
    """

    topic: str
    queue_id: int
    offset: int
    attempt: int
    until_ms: int
    receipt: int


def positions_of(queues: QueueBounds, known: SubscriptionSnapshot) -> dict[int, Position]:
    """The position of each queue of a topic, by queue id."""
    found = {}
    for queue_id, next_offset in zip(queues.ids.tolist(), queues.nexts.tolist(), strict=True):
        above = known.above.get(queue_id)
        found[queue_id] = Position(known.marks.get(queue_id, 0), 0 if above is None else len(above), next_offset)
    return found


def in_flight_of(state: State, wall_ms: int) -> list[InFlightMessage]:
    """The messages that consumers have, in the order in which they were given out. `wall_ms` is the time now."""
    with state.lock:
        rows, now_ms = state.table.live(), state.now_ms()
        rows = rows[(state.table.states(rows) == RowState.OUT) & (state.table.deadlines(rows) > now_ms)]
        return _messages(state, rows, wall_ms - now_ms)


def found_of(state: State, receipt: int, wall_ms: int) -> InFlightMessage:
    """The message of a receipt that a consumer has, on time or late. Raises StaleReceipt."""
    with state.lock:
        row = state.table.row_of(receipt)
        if row < 0:
            raise stale(state.name, [receipt])
        return _messages(state, [row], wall_ms - state.now_ms())[0]


def _messages(state: State, rows: Indexes | list[int], behind_ms: int) -> list[InFlightMessage]:
    """Some rows; the clock of deadlines is so far behind that of the day. Under the lock."""
    table, topic = state.table, state.topic
    found = np.array(rows, np.intp)
    columns = [*table.places(found), table.deadlines(found) + behind_ms, table.receipts(found)]
    return [InFlightMessage(topic, *row) for row in zip(*[column.tolist() for column in columns], strict=True)]


def oldest_of(parts: Parts, topic: str, queues: QueueBounds, known: SubscriptionSnapshot) -> int | None:
    """When the oldest message that is not acknowledged was put into the log; of damaged ones nothing is known.

    A read for each queue that has one; None for a topic of more than `MOST_QUEUES`. Raises StoreUnreadable.
    """
    times: list[int] = []
    if len(queues.ids) > MOST_QUEUES:
        return None
    for queue_id, first, end in zip(queues.ids.tolist(), queues.firsts.tolist(), queues.nexts.tolist(), strict=True):
        offset = known.acked(queue_id).first_missing(first)
        if offset < end:
            with suppress(StoreCorrupt, OffsetOutOfRange):  # retention, or damage: this is only a figure
                times += parts.reads.read_batch(topic, queue_id, offset, 1, 1).times_ms.tolist()
    return min(times, default=None)


class _Look(NamedTuple):
    """Sums over the queues of a topic at one time: offsets that were given, and acknowledged messages."""

    time_s: float
    arrived: int
    acknowledged: int


class Rates:
    """Rates of subscriptions, between one look and another. Any number of threads may use it.

    Invariant: of each name two looks are kept, a second apart or more, or the first one twice.
    """

    def __init__(self) -> None:
        self._looks: dict[tuple[str, str], tuple[_Look, _Look]] = {}  # an older one and a newer one

    def of(
        self, name: tuple[str, str], positions: Mapping[int, Position], now_s: float
    ) -> tuple[float | None, float | None]:
        """Messages a second: that came, and that were acknowledged. None without a look a second ago or before."""
        arrived = sum(position.next_offset for position in positions.values())
        acknowledged = sum(position.mark_delete + position.acknowledged_above for position in positions.values())
        look = _Look(now_s, arrived, acknowledged)
        older, newer = self._looks.get(name, (look, look))
        if now_s - newer.time_s >= LEAST_S:
            older, newer = newer, look
        self._looks[name] = older, newer
        took_s = now_s - older.time_s
        if took_s < LEAST_S:
            return None, None
        return max(0.0, (arrived - older.arrived) / took_s), max(0.0, (acknowledged - older.acknowledged) / took_s)

    def forget(self, name: tuple[str, str]) -> None:
        """A subscription was deleted."""
        self._looks.pop(name, None)
