"""What a run knows of its messages: what was built, in which order and where, and what was promised."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from stratalog.store import StoreFull
from stratalog.store.format.records import NOT_TRIMMED, RECORDS_TOPIC, Record, StreamLow, add_low
from stratalog.store.log.atomic_group import AtomicGroup
from stratalog.store.log.request import Group, Request
from stratalog.store.log.trims import TrimRequest
from stratalog.store.testing import History
from stratalog.store.testing.history import Send

Queue = tuple[str, int]
Bounds = dict[Queue, tuple[int, int]]


NEVER_THERE: tuple[Queue, int] = (("", 0), 1 << 62)  # a message of a transaction whose frames are not all built yet


def records_of(lane: int) -> Queue:
    """The stream of a lane's records."""
    return RECORDS_TOPIC, lane


class Handed(NamedTuple):
    """A request as it was handed over; a barrier has no messages."""

    request: Request
    queues: list[Queue]
    datas: list[bytes]
    sends: list[Send]


class Built(NamedTuple):
    """A request of a round that was built in one lane, its messages, and its frame's segment and end there."""

    lane: int
    request: AtomicGroup
    messages: list[tuple[Queue, bytes]]
    sequence: int
    end: int


class Placed(NamedTuple):
    """Where a message was built: its place in its lane's order, its segment, where its frame ends there, and when."""

    place: int
    sequence: int
    end: int
    time_ms: int


@dataclass
class LaneLedger:
    """One lane: requests on their way, the order in which its messages were built, and what retention did.

    `removed`: the highest number of a segment that retention took, or began to take.
    """

    handed: deque[Handed] = field(default_factory=deque)
    built: deque[Handed] = field(default_factory=deque)
    length: int = 0
    removed: int = 0


class Ledger:
    """What must be there after a crash at this moment, and what may be.

    Attributes:
        rows: each queue's messages from offset 0 on, as they were built; what is behind `promised` may vanish.
        placed: for each message of `rows`, where it was built.
        cut: each queue's messages behind those of `rows`, which the last crash took. Until an opening is through, they
            may lie on the disk behind a gap, and nothing tells a repair that the gap is older than the damage.
        atomic: the messages of each transaction that was built since the last opening, by queue and offset.
        answered: how many of them were acknowledged, or read by a consumer.
        forced: how many of them were promised to survive a power cut.
        lazy: the answers of this life do not wait for forces.
    """

    def __init__(self, lanes: int) -> None:
        self.lazy = False
        self.lanes = [LaneLedger() for _ in range(lanes)]
        self.rows: defaultdict[Queue, list[bytes]] = defaultdict(list)
        self.placed: defaultdict[Queue, list[Placed]] = defaultdict(list)
        self.cut: defaultdict[Queue, list[bytes]] = defaultdict(list)
        self.atomic: list[list[tuple[Queue, int]]] = []
        self.answered: defaultdict[Queue, int] = defaultdict(int)
        self.forced: defaultdict[Queue, int] = defaultdict(int)
        self.lane_of: dict[Queue, int] = {}
        self._building: list[tuple[Queue, int]] = []  # what was built of a round of several frames
        self.refused = 0
        self.life = 0
        self.history = History()
        self.streams: dict[tuple[int, int], Queue] = {}  # by lane and number: those that were trimmed
        self._records = History()  # apart: no reader is given them

    def promised(self, *, power_cut: bool) -> Mapping[Queue, int]:
        """How many messages of each queue must be there."""
        return self.forced if power_cut else self.answered

    def queues_of(self, lane: int) -> list[Queue]:
        """The queues of a lane that have messages."""
        return [queue for queue in self.rows if self.lane_of[queue] == lane]

    def sent(self, queue: Queue) -> list[bytes]:
        """A queue's messages that a repair may find: all that were built and that no opening has left out."""
        return self.rows.get(queue, []) + self.cut.get(queue, [])

    def first_in(self, queue: Queue, sequence: int) -> int:
        """The first offset of a queue in the segment with this number or a later one."""
        return bisect_left(self.placed[queue], sequence, key=attrgetter("sequence"))

    def newest_ms(self, lane: int, sequence: int) -> int:
        """When the newest message of a segment was built; 0 if it has none."""
        times = [
            placed.time_ms
            for queue in self.queues_of(lane)
            for placed in self.placed[queue][self.first_in(queue, sequence) : self.first_in(queue, sequence + 1)]
        ]
        return max(times, default=0)

    def hand(self, lane: int, request: Request, queues: list[Queue], datas: list[bytes]) -> None:
        """A request was handed over."""
        sends = [self._history(queue).begin(*queue, data) for queue, data in zip(queues, datas, strict=True)]
        for queue in queues:
            self.lane_of[queue] = lane
        self.lanes[lane].handed.append(Handed(request, queues, datas, sends))

    def _history(self, queue: Queue) -> History:
        return self._records if queue[0] == RECORDS_TOPIC else self.history

    def hand_trims(self, request: TrimRequest, datas: list[bytes]) -> None:
        """Records were handed over."""
        lane = request.stream.lane.index
        for stream, _ in request.changes:
            self.streams[lane, stream.number] = stream.topic, stream.queue_id
        self.hand(lane, request, [records_of(lane)] * len(datas), datas)

    def trimmed(self, lane: int, records: int) -> dict[Queue, StreamLow]:
        """What the first so many records of a lane say."""
        return self._trimmed_by(lane, self.rows.get(records_of(lane), [])[:records])

    def trimmed_by_sent(self, lane: int) -> dict[Queue, StreamLow]:
        """What the records say that a repair may find."""
        return self._trimmed_by(lane, self.sent(records_of(lane)))

    def _trimmed_by(self, lane: int, records: Iterable[bytes]) -> dict[Queue, StreamLow]:
        found: dict[int, StreamLow] = {}
        for data in records:
            record = Record.unpack(data)
            assert record is not None
            add_low(found, record.number, record.effect)
        return {self.streams[lane, number]: low for number, low in found.items()}

    def low_of(self, queue: Queue) -> StreamLow:
        """Where a queue begins by all records that were built."""
        lane = self.lane_of[queue]
        return self.trimmed(lane, len(self.rows.get(records_of(lane), ()))).get(queue, NOT_TRIMMED)

    def answered_low(self, queue: Queue) -> int:
        """Where it begins for a read that begins now, at least."""
        lane = self.lane_of.get(queue, 0)
        return self.trimmed(lane, self.answered.get(records_of(lane), 0)).get(queue, NOT_TRIMMED).low

    def all_trimmed(self, lane: int, sequence: int) -> bool:
        """Is everything in a segment trimmed, by records that were answered?"""
        lows = self.trimmed(lane, self.answered.get(records_of(lane), 0))
        return bool(lows) and all(
            self.first_in(queue, sequence + 1) <= max(lows.get(queue, NOT_TRIMMED).low, self.first_in(queue, sequence))
            for queue in self.queues_of(lane)
            if queue != records_of(lane)
        )

    def note_built(self, index: int, sequence: int, end: int, time_ms: int) -> None:
        """Look which requests have got their offsets; their frame ends at `end` of segment `sequence`."""
        lane = self.lanes[index]
        while lane.handed:
            head = lane.handed[0]
            offsets = _offsets(head.request)
            if head.datas and not offsets:
                if not head.request.done():
                    return
                lane.handed.popleft()  # refused: no space for it
                self.refused += len(head.datas)
                for send in head.sends:
                    history = self._history(send.queue)
                    told = history.refused if isinstance(head.request._error, StoreFull) else history.unknown
                    told(send)
                continue
            for queue, data, offset in zip(head.queues, head.datas, offsets, strict=True):
                rows = self.rows[queue]
                assert offset == len(rows), f"offset {offset} of {queue} was given where {len(rows)} follows"
                rows.append(data)
                self.placed[queue].append(Placed(lane.length, sequence, end, time_ms))
                lane.length += 1
            if isinstance(head.request, AtomicGroup):
                self.atomic.append(list(zip(head.queues, offsets, strict=True)))
            lane.built.append(lane.handed.popleft())

    def note_joint(self, parts: Sequence[Built], time_ms: int, *, are_all: bool) -> None:
        """Frames of a round of transactions were built; until `are_all`, none of them may count."""
        whole = self._building
        if not whole:
            whole.append(NEVER_THERE)
            self.atomic.append(whole)
        if are_all:
            whole.remove(NEVER_THERE)
            self._building = []
        for index, request, messages, sequence, end in parts:
            lane = self.lanes[index]
            queues, datas = [queue for queue, _ in messages], [data for _, data in messages]
            sends = [self._history(queue).begin(*queue, data) for queue, data in zip(queues, datas, strict=True)]
            for queue, data, offset in zip(queues, datas, request.offsets.tolist(), strict=True):
                self.lane_of[queue] = index
                assert offset == len(self.rows[queue]), "all before it was noted"
                self.rows[queue].append(data)
                self.placed[queue].append(Placed(lane.length, sequence, end, time_ms))
                lane.length += 1
                whole.append((queue, offset))
            lane.built.append(Handed(request, queues, datas, sends))

    def note_answers(self, index: int) -> None:
        """Look which requests were answered."""
        lane = self.lanes[index]
        while lane.built and lane.built[0].request.done():
            head = lane.built.popleft()
            failed = head.request._error is not None
            for queue, send, offset in zip(head.queues, head.sends, _offsets(head.request), strict=True):
                if failed:
                    self.history.unknown(send)
                else:
                    self._history(queue).acknowledged(send, offset)
                    self._answer(queue, offset)
            if not head.datas and not failed:
                for queue, lane_index in self.lane_of.items():
                    if lane_index == index:
                        self.forced[queue] = self.answered[queue]

    def in_part(self, ends: Mapping[Queue, int]) -> list[tuple[Queue, int]]:
        """The messages of a transaction of which some lie below these ends of queues, and some do not; empty: none."""
        for rows in self.atomic:
            if len({offset < ends.get(queue, 0) for queue, offset in rows}) > 1:
                return rows
        return []

    def has_transaction_under_way(self) -> bool:
        """Was a transaction built, so that some of it may be on the disk, and not answered?"""
        return any(
            isinstance(head.request, AtomicGroup) and not head.request.done()
            for lane in self.lanes
            for head in lane.built
        )

    def unanswered(self) -> int:
        """How many of the requests that were handed over wait for their answers."""
        return sum(not head.request.done() for lane in self.lanes for head in (*lane.handed, *lane.built))

    def note_read(self, queue: Queue, offset: int) -> None:
        """A consumer was given a message: it may not vanish any more."""
        if not self.lazy:
            self._answer(queue, offset)

    def note_seen(self, queue: Queue, offset: int) -> None:
        """A reader in another process was given a message: it may not vanish any more, whatever the durability."""
        self.answered[queue] = max(self.answered[queue], offset + 1)
        self.forced[queue] = max(self.forced[queue], offset + 1)

    def _answer(self, queue: Queue, offset: int) -> None:
        self.answered[queue] = max(self.answered[queue], offset + 1)
        if not self.lazy:
            self.forced[queue] = self.answered[queue]

    def opened(self) -> None:
        """The store was opened with all that was recovered: none of it may vanish any more."""
        self.cut.clear()
        self.atomic.clear()
        for queue, rows in self.rows.items():
            self.answered[queue] = self.forced[queue] = len(rows)

    def crashed(self, bounds: Bounds) -> None:
        """The store was recovered with these (first, next) offsets. That is the truth from now on, though no more of
        it is promised before the store was opened.
        """
        self.life += 1
        self.atomic.clear()
        self._building = []
        for lane in self.lanes:
            for head in (*lane.handed, *lane.built):
                for send in head.sends:
                    self.history.unknown(send)
            lane.handed.clear()
            lane.built.clear()
        for queue, rows in self.rows.items():
            _, end = bounds.get(queue, (0, 0))
            self.cut[queue][:0] = rows[end:]
            del rows[end:]
            del self.placed[queue][end:]
            self.answered[queue] = min(self.answered[queue], end)
            self.forced[queue] = min(self.forced[queue], end)
        for index, lane in enumerate(self.lanes):
            lane.length = sum(len(self.rows[queue]) for queue in self.queues_of(index))


def _offsets(request: Request) -> list[int]:
    """The offsets that a request was given; none before it was built."""
    if isinstance(request, Group):
        return list(map(int, request.offsets))
    return [request.offset] if request.count and request.offset >= 0 else []
