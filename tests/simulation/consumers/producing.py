"""What the producers of a run do, each call drawn from the run's seed."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from stratalog.store import MessageStore

from ..engine import TASKS, upkeep_step
from .inline import Inline, RunClock
from .ledger import Ledger, Sent
from .shape import TOPIC, Shape

FILLER = "filler"
DELAYS_MS = (1, 20, 100, 300, 1_000, 5_000)


class Producing:
    """Appends to one store after the other: `store` is the one of the present life. `reached` counts what happened."""

    store: MessageStore

    def __init__(
        self, shape: Shape, chance: random.Random, ledger: Ledger, clock: RunClock, driver: Inline,
        reached: Counter[str],
    ) -> None:  # fmt: skip
        self._shape = shape
        self._chance = chance
        self._ledger = ledger
        self._clock = clock
        self._driver = driver
        self._reached = reached
        self._serial = 0

    def _next(self, queue_id: int) -> int:
        """The offset that the next message of a queue gets."""
        offsets = [offset for queue, offset in self._ledger.sent if queue == queue_id]
        return max(self.store.queue_bounds(TOPIC, queue_id)[1], max(offsets, default=-1) + 1)

    def _message(self) -> tuple[Sent, dict[str, Any]]:
        chance = self._chance
        self._serial += 1
        size = chance.choice((10, 10, self._shape.large_bytes))
        data = b"%d;" % self._serial + bytes(size)
        tag = chance.choice(("a", "b", "c", None))
        facts: dict[str, Any] = {} if tag is None else {"properties": {"tag": tag}}
        if chance.random() < 0.5:
            facts["key"] = b"k%d" % chance.randrange(2)
        times: tuple[int, ...] = ()
        if chance.random() < self._shape.delayed:
            times = (self._clock.now_ms + chance.choice(DELAYS_MS),)
            facts["deliver_at_ms"] = times[0]
        return Sent(data, tag, times, key=facts.get("key")), facts

    def append(self) -> None:
        """A message or two."""
        for _ in range(self._chance.choice((1, 1, 2))):
            queue_id = self._chance.randrange(self._shape.queues)
            place = queue_id, self._next(queue_id)
            sent, facts = self._message()
            with self._ledger.handing_over({place: sent}):
                offset = self.store.append(TOPIC, queue_id, sent.data, **facts)
            assert offset == place[1]
            self._ledger.stored(place)

    def append_some(self) -> None:
        """Messages in one batch, which have neither time nor tag."""
        queue_id = self._chance.randrange(self._shape.queues)
        begin, count = self._next(queue_id), self._chance.randrange(2, 6)
        sent = {}
        for at in range(count):
            self._serial += 1
            sent[queue_id, begin + at] = Sent(b"%d;" % self._serial, None, ())
        with self._ledger.handing_over(sent):
            self.store.append_batch([(TOPIC, queue_id, one.data) for one in sent.values()])
        for place in sent:
            self._ledger.stored(place)

    def submit(self) -> None:
        """Messages that are under way when other calls are made."""
        with self._driver.lagging():
            for _ in range(self._chance.randrange(1, 4)):
                queue_id = self._chance.randrange(self._shape.queues)
                place = queue_id, self._next(queue_id)
                sent, facts = self._message()
                with self._ledger.handing_over({place: sent}):
                    ticket = self.store.submit(TOPIC, queue_id, sent.data, **facts)
                self._ledger.await_stored(place, ticket)

    def fill(self) -> None:
        """So much that segments become full."""
        self.store.append_batch([(FILLER, 0, bytes(4000)) for _ in range(self._chance.choice((3, 8, 16)))])
        if self._shape.is_queue:
            with self.store.subscribe(FILLER, "all") as consumer:
                consumer.skip_all()
        if self._chance.random() < 0.7:
            upkeep_step(self.store, TASKS.index("sealer.seal_full"))

    def flush(self) -> None:
        """A barrier."""
        self._driver.drive_all(self.store)
