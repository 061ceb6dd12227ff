"""What the consumers of a run do with messages."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

from stratalog.store import Delivery, MessageStore, PublishBufferFull, StaleReceipt, StoreError, StoreFull, Subscription
from stratalog.store.log.streams import lane_of

from ..check import BrokenPromise
from .bills import BILLS, Trying
from .check import check_given
from .inline import cut_snapshots, kept_error, lane_of_cursor
from .ledger import Kind, Place
from .lines import check_order
from .producing import Producing
from .shape import TOPIC
from .side import SIDE
from .together import Together, may_be_together

MOST_OBJECTS = 3
SHORT_MS = 60  # a visibility time-out that passes in a run


@dataclass
class Held:
    """What a consumer was given: until when it is nobody else's."""

    delivery: Delivery
    until_ms: int
    by: Subscription


class Consuming(Producing):
    """Receives, acknowledges, gives back and keeps longer."""

    def begin(self, store: MessageStore) -> None:
        """A life begins: nobody has anything."""
        self.store = store
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._stalled: set[str] = set()
        self._held: dict[str, dict[Place, Held]] = {}
        self._later: dict[str, dict[Place, int]] = {}  # given back: when they may come again

    def _firsts(self) -> dict[int, int]:
        return {queue_id: self.store.queue_bounds(TOPIC, queue_id)[0] for queue_id in self.store.queues(TOPIC)}

    def _ends(self) -> dict[int, int]:
        return {queue_id: self.store.queue_bounds(TOPIC, queue_id)[1] for queue_id in self.store.queues(TOPIC)}

    def subscribe(self) -> None:
        """Open a subscription, and make it if there is none."""
        kind = self._chance.choice(self._shape.kinds)
        if kind.name not in self._subscriptions:
            self._subscribe(kind.name)

    def _subscribe(self, name: str) -> None:
        start = self._chance.choice(("earliest", "earliest", "latest"))
        offsets = dict.fromkeys(self._ends(), 0) if start == "earliest" else self._ends()
        kind = self._ledger.kinds[name]  # with the settings that it has by now
        with self._ledger.making(kind.name, offsets, self._firsts()):
            found = self.store.subscribe(TOPIC, kind.name, start=start, **kind.settings)  # type: ignore[call-overload]  # one of the literals
        cut_snapshots(found)
        self._subscriptions[kind.name] = [found]
        self._held[kind.name], self._later[kind.name] = {}, {}

    def _one(self) -> tuple[Kind, Subscription]:
        """An open subscription, of which somebody takes."""
        if not self._subscriptions:
            self.subscribe()
        among = self._subscriptions.keys() - self._stalled or self._subscriptions.keys()
        name = self._chance.choice(sorted(among))
        return self._ledger.kinds[name], self._chance.choice(self._subscriptions[name])

    def come(self) -> None:
        """One more consumer of an open subscription."""
        if self._subscriptions:
            name = self._chance.choice(sorted(self._subscriptions))
            if len(self._subscriptions[name]) < MOST_OBJECTS:
                fixed = self._ledger.kinds[name].fixed
                self._subscriptions[name].append(self.store.subscribe(TOPIC, name, **fixed))
                self._reached["several consumers"] += 1

    def come_together(self) -> None:
        """A consumer of an open subscription that receives from another topic as well."""
        kinds = [kind for kind in self._shape.kinds if may_be_together(kind) and kind.name in self._subscriptions]
        if kinds:
            kind = self._chance.choice(kinds)
            objects = self._subscriptions[kind.name]
            if len(objects) < MOST_OBJECTS:
                objects.append(Together(self.store, kind, self._ledger.side, self._shape.lanes))  # type: ignore[arg-type]  # see there
                self._reached["consumers of two topics"] += 1

    def append_side(self) -> None:
        """Messages of the other topic."""
        count, side = self._chance.randrange(1, 4), self._ledger.side
        side.sent = max(side.sent, self.store.queue_bounds(SIDE, 0)[1])
        self.store.append_batch([(SIDE, 0, b"side")] * count)
        side.sent = self.store.queue_bounds(SIDE, 0)[1]
        self._ledger.version += 1

    def stall(self) -> None:
        """Nobody takes anything of a subscription any more, as long as others are there: it stays open."""
        if len(self._subscriptions) > 1:
            self._stalled.add(self._chance.choice(sorted(self._subscriptions)))
            self._reached["stalled"] += 1

    def receive(self) -> None:
        """Take some messages."""
        chance, clock = self._chance, self._clock
        kind, subscription = self._one()
        wait_ms = chance.choice((SHORT_MS, 30_000, 30_000))
        now_ms, most = clock.passed_ms, chance.randrange(1, 12)
        if self._raises_kept(subscription):
            return
        is_together, only = isinstance(subscription, Together), None
        if self._shape.by_queue and not is_together and chance.random() < 0.5:
            only = chance.randrange(self._shape.queues)
            self._reached["received from one queue"] += 1
        if is_together:
            given = subscription.receive(most, 0, wait_ms)
        elif chance.random() < 0.5:
            given = subscription.receive(most, 0, wait_ms, queue_id=only)
        else:
            given = subscription.receive_batch(most, 0, wait_ms, queue_id=only).deliveries()
        self._ledger.settle()
        held, later = self._held[kind.name], self._later[kind.name]
        places = [(delivery.message.queue_id, delivery.message.offset) for delivery in given]
        if only is not None and any(queue_id != only for queue_id, _ in places):
            raise BrokenPromise(f"{kind.name} wants messages of the queue {only}, and gets {places}")
        if kind.is_ordered and set(places) <= self._ledger.sent.keys():  # else it is said below
            in_hand = {place for place, one in held.items() if one.until_ms > now_ms and place not in places}
            self._reached["followers"] += check_order(self._ledger, kind, places, in_hand, self._firsts())
        for delivery in given:
            message = delivery.message
            place = message.queue_id, message.offset
            check_given(self._ledger, kind, place, message.data, clock.now_ms)
            if place in held and held[place].until_ms > now_ms:
                raise BrokenPromise(f"{kind.name} gets {place}, which another consumer has")
            if place in held and held[place].until_ms + kind.rests_ms(held[place].delivery.attempt) > now_ms:
                raise BrokenPromise(f"{kind.name} gets {place}, which has timed out and rests")
            if later.pop(place, 0) > now_ms:
                raise BrokenPromise(f"{kind.name} gets {place}, which was given back to come later")
            held[place] = Held(delivery, now_ms + wait_ms, subscription)
            self._reached["given out"] += 1
            self._reached["given out again"] += delivery.attempt > 1
            self._reached["given out late"] += bool(self._ledger.sent[place].times)

    def kept(self) -> dict[str, StoreError]:
        """The errors that the next receives raise, whatever the disk does then."""
        found = {name: kept_error(objects[0]) for name, objects in self._subscriptions.items()}
        return {name: error for name, error in found.items() if error is not None}

    def _raises_kept(self, subscription: Subscription) -> bool:
        """Have it raise the error that an earlier receive has kept; False if there is none."""
        kept = kept_error(subscription)
        if kept is None:
            return False
        try:
            subscription.receive(1)
        except StoreError as error:
            if str(error) != str(kept):
                raise
            self._reached["raised what was kept"] += 1
            return True
        raise BrokenPromise(f"receive does not raise what was kept: {kept}")

    def _note_dead_letters(self) -> None:
        """What a dead letter has is acknowledged, whoever wrote it: a call of a consumer, or retention."""
        ledger = self._ledger
        names = [kind.name for kind in ledger.kinds.values() if kind.dead_letters is not None]
        dead = ledger.dead.note(self.store) if names else set[bytes]()
        for name in names if dead else ():
            buried = [place for place in ledger.subscriptions[name].open if ledger.sent[place].data in dead]
            self._reached["dead letters"] += len(buried)
            ledger.try_to_ack(name, buried)

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
        if places and isinstance(subscription, Together):
            tried = self._ledger.subscriptions[name].open & set(places)
            self._ack(name, places, lambda given: subscription.ack_joint(given, tried))
            self._reached["acknowledged together"] += 1
        elif places:
            self._ack(name, places, subscription.ack_batch)

    def transact(self) -> None:
        """Acknowledge some in a transaction, with a bill for them."""
        name, subscription, places = self._some_held()
        if not places:
            return
        bills, lanes = self._ledger.bills, self._shape.lanes
        own = lane_of_cursor(subscription)
        lane = own if lanes == 1 else self._chance.randrange(lanes)  # of the bill
        queue_id = next(at for at in count() if lane_of(BILLS, at, lanes) == lane)
        gone = {place for place in places if self._are_there([place])}
        bills.trying = Trying(name, gone, self._ledger.subscriptions[name].open & set(places))

        def commit(given: list[Delivery]) -> None:
            with self.store.transaction() as tx:
                tx.append(BILLS, queue_id, b"%d" % len(given))
                for one in given:
                    tx.ack(one)

        try:
            if self._ack(name, places, commit) and bills.stored is not None:
                bills.stored += 1
        except (StoreFull, PublishBufferFull):
            bills.trying = None
            raise
        bills.trying = None
        self._reached["transactions"] += 1
        self._reached["transactions over several lanes"] += lane != own

    def _ack(self, name: str, places: list[Place], call: Any) -> bool:
        """Whether they are acknowledged now: False with stale receipts."""
        ledger, held = self._ledger, self._held[name]
        given = [held.pop(place).delivery for place in places]
        tried, are_there = ledger.try_to_ack(name, places), self._are_there(places)
        try:
            call(given)
        except StaleReceipt:
            ledger.refused(name, tried)
            self._reached["stale receipts"] += 1
            return False
        except (StoreFull, PublishBufferFull):
            ledger.refused(name, tried)
            raise
        ledger.acked(name, places, are_there=are_there)
        self._reached["acknowledged"] += len(places)
        return True

    def _are_there(self, places: list[Place]) -> bool:
        """Whether one of them was not removed, or may live on as a copy: else nothing says that it is acknowledged."""
        firsts, ledger = self._firsts(), self._ledger
        return any(
            place[1] >= firsts.get(place[0], 0) or (ledger.sent[place].times and place not in ledger.over)
            for place in places
        )

    def submit_acks(self) -> None:
        """Acknowledgements that are under way when other calls are made."""
        name, subscription, places = self._some_held()
        for place in places:
            held = self._held[name].pop(place)
            tried, is_there = self._ledger.try_to_ack(name, [place]), self._are_there([place])
            with self._driver.lagging():
                try:
                    ticket = subscription.submit_ack(held.delivery)
                except StaleReceipt:
                    self._ledger.refused(name, tried)
                    continue
            self._ledger.await_acked(name, place, ticket, is_there=is_there)

    def nack(self) -> None:
        """Give some back."""
        name, subscription, places = self._some_held()
        if places:
            given = [self._held[name].pop(place).delivery for place in places]
            delay_ms = self._chance.choice((0, 0, 50, 400))
            try:
                subscription.nack_batch(given, delay_ms)
            except StaleReceipt:
                self._reached["stale receipts"] += 1
                return
            rests_ms = [delay_ms or self._ledger.kinds[name].rests_ms(one.attempt) for one in given]
            self._later[name].update(
                {place: self._clock.passed_ms + ms for place, ms in zip(places, rests_ms, strict=True)}
            )
            self._reached["given back for later"] += len(places) if delay_ms else 0
            self._reached["rests"] += sum(rests_ms) > 0 and not delay_ms

    def extend(self) -> None:
        """Keep some longer, or shorter."""
        name, subscription, places = self._some_held()
        for place in places[:2]:
            held, ms = self._held[name][place], self._chance.choice((20, 500, 30_000))
            try:
                subscription.extend(held.delivery, ms)
            except StaleReceipt:
                self._reached["stale receipts"] += 1
                continue
            held.until_ms = self._clock.passed_ms + ms
            self._reached["extended"] += 1
