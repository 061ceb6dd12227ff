"""The callers of a run's store: producers and consumers, whatever they do drawn from the run's seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

from stratalog.store import MessageStore, OffsetOutOfRange, StorePoisoned, StoreUnreadable
from stratalog.store.format.records import RECORDS_TOPIC
from stratalog.store.log.request import Barrier, cut
from stratalog.store.log.streams import lane_of
from stratalog.store.log.ticket import SubmitRequest
from stratalog.store.subscriptions.committing import Committing
from stratalog.store.testing import SimulatedDisk, TunedConfig

from ..store.helpers import scanned
from .check import BrokenPromise
from .engine import bounds_of, changes_of_topic, changes_of_trim, contents_of, lanes_of, lowest_segment, requests_of
from .ledger import NEVER_THERE, Bounds, Ledger, Queue
from .shape import KIB, Settings, Shape

FACTS_BYTES = 64  # of key and properties, which count as the message's


class QueueBeginsAnew(Exception):
    """The run's own opening has forgotten a deleted queue of which nothing is left: the ledger cannot go on."""


class Callers:
    """Hands messages to a store and reads them; the ledger notes what was handed over and what was read.

    `note` is told of the store's errors, by name; `reached` counts the trims that were handed over.
    """

    def __init__(
        self, shape: Shape, seed: int, chance: random.Random, ledger: Ledger, note: Callable[[str], None],
        reached: Counter[str],
    ) -> None:  # fmt: skip
        self._shape = shape
        self._seed = seed
        self._chance = chance
        self._largest = random.Random(f"large {seed}")
        self._ledger = ledger
        self._note = note
        self._reached = reached
        self._serial = 0
        self._held: Any = None

    def let_go(self) -> None:
        """The process has ended: no reader holds anything."""
        self._held = None

    def _message(self, settings: Settings) -> tuple[Queue, bytes]:
        chance, shape = self._chance, self._shape
        queue = "t", chance.randrange(shape.queues)
        self._serial += 1
        draw = chance.random()
        if draw < 0.002:
            size = chance.randrange(50 * KIB, 90 * KIB)
        elif draw < 0.1:
            size = chance.randrange(shape.large_bytes)
        else:
            size = chance.randrange(2 * shape.typical_bytes)
        head = b"%d.%d;" % (self._seed, self._serial)
        return queue, head + chance.randbytes(max(0, min(size, settings.max_message_bytes - FACTS_BYTES) - len(head)))

    def produce(self, store: MessageStore, settings: Settings, disk: SimulatedDisk) -> None:
        """A few messages, a batch, or a barrier."""
        chance = self._chance
        draw = chance.random()
        try:
            if draw < 0.08:
                index = chance.randrange(self._shape.lanes)
                barrier = Barrier()
                lanes_of(store)[index][1].put(barrier, wait=False)
                self._ledger.hand(index, barrier, [], [])
            elif draw < 0.14 and "trims" in self._shape.parts:
                self._trim(store)
            elif draw < 0.2:
                self._produce_batch(store, settings)
            elif draw < 0.2 + self._shape.transacts and "transactions" in self._shape.parts:
                self._transact(store, settings)
            elif draw < 0.3:
                self._produce_columns(store, settings)
            else:
                for _ in range(chance.choice((1, 1, 2, 5))):
                    queue, data = self._message(settings)
                    facts: dict[str, Any] = {"key": b"k", "properties": {"p": "q"}} if chance.random() < 0.1 else {}
                    ticket = store.submit(*queue, data, **facts)
                    assert isinstance(ticket, SubmitRequest)
                    self._ledger.hand(ticket.stream.lane.index, ticket, [queue], [data])
        except StorePoisoned:
            self._note("StorePoisoned")
            if not disk.faults_struck:
                raise BrokenPromise("the store is poisoned, and no fault struck") from None

    def _produce_batch(self, store: MessageStore, settings: Settings) -> None:
        rows = [self._message(settings) for _ in range(self._chance.randrange(2, 20))]
        streams, datas, sizes = store._appender._accept_batch([(*queue, data) for queue, data in rows])
        for lane in {stream.lane.index: stream.lane for stream in streams}.values():
            picked = [i for i, stream in enumerate(streams) if stream.lane is lane]
            columns = [streams[i] for i in picked], [datas[i] for i in picked], [sizes[i] for i in picked]
            groups = cut(*columns, TunedConfig.of(store.config).frame_bytes)
            for group in groups:
                group.stream.lane.queue.put(group)
            at = 0
            for group in groups:
                mine = [rows[i] for i in picked[at : at + group.count]]
                at += group.count
                self._ledger.hand(lane.index, group, [queue for queue, _ in mine], [data for _, data in mine])

    def _transact(self, store: MessageStore, settings: Settings) -> None:
        """A transaction of a few messages, in the queues of one lane or of several."""
        rows = [self._message(settings) for _ in range(self._chance.randrange(1, 9))]
        while sum(len(data) + FACTS_BYTES for _, data in rows) > store._appender.most_atomic_bytes:
            rows.pop()
        lane = lane_of(*rows[0][0], self._shape.lanes)
        lanes = {lane_of(*row[0], self._shape.lanes) for row in rows}
        if "large transactions" in self._shape.parts and self._largest.random() < 0.15:
            self._transact_large(store, settings, rows)
            return
        if len(lanes) > 1 and self._chance.random() < 0.7:
            self._transact_in_lanes(store, rows)
            return
        rows = [row for row in rows if lane_of(*row[0], self._shape.lanes) == lane]
        with_key = self._chance.random() < 0.3
        tx = store.transaction()
        for at, (queue, data) in enumerate(rows):
            tx.append(*queue, data, key=b"k" if with_key and at % 2 else None)
        request = tx._end().hand_over(lambda request: request.stream.lane.queue.put(request))
        assert request is not None
        self._ledger.hand(lane, request, [queue for queue, _ in rows], [data for _, data in rows])
        self._reached["transactions"] += 1

    def _transact_in_lanes(self, store: MessageStore, rows: list[tuple[Queue, bytes]]) -> None:
        """A transaction over several lanes; the ledger hears of its parts when they are built."""
        tx = store.transaction()
        for queue, data in rows:
            tx.append(*queue, data)
        tx._end().hand_over(lambda request: request.queue.put(request))
        self._reached["transactions over several lanes"] += 1

    def _transact_large(self, store: MessageStore, settings: Settings, rows: list[tuple[Queue, bytes]]) -> None:
        """A transaction of more than a frame; the ledger hears of its parts when they are built."""
        tx = store.transaction()
        for queue, data in [*rows, *[self._message(settings) for _ in range(self._largest.randrange(2, 24))]]:
            tx.append(*queue, data)
        with mock.patch.object(Committing, "_fits", lambda *_: False):  # as if a frame had room for fewer
            tx._end().hand_over(lambda request: request.queue.put(request))
        self._reached["large transactions"] += 1

    def _check_transactions(self, store: MessageStore) -> None:
        """Whoever looks sees all of a transaction or nothing."""
        queues = {queue for rows in self._ledger.atomic for queue, offset in rows if (queue, offset) != NEVER_THERE}
        ends, again = [{queue: bounds_of(store, queue)[1] for queue in queues} for _ in range(2)]
        part = self._ledger.in_part(ends) if ends == again else []  # else others took steps meanwhile
        if part:
            raise BrokenPromise(f"a transaction is seen in part: of {part}, queues end at {ends}")

    def _trim(self, store: MessageStore) -> None:
        """Remove messages of a queue, or all of the topic; without waiting for the answer."""
        chance = self._chance
        changes = []
        if chance.random() < 0.15:
            changes = changes_of_topic(store, "t")
            self._reached["topics deleted"] += bool(changes)
        else:
            queue = "t", chance.randrange(self._shape.queues)
            try:
                first, end = store.queue_bounds(*queue)
            except StoreUnreadable:  # an error of the device, when a footer was opened for the first time
                return
            low = end if chance.random() < 0.3 else chance.randint(first, end)
            changes = changes_of_trim(store, queue, low) if low > first else []
            self._reached["queues trimmed"] += bool(changes)
        for request in requests_of(store, changes):
            datas = list(request.datas)
            request.stream.lane.queue.put(request)
            self._ledger.hand_trims(request, datas)

    def _produce_columns(self, store: MessageStore, settings: Settings) -> None:
        """A call of append_columns: a queue may be in its table twice, and in its rows many times."""
        chance = self._chance
        rows = [self._message(settings) for _ in range(chance.randrange(1, 20))]
        table = [queue for queue, _ in rows]
        index = [chance.choice([at for at, other in enumerate(table) if other == queue]) for queue, _ in rows]
        keys = ([chance.choice((-1, 0, 1)) for _ in rows], b"") if chance.random() < 0.5 else None
        if keys is not None:
            keys = keys[0], b"k" * sum(length == 1 for length in keys[0])
        payload = b"".join([data for _, data in rows])
        parts = store._columns.parts(table, index, [len(data) for _, data in rows], payload, keys, None, None)
        for part in parts:
            picked = list(range(len(rows))) if part.rows is None else list(map(int, part.rows))
            at = 0
            for group in part.groups:
                group.stream.lane.queue.put(group)
                mine = [rows[i] for i in picked[at : at + group.count]]
                at += group.count
                lane = group.stream.lane.index
                self._ledger.hand(lane, group, [queue for queue, _ in mine], [data for _, data in mine])

    def consume(self, store: MessageStore, settings: Settings, disk: SimulatedDisk) -> None:
        """Read some messages; what was read may not be lost. Now and then a reader keeps what it looks at."""
        chance = self._chance
        self._held = chance.choice(lanes_of(store))[0].view if chance.random() < 0.3 else None
        queue = "t", chance.randrange(self._shape.queues)
        self._check_transactions(store)
        try:
            low = self._ledger.answered_low(queue)
            first, end = store.queue_bounds(*queue)
            if first < low:
                raise BrokenPromise(f"{queue} begins at {first}, and it was trimmed to {low}")
            if first == end:
                return
            at = chance.randrange(first, end)
            messages = store.read(*queue, at, max_messages=8)
            found = store.get_range(*queue, at, 8) if settings.cached else {}
        except OffsetOutOfRange:
            return
        except StoreUnreadable:
            self._note("StoreUnreadable")
            if not disk.faults_struck:
                raise
            return
        for message in messages:
            self._check_read(queue, message.offset, message.data)
        for index, data in found.items():
            self._check_read(queue, at + index, data)

    def _check_read(self, queue: Queue, offset: int, data: bytes, *, note: bool = True) -> None:
        if self._ledger.rows[queue][offset] != data:
            raise BrokenPromise(f"a read of {queue} gave other bytes at offset {offset}")
        if not note:
            return
        self._ledger.note_read(queue, offset)
        if not self._shape.lazy:
            self._ledger.history.read(*queue, offset, data)

    def look_at_everything(self, store: MessageStore, settings: Settings, *, note: bool) -> list[Bounds]:
        """Every message through the public face; the bounds, by lane.

        With `note` they count as read, and the history of all lives until now is looked at. Without, the store is on
        a copy of the run's disk.
        """
        bounds: list[Bounds] = [{} for _ in range(self._shape.lanes)]
        seen = scanned(store)
        for queue, rows in self._ledger.rows.items():
            if queue[0] == RECORDS_TOPIC:
                continue
            first, end = store.queue_bounds(*queue)
            if rows and (first, end) == (0, 0) and self._ledger.low_of(queue).hidden == len(rows):
                self._reached["deleted queues forgotten"] += 1
                if note:
                    raise QueueBeginsAnew
                continue
            if end != len(rows):
                raise BrokenPromise(f"{queue} ends at {end} in an opened store, {len(rows)} were recovered")
            bounds[self._ledger.lane_of[queue]][queue] = first, end
            found = [(m.offset, m.data) for m in store.read(*queue, first, max_messages=1 << 20, max_bytes=1 << 40)]
            if seen.pop(queue, {}) != dict(found):
                raise BrokenPromise(f"a scan and a read of {queue} differ")
            if (queue[1] in store.queues(queue[0])) != (end > self._ledger.low_of(queue).hidden):
                raise BrokenPromise(f"{queue} is listed, and deleted, or it is neither")
            if settings.cached and dict(found) != contents_of(store, queue, first):
                raise BrokenPromise(f"two reads of {queue} differ")
            for offset, data in found:
                self._check_read(queue, offset, data, note=note)
            if note:
                self._ledger.history.found(*queue, first, found)
        if seen:
            raise BrokenPromise(f"a scan gives messages of {list(seen)}")
        violations = [] if self._shape.lazy or not note else self._ledger.history.check()
        if violations:
            raise BrokenPromise(f"the history is broken: {violations[:3]}")
        return bounds


def lowest_segments(store: MessageStore) -> list[int]:
    """The number of the first segment of each lane, as its readers see it."""
    return [lowest_segment(store, index) for index in range(len(lanes_of(store)))]
