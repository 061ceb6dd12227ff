"""A subscription of several topics against a dict: any calls, closes and crashes give what a model says."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stratalog.store import Delivery, MessageStore, StaleReceipt
from stratalog.store.subscriptions.topics_subscription import TopicsSubscription
from stratalog.store.testing import VirtualClock

from ..helpers import crash_copy, memory_folder, tiny

TOPICS = ("o.1", "o.2", "o.ü")
QUEUES = (0, 3)
Place = tuple[str, int, int]  # (topic, queue id, offset)
topics, queues, some = st.sampled_from(TOPICS), st.sampled_from(QUEUES), st.integers(1, 9)


class TopicsMachine(RuleBasedStateMachine):
    """`ends` has the next offset of each queue; `joined` the topics with a subscription; of a message `out` has the
    receipt and the deadline, or the time at which it comes again."""

    def __init__(self) -> None:
        super().__init__()
        self.holder = memory_folder()
        self.home = self.holder.__enter__()
        self.generation = 0
        self.clock = VirtualClock()
        self.ends: dict[tuple[str, int], int] = defaultdict(int)
        self.joined: set[str] = set()
        self.acked: set[Place] = set()
        self.out: dict[int, tuple[Place, float]] = {}
        self.again: dict[Place, float] = {}
        self.late: dict[int, Place] = {}
        self.attempts: dict[Place, int] = defaultdict(int)

    @property
    def path(self) -> Path:
        return self.home / f"store-{self.generation}"

    @initialize(lanes=st.sampled_from([1, 3]), by_pattern=st.booleans())
    def begin(self, lanes: int, by_pattern: bool) -> None:
        self.config, self.by_pattern = tiny(lanes=lanes), by_pattern
        self.open()

    def open(self) -> None:
        self.store = MessageStore.open(self.path, self.config, clock=self.clock)
        self.sub = self.subscribe()

    def subscribe(self) -> TopicsSubscription:
        if self.by_pattern:
            return self.store.subscribe(pattern="o.*", name="s")
        self.joined.update(TOPICS)
        return self.store.subscribe(list(TOPICS), "s")

    def teardown(self) -> None:
        self.store.close()
        self.holder.__exit__(None, None, None)

    def now(self) -> float:
        """What has timed out by now comes again."""
        now = self.clock.monotonic_s()
        for receipt, (place, until) in list(self.out.items()):
            if until <= now:
                del self.out[receipt]
                self.again[place], self.late[receipt] = until, place
        return now

    @rule(topic=topics, queue_id=queues, count=some)
    def append(self, topic: str, queue_id: int, count: int) -> None:
        begin = self.ends[topic, queue_id]
        self.store.append_batch([(topic, queue_id, b"%d" % at) for at in range(begin, begin + count)])
        self.ends[topic, queue_id] += count

    @rule(crash=st.booleans())
    def reopen(self, crash: bool) -> None:
        if crash:
            crash_copy(self.path, self.home / f"store-{self.generation + 1}")
        self.store.close()
        self.generation += crash
        self.forget()
        self.open()

    @rule()
    def close(self) -> None:
        self.sub.close()
        self.forget()
        self.sub = self.subscribe()

    def forget(self) -> None:
        for known in (self.out, self.again, self.late, self.attempts):
            known.clear()

    @rule(ms=st.sampled_from([500, 5_000, 31_000]))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms=ms)

    def available(self, now: float) -> set[Place]:
        there = {(*queue, at) for queue, end in self.ends.items() for at in range(end)}
        taken = {place for place, _ in self.out.values()} | {place for place, at in self.again.items() if at > now}
        return there - self.acked - taken

    @rule(
        count=some, batch=st.booleans(), timeout_s=st.sampled_from([1, 30]),
        only=st.sampled_from([(None, None), (None, None), (TOPICS[0], None), (TOPICS[1], 3)]),
    )  # fmt: skip
    def receive(self, count: int, batch: bool, timeout_s: int, only: tuple[str | None, int | None]) -> None:
        now = self.now()
        available = self.available(now)
        if only[0] is not None:
            self.sub.backlog()  # a topic that has come joins
            if only[0] not in self.sub.topics:
                return
            available = {place for place in available if place[0] == only[0] and only[1] in (None, place[1])}
        how = {"topic": only[0], "queue_id": only[1]}
        got: list[Delivery]
        if batch:
            got = self.sub.receive_batch(count, 0, timeout_s * 1000, **how).deliveries()  # type: ignore[arg-type]
        else:
            got = self.sub.receive(count, 0, timeout_s * 1000, **how)  # type: ignore[arg-type]
        places = [(one.message.topic, one.message.queue_id, one.message.offset) for one in got]
        assert len(places) == len(set(places)) == min(count, len(available)), (places, available)
        assert set(places) <= available
        assert [one.message.data for one in got] == [b"%d" % offset for *_, offset in places]
        for one, place in zip(got, places, strict=True):
            self.attempts[place] += 1
            assert one.attempt == self.attempts[place]
            self.again.pop(place, None)
            self.late = {receipt: at for receipt, at in self.late.items() if at != place}
            self.out[one.receipt] = place, now + timeout_s

    def drawn(self, data: st.DataObject) -> list[int]:
        self.now()
        known = sorted({*self.out, *self.late})
        return data.draw(st.lists(st.sampled_from(known), unique=True, max_size=12)) if known else []

    def settled(self, receipt: int) -> Place:
        place = self.late.pop(receipt, None) or self.out.pop(receipt)[0]
        self.again.pop(place, None)
        return place

    @rule(data=st.data(), is_stale=st.booleans())
    def ack(self, data: st.DataObject, is_stale: bool) -> None:
        receipts = self.drawn(data)
        if is_stale:
            try:
                self.sub.ack_batch([*receipts, 3])
            except StaleReceipt:
                return
            raise AssertionError("a stale receipt is refused")
        self.sub.ack_batch(np.array(receipts[1:], np.int64))
        for receipt in receipts[:1]:
            self.sub.ack(receipt)
        self.acked.update([self.settled(receipt) for receipt in receipts])
        for receipt in receipts:
            with suppress(StaleReceipt):
                self.sub.ack(receipt)
                raise AssertionError("it is over")

    @rule(data=st.data(), delay_s=st.sampled_from([0, 5]))
    def nack(self, data: st.DataObject, delay_s: int) -> None:
        receipts = self.drawn(data)
        self.sub.nack_batch(receipts, delay_s * 1000)
        for place in [self.settled(receipt) for receipt in receipts]:
            self.again[place] = self.clock.monotonic_s() + delay_s

    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        for receipt in self.drawn(data):
            self.sub.extend(receipt, 20_000)
            self.out[receipt] = self.settled(receipt), self.clock.monotonic_s() + 20

    @rule(data=st.data(), where=st.sampled_from(["earliest", "latest", "offsets"]))
    def seek(self, data: st.DataObject, where: str) -> None:
        self.sub.backlog()
        moved = {queue: end if where == "latest" else 0 for queue, end in self.ends.items() if end}
        if where == "offsets":
            moved = {at: data.draw(st.integers(0, self.ends[at])) for at in moved if data.draw(st.booleans())}
            self.sub.seek(moved)
        else:
            self.sub.seek("earliest" if where == "earliest" else "latest")
        for receipt, place in [*((one, at) for one, (at, _) in self.out.items()), *self.late.items()]:
            if place[:2] in moved:
                self.out.pop(receipt, None)
                self.late.pop(receipt, None)
        for known in (self.again, self.attempts):
            for place in [place for place in known if place[:2] in moved]:
                del known[place]
        for queue, low in moved.items():
            self.acked -= {(*queue, at) for at in range(self.ends[queue])}
            self.acked |= {(*queue, at) for at in range(low)}

    @invariant()
    def the_backlog_and_the_positions_are_what_is_not_acknowledged(self) -> None:
        self.now()
        there = {(*queue, at) for queue, end in self.ends.items() for at in range(end)}
        backlog = self.sub.backlog()
        assert backlog.total == len(there - self.acked)
        assert backlog.in_flight == len(self.out)
        acked = sum(at.mark_delete + at.acknowledged_above for at in self.sub.positions().values())
        assert acked == len(self.acked)


TestTopics = TopicsMachine.TestCase
TestTopics.settings = settings(max_examples=12, stateful_step_count=40)
