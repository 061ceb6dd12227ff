"""The work that a lane has under way: frames that are not durable, writes with the device, and their ends.

Writes may come back from the device in any order; they are accounted for in log order, so what is answered is
always a prefix of the log. After one has failed nothing is answered any more: later frames may lie after a hole in
the log.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..device.background import report
from ..device.steps import for_each
from ..errors import StorePoisoned
from ..segment.open_table import OpenTable
from .batch import requests_within
from .frame_ids import FrameIds
from .request import Request, answer_all
from .sizer import cost_bytes
from .together import Change
from .write import Counters, VisibleEntries, Write, WriteOutcome
from .write_times import WriteTimes

if TYPE_CHECKING:
    from ..segment.sealing import FullSegment
    from ..segment.segment import Segment


NEVER = sys.maxsize


class PendingFrame(NamedTuple):
    """A frame that is not wholly durable. Positions are lane positions.

    Attributes:
        ends: where each message ends; none for a barrier, which has `end` alone.
        first_entry, table: of the frame's first message.
        payload: where the first payload begins; None if the requests are not one plain message each.
        ids: those of its messages, by topic. A frame with some is atomic.
    """

    requests: Sequence[Request]
    ends: Sequence[int]
    end: int
    first_entry: int
    table: OpenTable
    cost_bytes: int
    payload: int | None
    ids: Sequence[FrameIds] = ()

    def split(self, whole: int) -> tuple[Sequence[Request], int, PendingFrame]:
        """The requests within the first `whole` messages, what they cost, and the frame without them.

        A group stays whole: its first messages may be visible before it is answered.
        """
        if self.payload is not None:
            requests, messages, cost = self.requests[:whole], whole, self.ends[whole - 1] - self.payload
        else:
            requests = self.requests[: requests_within(self.requests, whole)]
            messages, cost = sum([request.count for request in requests]), sum(map(cost_bytes, requests))
        rest = PendingFrame(
            self.requests[len(requests) :],
            self.ends[messages:],
            self.end,
            self.first_entry + messages,
            self.table,
            self.cost_bytes - cost,
            None if self.payload is None else self.ends[whole - 1],
        )
        return requests, cost, rest


class WritesInFlight:
    """The frames and writes of a lane between their planning and their answer.

    Frames and writes are added by the lane's builder; any flusher completes.

    Invariants:
        * `durable` (a lane position) only grows, and every byte below it is on the device, or with durability
          "os" with the kernel;
        * `forced_mark` is the end of the last message that is whole below `durable` and was forced. Padding after it
          does not count: the next frame, not written yet, may begin there. It moves with a force that began after all
          writes below `durable` had ended, so it vouches for nothing that the device may not have;
        * a barrier is answered by a force, and never by the end of a write that was not forced;
        * a request that was taken out of `_pending` is answered, whatever is raised meanwhile;
        * frames that are held (see `hold`) are durable and neither shown, answered nor vouched for, until `release`;
        * once `poison` is set, nothing is answered but with it.
    """

    def __init__(self, counters: Counters) -> None:
        self.durable = 0
        self.forced = 0  # the lane position up to which all was forced: with "os" it may be less than `durable`
        self.forced_mark = (0, 0)  # (sequence, position in that segment)
        self.poison: StorePoisoned | None = None
        self.on_forced: Callable[[], object] | None = None  # `forced_mark` moved; before answers (`live.publisher`)
        self._whole = (0, 0)  # what the mark becomes with the next force
        self._held_from = NEVER  # a lane position: frames that end past it are held
        self._counters = counters
        self.times = WriteTimes()
        self._writes: deque[Write] = deque()
        self._pending: deque[PendingFrame] = deque()
        self._completing = threading.Lock()

    @property
    def is_idle(self) -> bool:
        """True if no frame waits to become durable."""
        return not self._pending

    @property
    def is_filling(self) -> bool:
        """Whether a write that is not accounted for has zeros where the next one begins; not once the lane has failed.

        Only the newest one can have them, as the next one waits for it.
        """
        return any([write.is_filling for write in list(self._writes)])

    def resume(self, position: int, mark: tuple[int, int]) -> None:
        """Go on after a log that is durable below the lane position `position`; `mark` becomes `forced_mark`."""
        self.durable = self.forced = position
        self.forced_mark = self._whole = mark

    def attached(self, mark: tuple[int, int]) -> None:
        """Durable segments were attached, up to this mark. Nothing may be under way."""
        self.forced_mark = self._whole = mark

    def add_frame(self, frame: PendingFrame) -> None:
        """A frame was built, or a barrier came."""
        self._pending.append(frame)

    def add_writes(self, writes: Sequence[Write]) -> None:
        """Writes were planned, in log order."""
        self._writes.extend(writes)

    def hold(self, position: int) -> None:
        """Frames that are built from this lane position on are shown by `release`. No frame is being built."""
        self._held_from = position

    @property
    def is_holding(self) -> bool:
        """True from `hold` to `release`."""
        return self._held_from != NEVER

    def hidden_changes(self) -> list[Change]:
        """The changes that show all held frames to readers of this process. No thread is in `complete` when it returns.

        All writes are accounted for. The thread that did so may still be telling other processes, and hold the lock
        that `release` needs: a commit that tells them then would wait for it, and it for the commit.
        """
        with self._completing:
            pending = list(self._pending)
        return [(one.table, "visible", one.first_entry + len(one.ends)) for one in pending if one.ends]

    def release(self, segment: Segment, mark: tuple[int, int]) -> WriteOutcome:
        """Show and answer what was held: all of it was forced, and ends in a segment at `mark`."""
        answered: list[Request] = []
        shown: list[VisibleEntries] = []
        try:
            with self._completing:
                self._held_from = NEVER
                cost = self._show_durable(segment, answered, shown)
                self.forced_mark = self._whole = mark  # also of a lane that was poisoned since
                self._tell_forced()
        finally:  # whatever has raised: nobody else knows these requests any more
            if answered:
                answer_all(answered)
        return WriteOutcome(len(answered), cost, shown, 0, [])

    def complete(self, write: Write) -> WriteOutcome:
        """Account for a write that succeeded; answer what became durable by it, in log order.

        Raises OSError if a force failed that waited for this write. What is answered then was durable without it.
        """
        answered: list[Request] = []
        shown: list[VisibleEntries] = []
        cost = writes = 0
        full: list[FullSegment] = []
        try:
            with self._completing:
                mark = self.forced_mark
                write.done = True
                # After another one failed there may be a hole in the log below this one.
                while self.poison is None and self._writes and self._writes[0].done:
                    first = self._writes[0]
                    assert first.begin >= self.durable or first.begin == first.end
                    self._settle(first)
                    self.times.add(first.took_ns)
                    self._writes.popleft()
                    cost += self._advance(first, answered, shown)
                    writes += 1
                    if first.full is not None:
                        full.append(first.full)
                if self.forced_mark is not mark:
                    self._tell_forced()
        finally:  # whatever has raised: nobody else knows these requests any more
            if answered:
                answer_all(answered)
        return WriteOutcome(len(answered), cost, shown, writes, full)

    def _settle(self, write: Write) -> None:
        """Settle a write; all writes before it have ended, and are accounted for. `_completing` is held."""
        try:
            write.settle()
        except BaseException as error:
            self._poison(error)  # here: another flusher, which waits for our lock, would force again
            raise

    def _poison(self, error: BaseException) -> None:
        if self.poison is None:
            self.poison = StorePoisoned(
                f"a write or force failed ({error}); what was not answered may or may not be durable. "
                f"Close the store and open it again to recover what is."
            )
            self.poison.__cause__ = error

    def _tell_forced(self) -> None:
        if self.on_forced is not None:
            try:
                self.on_forced()
            except Exception as error:  # what is durable is durable, even if others cannot be told
                report("readers in other processes could not be told of new messages", error)

    def _advance(self, write: Write, answered: list[Request], shown: list[VisibleEntries]) -> int:
        """Show what is durable now, and note it and its requests; what these cost."""
        self.durable = max(self.durable, write.end)
        if write.force:
            self.forced = self.durable
        cost = self._show_durable(write.segment, answered, shown)
        if write.force:
            self.forced_mark = self._whole
        return cost

    def _show_durable(self, segment: Segment, answered: list[Request], shown: list[VisibleEntries]) -> int:
        """The frames that are durable and not held; the last of them is in `segment`."""
        cost = 0
        whole_end = -1
        durable = min(self.durable, self._held_from)
        while self._pending:
            frame = self._pending[0]
            if frame.end > (durable if frame.ends else min(durable, self.forced)):  # a barrier waits for a force
                break
            answered.extend(frame.requests)  # first: without memory for it, it is still pending, and fails
            self._pending.popleft()
            cost += frame.cost_bytes
            if frame.ends:
                whole_end = frame.end
                self._show(frame, len(frame.ends), shown)
            if frame.ids:
                for_each(frame.ids, FrameIds.settle)  # whatever one raises, the others have their outcome
        whole = bisect_right(self._pending[0].ends, durable) if self._pending else 0
        if whole:  # of a frame that is partly durable, the messages that are whole (R5)
            frame = self._pending[0]
            self._show(frame, whole, shown)
            whole_end = frame.ends[whole - 1]
            requests, answered_cost, rest = frame.split(whole)
            answered.extend(requests)
            self._pending[0] = rest
            self._counters.held_requests += len(frame.requests) - len(requests)
            cost += answered_cost
        if whole_end >= 0:
            assert segment.base is not None
            self._whole = (segment.sequence, whole_end - segment.base)
        return cost

    def _show(self, frame: PendingFrame, count: int, shown: list[VisibleEntries]) -> None:
        end = frame.first_entry + count
        frame.table.visible = max(frame.table.visible, end)  # of frames that were held, all were shown together
        shown.append((frame.table, frame.first_entry, end))

    def after_fork(self) -> list[Request]:
        """In a child process: the requests that nobody will answer there."""
        return [request for frame in list(self._pending) for request in frame.requests]

    def _give_up(self) -> list[Request]:
        """Forget what is under way; the requests that now fail."""
        failed: list[Request] = []
        while self._pending:  # a builder may be adding one
            failed += self._pending.popleft().requests
        self._writes.clear()
        return failed

    def fail(self, error: BaseException, building: Sequence[Request] = ()) -> list[Request]:
        """Poison the lane; return the requests that fail by it: nobody knows which of them the device has.

        `building`: requests of a frame whose building failed, whether or not it got as far as the lane.
        """
        with self._completing:
            self._poison(error)
            failed = self._give_up()
            known = set(map(id, failed))
            return failed + [request for request in building if id(request) not in known]
