"""The work that a lane has under way: frames that are not durable, writes with the device, and their ends.

Writes may come back from the device in any order; they are accounted for in log order, so what is answered is
always a prefix of the log. After one has failed nothing is answered any more: what comes behind it in the log
may lie behind a hole.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence

from ..errors import StorePoisoned
from .request import Request, answer_all
from .write import Counters, Done, FullSegment, Pending, Shown, Write


class UnderWay:
    """The frames and writes of a lane between their planning and their answer.

    Frames and writes are added by the lane's builder; any flusher completes.

    Invariants:
        * `durable` (a lane position) only grows, and every byte below it is on the device, or with durability
          "os" with the kernel;
        * `forced_mark` is behind the last message that is whole below `durable` and was forced: never padding,
          where the next frame, not written yet, might just as well have begun;
        * once `poison` is set, nothing is answered but with it.
    """

    def __init__(self, counters: Counters) -> None:
        self.durable = 0
        self.forced = 0  # the lane position up to which all was forced: with "os" it is behind `durable`
        self.forced_mark = (0, 0)  # (sequence, position in that segment)
        self.poison: StorePoisoned | None = None
        self.on_forced: Callable[[], object] | None = None  # `forced_mark` has moved; before anybody is answered
        self._whole = (0, 0)  # what the mark becomes with the next force
        self._counters = counters
        self._writes: deque[Write] = deque()
        self._pending: deque[Pending] = deque()
        self._completing = threading.Lock()

    @property
    def is_idle(self) -> bool:
        """True if no frame waits to become durable."""
        return not self._pending

    def resume(self, position: int, mark: tuple[int, int]) -> None:
        """All below `position` is durable, and what `mark` says."""
        self.durable = self.forced = position
        self.forced_mark = self._whole = mark

    def attached(self, mark: tuple[int, int]) -> None:
        """Durable segments came from elsewhere, up to this mark. Nothing is under way."""
        self.forced_mark = self._whole = mark

    def add_frame(self, frame: Pending) -> None:
        """A frame was built, or a barrier came."""
        self._pending.append(frame)

    def add_writes(self, writes: Sequence[Write]) -> None:
        """Writes were planned, in log order."""
        self._writes.extend(writes)

    def complete(self, write: Write) -> Done:
        """Account for a write that succeeded; answer what became durable by it, in log order."""
        answered: list[Request] = []
        shown: list[Shown] = []
        cost = writes = 0
        full: list[FullSegment] = []
        with self._completing:
            mark = self.forced_mark
            write.done = True
            # After another one failed there may be a hole in the log below this one.
            while self.poison is None and self._writes and self._writes[0].done:
                first = self._writes.popleft()
                assert first.low >= self.durable or first.low == first.high
                cost += self._advance(first, answered, shown)
                writes += 1
                if first.full is not None:
                    full.append(first.full)
            if self.on_forced is not None and self.forced_mark is not mark:
                self.on_forced()
        if answered:
            answer_all(answered)
        return Done(len(answered), cost, shown, writes, full)

    def _advance(self, write: Write, answered: list[Request], shown: list[Shown]) -> int:
        """Show what is durable now, and note it and its requests; what these cost."""
        cost = 0
        whole_end = -1
        self.durable = max(self.durable, write.high)
        while self._pending and self._pending[0].end <= self.durable:
            frame = self._pending.popleft()
            answered.extend(frame.requests)
            cost += frame.cost_bytes
            if frame.ends:
                whole_end = frame.end
                self._show(frame, len(frame.ends), shown)
        whole = bisect_right(self._pending[0].ends, self.durable) if self._pending else 0
        if whole:  # of a frame that is partly durable, the messages that are whole (R5)
            frame = self._pending[0]
            self._show(frame, whole, shown)
            whole_end = frame.ends[whole - 1]
            requests, answered_cost, self._pending[0] = frame.split(whole)
            answered.extend(requests)
            self._counters.held_requests += len(frame.requests) - len(requests)
            cost += answered_cost
        if whole_end >= 0:
            assert write.segment.base is not None
            self._whole = (write.segment.sequence, whole_end - write.segment.base)
        if write.force:
            self.forced_mark = self._whole
            self.forced = self.durable
        return cost

    def _show(self, frame: Pending, count: int, shown: list[Shown]) -> None:
        end = frame.first_entry + count
        frame.table.visible = end
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
        """Poison the lane; the requests to be told so: nobody knows what of them the device has.

        `building`: requests of a frame whose building failed, whether or not it got as far as the lane.
        """
        with self._completing:
            if self.poison is None:
                self.poison = StorePoisoned(
                    f"a write or force failed ({error}); what was not answered may or may not be durable. "
                    f"Close the store and open it again to recover what is."
                )
                self.poison.__cause__ = error
            failed = self._give_up()
            known = set(map(id, failed))
            return failed + [request for request in building if id(request) not in known]
