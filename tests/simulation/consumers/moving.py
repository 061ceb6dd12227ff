"""What a run does with whole subscriptions and queues: moving, changing, closing, deleting, trimming."""

from __future__ import annotations

from typing import Any

from .consuming import Consuming
from .inline import compact_cursor
from .ledger import Kind
from .shape import TOPIC


class Moving(Consuming):
    """Seeks, changes, closes, deletes and trims."""

    def _move(self, kind: Kind, offsets: dict[int, int], call: Any) -> None:
        try:
            with self._ledger.moving(kind.name, offsets, self._firsts()):
                call()
        finally:  # also where a fault left open whether it moved
            for of_places in (self._held[kind.name], self._later[kind.name]):
                for place in [place for place in of_places if place[0] in offsets]:
                    of_places.pop(place)

    def seek(self) -> None:
        """Some queues, or all."""
        kind, subscription = self._one()
        if self._chance.random() < 0.3:
            self._move(kind, dict.fromkeys(self._ends(), 0), lambda: subscription.seek("earliest"))
        else:
            firsts = self._firsts()
            moved = {
                queue_id: self._chance.randint(firsts[queue_id], end)
                for queue_id, end in self._ends().items() if self._chance.random() < 0.5
            }  # fmt: skip
            self._move(kind, moved, lambda: subscription.seek(moved))

    def skip_all(self) -> None:
        """Acknowledge all that is durable."""
        kind, subscription = self._one()
        self._move(kind, self._ends(), subscription.skip_all)

    def change(self) -> None:
        """Other settings."""
        kind, subscription = self._one()
        given: dict[str, Any] = {"precision_ms": self._chance.choice((0, 5, 20))}
        if kind.dead_letters is not None:
            given["max_attempts"] = self._chance.choice((1, 2, 3))
        with self._ledger.changing(kind, given):
            subscription.change(**given)
        self._reached["settings changed"] += 1

    def close_one(self) -> None:
        """A consumer goes."""
        if self._subscriptions:
            name = self._chance.choice(sorted(self._subscriptions))
            del self._held[name], self._later[name]
            self._subscriptions.pop(name).close()

    def delete(self) -> None:
        """Remove a subscription, whoever uses it."""
        name = self._chance.choice(self._shape.kinds).name
        self._subscriptions.pop(name, None)
        self._held.pop(name, None)
        self._later.pop(name, None)
        with self._ledger.deleting(name):
            self.store.delete_subscription(TOPIC, name)

    def compact_cursors(self) -> None:
        """Write snapshots."""
        for subscription in self._subscriptions.values():
            compact_cursor(subscription)

    def trim(self) -> None:
        """Remove messages, delayed or not."""
        queues = self.store.queues(TOPIC)
        if queues:
            queue_id = self._chance.choice(queues)
            first, end = self.store.queue_bounds(TOPIC, queue_id)
            low = self._chance.randint(first, min(end, first + 8))
            gone = [place for place in self._ledger.sent if place[0] == queue_id and place[1] < low]
            with self._ledger.ending(gone if low > first else []):
                self.store.trim(TOPIC, queue_id, low)
