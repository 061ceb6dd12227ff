"""The calls of a subscription that only look: how far it is, and what its consumers have."""

from __future__ import annotations

from .backlog import Backlog, queues_of, snapshot
from .delivery import Delivery
from .positions import InFlightMessage, Position, found_of, in_flight_of, positions_of
from .settings import Settings, receipt_of
from .state import State


class Inspecting:
    """Looks at the state that all objects of a subscription share. It has no state of its own."""

    _state: State

    def _settings(self) -> Settings:
        """The settings. Raises SubscriptionClosed, StoreClosed."""
        raise NotImplementedError

    def backlog(self) -> Backlog:
        """How many messages are not acknowledged: ready, in flight, delayed.

        The first call, or a receive, makes the topic's index. Until that has read the log, each call walks the log.

        Raises: SubscriptionClosed, StoreClosed, StoreCorrupt, StoreUnreadable.
        """
        self._settings()
        return self._state.backlog()

    def positions(self) -> dict[int, Position]:
        """How far the subscription is in each queue of its topic, by queue id. Only durable acknowledgements count.

        So `store.trim(topic, queue_id, positions[queue_id].mark_delete)` removes nothing that is left to consume.

        Raises: SubscriptionClosed, StoreClosed, StoreUnreadable.
        """
        self._settings()
        state = self._state
        queues = queues_of(state.parts, state.topic)
        with state.lock:
            state.take_in()
            known = snapshot(state.cursor, state.table, state.now_ms())
        return positions_of(queues, known)

    def in_flight(self) -> list[InFlightMessage]:
        """The messages that consumers have, those of all objects of the subscription, as they were given out.

        A message that has timed out is left out: it comes again. Raises: SubscriptionClosed, StoreClosed.
        """
        self._settings()
        return in_flight_of(self._state, self._state.parts.clock.wall_ms())

    def message_of(self, delivery: Delivery | int) -> InFlightMessage:
        """Which message a delivery or a receipt is of: its queue, offset and attempt, and until when it is kept.

        Raises: StaleReceipt, as `ack` does; SubscriptionClosed, StoreClosed, InvalidMessage.
        """
        receipt = receipt_of(delivery)
        self._settings()
        return found_of(self._state, receipt, self._state.parts.clock.wall_ms())
