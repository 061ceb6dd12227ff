"""All that is done in a run, by name: each call drawn from the run's seed; the ledger notes what it makes certain."""

from __future__ import annotations

from typing import Final

from stratalog.store import DeliveryBatch, Subscription

from ..check import BrokenPromise
from ..engine import TASKS, upkeep_step
from .check import check_given, check_missing
from .inline import checkpoint, compact_changes, drop_copies, force, has_untaken, is_behind, is_held_up, work
from .ledger import Kind, Place
from .moving import Moving
from .shape import TOPIC

BACKGROUND: Final = frozenset(
    {"work", "checkpoint", "compact_changes", "drop_copies", "compact_cursors", "upkeep", "force_one"}
)  # the store's own threads do these, and note an error of any kind
END_MS: Final = 100_000  # longer than any time-out and delay of a run


class Callers(Moving):
    """Uses one store after the other."""

    def call(self, name: str) -> None:
        """Make a call, by its name. Raises what the store raises, and BrokenPromise."""
        self._note_time()
        self._note_dead_letters()  # first: this call may remove them with their segments
        getattr(self, name)()
        self._note_time()  # a frame that was built meanwhile may have it: what was due by then never was delayed
        self._ledger.settle()

    def _note_time(self) -> None:
        self._ledger.highest_ms = max(self._ledger.highest_ms, self._clock.now_ms)

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
        if self._clock.now_ms < sent.times[0] <= ledger.highest_ms:
            return None  # the clock was set back, and what was due then may have left the index
        return sent.times[0] > self._clock.now_ms

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
            self._ledger.certain()
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
        if done:
            self._ledger.certain()
        sent.times = (to_ms,) if done else before
        self._ledger.version += 1
        self._reached["moved"] += done

    def _check_answer(self, what: str, done: bool, expected: bool | None) -> None:
        if expected is not None and done != expected:
            raise BrokenPromise(f"{what} says {done} at {self._clock.now_ms}, and it is {expected}")

    def pass_time(self) -> None:
        """Both clocks go on."""
        self._clock.go(self._chance.choice((1, 10, 100, 100, 500)))

    def set_clock(self) -> None:
        """Somebody sets the time of day, and no time passes."""
        self._clock.now_ms += self._chance.choice((-3_000, -300, -20, -1, 20, 300, 1_500))
        self._reached["clock set back"] += self._clock.now_ms < self._ledger.highest_ms

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

    def force_one(self) -> None:
        """One lane's log, as the background does with "os", one lane after the other."""
        force(self.store, self._chance.randrange(self._shape.lanes))

    def upkeep(self) -> None:
        """Sealing, retention, recycling, marks."""
        for task in range(len(TASKS)):
            upkeep_step(self.store, task)

    # -- the end of a life ----------------------------------------------------------------------------

    def drain(self) -> None:
        """Long after, each subscription gives out all that is not acknowledged: in this very life."""
        self.flush()  # a line waits for the acknowledgement of its first message
        self._ledger.settle()
        for name, known in self._ledger.subscriptions.items():
            if known.exists and name not in self._subscriptions:
                self._subscribe(name)
        self._clock.go(END_MS)
        self._clock.now_ms = max(self._clock.now_ms, self._ledger.highest_ms + END_MS)
        taking = [(self._ledger.kinds[name], objects[0]) for name, objects in self._subscriptions.items()]
        for _, subscription in taking:
            self._raises_kept(subscription)  # the fault of that is over
        came = {kind.name: set[Place]() for kind, _ in taking}
        most_ms = max([kind.precision_ms for kind, _ in taking], default=0)
        while True:  # by turns: what one has not taken yet may hold up the others
            self._clock.go(most_ms)  # else it is not its turn to take what is due
            found = 0
            for kind, subscription in taking:
                batch = subscription.receive_batch(visibility_timeout_ms=END_MS * END_MS)
                came[kind.name] |= self._drained(kind, subscription, batch)
                found += len(batch)
            waits = is_behind(self.store) or is_held_up(self.store) or any(has_untaken(one) for _, one in taking)
            if not found and not waits:
                break
            work(self.store)
        for kind, _ in taking:
            dead = self._ledger.dead.new(self.store) if kind.dead_letters is not None else set[bytes]()
            buried = self._ledger.places_of(dead)
            check_missing(self._ledger, kind, came[kind.name] | buried, self._firsts(), self._clock.now_ms)
        self._reached["drained"] += len(taking)

    def _drained(self, kind: Kind, subscription: Subscription, batch: DeliveryBatch) -> set[Place]:
        """What came. It is acknowledged where the next ones wait for that."""
        places = list(zip(batch.queue_ids.tolist(), batch.offsets.tolist(), strict=True))
        for place, data in zip(places, batch.payloads(), strict=True):
            check_given(self._ledger, kind, place, bytes(data), self._clock.now_ms)
        if kind.is_ordered and len(batch):
            self._ledger.try_to_ack(kind.name, places)
            subscription.ack_batch(batch.receipts)
            self._ledger.acked(kind.name, places)
        return set(places)
