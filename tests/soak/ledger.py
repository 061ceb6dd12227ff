"""What the soak knows of a store, and whether the store still holds it."""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

from stratalog.store import MessageStore, StoreConfig, verify_folder
from stratalog.store.format.layout import lane_name
from stratalog.store.log.streams import lane_of
from stratalog.store.testing import TunedConfig

from ..clocks import WallClock
from .child import QUEUE_COUNT, TOPIC, Plan, seed_of
from .consumers import KEPT, LONG_MS
from .removals import Row, stays, told_removals

READ_MESSAGES = 2000
END_MS = 1 << 42
SETTLES_S = 30.0
EARLY_S = 0.2  # an idle lane ends its segment so soon, if that frees others; the store's own figure only takes longer
PATIENCE = "stratalog.store.log.early.PATIENCE_S"
TIMED = ("came", "moving", "moved", "not moved")  # what a consumer says with a time of day

Place = tuple[int, int]  # queue, offset


class Violation(Exception):
    """The store broke a promise."""


class Ledger:
    """Everything that was acknowledged in one store, over all lives of it.

    Messages that were delayed when they were written outlive their segments if somebody is to get them, and none comes
    before its time. Neither is asked for once the clock of a life has jumped: a message that was called due stays due.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._told: list[dict[int, int]] = [{} for _ in range(QUEUE_COUNT)]  # offset -> seed, by queue
        self._first = [0] * QUEUE_COUNT
        self.acknowledged = 0
        self.is_subscribed = False  # from then on delayed messages outlive their segments
        self._clock_jumped = False
        self._retention_bytes: int | None = None  # of this life
        self._lanes: int | None = None
        self._gone: set[tuple[int, int]] = set()  # lane, segment: it was told that they go
        self._outlive: set[Place] = set()
        self._times: defaultdict[Place, set[int]] = defaultdict(set)  # at which a message may be due
        self._asked: set[Place] = set()  # somebody tried to acknowledge them
        self._acked: set[Place] = set()
        self._cancelled: set[Place] = set()
        self._maybe_cancelled: set[Place] = set()
        self._cancelling = Counter[Place]()  # asked for, and not answered
        self._moving = Counter[Place]()
        self._moved_at_once: set[Place] = set()  # by two threads: nobody knows which was the last

    def begin(self, plan: Plan) -> None:
        """A life begins."""
        self._clock_jumped |= plan.clock
        self._retention_bytes, self._lanes = plan.config["retention_bytes"], plan.config["lanes"]

    def end(self) -> None:
        """It is over: what was not answered may have been done or not."""
        self._maybe_cancelled |= {place for place, count in self._cancelling.items() if count}
        self._cancelling.clear()
        self._moved_at_once |= {place for place, count in self._moving.items() if count}
        self._moving.clear()

    def note(self, queue: int, offset: int, seed: int, due_ms: int = 0, *, in_time: bool = False) -> None:
        """A message was acknowledged, `in_time` before it was due. Raises Violation if its offset was given before."""
        if offset in self._told[queue]:
            raise Violation(f"queue {queue}: offset {offset} was acknowledged twice")
        self._told[queue][offset] = seed
        self._times[queue, offset].add(due_ms)
        if in_time and self.is_subscribed:
            self._outlive.add((queue, offset))
        self.acknowledged += 1

    def note_going(self, rows: Sequence[Row]) -> None:
        """Segments are about to leave the log: see `removals`. Raises Violation if one must not."""
        _judge(rows, self._retention_bytes)
        self._gone.update((lane, sequence) for lane, sequence, _, _ in rows)

    def note_consumer(self, what: str, places: Sequence[Place], time_ms: int = 0) -> None:
        """What a consumer says: see `consumers`. Raises Violation if a message came that must not."""
        if what == "came":
            self._check_came(places, time_ms)
        elif what == "asked":
            self._asked.update(places)
        elif what == "acked":
            self._acked.update(places)
        elif what == "cancelling":
            self._cancelling.update(places)
        elif what in ("cancelled", "not cancelled"):
            self._cancelling.subtract(places)
            self._cancelled.update(places if what == "cancelled" else ())
        elif what == "moving":
            self._moving.update(places)
            self._moved_at_once |= {place for place in places if self._moving[place] > 1}
            for place in places:
                self._times[place].add(time_ms)
        else:
            self._moving.subtract(places)
            for place in places if what == "moved" else ():
                if place not in self._moved_at_once:
                    self._times[place] = {time_ms}

    def _check_came(self, places: Sequence[Place], now_ms: int) -> None:
        over = set(places) & (self._acked | self._cancelled)
        if over:
            raise Violation(f"came, and was acknowledged or cancelled: {sorted(over)[:5]}")
        told = [place for place in places if place[1] in self._told[place[0]]]  # else only a move of it was
        early = [place for place in told if min(self._times[place]) > now_ms]
        if early and not self._clock_jumped:
            raise Violation(f"came {min(self._times[early[0]]) - now_ms} ms early: {early[:5]} of {len(early)}")

    def check(self, *, retention: bool) -> int:
        """Open the store without faults and read all of it; how many acknowledged messages were found.

        Raises Violation. `retention`: the last life had it, and may have removed old messages.
        """
        if not self.path.exists():
            return 0  # the fault was met before there was a store
        # A life may have ended before its store was made: then this opening makes it.
        config, going = TunedConfig(lanes=self._lanes, segment_bytes=64 << 10, recent_bytes=0), list[Row]()
        with told_removals(going.extend), MessageStore.open(self.path, config) as store:
            if store.losses:
                raise Violation(f"losses: {store.losses}")
            begins = self._begins()  # now: opening has ended the removals that the kill cut short
            found = sum(self._check_queue(store, queue, begins, retention=retention) for queue in range(QUEUE_COUNT))
            self._check_scan(store)
        _judge(going, None)
        self._check_gone(begins, going)
        if retention and self._retention_bytes is not None:
            self._check_settles(replace(config, retention_bytes=self._retention_bytes), self._retention_bytes)
        self._check_later(config)
        verified = verify_folder(self.path)
        if not verified.ok:
            raise Violation(f"verify: {verified.damages}")
        return found

    def _begins(self) -> list[int]:
        """The number of the first segment that each lane still has."""
        lanes = sorted(self.path.glob("lane-*"))
        assert [lane.name for lane in lanes] == [lane_name(number) for number in range(len(lanes))]
        return [min((int(path.stem) for path in lane.glob("*.seg")), default=1) for lane in lanes]

    def _check_gone(self, begins: list[int], going: Sequence[Row]) -> None:
        """No segment has gone without a word; `going`: those that this check has removed."""
        self._gone.update((lane, sequence) for lane, sequence, _, _ in going)
        gone = {(lane, sequence) for lane, first in enumerate(begins) for sequence in range(1, first)}
        if gone - self._gone:
            raise Violation(f"gone without a word, as (lane, segment): {sorted(gone - self._gone)[:5]}")

    def _check_settles(self, config: StoreConfig, retention_bytes: int) -> None:
        """In a copy, retention removes what it may and no more, also where no message comes any more."""
        going = list[Row]()
        with (
            self._copy("retained") as copy, mock.patch(PATIENCE, EARLY_S), told_removals(going.extend),
            mock.patch.object(logging.getLogger("stratalog"), "disabled", True),  # it says what consumers lose
            MessageStore.open(copy, config) as store,
        ):  # fmt: skip
            until_s, removal = time.monotonic() + SETTLES_S, store._upkeep.removal
            while any(map(removal._is_free, store._lanes)):  # else it rests at records of the store's own
                held, allowed = removal.held_bytes(), max(retention_bytes, stays(removal)) + removal.allowance()
                if held <= allowed:
                    break
                if time.monotonic() > until_s:
                    raise Violation(f"retention leaves {held} bytes, and may keep {allowed}")
                store._upkeep.wake()
                time.sleep(0.01)
        _judge(going, retention_bytes)

    def _check_scan(self, store: MessageStore) -> None:
        """A scan gives each queue from its first message to its last: what is removed is the begin of the log."""
        reached = list(self._first)
        for batch in store.scan():
            for queue, offset in zip(batch.queue_ids.tolist(), batch.offsets.tolist(), strict=True):
                if offset != reached[queue]:
                    raise Violation(f"a scan goes on with {offset} after {reached[queue] - 1} of queue {queue}")
                reached[queue] += 1
        ends = [store.queue_bounds(TOPIC, queue)[1] for queue in range(QUEUE_COUNT)]
        if reached != ends:
            raise Violation(f"a scan comes to {reached}, and the queues end at {ends}")

    def _check_later(self, config: TunedConfig) -> None:
        """In a copy, the time of all messages has come: what is called due there is not due in the store."""
        with self._copy("later") as copy, MessageStore.open(copy, config, clock=WallClock(lambda: END_MS)) as store:
            self._check_consumer(store)

    @contextmanager
    def _copy(self, name: str) -> Iterator[Path]:
        """A copy of the store, for a while."""
        copy = self.path.with_name(name)
        shutil.copytree(self.path, copy)
        try:
            yield copy
        finally:
            shutil.rmtree(copy)

    def _check_consumer(self, store: MessageStore) -> None:
        """A subscription gives out all but what was acknowledged, or cancelled, or has gone with its segment."""
        came: dict[Place, bytes] = {}
        with store.subscribe(TOPIC, KEPT) as subscription:
            left_to_look = True
            while left_to_look:
                is_behind = _is_behind(store)
                batch = subscription.receive_batch(visibility_timeout_ms=LONG_MS)
                places = zip(batch.queue_ids.tolist(), batch.offsets.tolist(), strict=True)
                for place, data in zip(places, batch.payloads(), strict=True):
                    if place in came:
                        raise Violation(f"{place} is given out twice")
                    came[place] = bytes(data)
                left_to_look = is_behind or len(batch) > 0
        again = came.keys() & (self._acked | self._cancelled)
        if again:
            raise Violation(f"given out, and was acknowledged or cancelled: {sorted(again)[:5]} of {len(again)}")
        if any(self._is_other(place, data) for place, data in came.items()):
            raise Violation("given out with other bytes")
        told = {(queue, at) for queue in range(QUEUE_COUNT) for at in self._told[queue]}
        must = told - came.keys() - self._asked - self._cancelled - self._maybe_cancelled
        outlive = set() if self._clock_jumped else self._outlive
        lost = [place for place in must if place in outlive or place[1] >= self._first[place[0]]]
        if lost:
            raise Violation(f"never given out: {sorted(lost)[:5]} of {len(lost)}")

    def _is_other(self, place: Place, data: bytes) -> bool:
        """Is it no message of this place?"""
        queue, offset = place
        seed = seed_of(queue, data)
        return seed is None or self._told[queue].get(offset, seed) != seed

    def _check_queue(self, store: MessageStore, queue: int, begins: list[int], *, retention: bool) -> int:
        """The queue has every offset from its first to its end, each with the message that was acknowledged."""
        told = self._told[queue]
        first, end = store.queue_bounds(TOPIC, queue)
        if first < self._first[queue] or (first > self._first[queue] and not retention):
            raise Violation(f"queue {queue} begins at {first}, and began at {self._first[queue]} before")
        if first and begins[lane_of(TOPIC, queue, len(begins))] == 1:
            raise Violation(f"queue {queue} begins at {first}, and no segment of its lane was removed")
        if end <= max(told, default=-1):
            raise Violation(f"queue {queue} ends at {end}, and {max(told)} was acknowledged")
        self._first[queue], found, at = first, 0, first
        while at < end:
            batch = store.read_batch(TOPIC, queue, at, max_messages=READ_MESSAGES)
            if batch.offsets.tolist() != list(range(at, at + len(batch))) or not len(batch):
                raise Violation(f"queue {queue}: offsets {batch.offsets.tolist()[:5]}.. are read from {at} on")
            for offset, data in enumerate(batch.payloads(), at):
                if self._is_other((queue, offset), bytes(data)):
                    raise Violation(f"queue {queue}, offset {offset} has other bytes than were acknowledged")
                found += offset in told
            at += len(batch)
        return found


def _is_behind(store: MessageStore) -> bool:
    """Whether the index of delayed messages has not read all of the log yet."""
    found = store.stats()["delayed"].get(TOPIC)
    return found is not None and bool(found["is_behind"])


def _judge(rows: Sequence[Row], retention_bytes: int | None) -> None:
    """A message of users goes with its segment only while the log is larger than it may be. Raises Violation."""
    for lane, sequence, messages, left_bytes in rows:
        if messages and (retention_bytes is None or left_bytes <= retention_bytes):
            raise Violation(
                f"segment {sequence} of lane {lane} goes with {messages} messages of users: the log has {left_bytes} "
                f"bytes, and retention keeps {retention_bytes}"
            )
