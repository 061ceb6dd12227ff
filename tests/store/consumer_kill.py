"""The SIGKILL loop with consumers: a child appends, delays, receives, acknowledges, cancels and moves, and dies.

`python -m tests.store.consumer_kill --kills 60` is the long form. The child tells of each step: before an
acknowledgement or a change is asked for, and when it has returned. Behind each kill a copy of the folder is opened, at
a time of day at which all is due, and each subscription gives out what it has. Then:

* what was acknowledged or cancelled does not come, and has not come to the child since either;
* all else that was appended comes, with its bytes; what was not delayed may have gone with its segment;
* nothing came to the child before its time.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stratalog.store import MessageStore, StoreConfig, Subscription
from stratalog.store.delayed import decisions, delays
from stratalog.store.subscriptions import journal
from stratalog.store.testing import TunedConfig

from ..clocks import WallClock
from ..seeds import draw_seed
from .kill import SEGMENT_BYTES, payload
from .killing import PIPE, told_until_killed

RECORD = struct.Struct("<BBIQQI")  # what, subscription, queue, offset, a time or a seed, a length
OPENED, SENT, IS_DELAYED, CAME, ACKING, ACKED, CHANGING, CHANGED, NOT_CHANGED = range(9)
CANCEL = 0  # as the time of a change
NAMES = ("a", "b")
QUEUES = 6
TOPIC = "kill"
DELAYS_MS = (100, 300, 1_000, 3_000)
LONG_MS = 1 << 39
END_MS = 1 << 42
PAUSE_S = 0.003  # of a producer, so that consumers keep up

Place = tuple[int, int]  # (queue id, offset)


def config() -> StoreConfig:
    """Small segments, of which retention takes the oldest."""
    return TunedConfig(
        segment_bytes=SEGMENT_BYTES, max_message_bytes=16 << 10, max_frame_bytes=16 << 10, recent_bytes=0,
        retention_bytes=8 * SEGMENT_BYTES, memory_limit_bytes=0,
    )  # fmt: skip


def now_ms() -> int:
    """The time of day."""
    return time.time_ns() // 1_000_000


# -- the child ----------------------------------------------------------------------------------------


class Child:
    """Uses a store from many threads until it is killed, and tells of each step before and behind it."""

    def __init__(self, path: str, seed: int, pipe: int) -> None:
        journal.LEAST_BYTES, decisions.COMPACT_BYTES, delays.CHECKPOINT_ROWS = (
            3_000,
            1_000,
            100,
        )  # often in a short life
        self.seed, self.pipe = seed, pipe
        self.delayed: list[Place] = []
        self.store = MessageStore.open(path, config())
        self.subscriptions = [self.store.subscribe(TOPIC, name) for name in NAMES]

    def run(self) -> None:
        """Until killed."""
        self.tell(OPENED)
        works = [self.produce, self.produce, self.change, *[lambda chance: self.consume(chance, 0)] * 2]
        works.append(lambda chance: self.consume(chance, 1))
        threads = [
            threading.Thread(target=work, args=(random.Random(f"{self.seed}:{number}"),))
            for number, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def tell(
        self, what: int, which: int = 0, places: list[Place] | None = None, value: int = 0, length: int = 0
    ) -> None:
        """One write of less than PIPE_BUF bytes, so that records do not mix."""
        rows = [RECORD.pack(what, which, *place, value, length) for place in places or [(0, 0)]]
        os.write(self.pipe, b"".join(rows))

    def produce(self, chance: random.Random) -> None:
        """Messages, half of them delayed."""
        while True:
            seed, length, queue_id = chance.getrandbits(62), int(2 ** chance.uniform(3, 11)), chance.randrange(QUEUES)
            at_ms = now_ms() + chance.choice(DELAYS_MS) if chance.random() < 0.5 else None
            offset = self.store.append(TOPIC, queue_id, payload(seed, length), deliver_at_ms=at_ms)
            place = queue_id, offset
            was_in_time = at_ms is not None and now_ms() < at_ms
            self.tell(SENT, int(was_in_time), [place], seed, length)
            if at_ms is not None:
                self.tell(IS_DELAYED, 0, [place], at_ms)
                self.delayed.append(place)
            time.sleep(PAUSE_S)  # else consumers fall behind for ever

    def change(self, chance: random.Random) -> None:
        """Cancels and moves what was delayed lately."""
        while True:
            time.sleep(PAUSE_S)  # the producers go first
            if self.delayed:
                place = self.delayed[-chance.randrange(1, min(len(self.delayed), 50) + 1)]
                to_ms = CANCEL if chance.random() < 0.5 else now_ms() + chance.choice(DELAYS_MS)
                self.tell(CHANGING, 0, [place], to_ms)
                if to_ms == CANCEL:
                    done = self.store.cancel_delayed(TOPIC, *place)
                else:
                    done = self.store.reschedule_delayed(TOPIC, *place, to_ms)
                self.tell(CHANGED if done else NOT_CHANGED, 0, [place], to_ms)

    def consume(self, chance: random.Random, which: int) -> None:
        """Receives, gives some back, and acknowledges the others, one by one or together."""
        subscription = self.subscriptions[which]
        while True:
            batch = subscription.receive_batch(chance.choice((1, 5, 40)), 50, LONG_MS)
            places = list(zip(batch.queue_ids.tolist(), batch.offsets.tolist(), strict=True))
            if not places:
                continue
            self.tell(CAME, which, places, now_ms())
            receipts = batch.receipts.tolist()
            if chance.random() < 0.1:
                subscription.nack(receipts.pop())
                places.pop()
            if chance.random() < 0.5 and places:
                self.tell(ACKING, which, places)
                subscription.ack_batch(receipts)
                self.tell(ACKED, which, places)
            else:
                for place, receipt in zip(places, receipts, strict=True):
                    self.tell(ACKING, which, [place])
                    subscription.ack(receipt)
                    self.tell(ACKED, which, [place])


# -- the parent ---------------------------------------------------------------------------------------


@dataclass
class Sent:
    """An appended message. `outlives`: it was delayed when it was written, so it outlives its segment."""

    seed: int
    length: int
    outlives: bool
    times: set[int] = field(default_factory=set)  # at which it may be due; of these the child tried some


class Ledger:
    """What the child has told, over all lives. Raises AssertionError where it is not as it must be."""

    def __init__(self) -> None:
        self.sent: dict[Place, Sent] = {}
        self.cancelled: set[Place] = set()
        self.maybe_cancelled: set[Place] = set()
        self.changing: dict[Place, int] = {}  # asked for, and not answered
        self.asked: list[set[Place]] = [set() for _ in NAMES]  # somebody tried to acknowledge them
        self.acked: list[set[Place]] = [set() for _ in NAMES]
        self.came = 0

    def note(self, what: int, which: int, queue_id: int, offset: int, value: int, length: int) -> None:
        """A record of the child's."""
        place = queue_id, offset
        if what == SENT:
            assert place not in self.sent, f"{place} was given twice"
            self.sent[place] = Sent(value, length, bool(which))
        elif what == IS_DELAYED:
            self.sent[place].times = {value}
        elif what == CAME:
            self.check_came(which, place, value)
        elif what == ACKING:
            self.asked[which].add(place)
        elif what == ACKED:
            self.acked[which].add(place)
        elif what == CHANGING:
            self.changing[place] = value
            if value != CANCEL:
                self.sent[place].times.add(value)
        else:
            self.changed(place, value, done=what == CHANGED)

    def changed(self, place: Place, to_ms: int, *, done: bool) -> None:
        """A change has returned."""
        del self.changing[place]
        if to_ms == CANCEL and done:
            self.cancelled.add(place)
        elif to_ms != CANCEL and done:
            self.sent[place].times = {to_ms}

    def check_came(self, which: int, place: Place, at_ms: int) -> None:
        """A message came to the child, at this time of day."""
        self.came += 1
        assert place not in self.acked[which], f"{NAMES[which]} got {place}, which it had acknowledged"
        assert place not in self.cancelled, f"{NAMES[which]} got {place}, which was cancelled"
        times = self.sent[place].times if place in self.sent else set()
        assert min(times, default=0) <= at_ms, f"{NAMES[which]} got {place} at {at_ms}, due at {times}"

    def killed(self) -> None:
        """What was not answered may have been done or not."""
        self.maybe_cancelled |= {place for place, to_ms in self.changing.items() if to_ms == CANCEL}
        self.changing.clear()

    def check(self, path: Path) -> None:
        """Open a copy of the folder at the end of all times, and take all that there is."""
        with MessageStore.open(path, config(), clock=WallClock(lambda: END_MS)) as store:
            firsts = {queue_id: store.queue_bounds(TOPIC, queue_id)[0] for queue_id in store.queues(TOPIC)}
            for which, name in enumerate(NAMES):
                came = self._taken(store.subscribe(TOPIC, name))
                again = came.keys() & (self.acked[which] | self.cancelled)
                assert not again, f"{name} gets {sorted(again)[:5]} again"
                for place in came.keys() & self.sent.keys():
                    sent = self.sent[place]
                    assert came[place] == payload(sent.seed, sent.length), f"{place} has other bytes"
                must = self.sent.keys() - self.asked[which] - self.cancelled - self.maybe_cancelled - came.keys()
                lost = [one for one in must if self.sent[one].outlives or one[1] >= firsts.get(one[0], 0)]
                assert not lost, f"{name} never gets {sorted(lost)[:5]} of {len(lost)}"

    @staticmethod
    def _taken(subscription: Subscription) -> dict[Place, bytes]:
        """All that a subscription has, waiting for what the index is to find."""
        found: dict[Place, bytes] = {}
        while True:
            behind = _is_behind(subscription)  # looked at first
            batch = subscription.receive_batch(visibility_timeout_ms=LONG_MS)
            if not len(batch) and not behind:
                return found
            places = zip(batch.queue_ids.tolist(), batch.offsets.tolist(), strict=True)
            for place, data in zip(places, batch.payloads(), strict=True):
                assert place not in found, f"{place} comes twice"
                found[place] = bytes(data)


def _is_behind(subscription: Subscription) -> bool:
    """Whether the topic's index has not read all of the log."""
    of_store = subscription._state.parts.delays
    topic = None if of_store is None else of_store.find(TOPIC)
    return topic is not None and topic.is_lagging


class Loop:
    """Lives and deaths of the child on one store."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.path, self.copy = folder / "store", folder / "copy"
        self.chance = random.Random(seed)
        self.ledger = Ledger()

    def cycle(self) -> None:
        """One life, and what it has left."""
        for row in self.live_and_die():
            self.ledger.note(*row)
        self.ledger.killed()
        shutil.copytree(self.path, self.copy)
        try:
            self.ledger.check(self.copy)
        finally:
            shutil.rmtree(self.copy)

    def live_and_die(self) -> list[tuple[int, int, int, int, int, int]]:
        """Start the child, let it live a random while, kill it; what it told until then."""
        given = (self.path, self.chance.getrandbits(31), PIPE)
        return told_until_killed("tests.store.consumer_kill", given, RECORD, self.chance.uniform(0.05, 1.0))[1:]


def run(folder: Path, kills: int, seed: int, say: Callable[[str], None] = lambda text: None) -> Ledger:
    """The loop."""
    loop = Loop(folder, seed)
    for number in range(kills):
        loop.cycle()
        ledger = loop.ledger
        say(
            f"kill {number + 1}: {len(ledger.sent)} appended, {ledger.came} given out, {sum(map(len, ledger.acked))} "
            f"acknowledged, {len(ledger.cancelled)} cancelled"
        )
    return loop.ledger


def main() -> None:
    """The long form, and the child."""
    if sys.argv[1:2] == ["--child"]:
        path, seed, pipe = sys.argv[2:]
        Child(path, int(seed), int(pipe)).run()
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--dir", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        chosen = draw_seed() if given.seed is None else given.seed
        run(Path(folder), given.kills, chosen, lambda text: print(text, flush=True))
    print(f"{given.kills} kills: nothing lost, nothing again, nothing early")


if __name__ == "__main__":
    main()
