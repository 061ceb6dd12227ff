"""Full segments get their footers, in the order of the log, and not too many wait for them."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from contextlib import suppress
from typing import NamedTuple

from ..device.clock import Clock
from ..device.disk import Disk
from ..errors import StoreFull
from ..segment.sealing import FullSegment, NewestFooters, StreamNames, let_go, rows_of, seal
from .written_lane import WrittenLane

MOST_WAITING = 8  # full segments of a lane without a footer: their tables are in memory
REST_S, MOST_REST_S = 0.5, 60.0  # after a sealing that failed
PRESSED_S = 1.0  # and while somebody waits for it


class SealFailure(NamedTuple):
    """The newest failure of a lane's sealing, and how long the lane rests after it."""

    error: Exception
    at_s: float
    rest_s: float
    times: int  # in a row


class Sealer:
    """Seals the full segments of all lanes. Any thread may ask it to.

    Invariants:
        * the segments of a lane are sealed in the order of its log, whatever became of earlier attempts: a footer
          begins with the offsets that the one before ends with;
        * a lane begins no segment while `MOST_WAITING` of it wait for their footers. Its builder seals them first, so
          appends wait in its queue, as they wait for a device that is slow; where that fails, they get StoreFull;
        * a lane whose sealing fails rests before the next attempt, twice as long each time.

    Attributes:
        names: the names of each lane's streams as footers have them.
    """

    def __init__(self, disk: Disk, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self._failures: dict[int, SealFailure] = {}  # by lane
        self._pressed_s: dict[int, float] = {}  # when a lane's builder last tried
        self._full: deque[tuple[WrittenLane, FullSegment]] = deque()
        self._sealing = threading.Lock()
        self.names: defaultdict[int, StreamNames] = defaultdict(StreamNames)

    def add(self, lane: WrittenLane, full: FullSegment) -> None:
        """Note that a segment can be sealed: all of its frames are forced."""
        self._full.append((lane, full))

    def waiting(self, lane: WrittenLane) -> int:
        """How many full segments of a lane wait for their footers."""
        return sum(one is lane for one, _ in list(self._full))

    def failures(self) -> int:
        """The most failures in a row of any lane's sealing, up to now."""
        return max((failure.times for failure in list(self._failures.values())), default=0)

    def why(self, lane: WrittenLane) -> str:
        """Why the newest sealing of a lane has failed; nothing if it has not."""
        failure = self._failures.get(lane.index)
        return "" if failure is None else str(failure.error) or type(failure.error).__name__

    def make_way(self, lane: WrittenLane, most: int = MOST_WAITING) -> None:
        """Have fewer than `most` segments of a lane wait. Raises StoreFull."""
        if self.waiting(lane) < most:
            return
        now_s = self._clock.monotonic_s()
        # Failures of the background do not count here. After a failure here, the next appends do not all try again.
        is_resting = now_s - self._pressed_s.get(lane.index, -PRESSED_S) < PRESSED_S and lane.index in self._failures
        if not is_resting:
            self._pressed_s[lane.index] = now_s
            with suppress(Exception):  # it may be another lane's
                self.seal_full(rest_s=0)
        waiting = self.waiting(lane)
        if waiting >= most:
            raise StoreFull(
                f"{waiting} full segments of lane {lane.index} wait for their footers, which cannot be written "
                f"({self.why(lane)}). Nothing was written; free some space, or remove the cause, and append again."
            )

    def seal_full(self, rest_s: float = MOST_REST_S) -> None:
        """Seal what is full, of each lane in order. Raises the first error, when all lanes had their turn.

        A lane whose sealing failed is left out while it rests, for `rest_s` at the most.
        """
        with self._sealing:  # also by a thread that waits for it, see `stopping`
            failed: dict[int, Exception] = {}
            resting = {index for index in list(self._failures) if self._rests(index, rest_s)}
            while True:
                left_out = resting | failed.keys()
                due = next((entry for entry in list(self._full) if entry[0].index not in left_out), None)
                if due is None:
                    break
                lane, full = due
                try:
                    if any(opened.segment is full.segment for opened in lane.view.open):
                        self.seal_now(lane, full)  # else it is done: an interrupt came after that
                except Exception as error:
                    failed[lane.index] = error
                    self._note_failure(lane.index, error)
                    continue
                self._failures.pop(lane.index, None)
                self._full.remove(due)
                rows = rows_of(full.table)
                del due, full
                let_go(rows)
            for first in failed.values():
                raise first

    def _rests(self, lane: int, most_s: float) -> bool:
        failure = self._failures[lane]
        return self._clock.monotonic_s() - failure.at_s < min(failure.rest_s, most_s)

    def _note_failure(self, lane: int, error: Exception) -> None:
        before = self._failures.get(lane)
        rest_s, times = (REST_S, 1) if before is None else (min(2 * before.rest_s, MOST_REST_S), before.times + 1)
        self._failures[lane] = SealFailure(error, self._clock.monotonic_s(), rest_s, times)

    def seal_now(self, lane: WrittenLane, full: FullSegment) -> None:
        """Write a segment's footer and let readers use it. Raises OSError; the segment then stays open."""
        if not lane.view.open or lane.view.open[0].segment is not full.segment:  # before its footer is written
            raise RuntimeError(f"{full.segment.path} is sealed before an older segment of its lane")
        if not full.segment.writer.direct:
            full.segment.writer.drop_pages(0, full.data_end)
        gone = list(lane.gone)
        sealed = seal(self._disk, full, lane.streams, self.names[lane.index], newest_footers(lane))
        if sealed.record.full:
            lane.settle(full.trimmed, gone)
        lane.replace_open(sealed)


def newest_footers(lane: WrittenLane) -> NewestFooters | None:
    """The contents of a lane's newest footers, for the next one; None if it has none, or not the full one."""
    sealed, groups = lane.view.sealed, lane.groups
    fulls, present = groups.known_at(sealed)
    if not sealed or not fulls or fulls[-1] < sealed[0].segment.sequence:
        return None
    records = lane.lows.records.number
    named = (records,) if records >= 0 else ()
    return NewestFooters(fulls[-1], present, sealed[-1].record.streams, named, is_due=groups.wants_full)
