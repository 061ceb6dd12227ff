"""Histories of delayed messages on a simulated disk, of which many moments are a crash.

`python -m tests.store.delayed` runs histories until the time is over; a failure names its seed.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from stratalog.store import Delivery, MessageStore, Subscription
from stratalog.store.delayed.delays import Delays
from stratalog.store.delayed.topic import DelayedTopic
from stratalog.store.testing import SimulatedDisk
from stratalog.store.testing.disk import Operation

from ..helpers import tiny, until
from .consumer import START_MS, Hand

TOPIC = "t"
MOST_STATES = 50  # of a history
RETENTION_MS = 400
END_MS = START_MS + (1 << 40)
Place = tuple[int, int]  # (queue id, offset)


@dataclass
class Known:
    """What is certain at a moment: an opening after a crash must agree.

    Attributes:
        times: of each delayed message whose append has returned, the times at which it may be due.
        gone: messages that were acknowledged or cancelled, and the call has returned: none of them may come.
        asked: messages that somebody has tried to acknowledge or to cancel: they may come or not.
        now_ms: the time of day.
    """

    times: dict[Place, list[int]] = field(default_factory=dict)
    gone: set[Place] = field(default_factory=set)
    asked: set[Place] = field(default_factory=set)
    now_ms: int = START_MS


class Moment(NamedTuple):
    """The disk that a crash leaves, and what is certain then."""

    disk: SimulatedDisk
    known: Known
    what: str


class CrashHistory:
    """One run of random calls; `moments` has what is to be looked at."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.seed = seed
        self.known = Known()
        self.moments: list[Moment] = []
        self.disk = SimulatedDisk()
        self._hand = Hand()
        self._knowing = threading.Lock()  # the store's threads note moments, too
        self._noting = random.Random(seed + 1)
        self._doing = "opening"
        self._held: list[Delivery] = []
        self._share = 1.0

    # -- the run --------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Make the calls, on a store in a folder of its own, and note moments."""
        calls: list[tuple[int, Callable[[], None]]] = [
            (8, self.append), (4, self.receive), (4, self.ack), (3, self.cancel), (3, self.move), (4, self.pass_time),
            (2, self.checkpoint), (1, self.compact), (2, self.retire), (1, self.reopen),
        ]  # fmt: skip
        weights, each = zip(*calls, strict=True)
        self._share = min(1.0, MOST_STATES / (8 * steps))
        self.path = Path(tempfile.mkdtemp(prefix="stratalog-crash-"))
        self._open()
        try:
            for _ in range(steps):
                call = self.chance.choices(each, weights)[0]
                self._doing = call.__name__
                call()
        finally:
            self.disk.on_operation = None
            self.store.close()

    def _open(self) -> None:
        config = tiny(lanes=2, retention_ms=RETENTION_MS)
        self.store = self._hand.open(self.path, config, disk=self.disk)
        self.sub = self.store.subscribe(TOPIC, "a")
        self.disk.on_operation = self.note

    def note(self, operation: Operation) -> None:
        """A moment: before an operation of the store's."""
        with self._knowing:
            if self._noting.random() >= self._share or len(self.moments) >= MOST_STATES:
                return
            known = deepcopy(self.known)
            left = self.disk.crash(random.Random(self._noting.random()))
            self.moments.append(Moment(left, known, f"{self._doing}, before {operation.kind} of {operation.path.name}"))

    @property
    def delays(self) -> Delays:
        """Of the store that is open."""
        assert self.store._running.delays is not None
        return self.store._running.delays

    # -- the calls ------------------------------------------------------------------------------------

    def append(self) -> None:
        """Messages, some of them large, and most of them delayed."""
        queue_id, size = self.chance.randrange(3), self.chance.choice([10, 10, 3000, 9000])
        for delay_ms in self.chance.choices([None, 1, 20, 300, 1_000, 5_000], k=self.chance.randrange(1, 5)):
            at_ms = None if delay_ms is None else self._hand.now_ms + delay_ms
            offset = self.store.append(TOPIC, queue_id, bytes(size), deliver_at_ms=at_ms)
            if at_ms is not None:
                with self._knowing:
                    self.known.times[queue_id, offset] = [at_ms]

    def receive(self) -> None:
        """What there is."""
        self._held += self.sub.receive(self.chance.randrange(1, 20))

    def ack(self) -> None:
        """Some of what is held."""
        some = self.chance.sample(self._held, (len(self._held) + 1) // 2)
        self._held = [one for one in self._held if one not in some]
        places = {(one.message.queue_id, one.message.offset) for one in some}
        with self._knowing:
            self.known.asked |= places
        self.sub.ack_batch(some)
        with self._knowing:
            self.known.gone |= places

    def _any(self) -> Place | None:
        pending = [place for place, times in self.known.times.items() if times[-1] > self._hand.now_ms]
        return self.chance.choice(pending) if pending else None

    def cancel(self) -> None:
        """One that may be pending."""
        place = self._any()
        if place is not None:
            was_asked = place in self.known.asked
            with self._knowing:
                self.known.asked.add(place)
            done = self.store.cancel_delayed(TOPIC, *place)
            with self._knowing:
                if done:
                    self.known.gone.add(place)
                elif not was_asked:
                    self.known.asked.discard(place)

    def move(self) -> None:
        """One that may be pending, to another time."""
        place = self._any()
        if place is not None:
            to_ms = self._hand.now_ms + self.chance.choice([0, 30, 600, 4_000])
            with self._knowing:
                self.known.times[place].append(to_ms)
            done = self.store.reschedule_delayed(TOPIC, *place, to_ms)
            with self._knowing:
                times = self.known.times[place]
                self.known.times[place] = [to_ms] if done else times[:-1]

    def pass_time(self) -> None:
        """The clock goes on."""
        with self._knowing:
            self._hand.now_ms += self.chance.choice([1, 10, 100, 500])
            self.known.now_ms = self._hand.now_ms

    def checkpoint(self) -> None:
        """The index on disk is brought up to date."""
        for topic in self.delays.topics.values():
            self.delays.checkpoint(topic)

    def compact(self) -> None:
        """The changes are written anew."""
        for topic in self.delays.topics.values():
            topic.decisions.compact()

    def retire(self) -> None:
        """Retention gets on."""
        removed = self.store._upkeep.removal.removed_segments
        self.store._upkeep.look()
        self.store.append(TOPIC, 9, bytes(9000))
        del removed

    def reopen(self) -> None:
        """A clean end."""
        self.store.close()
        self._held.clear()
        self._open()

    # -- the checks -----------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """What openings after the crashes have other than they must."""
        try:
            return [f"seed {self.seed}, {one.what}: {wrong}" for one in self.moments for wrong in self.wrong(one)]
        finally:
            shutil.rmtree(self.path, ignore_errors=True)

    def wrong(self, moment: Moment) -> list[str]:
        """The same of one crash."""
        known, hand, found, came = moment.known, Hand(moment.known.now_ms), list[str](), set[Place]()
        with hand.open(self.path, tiny(retention_ms=RETENTION_MS), disk=moment.disk) as store:
            sub = store.subscribe(TOPIC, "a")
            steps = sorted({times[-1] for times in known.times.values() if times[-1] > hand.now_ms})
            for now_ms in [hand.now_ms, *steps[:: max(1, len(steps) // 3)], END_MS]:
                hand.now_ms = now_ms
                new = _taken(store, sub)
                early = {place for place in new if min(known.times.get(place, [0])) > now_ms}
                if early:
                    found.append(f"early at {now_ms}: {[(place, known.times[place]) for place in sorted(early)[:5]]}")
                if new & came:
                    found.append(f"twice: {sorted(new & came)[:5]}")
                came |= new
        if came & known.gone:
            found.append(f"acknowledged or cancelled, and given out: {sorted(came & known.gone)[:5]}")
        if lost := set(known.times) - known.asked - came:
            found.append(f"never given out: {[(place, known.times[place]) for place in sorted(lost)[:5]]}")
        return found


def _taken(store: MessageStore, sub: Subscription) -> set[Place]:
    """All that can be taken now; nothing is acknowledged."""
    found: set[Place] = set()
    while True:
        while len(batch := sub.receive_batch(visibility_timeout_ms=1 << 39)):
            found |= set(zip(batch.queue_ids.tolist(), batch.offsets.tolist(), strict=True))
        delays = store._running.delays
        topic = None if delays is None else delays.find(TOPIC)
        if topic is None or not topic.is_behind:
            return found
        until(partial(_has_caught_up, topic))


def _has_caught_up(topic: DelayedTopic) -> bool:
    return not topic.is_behind
