"""Histories of subscriptions on a simulated disk, of which many moments are a crash.

`python -m tests.store.subscriptions` runs histories until the time is over, each with a printed seed.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from stratalog.store import Delivery, MessageStore, Subscription
from stratalog.store.subscriptions import journal
from stratalog.store.testing import SimulatedDisk
from stratalog.store.testing.disk import Operation

from ..helpers import tiny

TOPIC = "orders"
NAMES = ("a", "b")
QUEUES = (0, 1, 2)
MOST_STATES = 60  # of a history
Place = tuple[int, int]  # (queue id, offset)


@dataclass
class Known:
    """What is certain of a subscription at a moment: an opening after a crash must agree.

    Attributes:
        exists: None while it is being made or deleted.
        acked: messages whose acknowledgement has returned; none of them may come again.
        open: messages that nobody has tried to acknowledge; each of them must come.
    """

    exists: bool | None = False
    acked: set[Place] = field(default_factory=set)
    open: set[Place] = field(default_factory=set)


class Moment(NamedTuple):
    """The disk that a crash leaves, and what is certain then."""

    disk: SimulatedDisk
    known: dict[str, Known]
    what: str


class CrashHistory:
    """One run of random calls; `moments` has what is to be looked at."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.seed = seed
        self.known = {name: Known() for name in NAMES}
        self.appended: set[Place] = set()  # those whose append has returned
        self.next = dict.fromkeys(QUEUES, 0)
        self.first = dict.fromkeys(QUEUES, 0)
        self.moments: list[Moment] = []
        self.disk = SimulatedDisk()
        self._doing = "opening"
        self._held: dict[str, list[Delivery]] = {}
        self._subs: dict[str, Subscription] = {}
        self._share = 1.0

    # -- the run --------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Make the calls, on a store in `path`, and note moments."""
        path = Path(tempfile.mkdtemp(prefix="stratalog-crash-"))
        calls: list[Callable[[], None]] = [
            self.append, self.append, self.receive, self.receive, self.ack, self.ack, self.ack_some, self.seek,
            self.compact, self.subscribe, self.subscribe, self.delete, self.trim, self.reopen,
        ]  # fmt: skip
        weights = [6, 6, 6, 6, 6, 6, 6, 1, 2, 3, 3, 1, 1, 1]
        self._share = min(1.0, MOST_STATES / (3 * steps))
        with patch.object(journal, "LEAST_BYTES", 400):
            self.path = path
            self.store = self.opened()
            try:
                for _ in range(steps):
                    call = self.chance.choices(calls, weights)[0]
                    self._doing = call.__name__
                    call()
            finally:
                self.disk.on_operation = None
                self.store.close()

    def opened(self) -> MessageStore:
        store = MessageStore.open(self.path, tiny(lanes=2), disk=self.disk)
        self.disk.on_operation = self.note
        return store

    def note(self, operation: Operation) -> None:
        """A moment: before an operation of the store's."""
        if self.chance.random() < self._share and len(self.moments) < MOST_STATES:
            known = deepcopy(self.known)
            for one in known.values():
                one.open &= self.appended
            left = self.disk.crash(random.Random(self.chance.random()))
            self.moments.append(Moment(left, known, f"{self._doing}, before {operation.kind} of {operation.path.name}"))

    # -- the calls ------------------------------------------------------------------------------------

    def append(self) -> None:
        """Messages, some of them large."""
        queue_id, count = self.chance.choice(QUEUES), self.chance.randrange(1, 6)
        size = self.chance.choice([10, 10, 3000])
        offsets = self.store.append_batch([(TOPIC, queue_id, bytes(size)) for _ in range(count)]).tolist()
        self.next[queue_id] = offsets[-1] + 1
        places = {(queue_id, at) for at in offsets}
        for one in self.known.values():
            one.open |= places - one.acked
        self.appended |= places

    def subscribe(self) -> None:
        name = self.chance.choice(NAMES)
        if name not in self._subs:
            known = self.known[name]
            if not known.exists:
                known.exists, known.acked, known.open = None, set(), set()
            self._subs[name] = self.store.subscribe(TOPIC, name)
            if not known.exists:
                known.exists, known.open = True, set(self.appended)
            self._held[name] = []

    def receive(self) -> None:
        for name, sub in self._subs.items():
            self._held[name] += sub.receive(self.chance.randrange(1, 20))

    def ack(self) -> None:
        """One message after the other."""
        for name, sub in self._subs.items():
            for _ in range(min(2, len(self._held[name]))):
                one = self._held[name].pop(self.chance.randrange(len(self._held[name])))
                self.asked(name, [one])
                sub.ack(one)
                self.acked(name, [one])

    def ack_some(self) -> None:
        """Many at once, in any order."""
        for name, sub in self._subs.items():
            some = self.chance.sample(self._held[name], len(self._held[name]) // 2)
            self._held[name] = [one for one in self._held[name] if one not in some]
            self.asked(name, some)
            sub.ack_batch(some)
            self.acked(name, some)

    def asked(self, name: str, some: list[Delivery]) -> None:
        self.known[name].open -= {(one.message.queue_id, one.message.offset) for one in some}

    def acked(self, name: str, some: list[Delivery]) -> None:
        self.known[name].acked |= {(one.message.queue_id, one.message.offset) for one in some}

    def seek(self) -> None:
        for name, sub in self._subs.items():
            known = self.known[name]
            moved = {
                at: self.chance.randrange(self.first[at], end + 1) for at, end in self.next.items()
                if end and self.chance.random() < 0.5
            }  # fmt: skip
            of_moved = {place for place in self.appended if place[0] in moved}
            known.acked -= of_moved
            known.open -= of_moved
            sub.seek(moved)
            known.acked |= {place for place in of_moved if place[1] < moved[place[0]]}
            known.open |= {place for place in of_moved if place[1] >= moved[place[0]]}
            self._held[name] = [one for one in self._held[name] if one.message.queue_id not in moved]

    def compact(self) -> None:
        for sub in self._subs.values():
            with sub._state.changing:
                sub._state.compact()

    def delete(self) -> None:
        name = self.chance.choice(NAMES)
        known = self.known[name]
        known.exists = None if known.exists else known.exists
        self.store.delete_subscription(TOPIC, name)
        known.exists = False
        self._subs.pop(name, None)
        self._held.pop(name, None)

    def trim(self) -> None:
        """Retention takes segments of which all is trimmed, so snapshots have to be elsewhere by then."""
        queue_id = self.chance.choice(QUEUES)
        low = self.chance.randint(self.first[queue_id], self.next[queue_id])
        self.first[queue_id] = low
        gone = {place for place in self.appended if place[0] == queue_id and place[1] < low}
        self.appended -= gone
        self.store.trim(TOPIC, queue_id, low)

    def reopen(self) -> None:
        self.store.close()
        self._subs.clear()
        self._held.clear()
        self.store = self.opened()

    # -- the checks -----------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """What openings after the crashes have other than they must."""
        return [f"seed {self.seed}, {one.what}: {wrong}" for one in self.moments for wrong in self.wrong(one)]

    def wrong(self, moment: Moment) -> list[str]:
        """The same of one crash."""
        found: list[str] = []
        with MessageStore.open(self.path, disk=moment.disk) as store:
            listed = {one.name for one in store.subscriptions(TOPIC)}
            for name, known in moment.known.items():
                if known.exists is not None and known.exists != (name in listed):
                    found.append(f"the subscription {name} should be there: {known.exists}")
                if not known.exists or name not in listed:
                    continue
                sub, came = store.subscribe(TOPIC, name), set[Place]()
                while len(batch := sub.receive_batch()):
                    came |= set(zip(batch.queue_ids.tolist(), batch.offsets.tolist(), strict=True))
                if came & known.acked:
                    found.append(f"acknowledged and given out to {name}: {sorted(came & known.acked)[:5]}")
                missing = {at for at in known.open - came if at[1] >= store.queue_bounds(TOPIC, at[0])[0]}
                if missing:
                    found.append(f"never given out to {name}: {sorted(missing)[:5]}")
        return found
