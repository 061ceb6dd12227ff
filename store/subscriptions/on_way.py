"""What is on its way to the log: acknowledgements, one or many, and what was left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from ..errors import StoreError
from ..format.cursors import pack_one
from ..log.streams import Stream
from ..log.ticket import SubmitRequest
from .cursor import Cursor
from .in_flight import Places

Int64s = npt.NDArray[np.int64]


class LeftOut(NamedTuple):
    """Messages of a queue that were left out in one of its eras."""

    era: int
    offsets: BitMap64


class AckedOne(NamedTuple):
    """A message that is being acknowledged.

    Attributes:
        start: its record has this offset or a later one.
        first: its receipt, as `AckedMany` has it.
    """

    life: int
    era: int
    start: int
    receipt: int
    queue_id: int
    offset: int
    attempt: int

    @property
    def first(self) -> int:
        return self.receipt

    def as_many(self) -> AckedMany:
        """This acknowledgement in columns."""
        places = Places(*np.array([[self.queue_id], [self.offset], [self.attempt]]))
        groups = [(self.queue_id, self.era, places.offsets)]
        return AckedMany(self.life, self.start, self.receipt, groups, np.array([self.receipt]), places)


class AckedMany(NamedTuple):
    """Messages that are being acknowledged.

    Attributes:
        first: the first receipt.
        groups: the queue id, era and offsets of each queue.
    """

    life: int
    start: int
    first: int
    groups: Sequence[tuple[int, int, Int64s]]
    receipts: Int64s
    places: Places

    def as_many(self) -> AckedMany:
        """Itself."""
        return self

    def still_of(self, cursor: Cursor) -> list[tuple[int, Int64s]]:
        """The offsets of each queue that no seek has met since they were acknowledged. Under the state's lock."""
        if cursor.life != self.life:
            return []
        return [(queue_id, offsets) for queue_id, era, offsets in self.groups if cursor.queue(queue_id).era == era]


Settle: TypeAlias = Callable[[Sequence[AckedOne], StoreError | None], None]


class AckRequest(SubmitRequest):
    """The record of one acknowledgement. The state hears of its outcome before its caller does."""

    __slots__ = ("_one", "_settle")

    def __init__(self, settle: Settle, one: AckedOne, stream: Stream | None) -> None:
        assert stream is not None, "its subscription is durable"
        record = pack_one(one.life, one.queue_id, one.era, one.offset)
        super().__init__(stream, record, len(record))
        self._settle = settle
        self._one = one

    def answer(self, error: StoreError | None = None) -> None:
        self._settle([self._one], error)
        super().answer(error)


def together(ones: Sequence[AckedOne]) -> list[AckedMany]:
    """Messages in columns, those of a queue and one of its eras together; their receipts ascend."""
    groups: dict[tuple[int, int, int], list[AckedOne]] = {}
    for one in sorted(ones, key=lambda one: one.receipt):
        groups.setdefault((one.life, one.queue_id, one.era), []).append(one)
    found = []
    for (life, queue_id, era), group in groups.items():
        start = min(one.start for one in group)
        columns = np.array([(one.receipt, one.queue_id, one.offset, one.attempt) for one in group], np.int64).T
        offsets = [(queue_id, era, np.sort(columns[2]))]
        found.append(AckedMany(life, start, int(columns[0][0]), offsets, columns[0], Places(*columns[1:])))
    return found


def by_queue(places: Places) -> list[tuple[int, Int64s]]:
    """The offsets of each queue, ascending."""
    queues, offsets = places.queues, places.offsets
    if len(queues) and bool((queues == queues[0]).all()):
        return [(int(queues[0]), np.sort(offsets))]
    return [(int(queue_id), np.sort(offsets[queues == queue_id])) for queue_id in np.unique(queues).tolist()]
