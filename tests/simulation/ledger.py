"""What a run knows of its messages: what was built, in which order, and what was promised."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from store import StoreFull
from store.request import Group, Ticket
from store.testing import History
from store.testing.history import Send

Queue = tuple[str, int]


class Handed(NamedTuple):
    """A request as it was handed over; a barrier has no messages."""

    request: Ticket
    queues: list[Queue]
    datas: list[bytes]
    sends: list[Send]


@dataclass
class LaneLedger:
    """One lane: requests on their way, and the order in which its messages were built."""

    handed: deque[Handed] = field(default_factory=deque)
    built: deque[Handed] = field(default_factory=deque)
    length: int = 0


class Ledger:
    """What must be there after a crash at this moment, and what may be.

    Attributes:
        rows: each queue's messages from offset 0 on, as they were built; what is behind `promised` may vanish.
        places: for each message of `rows`, its place in its lane's order.
        answered: how many of them were acknowledged, or read by a consumer.
        forced: how many of them were promised to survive a power cut.
        first: the offset below which retention took them.
    """

    def __init__(self, lanes: int, *, lazy: bool) -> None:
        self.lazy = lazy  # answers do not wait for forces
        self.lanes = [LaneLedger() for _ in range(lanes)]
        self.rows: defaultdict[Queue, list[bytes]] = defaultdict(list)
        self.places: defaultdict[Queue, list[int]] = defaultdict(list)
        self.answered: defaultdict[Queue, int] = defaultdict(int)
        self.forced: defaultdict[Queue, int] = defaultdict(int)
        self.first: defaultdict[Queue, int] = defaultdict(int)
        self.lane_of: dict[Queue, int] = {}
        self.refused = 0
        self.life = 0
        self.history = History()

    def promised(self, *, power_cut: bool) -> dict[Queue, int]:
        """How many messages of each queue must be there."""
        return self.forced if power_cut and self.lazy else self.answered

    def hand(self, lane: int, request: Ticket, queues: list[Queue], datas: list[bytes]) -> None:
        """A request was handed over."""
        sends = [self.history.begin(*queue, data) for queue, data in zip(queues, datas, strict=True)]
        for queue in queues:
            self.lane_of[queue] = lane
        self.lanes[lane].handed.append(Handed(request, queues, datas, sends))

    def note_built(self, index: int) -> None:
        """Look which requests have got their offsets."""
        lane = self.lanes[index]
        while lane.handed:
            head = lane.handed[0]
            offsets = _offsets(head.request)
            if head.datas and not offsets:
                if not head.request.done():
                    return
                lane.handed.popleft()  # refused: no space for it
                self.refused += len(head.datas)
                told = self.history.refused if isinstance(head.request._error, StoreFull) else self.history.unknown
                for send in head.sends:
                    told(send)
                continue
            for queue, data, offset in zip(head.queues, head.datas, offsets, strict=True):
                rows = self.rows[queue]
                assert offset == len(rows), f"offset {offset} of {queue} was given where {len(rows)} follows"
                rows.append(data)
                self.places[queue].append(lane.length)
                lane.length += 1
            lane.built.append(lane.handed.popleft())

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
                    self.history.acknowledged(send, offset)
                    self.answered[queue] = max(self.answered[queue], offset + 1)
            if not head.datas and not failed:
                for queue, lane_index in self.lane_of.items():
                    if lane_index == index:
                        self.forced[queue] = self.answered[queue]

    def note_read(self, queue: Queue, offset: int) -> None:
        """A consumer was given a message: it may not vanish any more."""
        if not self.lazy:
            self.answered[queue] = max(self.answered[queue], offset + 1)

    def crashed(self, bounds: dict[Queue, tuple[int, int]]) -> None:
        """The store was recovered with these (first, next) offsets: that is the truth from now on."""
        self.life += 1
        for lane in self.lanes:
            for head in (*lane.handed, *lane.built):
                for send in head.sends:
                    self.history.unknown(send)
            lane.handed.clear()
            lane.built.clear()
        for queue, rows in self.rows.items():
            first, end = bounds.get(queue, (0, 0))
            del rows[end:]
            del self.places[queue][end:]
            self.answered[queue] = self.forced[queue] = end
            self.first[queue] = max(self.first[queue], first)
        for index, lane in enumerate(self.lanes):
            lane.length = sum(len(rows) for queue, rows in self.rows.items() if self.lane_of[queue] == index)


def _offsets(request: Ticket) -> list[int]:
    """The offsets that a request was given; none before it was built."""
    if isinstance(request, Group):
        return list(map(int, request.offsets))
    return [request.offset] if request.count and request.offset >= 0 else []
