"""What a store gives out behind a crash, held against the ledger: nothing lost, nothing twice, nothing early."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from stratalog.store import MessageStore, StoreError, Subscription
from stratalog.store.testing import SimulatedDisk

from ..check import BrokenPromise
from .bills import count_bills
from .inline import RunClock, end, has_untaken, is_behind, is_held_up, is_paused, open_on, work
from .ledger import Kind, Ledger, Place, Sent
from .sent_back import check_sent_back
from .shape import TOPIC, Shape
from .together import look

END_MS = 1 << 42
LONG_MS = 1 << 39
SHOWN = 5
DRAINED_NOW = 0.3  # of the states: all that is there at once is taken, and held against the ledger
LISTED = 0.1  # of the states: the subscriptions are listed
IN_ORDER = 0.3  # of the states: messages in order are acknowledged, so that the next ones come


class Look:
    """Opens what a crash has left, and takes all that its subscriptions have, at several times of day."""

    def __init__(self, ledger: Ledger, shape: Shape, disk: SimulatedDisk, now_ms: int, chance: random.Random) -> None:
        self._ledger = ledger
        self._disk = disk
        self._chance = chance
        self._config = shape.config()
        self._is_lossy = shape.is_lossy
        self._sends_back = shape.sends_back
        self.clock = RunClock(now_ms)
        self._came: dict[str, set[Place]] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._billed: dict[str, set[Place]] = {}  # these may not come
        self._unbilled: dict[str, set[Place]] = {}  # these must come
        self._firsts: dict[int, int] = {}
        self._acks = chance.random() < IN_ORDER

    def run(self) -> None:
        """Raises BrokenPromise."""
        try:
            store = open_on(self._disk, self._config, self.clock, self._chance)
        except StoreError as error:
            raise BrokenPromise(f"the store does not open: {error}") from error
        try:
            if self._is_lossy:
                self._begin_anew(store)
            else:
                self._ledger.check_settings(store)
            self._subscribe(store)
            self._look_at_bills(store)
            if self._sends_back:
                check_sent_back(store)
            self._look_at_side(store)
            if self._chance.random() < DRAINED_NOW:
                self._take_all(store)
            else:
                self._take_some()
            dues = sorted(
                {time for sent in self._ledger.sent.values() for time in sent.times if time > self.clock.now_ms}
            )
            if dues:
                self.clock.now_ms = self._chance.choice(dues)
                self._take_some()
            self.clock.now_ms += END_MS  # no visibility time-out passes by that
            self._take_all(store)
            self._check_dead_letters(store)
        finally:
            self._disk.on_operation = None
            end(store)

    def _subscribe(self, store: MessageStore) -> None:
        listed = None
        if self._chance.random() < LISTED or self._ledger.maybe:  # with maybe another filter, which has to be given
            listed = {info.name: info.settings for info in store.subscriptions(TOPIC)}
        known = {name: one.exists for name, one in self._ledger.subscriptions.items()}
        for name, exists in known.items():
            if listed is not None and exists is not None and exists != (name in listed):
                raise BrokenPromise(f"the subscription {name} should be there: {exists}")
            if exists:
                kind = self._ledger.kinds[name]
                if listed is not None:
                    kind = self._ledger.of_settings(name, listed[name])
                self._subscriptions[name] = store.subscribe(TOPIC, name, start="latest", **kind.fixed)
                self._came[name] = set()
        self._firsts = {queue_id: store.queue_bounds(TOPIC, queue_id)[0] for queue_id in store.queues(TOPIC)}

    def _look_at_bills(self, store: MessageStore) -> None:
        """A transaction that was being made is there with its acknowledgements, or neither is."""
        bills = self._ledger.bills
        is_there = bills.is_there(count_bills(store))
        if bills.trying is not None:
            self._billed[bills.trying.name] = set(bills.trying.places) if is_there else set()
            self._unbilled[bills.trying.name] = set() if is_there else set(bills.trying.tried)

    def _look_at_side(self, store: MessageStore) -> None:
        """Of the other topic all comes that was not acknowledged. An acknowledgement of both is whole, or not there."""
        ledger = self._ledger
        for name in sorted(ledger.side.made):
            over, must = look(store, ledger.kinds[name], ledger.side)
            self._billed[name] = self._billed.get(name, set()) | over
            self._unbilled[name] = self._unbilled.get(name, set()) | must

    def _begin_anew(self, store: MessageStore) -> None:
        """Of what was there nothing is certain: whatever is left, new messages come."""
        self._disk.on_operation = None
        self._ledger = ledger = self._ledger.after_loss()
        ends = {queue_id: store.queue_bounds(TOPIC, queue_id)[1] for queue_id in store.queues(TOPIC)}
        ledger.crashed(ends, {info.name: info.settings for info in store.subscriptions(TOPIC)})
        for queue_id in range(3):
            for number in range(self._chance.randrange(4)):
                place = queue_id, ends.get(queue_id, 0) + number
                sent = Sent(b"new %d" % number, "a", ())
                with ledger.handing_over({place: sent}):
                    assert store.append(TOPIC, queue_id, sent.data, properties={"tag": "a"}) == place[1]
                ledger.stored(place)

    def _take_some(self) -> None:
        """What one call of each subscription gives."""
        for name, subscription in self._subscriptions.items():
            self._take(self._ledger.kinds[name], subscription)

    def _take_all(self, store: MessageStore) -> None:
        """All that there is at this time of day; what is in order has to be acknowledged for the next ones to come.

        By turns: what one has not taken yet may hold up the others, and an index at its limit of memory.
        """
        taking = [(self._ledger.kinds[name], one) for name, one in self._subscriptions.items()]
        most_ms = max([self._ledger.precision_ms(kind.name) for kind, _ in taking], default=0)
        while True:
            self.clock.now_ms += most_ms  # else it is not its turn to take what is due
            came = [self._take(*one) for one in taking]
            if not any(came) and not is_held_up(store) and not any(has_untaken(one) for _, one in taking):
                if is_paused(store):
                    return  # what its index has no room for comes once something of the index is due
                if not is_behind(store):
                    break
            work(store)
        for kind, _ in taking:
            self._check_missing(kind)

    def _take(self, kind: Kind, subscription: Subscription) -> bool:
        """One call; whether it gave something."""
        batch = subscription.receive_batch(visibility_timeout_ms=LONG_MS)
        places = zip(batch.queue_ids.tolist(), batch.offsets.tolist(), strict=True)
        for place, data in zip(places, batch.payloads(), strict=True):
            self._check_came(kind, place, bytes(data))
        if len(batch) and kind.is_ordered and self._acks:
            self._disk.on_operation = None  # what a crash finds now is not what the ledger says
            subscription.ack_batch(batch.receipts)
        return len(batch) > 0

    def _check_came(self, kind: Kind, place: Place, data: bytes) -> None:
        """A message that was given out."""
        ledger, came = self._ledger, self._came[kind.name]
        check_given(ledger, kind, place, data, self.clock.now_ms)
        if place in came:
            raise BrokenPromise(f"{kind.name} gets {place} twice")
        if place in self._billed.get(kind.name, ()):
            raise BrokenPromise(f"{kind.name} gets {place}, and its bill was stored")
        came.add(place)

    def _check_missing(self, kind: Kind) -> None:
        """All that must come by now."""
        if kind.is_ordered and not self._acks:
            return
        if kind.dead_letters is None:
            must = self._unbilled.get(kind.name, ())
            check_missing(self._ledger, kind, self._came[kind.name], self._firsts, self.clock.now_ms, must)

    def _check_dead_letters(self, store: MessageStore) -> None:
        """What such a subscription does not get has gone to the dead letters."""
        for kind in [self._ledger.kinds[name] for name in self._subscriptions]:
            if kind.dead_letters is not None:
                came = self._came[kind.name] | self._ledger.places_of(self._ledger.dead.new(store))
                must = self._unbilled.get(kind.name, ())
                check_missing(self._ledger, kind, came, self._firsts, self.clock.now_ms, must)


def check_missing(
    ledger: Ledger, kind: Kind, came: set[Place], firsts: Mapping[int, int], now_ms: int, must: Iterable[Place] = ()
) -> None:  # fmt: skip
    """Raise BrokenPromise if a subscription lacks what must have come by now, and what else `must`.

    `firsts`: where each queue begins.
    """
    missing = []
    due_ms = now_ms - ledger.precision_ms(kind.name)  # what has its time behind that may come later
    for place in ledger.subscriptions[kind.name].open.union(must) - came:
        sent = ledger.sent[place]
        is_there = sent.outlives or place[1] >= firsts.get(place[0], 0)
        if is_there and not sent.may_be_over and ledger.is_due(sent, due_ms) and kind.takes(sent):
            missing.append((place, sent.times))
    if missing:
        raise BrokenPromise(f"{kind.name} never gets {sorted(missing)[:SHOWN]} by {now_ms}")


def check_given(ledger: Ledger, kind: Kind, place: Place, data: bytes, now_ms: int) -> None:
    """May a subscription give this message out at this time of day? Raises BrokenPromise."""
    sent, known = ledger.sent.get(place), ledger.subscriptions[kind.name]
    if sent is None or sent.data != data:
        raise BrokenPromise(f"{kind.name} gets {place}, and nobody sent that: {data[:30]!r}")
    if place in known.acked:
        raise BrokenPromise(f"{kind.name} gets {place} again, which was acknowledged")
    if place in ledger.over:
        raise BrokenPromise(f"{kind.name} gets {place}, which was cancelled or trimmed")
    if ledger.is_early(sent, now_ms):
        raise BrokenPromise(f"{kind.name} gets {place} at {now_ms}, and it is due at {sent.times}")
    if not kind.takes(sent):
        raise BrokenPromise(f"{kind.name} gets {place}, which its filter leaves out")
