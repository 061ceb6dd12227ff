"""The backlogs of subscriptions for `metrics()`: cheap enough to be counted each second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ..errors import StoreError
from .backlog import QueueBounds, queues_of
from .parts import Parts
from .state import State

MOST_LOADED: Final = 4  # subscriptions that nobody has used yet are read from the log: so many a look


class WatchedSubscriptions:
    """Counts the backlogs of the first subscriptions of a store. One look counts those of some queues at the most.

    A count is not `Backlog`: cancelled messages count, and copies of messages that retention has removed do not.
    """

    def __init__(
        self,
        parts: Parts,
        names: Callable[[int], Sequence[Sequence[str]]],
        known: Callable[[str, str], State | None],
        load: Callable[[str, str], State],
    ) -> None:
        """`known` is the state of a subscription that is in memory; `load` puts it there. `names` gives the first n."""
        self._parts = parts
        self._names = names
        self._known = known
        self._load = load
        self._failed: set[tuple[str, str]] = set()  # of the first: loaded last, so that they stop no other

    def rows(self, most: int, most_queues: int) -> list[dict[str, Any]]:
        """A row for each of the first `most` subscriptions: `topic`, `subscription`, `unacknowledged`, `in_flight`.

        One is left out if its topic has more queues than are left of `most_queues`, if its records are damaged, or if
        it is not in memory yet and `MOST_LOADED` others were loaded by this call.
        """
        found, bounds, loads = [], dict[str, QueueBounds](), MOST_LOADED
        names = [(topic, name) for topic, name in self._names(most)]
        self._failed.intersection_update(names)
        for topic, name in sorted(names, key=self._failed.__contains__):
            queues = len(self._parts.streams.topics.get(topic, ()))
            if queues > most_queues:
                continue
            state = self._known(topic, name)
            if state is None:
                if not loads:
                    continue
                loads -= 1
            try:
                state = state or self._load(topic, name)
                if topic not in bounds:
                    bounds[topic] = queues_of(self._parts, topic)
            except StoreError:  # its records are damaged or unreadable: the calls of a consumer raise it
                self._failed.add((topic, name))
                continue
            most_queues -= queues
            row = _row_of(state, bounds[topic])
            if row is not None:
                found.append({"topic": topic, "subscription": name, **row})
        return found


def _row_of(state: State, queues: QueueBounds) -> dict[str, int] | None:
    """The counts of a subscription; None if there is none of that name any more."""
    unacknowledged = 0
    with state.lock:
        cursor = state.cursor
        if cursor.settings is None:
            return None
        state.take_in()
        columns = queues.ids.tolist(), queues.firsts.tolist(), queues.nexts.tolist()
        for queue_id, first, end in zip(*columns, strict=True):
            acked = cursor.queues.get(queue_id)
            low = first if acked is None else max(first, acked.mark)
            if low < end:
                unacknowledged += end - low
                if acked is not None and acked.above:
                    unacknowledged -= acked.above.range_cardinality(low, end)
        return {"unacknowledged": unacknowledged, "in_flight": len(state.table)}
