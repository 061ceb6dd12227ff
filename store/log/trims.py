"""Trimmed streams of a lane: the requests that carry the records, and what holds once they are durable."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..errors import StoreCorrupt, StoreError
from ..format.hidden import is_said_again
from ..format.records import (
    NOT_TRIMMED,
    NOTHING_TRIMMED,
    RECORD_BYTES,
    LentTrims,
    Record,
    StreamLow,
    Trimmed,
    TrimmedColumns,
)
from .request import Request, RowGroup
from .streams import NOT_DEFINED, Stream

if TYPE_CHECKING:
    from ..segment.sealed import SealedSegment
    from .lane import Lane

GROUP_BYTES = 32 << 10  # of records: a part of a lane's reserve, however many queues are trimmed at once

Change = tuple[Stream, StreamLow]
Guard = Callable[["Lane", "SealedSegment"], bool]  # may it go? What is needed of it was moved out of it before


class Trims:
    """The lows of a lane's streams, twice: as the log says them, and as readers see them.

    `Stream.low` and `Stream.hidden` are the readers'; they move when the record is durable. The log's move when the
    frame with the record is built: a segment's footer has what its own frames and all before them say.

    Invariants:
        * a record in a segment is in that segment's footer, and in each later one up to a full one, which has all. What
          the full one before says already may be left out of small ones;
        * both only grow;
        * the readers' are never ahead of the log's.
    """

    def __init__(self, records: Stream, trimmed: Trimmed = NOTHING_TRIMMED, settled: Trimmed = NOTHING_TRIMMED) -> None:
        """`records` is the lane's stream of records, `trimmed` what recovery has found, `settled` what the newest full
        footer says of it."""
        self.records = records
        self.shown = len(trimmed)  # how often readers' lows have moved
        self._log = _LogTrims(trimmed, settled)  # the builder's alone
        self._readers = _Columns(trimmed)
        self._showing = threading.Lock()
        self._settled: deque[tuple[LentTrims, Sequence[int]]] = deque()
        self.on_shown: Callable[[Sequence[Change]], None] | None = None  # lows of readers have moved

    def note(self, requests: Sequence[Request]) -> int:
        """A frame of these requests was built. Returns how many records it has. Under the build lock."""
        count = 0
        for request in requests:
            if type(request) is TrimRequest:
                for stream, low in request.changes:
                    self._log.add(stream.number, low)
                count += request.count
        return count

    @property
    def count(self) -> int:
        """How many streams are trimmed, as the log says, at the most. Under the build lock."""
        return self._log.count

    def lend(self) -> LentTrims:
        """The lows as the log says them up to its newest frame. Under the build lock."""
        while self._settled:
            self._log.settle(*self._settled.popleft())
        return self._log.lend()

    def settle(self, lent: LentTrims, gone: Sequence[int]) -> None:
        """Note that a full footer has what was lent, so later ones need not. Streams that are `gone` are dropped."""
        self._settled.append((lent, gone))

    def show(self, changes: Sequence[Change]) -> None:
        """Let readers begin at these lows: the records of the changes are durable."""
        with self._showing:
            for stream, low in changes:
                stream.low = max(stream.low, low.low)
                stream.hidden = max(stream.hidden, low.hidden)
                self._readers.add(stream.number, low)
            self.shown += len(changes)
        if self.on_shown is not None:
            self.on_shown(changes)

    def column(self, streams: Sequence[Stream]) -> npt.NDArray[np.int64] | None:
        """(streams,) the first offset of each stream that is kept; no record of trims is. None: there is no record.

        Hidden streams count as others do: retention must not take what they hold.
        """
        if self.records.number == NOT_DEFINED:
            return None
        lows = self._readers.dense(len(streams))
        if self.records.number < len(lows):  # else none of them can be seen
            lows[self.records.number] = np.iinfo(np.int64).max
        return lows


class _LogTrims:
    """The lows as the log says them: those that a full footer has, in columns, and those that came since.

    So what a small footer costs goes by the records since the full one, not by all streams that were ever trimmed.
    """

    def __init__(self, trimmed: Trimmed, settled: Trimmed) -> None:
        self._before = TrimmedColumns.of({number: low for number, low in settled.items() if number in trimmed})
        self._turn = 1
        self._gone: list[int] = []  # what was lent before they went has them still
        fresh = {number: low for number, low in trimmed.items() if settled.get(number) != low}
        self._since = {number: (low, 0) for number, low in fresh.items()}  # and how many were lent before

    @property
    def count(self) -> int:
        """The number of lows, or a little more."""
        return len(self._before) + len(self._since)

    def add(self, number: int, low: StreamLow) -> None:
        """Note what a record says."""
        known = self._since[number][0] if number in self._since else self._before.get(number, NOT_TRIMMED)
        self._since[number] = known.joined(low), self._turn

    def lend(self) -> LentTrims:
        """The lows as of now, for a footer."""
        self._turn += 1
        since = TrimmedColumns.of({number: low for number, (low, _) in dict(self._since).items()})
        return LentTrims(self._before, since, self._turn - 1)

    def settle(self, lent: LentTrims, gone: Sequence[int]) -> None:
        """A full footer has what was lent, without the streams that are gone."""
        self._gone += gone
        self._before = lent.whole(self._gone)
        self._since = {number: (low, turn) for number, (low, turn) in dict(self._since).items() if turn > lent.turn}


class _Columns:
    """Lows by stream number; 0 means never trimmed, as no record has low 0.

    In columns, so that a footer or a scan takes them in a few operations, however many streams there are.
    """

    def __init__(self, trimmed: Trimmed) -> None:
        self._rows = np.zeros((max(trimmed, default=-1) + 1, 2), np.int64)  # low, hidden
        for number, low in trimmed.items():
            self._rows[number] = low

    def add(self, number: int, low: StreamLow) -> None:
        """Note what a record says. One thread at a time."""
        rows = self._rows
        if number >= len(rows):
            rows = np.zeros((2 * number + 1, 2), np.int64)
            rows[: len(self._rows)] = self._rows
        rows[number] = np.maximum(rows[number], low)
        self._rows = rows

    def dense(self, streams: int) -> npt.NDArray[np.int64]:
        """(streams,) a copy of the lows."""
        lows, rows = np.zeros(streams, np.int64), self._rows[:streams]
        lows[: len(rows)] = rows[:, 0]
        return lows


class TrimRequest(RowGroup):
    """Records on their way, of one lane. Readers see what they say before the caller has its answer."""

    __slots__ = ("_trims", "changes")

    def __init__(self, trims: Trims, changes: Sequence[Change]) -> None:
        datas = [Record.of(stream.number, low).pack() for stream, low in changes]
        sizes = [RECORD_BYTES] * len(datas)
        super().__init__([trims.records] * len(datas), datas, sizes, sum(sizes))
        self._trims = trims
        self.changes = changes

    def answer(self, error: StoreError | None = None) -> None:
        try:
            if error is None:
                self._trims.show(self.changes)
        finally:  # the record is durable, whatever becomes of the readers here
            super().answer(error)


def trim_requests(trims: Trims, changes: Sequence[Change], limit_bytes: int) -> list[TrimRequest]:
    """The records of some streams of a lane, in groups that fit into a frame."""
    step = max(1, min(limit_bytes, GROUP_BYTES) // RECORD_BYTES)
    return [TrimRequest(trims, changes[at : at + step]) for at in range(0, len(changes), step)]


def count_trims(requests: Sequence[Request]) -> int:
    """How many records of trims some requests have."""
    return sum([request.count for request in requests if type(request) is TrimRequest])


class TrimmedSegments:
    """Finds segments without a readable message. Each is checked again when something has changed."""

    def __init__(self) -> None:
        self._looked: dict[int, tuple[int, int]] = {}  # by lane: (sequence, `shown`) of the newest look

    def can_go(self, lane: Lane, segments: Sequence[SealedSegment], at: int) -> bool:
        """Is all trimmed that a lane's segment holds? `at` is its number; those before it are about to go."""
        sealed = segments[at]
        trims = lane.trims
        look = sealed.segment.sequence, trims.shown
        if not trims.shown or self._looked.get(lane.index) == look:
            return False
        try:
            footer = sealed.footer
        except StoreCorrupt:
            footer = None
        lows = trims.column(lane.streams)
        if footer is not None and lows is not None:
            there = footer.counts > 0
            numbers = footer.numbers[there]
            held = numbers[footer.next_offsets[there] > lows[numbers]]
            # These records can be written again at the log's end, and upkeep's guards do so.
            if {*held.tolist()} <= {stream.number for stream in lane.hidden if is_said_again(stream.topic)}:
                return True
        self._looked[lane.index] = look
        return False
