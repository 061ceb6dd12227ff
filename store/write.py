"""What a lane hands around: segments as readers see them, writes on their way to the device, their outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from .batch import requests_within
from .request import Ticket, cost_bytes
from .segment import Segment
from .table import OpenTable

if TYPE_CHECKING:
    from .sealed import SealedSegment


class OpenSegment(NamedTuple):
    """A segment whose index is in memory."""

    segment: Segment
    table: OpenTable


class View(NamedTuple):
    """What readers see of a lane, replaced as a whole. Both oldest first."""

    sealed: tuple[SealedSegment, ...]
    open: tuple[OpenSegment, ...]


class FullSegment(NamedTuple):
    """A segment that will take no more frames, with what its footer and seal record need."""

    segment: Segment
    table: OpenTable
    data_end: int
    chain: int


class Counters:
    """What a lane did; plain numbers, read without a lock."""

    def __init__(self) -> None:
        self.written_bytes = 0
        self.forces = 0
        self.writes = 0
        self.frames = 0
        self.messages = 0
        self.payload_bytes = 0
        self.padding_bytes = 0
        self.held_requests = 0


class Write:
    """One write of whole blocks, and one force. `low` and `high` are lane positions.

    `earlier`: the force must also cover earlier writes of the segment, which were not forced themselves.
    """

    def __init__(
        self, segment: Segment, parts: list[memoryview], low: int, high: int, *, force: bool, earlier: bool
    ) -> None:
        self.segment = segment
        self.low = low
        self.high = high
        self.force = force
        self.earlier = earlier
        self.done = False
        self.full: FullSegment | None = None
        self._parts = parts

    def perform(self) -> None:
        """Write and force. Raises OSError; then nothing may be taken for durable any more."""
        assert self.segment.base is not None
        log = self.segment.log
        if self.high > self.low:
            log.write(self._parts, self.low - self.segment.base, force=self.force and not self.earlier)
        if self.force and (self.earlier or self.high == self.low):
            log.force()
        self._parts = []


class Done(NamedTuple):
    """What a completed write answered."""

    messages: int
    cost_bytes: int


class Pending(NamedTuple):
    """A frame that is not wholly durable. Positions are lane positions; `ends` one a message."""

    requests: Sequence[Ticket]
    ends: npt.NDArray[np.int64]
    end: int
    first_entry: int
    table: OpenTable
    cost_bytes: int

    def split(self, whole: int) -> tuple[Sequence[Ticket], Done, Pending]:
        """The requests within the first `whole` messages, what they come to, and the frame without them."""
        requests = self.requests[: requests_within(self.requests, whole)]
        done = Done(sum(request.count for request in requests), sum(map(cost_bytes, requests)))
        rest = Pending(
            self.requests[len(requests) :],
            self.ends[done.messages :],
            self.end,
            self.first_entry + done.messages,
            self.table,
            self.cost_bytes - done.cost_bytes,
        )
        return requests, done, rest
