"""What a run does with whole subscriptions and queues: moving, changing, closing, deleting, trimming."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from .consuming import Consuming
from .inline import compact_cursor
from .ledger import CONFIGURED, FILTERS_OF_TAGGED, Kind
from .sent_back import fail_and_send_back
from .shape import TOPIC

LONG_AGO_MS = -(1 << 40)


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

    def configure(self) -> None:
        """A topic gets settings, or loses them."""
        topic, queues = self._chance.choice(CONFIGURED), self._chance.choice((None, 1, 2, 3, 4, 5, 6))
        with self._ledger.configuring(topic, queues):
            if queues is None:
                self.store.delete_topic(topic)
            else:
                self.store.configure_topic(topic, queues=queues)
        self._ledger.check_settings(self.store)
        self._reached["configured"] += 1

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
        if "filter" in kind.settings:
            given["filter"] = self._chance.choice(FILTERS_OF_TAGGED)
        with self._ledger.changing(kind, given):
            subscription.change(**given)
        self._reached["settings changed"] += 1

    def close_one(self) -> None:
        """A consumer goes: what it has comes again at once. With the last one, all does."""
        if not self._subscriptions:
            return
        name = self._chance.choice(sorted(self._subscriptions))
        objects = self._subscriptions[name]
        gone = objects.pop(self._chance.randrange(len(objects)))
        if not objects:
            del self._held[name], self._later[name], self._subscriptions[name]
        else:
            for held in self._held[name].values():
                if held.by is gone and held.until_ms > self._clock.passed_ms:  # else it has failed before, and rests
                    held.until_ms = LONG_AGO_MS
            self._reached["one of several went"] += 1
        gone.close()

    def delete(self) -> None:
        """Remove a subscription, whoever uses it."""
        name = self._chance.choice(self._shape.kinds).name
        self._subscriptions.pop(name, None)
        self._held.pop(name, None)
        self._later.pop(name, None)
        with self._ledger.deleting(name):
            self.store.delete_subscription(TOPIC, name)

    def compact_cursors(self) -> None:
        """Write snapshots, while other consumers acknowledge, or nobody does."""
        acks = self._chance.random() < 0.5
        for objects in self._subscriptions.values():
            with self._driver.beside(self.store, self._ack_one) if acks else nullcontext():
                compact_cursor(objects[0])

    def _ack_one(self) -> None:
        name, subscription, places = self._some_held()
        for place in places[:1]:
            self._ack(name, [place], lambda one: subscription.ack(one[0]))
            self._reached["acknowledged beside a snapshot"] += 1

    def send_back(self) -> None:
        """Jobs fail, and dead letters go back."""
        self._reached["sent back"] += fail_and_send_back(self.store, self._chance)

    def trim(self) -> None:
        """Remove messages, delayed or not."""
        queues = self.store.queues(TOPIC)
        if queues:
            queue_id = self._chance.choice(queues)
            first, end = self.store.queue_bounds(TOPIC, queue_id)
            low = self._chance.randint(first, min(end, first + 8))
            gone = [place for place in self._ledger.sent if place[0] == queue_id and place[1] < low]
            with self._ledger.ending(gone):  # also what lives on as copies before the first offset
                self.store.trim(TOPIC, queue_id, low)
