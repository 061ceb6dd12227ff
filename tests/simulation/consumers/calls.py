"""What the producers and consumers of a run do, each call drawn from the run's seed; the ledger notes it all."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from stratalog.store import Delivery, MessageStore, StaleReceipt, Subscription

from ..check import BrokenPromise
from ..engine import TASKS, upkeep_step
from .check import check_given, dead_letters
from .inline import (
    Inline,
    RunClock,
    checkpoint,
    compact_changes,
    compact_cursor,
    cut_snapshots,
    drop_copies,
    is_behind,
    work,
)
from .ledger import Kind, Ledger, Place, Sent
from .shape import TOPIC, Shape

FILLER = "filler"
DELAYS_MS = (1, 20, 100, 300, 1_000, 5_000)
SHORT_MS = 60  # a visibility time-out that passes in a run


@dataclass
class Held:
    """What a consumer was given: until when it is nobody else's."""

    delivery: Delivery
    until_ms: int


class Callers:
    """Uses one store after the other: `store` is the one of the present life. `reached` counts what happened."""

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
        self._subscriptions: dict[str, Subscription] = {}
        self._held: dict[str, dict[Place, Held]] = {}

    def begin(self, store: MessageStore) -> None:
        """A life begins: nobody has anything."""
        self.store = store
        self._subscriptions.clear()
        self._held.clear()

    def call(self, name: str) -> None:
        """Make a call, by its name."""
        self._ledger.highest_ms = max(self._ledger.highest_ms, self._clock.now_ms)
        getattr(self, name)()
        self._ledger.settle()

    # -- producers ------------------------------------------------------------------------------------

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
        return Sent(data, tag, times), facts

    def append(self) -> None:
        """A message or two."""
        for _ in range(self._chance.choice((1, 1, 2))):
            queue_id = self._chance.randrange(self._shape.queues)
            place = queue_id, self._next(queue_id)
            sent, facts = self._message()
            self._ledger.hand_over(place, sent)
            offset = self.store.append(TOPIC, queue_id, sent.data, **facts)
            assert offset == place[1]
            self._ledger.stored(place)

    def append_some(self) -> None:
        """Messages in one batch, which have neither time nor tag."""
        queue_id = self._chance.randrange(self._shape.queues)
        begin, count = self._next(queue_id), self._chance.randrange(2, 6)
        places = [(queue_id, begin + at) for at in range(count)]
        for place in places:
            self._serial += 1
            self._ledger.hand_over(place, Sent(b"%d;" % self._serial, None, ()))
        self.store.append_batch([(TOPIC, queue_id, self._ledger.sent[place].data) for place in places])
        for place in places:
            self._ledger.stored(place)

    def submit(self) -> None:
        """Messages that are under way when other calls are made."""
        with self._driver.lagging():
            for _ in range(self._chance.randrange(1, 4)):
                queue_id = self._chance.randrange(self._shape.queues)
                place = queue_id, self._next(queue_id)
                sent, facts = self._message()
                self._ledger.hand_over(place, sent)
                self._ledger.await_stored(place, self.store.submit(TOPIC, queue_id, sent.data, **facts))

    def fill(self) -> None:
        """So much that segments become full."""
        self.store.append_batch([(FILLER, 0, bytes(4000)) for _ in range(self._chance.choice((3, 8, 16)))])
        if self._chance.random() < 0.7:
            upkeep_step(self.store, TASKS.index("_seal_full"))

    def flush(self) -> None:
        """A barrier."""
        self._driver.drive_all(self.store)

    # -- consumers ------------------------------------------------------------------------------------

    def _firsts(self) -> dict[int, int]:
        return {queue_id: self.store.queue_bounds(TOPIC, queue_id)[0] for queue_id in self.store.queues(TOPIC)}

    def _ends(self) -> dict[int, int]:
        return {queue_id: self.store.queue_bounds(TOPIC, queue_id)[1] for queue_id in self.store.queues(TOPIC)}

    def subscribe(self) -> None:
        """Open a subscription, and make it if there is none."""
        kind = self._chance.choice(self._shape.kinds)
        if kind.name in self._subscriptions:
            return
        start = self._chance.choice(("earliest", "earliest", "latest"))
        offsets = dict.fromkeys(self._ends(), 0) if start == "earliest" else self._ends()
        with self._ledger.making(kind.name, offsets, self._firsts()):
            found = self.store.subscribe(TOPIC, kind.name, start=start, **kind.settings)  # type: ignore[arg-type]  # one of the literals
        cut_snapshots(found)
        self._subscriptions[kind.name] = found
        self._held[kind.name] = {}

    def _one(self) -> tuple[Kind, Subscription]:
        """An open subscription."""
        if not self._subscriptions:
            self.subscribe()
        name = self._chance.choice(sorted(self._subscriptions))
        return self._ledger.kinds[name], self._subscriptions[name]

    def receive(self) -> None:
        """Take some messages."""
        chance, clock = self._chance, self._clock
        kind, subscription = self._one()
        wait_ms = chance.choice((SHORT_MS, 30_000, 30_000))
        now_ms, most = clock.passed_ms, chance.randrange(1, 12)
        if chance.random() < 0.5:
            given = subscription.receive(most, 0, wait_ms)
        else:
            given = subscription.receive_batch(most, 0, wait_ms).deliveries()
        self._ledger.settle()
        held = self._held[kind.name]
        for delivery in given:
            message = delivery.message
            place = message.queue_id, message.offset
            check_given(self._ledger, kind, place, message.data, clock.now_ms)
            if place in held and held[place].until_ms > now_ms:
                raise BrokenPromise(f"{kind.name} gets {place}, which another consumer has")
            held[place] = Held(delivery, now_ms + wait_ms)
            self._reached["given out"] += 1
            self._reached["given out again"] += delivery.attempt > 1
            self._reached["given out late"] += bool(self._ledger.sent[place].times)
        if kind.dead_letters is not None:
            self._note_dead_letters(kind)

    def _note_dead_letters(self, kind: Kind) -> None:
        """What is there was acknowledged when `receive` returned."""
        dead = dead_letters(self.store)
        known = self._ledger.subscriptions[kind.name]
        buried = [place for place in known.open if self._ledger.sent[place].data in dead]
        self._reached["dead letters"] += len(buried)
        self._ledger.try_to_ack(kind.name, buried)

    def _some_held(self) -> tuple[str, Subscription, list[Place]]:
        """Some of what an open subscription has given out."""
        kind, subscription = self._one()
        held = sorted(self._held[kind.name])
        return kind.name, subscription, self._chance.sample(held, min(len(held), self._chance.randrange(1, 7)))

    def ack(self) -> None:
        """One message after the other."""
        name, subscription, places = self._some_held()
        for place in places[:2]:
            self._ack(name, [place], lambda one: subscription.ack(one[0]))

    def ack_some(self) -> None:
        """Many at once, in any order."""
        name, subscription, places = self._some_held()
        if places:
            self._ack(name, places, subscription.ack_batch)

    def _ack(self, name: str, places: list[Place], call: Any) -> None:
        ledger, held = self._ledger, self._held[name]
        given = [held.pop(place).delivery for place in places]
        tried = ledger.try_to_ack(name, places)
        try:
            call(given)
        except StaleReceipt:
            ledger.refused(name, tried)
            self._reached["stale receipts"] += 1
            return
        ledger.acked(name, places)
        self._reached["acknowledged"] += len(places)

    def submit_acks(self) -> None:
        """Acknowledgements that are under way when other calls are made."""
        name, subscription, places = self._some_held()
        for place in places:
            held = self._held[name].pop(place)
            tried = self._ledger.try_to_ack(name, [place])
            with self._driver.lagging():
                try:
                    ticket = subscription.submit_ack(held.delivery)
                except StaleReceipt:
                    self._ledger.refused(name, tried)
                    continue
            self._ledger.await_acked(name, place, ticket)

    def nack(self) -> None:
        """Give some back."""
        name, subscription, places = self._some_held()
        if places:
            given = [self._held[name].pop(place).delivery for place in places]
            try:
                subscription.nack_batch(given, self._chance.choice((0, 0, 50)))
            except StaleReceipt:
                self._reached["stale receipts"] += 1

    # -- moving and ending ----------------------------------------------------------------------------

    def _move(self, kind: Kind, offsets: dict[int, int], call: Any) -> None:
        with self._ledger.moving(kind.name, offsets, self._firsts()):
            call()
        held = self._held[kind.name]
        for place in [place for place in held if place[0] in offsets]:
            del held[place]

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

    def close_one(self) -> None:
        """A consumer goes."""
        if self._subscriptions:
            name = self._chance.choice(sorted(self._subscriptions))
            self._subscriptions.pop(name).close()
            del self._held[name]

    def delete(self) -> None:
        """Remove a subscription, whoever uses it."""
        name = self._chance.choice(self._shape.kinds).name
        self._subscriptions.pop(name, None)
        self._held.pop(name, None)
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

    # -- delays ---------------------------------------------------------------------------------------

    def _delayed(self) -> Place | None:
        """A delayed message, more often one whose time has not come."""
        now_ms = self._clock.now_ms
        found = [place for place, sent in self._ledger.sent.items() if sent.times and sent.is_durable]
        later = [place for place in found if min(self._ledger.sent[place].times) > now_ms]
        among = later if later and self._chance.random() < 0.9 else found
        return self._chance.choice(sorted(among)) if among else None

    def _expected(self, place: Place) -> bool | None:
        """Is a delayed message pending? None where that is not certain."""
        ledger, sent = self._ledger, self._ledger.sent[place]
        if place in ledger.over:
            return False
        is_there = place[1] >= self._firsts().get(place[0], 0) or ledger.is_wanted(place)
        if sent.may_be_over or not is_there or len(sent.times) > 1:
            return None
        return sent.times[0] > max(ledger.highest_ms, self._clock.now_ms)

    def cancel(self) -> None:
        """A delayed message."""
        place = self._delayed()
        if place is None:
            return
        expected, sent = self._expected(place), self._ledger.sent[place]
        before, sent.may_be_over = sent.may_be_over, True
        self._ledger.version += 1
        done = self.store.cancel_delayed(TOPIC, *place)
        self._check_answer(f"cancelling {place}", done, expected)
        if done:
            self._ledger.over.add(place)
        else:
            sent.may_be_over = before
        self._ledger.version += 1
        self._reached["cancelled"] += done

    def move(self) -> None:
        """A delayed message, to another time."""
        place = self._delayed()
        if place is None:
            return
        expected, sent = self._expected(place), self._ledger.sent[place]
        to_ms, before = self._clock.now_ms + self._chance.choice((0, 30, 200, 600, 4_000)), sent.times
        sent.times = (*before, to_ms)
        self._ledger.version += 1
        done = self.store.reschedule_delayed(TOPIC, *place, to_ms)
        self._check_answer(f"moving {place}", done, expected)
        sent.times = (to_ms,) if done else before
        self._ledger.version += 1
        self._reached["moved"] += done

    def _check_answer(self, what: str, done: bool, expected: bool | None) -> None:
        if expected is not None and done != expected:
            raise BrokenPromise(f"{what} says {done} at {self._clock.now_ms}, and it is {expected}")

    def pass_time(self) -> None:
        """Both clocks go on."""
        self._clock.go(self._chance.choice((1, 10, 100, 100, 500)))

    # -- the background -------------------------------------------------------------------------------

    def work(self) -> None:
        """The thread of the delays."""
        work(self.store)
        self._reached["an index is behind"] += is_behind(self.store)

    def checkpoint(self) -> None:
        """The indexes' files."""
        checkpoint(self.store)

    def compact_changes(self) -> None:
        """The changes of delays."""
        compact_changes(self.store)

    def drop_copies(self) -> None:
        """Those that nobody wants."""
        drop_copies(self.store)

    def upkeep(self) -> None:
        """Sealing, retention, recycling, marks."""
        for task in range(len(TASKS)):
            upkeep_step(self.store, task)
