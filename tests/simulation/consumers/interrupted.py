"""Interrupts and MemoryError inside the calls of consumers and of delays, wherever the interpreter takes them.

A run is one store on a simulated disk, in one thread, with two subscriptions of a topic whose messages are mostly
delayed. The calls of the first one and of the store's delays are interrupted, each at a place that the seed draws among
all that the call has; those of the second one are not. What must hold then and after a drain, also after a close or a
power cut and an opening: nothing comes before its time, nothing is lost or stuck, nothing that was acknowledged or
cancelled comes again, and the backlog is exact.

`python -m tests.simulation.consumers.interrupted --interrupts 10000`
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stratalog import index, store
from stratalog.store import Delivery, StaleReceipt, StoreError, Subscription
from stratalog.store.testing import SimulatedDisk, TunedConfig
from tests.seeds import draw_seed
from tests.store.interrupts import Interrupted, interrupt_at

from ..check import BrokenPromise
from ..shape import KIB
from .inline import Inline, RunClock, checkpoint, delays_of, end, inline, open_on, work

TOPIC = "t"
QUEUES = 2
CALLS_A_RUN = 30
FAR_MS = 100_000
VISIBILITY_MS = 1_000
PLACES = (150, 600, 2_500)  # a call has from 100 to some thousands: one of so many is interrupted
ROUNDS = 12  # of a drain: with so many nothing new comes any more
FILES = tuple(
    str(path) for package in (store, index) for path in Path(str(package.__file__)).parent.rglob("*.py")
    if path.parent.name != "testing"
)  # fmt: skip
State = Literal["to come", "unknown", "over"]
Place = tuple[int, int]


@dataclass
class Message:
    """What the run knows of a message: the times at which it may be due, and whether it was cancelled or removed."""

    times: set[int]
    gone: State = "to come"
    of: dict[str, State] = field(default_factory=dict)  # by subscription: to come, or acknowledged

    def state(self, name: str) -> State:
        """Whether it comes to a subscription."""
        states = {self.gone, self.of.get(name, "to come")}
        return "over" if "over" in states else "unknown" if "unknown" in states else "to come"


@dataclass
class Tally:
    """What was tried."""

    runs: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    interrupted: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    rebuilds: int = 0

    @property
    def interrupts(self) -> int:
        """All of them."""
        return sum(self.interrupted.values())


class Run:
    """One run. Raises BrokenPromise."""

    def __init__(self, seed: int, driver: Inline, tally: Tally) -> None:
        self.chance = random.Random(f"interrupted {seed}")
        self.driver, self.tally = driver, tally
        self.disk, self.clock = SimulatedDisk(), RunClock()
        self.messages: dict[Place, Message] = {}
        self.given: list[Delivery] = []  # to the first subscription
        self.doubted: set[Place] = set()  # whose acknowledgement was interrupted since the opening: the log may say it
        self.mode: dict[str, Any] = self.chance.choice(
            [
                {},
                {},
                {"mode": "ordered"},
                {"mode": "ordered", "order_by": "key"},
                {"max_attempts": 90, "dead_letter_topic": "dead"},
            ]
        )
        self.mode["precision_ms"] = self.chance.choice([0, 0, 20])
        self.config = TunedConfig(
            lanes=self.chance.choice((1, 1, 2)), segment_bytes=64 * KIB, max_message_bytes=4 * KIB,
            max_frame_bytes=4 * KIB, recent_bytes=0, memory_limit_bytes=0,
        )  # fmt: skip
        self.random_names = random.Random(f"names {seed}")
        self.told: list[str] = []

    def run(self) -> None:
        """Calls, a drain, a look from a new subscription, and once more after an opening."""
        try:
            self._open()
            for _ in range(CALLS_A_RUN):
                self._background()
                self._call(self.chance.choice(list(CALLS)))
            if self.chance.random() < 0.5:
                self._reopen()
            self._drain()
            self._reopen()
            self._drain()
        finally:
            end(self.store)

    # -- opening and closing --------------------------------------------------------------------------

    def _open(self) -> None:
        self.store = open_on(self.disk, self.config, self.clock, self.random_names)
        self._subscribe()

    def _subscribe(self) -> None:
        for one in self.store.subscriptions(TOPIC):
            if one.name == "first":  # a change that was interrupted holds from the next opening on, or does not
                self.mode["precision_ms"], self.mode["filter"] = one.settings.precision_ms, one.settings.filter
                if "max_attempts" in self.mode:
                    self.mode["max_attempts"] = one.settings.max_attempts
        self.first: Subscription = self.store.subscribe(TOPIC, "first", **self.mode)
        self.second: Subscription = self.store.subscribe(TOPIC, "second")

    def _reopen(self) -> None:
        """By a close, which may be interrupted, or a power cut."""
        self.given.clear()
        self.doubted.clear()  # what the log says holds from now on
        if self.chance.random() < 0.3:
            self.told.append("power cut")
            end(self.store)
            self.disk = self.disk.crash(self.chance)
        else:
            self._interrupt("close store", self.store.close)
            self.store.close()
            end(self.store)
        self._open()

    # -- calls ----------------------------------------------------------------------------------------

    def _background(self) -> None:
        """What other threads do, and the time that passes."""
        chance = self.chance
        for _ in range(chance.randrange(3)):
            self._append()
        if chance.random() < 0.6:
            self.clock.go(chance.choice([1, 5, 20, 60, VISIBILITY_MS]))
        if chance.random() < 0.4:
            work(self.store)
        if chance.random() < 0.2:
            checkpoint(self.store)
        if chance.random() < 0.3:
            self._take(self.second.receive(chance.choice([1, 8]), 0, VISIBILITY_MS), "second", acked=True)

    def _append(self) -> None:
        chance, queue_id = self.chance, self.chance.randrange(QUEUES)
        due_ms = self.clock.now_ms + chance.choice([5, 40, 200, FAR_MS])
        delay = {"deliver_at_ms": due_ms} if chance.random() < 0.8 else {}
        key = b"k%d" % chance.randrange(3)
        offset = self.store.append(TOPIC, queue_id, bytes(chance.choice((10, 600))), key=key, **delay)  # type: ignore[arg-type]
        self.messages[queue_id, offset] = Message({due_ms if delay else 0})

    def _call(self, name: str) -> None:
        CALLS[name](self)

    def _interrupt(self, name: str, call: Callable[[], object]) -> tuple[bool, object]:
        """Make a call, and interrupt it: (was it, what it returned or raised)."""
        interrupt = KeyboardInterrupt if "async" in name else Interrupted  # a loop passes on no other
        kind = self.chance.choice([interrupt, interrupt, MemoryError])
        place = self.chance.randrange(self.chance.choice(PLACES))
        gc.disable()
        try:
            was, result = interrupt_at(place, FILES, call, kind, lambda: self.driver.is_driving)
        finally:
            gc.enable()
        self.told.append(f"{name}{f' ({kind.__name__} at {place})' if was else ''}")
        self.tally.calls[name] += 1
        if was:
            self.tally.interrupted[name] += 1
            self.tally.kinds[kind.__name__] += 1
        self.driver.drive_all(self.store)  # what the flushers' threads do
        is_known = not isinstance(result, BaseException) or isinstance(result, StoreError)
        if not is_known and not (was and _has_cause(result, kind)):  # a loop may wrap it
            raise BrokenPromise(f"{name} raises {type(result).__name__}: {result}")
        return was, result

    # -- receiving ------------------------------------------------------------------------------------

    def _take(self, deliveries: Sequence[Delivery], name: str, *, acked: bool = False) -> None:
        """Look at what came; acknowledge it."""
        for one in deliveries:
            place = one.message.queue_id, one.message.offset
            message = self.messages.get(place)
            if message is None:
                raise BrokenPromise(f"{name} gets {place}, which was never appended")
            if min(message.times) > self.clock.now_ms:
                raise BrokenPromise(f"{name} gets {place} {min(message.times) - self.clock.now_ms} ms early")
            if message.state(name) == "over":
                raise BrokenPromise(f"{name} gets {place}, which is over: {message}")
            if message.of.get(name) == "unknown" and place not in self.doubted:
                message.of[name] = "to come"
        if acked:
            for one in deliveries:
                (self.first if name == "first" else self.second).ack(one)
                self.messages[one.message.queue_id, one.message.offset].of[name] = "over"

    def receive(self) -> None:
        """Some messages."""
        count, how = self.chance.choice([1, 3, 20]), self.chance.choice(["few", "batch", "async", "batch async"])
        sub = self.first
        calls: dict[str, Callable[[], Any]] = {
            "few": lambda: sub.receive(count, 0, VISIBILITY_MS),
            "batch": lambda: sub.receive_batch(count, 0, VISIBILITY_MS),
            "async": lambda: asyncio.run(sub.receive_async(count, 0, VISIBILITY_MS)),
            "batch async": lambda: asyncio.run(sub.receive_batch_async(count, 0, VISIBILITY_MS)),
        }
        was, result = self._interrupt(f"receive {how}", calls[how])
        if isinstance(result, BaseException):
            if not was:
                raise BrokenPromise(f"receive raises {result!r}") from result
            return
        found = result if isinstance(result, list) else result.deliveries()  # type: ignore[attr-defined]
        self._take(found, "first")
        self.given += found

    def _some(self) -> list[Delivery]:
        count = min(len(self.given), self.chance.choice([1, 1, 4]))
        found = [self.given.pop(self.chance.randrange(len(self.given))) for _ in range(count)]
        return [one for one in found if (one.message.queue_id, one.message.offset) in self.messages]

    def ack(self) -> None:
        """Acknowledge some of what was received."""
        some = self._some()
        if not some:
            return
        sub, how = self.first, self.chance.choice(["one", "batch", "submit", "async"])
        some = some[:1] if how != "batch" else some
        calls: dict[str, Callable[[], object]] = {
            "one": lambda: sub.ack(some[0]), "batch": lambda: sub.ack_batch(some),
            "submit": lambda: sub.submit_ack(some[0]).result(),
            "async": lambda: asyncio.run(sub.ack_async(some[0])),
        }  # fmt: skip
        was, result = self._interrupt(f"ack {how}", calls[how])
        if isinstance(result, StaleReceipt):
            return
        for one in some:
            message = self.messages[one.message.queue_id, one.message.offset]
            if not isinstance(result, BaseException):
                message.of["first"] = "over"
            elif was and message.of.get("first") != "over":
                message.of["first"] = "unknown"
                self.doubted.add((one.message.queue_id, one.message.offset))

    def give_back(self) -> None:
        """Nack or extend."""
        some = self._some()[:1]
        if some:
            sub, delay_ms = self.first, self.chance.choice([0, 30])
            if self.chance.random() < 0.5:
                self._interrupt("nack", lambda: sub.nack(some[0], delay_ms))
            else:
                self._interrupt("extend", lambda: sub.extend(some[0], VISIBILITY_MS))

    # -- changes --------------------------------------------------------------------------------------

    def seek(self) -> None:
        """To the beginning, to the end, or some offsets."""
        ends = {queue_id: self.store.queue_bounds(TOPIC, queue_id) for queue_id in self.store.queues(TOPIC)}
        position: Any = self.chance.choice(["earliest", "latest", "offsets", "skip"])
        marks = {queue_id: first for queue_id, (first, _) in ends.items()}
        if position in ("latest", "skip"):
            marks = {queue_id: next_offset for queue_id, (_, next_offset) in ends.items()}
        elif position == "offsets":
            marks = {queue_id: self.chance.randint(*bounds) for queue_id, bounds in list(ends.items())[:1]}
        sub = self.first
        call = sub.skip_all if position == "skip" else lambda: sub.seek(marks if position == "offsets" else position)
        was, _ = self._interrupt("seek", call)
        for (queue_id, offset), message in self.messages.items():
            if queue_id in marks:
                self.doubted -= set() if was else {(queue_id, offset)}
                after: State = "over" if offset < marks[queue_id] else "to come"
                if not was or message.of.get("first", "to come") == after:
                    message.of["first"] = after
                else:
                    message.of["first"] = "unknown"

    def decide(self) -> None:
        """Cancel or move a message."""
        if not self.messages:
            return
        (queue_id, offset), message = self.chance.choice(list(self.messages.items()))
        now_ms = self.clock.now_ms
        to_ms = self.chance.choice([None, 0, now_ms + 3, now_ms + 50, now_ms + FAR_MS])
        if to_ms is None:
            was, result = self._interrupt("cancel", lambda: self.store.cancel_delayed(TOPIC, queue_id, offset))
        else:
            move = self.store.reschedule_delayed
            was, result = self._interrupt("move", lambda: move(TOPIC, queue_id, offset, to_ms))
        if not was:
            if result is not True and min(message.times) > now_ms and message.gone == "to come":
                raise BrokenPromise(f"{queue_id, offset} is pending, and a change of it says {result}")
            if result is True and (max(message.times) <= now_ms or message.gone == "over"):
                raise BrokenPromise(f"{queue_id, offset} is due or over, and a change of it says True")
        if result is True:
            message.times = message.times if to_ms is None else {to_ms}
            message.gone = "over" if to_ms is None else "to come"
        elif was and max(message.times) > now_ms and message.gone != "over":
            message.times |= set() if to_ms is None else {to_ms}
            message.gone = "unknown" if to_ms is None else message.gone

    def trim(self) -> None:
        """Remove the beginning of a queue."""
        queue_id = self.chance.choice([*self.store.queues(TOPIC), 0])
        first, next_offset = self.store.queue_bounds(TOPIC, queue_id)
        low = self.chance.randint(first, max(first, (first + next_offset) // 2))
        was, _ = self._interrupt("trim", lambda: self.store.trim(TOPIC, queue_id, low))
        for (queue, offset), message in self.messages.items():
            if queue == queue_id and offset < low and message.gone != "over":
                message.gone = "unknown" if was else "over"

    def look(self) -> None:
        """What tells without a change: exact where it answers."""
        for name, sub in (("first", self.first), ("second", self.second)):
            _, backlog = self._interrupt("backlog", sub.backlog)
            if not isinstance(backlog, BaseException):
                self._compare(name, backlog.total)  # type: ignore[attr-defined]
        self._interrupt("subscriptions", lambda: self.store.subscriptions(TOPIC))

    def _compare(self, name: str, total: int) -> None:
        states = Counter(message.state(name) for message in self.messages.values())
        if not states["to come"] <= total <= states["to come"] + states["unknown"]:
            raise BrokenPromise(f"the backlog of {name} is {total}, with {dict(states)}")

    def change(self) -> None:
        """Settings."""
        if self.mode.get("mode") is None and "max_attempts" in self.mode:
            value = self.chance.choice([80, 90])
            self._interrupt("change", lambda: self.first.change(max_attempts=value))
            self.mode["max_attempts"] = self.store.subscriptions(TOPIC)[0].settings.max_attempts
        value = self.chance.choice([0, 20])
        self._interrupt("change", lambda: self.first.change(precision_ms=value))
        wanted = self.chance.choice([None, "TRUE", "tag IS NULL OR TRUE"])  # all messages, in three ways
        self._interrupt("change", lambda: self.first.change(filter=wanted))
        found = self.store.subscriptions(TOPIC)[0].settings
        self.mode["precision_ms"], self.mode["filter"] = found.precision_ms, found.filter

    def close_one(self) -> None:
        """Close the subscription and come again."""
        self.given.clear()
        self._interrupt("close", self.first.close)
        self.first.close()
        self._subscribe_again()

    def delete(self) -> None:
        """Remove the subscription, and make it anew."""
        self.given.clear()
        was, _ = self._interrupt("delete", lambda: self.store.delete_subscription(TOPIC, "first"))
        is_there = any(one.name == "first" for one in self.store.subscriptions(TOPIC))
        if not was and is_there:
            raise BrokenPromise("a subscription that was deleted is there")
        self.doubted -= set() if is_there else self.messages.keys()
        for message in self.messages.values():
            message.of["first"] = message.of.get("first", "to come") if is_there else "to come"
        with suppress(StoreError):
            self.first.close()
        self._subscribe_again()

    def _subscribe_again(self) -> None:
        again: list[Subscription] = []
        self._interrupt("subscribe", lambda: again.append(self.store.subscribe(TOPIC, "first", **self.mode)))
        for one in again:
            one.close()
        self.first = self.store.subscribe(TOPIC, "first", **self.mode)

    # -- the end --------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """The time of all has come: each gets what it has to, and no more is left."""
        self.given.clear()
        self.clock.go(2 * FAR_MS)
        for name, sub in (("first", self.first), ("second", self.second)):
            quiet = 0
            while quiet < ROUNDS:
                work(self.store)
                batch = sub.receive_batch(100, 0, VISIBILITY_MS)
                self._take(batch.deliveries(), name, acked=True)
                quiet = 0 if len(batch) else quiet + 1
                self.clock.go(20 if len(batch) else VISIBILITY_MS)
            stuck = [place for place, one in self.messages.items() if one.state(name) == "to come"]
            if stuck:
                raise BrokenPromise(f"{name} never gets {stuck[:5]}, {len(stuck)} in all")
            left = sub.backlog()
            if left.total:
                raise BrokenPromise(f"after a drain the backlog of {name} is {left}")
            for message in self.messages.values():
                message.of[name] = "over"
        self.tally.rebuilds += sum(topic.rebuilds for topic in delays_of(self.store).topics.values())
        with self.store.subscribe(TOPIC, f"new {self.clock.now_ms}") as new:
            got = {(one.message.queue_id, one.message.offset) for one in new.receive_batch(10_000).deliveries()}
        over = [place for place in got if self.messages[place].gone == "over"]
        lost = [place for place, one in self.messages.items() if one.gone == "to come" and place not in got]
        if over or lost:
            raise BrokenPromise(f"a new subscription gets {over[:5]}, which are over, and misses {lost[:5]}")


CALLS: dict[str, Callable[[Run], None]] = {
    "receive": Run.receive, "receive more": Run.receive, "receive most": Run.receive, "ack": Run.ack,
    "ack more": Run.ack, "give back": Run.give_back, "seek": Run.seek, "decide": Run.decide,
    "decide more": Run.decide, "trim": Run.trim, "look": Run.look, "change": Run.change, "close": Run.close_one,
    "delete": Run.delete,
}  # fmt: skip


def _has_cause(error: object, kind: type[BaseException]) -> bool:
    while isinstance(error, BaseException):
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False


def interrupt_calls(seed: int, interrupts: int) -> Tally:
    """Runs until there were so many interrupts. Raises BrokenPromise, which says the seed of its run."""
    tally = Tally()
    while tally.interrupts < interrupts:
        mine = seed + tally.runs
        tally.runs += 1
        one(mine, tally)
    return tally


def one(seed: int, tally: Tally) -> None:
    """A run. Raises BrokenPromise."""
    with inline(seed) as driver:
        run = Run(seed, driver, tally)
        try:
            run.run()
        except (BrokenPromise, StoreError) as error:
            raise BrokenPromise(f"seed {seed}: {error}; after {', '.join(run.told[-30:])}") from error


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.consumers.interrupted", description=__doc__)
    parser.add_argument("--interrupts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed, began = draw_seed() if given.seed is None else given.seed, time.perf_counter()
    print(f"seed {seed}", flush=True)
    tally = interrupt_calls(seed, given.interrupts)
    for name, count in sorted(tally.interrupted.items()):
        print(f"{name:30}{count:>8,} of {tally.calls[name]:,} calls")
    print(f"{tally.interrupts:,} interrupts {dict(tally.kinds)} in {tally.runs:,} runs; {tally.rebuilds} indexes anew")
    print(f"{time.perf_counter() - began:.0f} s: nothing early, lost, stuck or again, and each backlog exact")
    return 0


if __name__ == "__main__":
    sys.exit(main())
