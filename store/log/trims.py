"""Trims of a lane's streams: the requests that carry the records, and what the log says of them for its footers."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ..errors import StoreError
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
from .streams import Change, Lows

GROUP_BYTES = 32 << 10  # of records: a part of a lane's reserve, however many queues are trimmed at once


class Trims:
    """The lows of a lane's streams as its log says them: those that a full footer has, in columns, and those since.

    They move when the frame with the record is built: a segment's footer has what its own frames and all before them
    say. `streams.Lows` are the readers'; they move when the record is durable.

    So what a small footer costs goes by the records since the full one, not by all streams that were ever trimmed.

    Invariants:
        * a record in a segment is in that segment's footer, and in each later one up to a full one, which has all. What
          the full one before says already may be left out of small ones;
        * they only grow.
    """

    def __init__(self, trimmed: Trimmed = NOTHING_TRIMMED, settled: Trimmed = NOTHING_TRIMMED) -> None:
        """`trimmed` is what recovery has found, `settled` what the newest full footer says of it."""
        self._before = TrimmedColumns.of({number: low for number, low in settled.items() if number in trimmed})
        self._turn = 1
        self._gone: list[int] = []  # what was lent before they went has them still
        fresh = {number: low for number, low in trimmed.items() if settled.get(number) != low}
        self._since = {number: (low, 0) for number, low in fresh.items()}  # and how many were lent before
        self._settled: deque[tuple[LentTrims, Sequence[int]]] = deque()  # by the thread that seals

    def note(self, requests: Sequence[Request]) -> int:
        """A frame of these requests was built. Returns how many records it has. Under the build lock."""
        count = 0
        for request in requests:
            if type(request) is TrimRequest:
                for stream, low in request.changes:
                    self._add(stream.number, low)
                count += request.count
        return count

    def _add(self, number: int, low: StreamLow) -> None:
        known = self._since[number][0] if number in self._since else self._before.get(number, NOT_TRIMMED)
        self._since[number] = known.joined(low), self._turn

    @property
    def count(self) -> int:
        """How many streams are trimmed, at the most. Under the build lock."""
        return len(self._before) + len(self._since)

    def lend(self) -> LentTrims:
        """The lows up to the newest frame, for a footer. Under the build lock."""
        while self._settled:
            self._take_in(*self._settled.popleft())
        self._turn += 1
        since = TrimmedColumns.of({number: low for number, (low, _) in dict(self._since).items()})
        return LentTrims(self._before, since, self._turn - 1)

    def settle(self, lent: LentTrims, gone: Sequence[int]) -> None:
        """Note that a full footer has what was lent, so later ones need not. Streams that are `gone` are dropped."""
        self._settled.append((lent, gone))

    def _take_in(self, lent: LentTrims, gone: Sequence[int]) -> None:
        self._gone += gone
        self._before = lent.whole(self._gone)
        self._since = {number: (low, turn) for number, (low, turn) in dict(self._since).items() if turn > lent.turn}


class TrimRequest(RowGroup):
    """Records on their way, of one lane. Readers see what they say before the caller has its answer, or once it calls
    `show`.
    """

    __slots__ = ("_lows", "_shows", "changes")

    def __init__(self, lows: Lows, changes: Sequence[Change], *, shows: bool = True) -> None:
        datas = [Record.of(stream.number, low).pack() for stream, low in changes]
        sizes = [RECORD_BYTES] * len(datas)
        super().__init__([lows.records] * len(datas), datas, sizes, sum(sizes))
        self._lows = lows
        self._shows = shows
        self.changes = changes

    def answer(self, error: StoreError | None = None) -> None:
        try:
            if error is None and self._shows:
                self.show()
        finally:  # the record is durable, whatever becomes of the readers here
            super().answer(error)

    def show(self) -> None:
        """Let readers see what the records say. The request was answered, or is being answered."""
        self._lows.show(self.changes)


def trim_requests(
    lows: Lows, changes: Sequence[Change], limit_bytes: int, *, shows: bool = True
) -> list[TrimRequest]:  # fmt: skip
    """The records of some streams of a lane, in groups that fit into a frame. `shows`: see `TrimRequest`."""
    step = max(1, min(limit_bytes, GROUP_BYTES) // RECORD_BYTES)
    return [TrimRequest(lows, changes[at : at + step], shows=shows) for at in range(0, len(changes), step)]


def count_trims(requests: Sequence[Request]) -> int:
    """How many records of trims some requests have."""
    return sum([request.count for request in requests if type(request) is TrimRequest])
