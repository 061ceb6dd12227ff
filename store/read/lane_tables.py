"""Deciding when the table of a lane's places is made: once reads without it have cost as much as its making."""

from __future__ import annotations

from ..log.lane import Lane
from ..log.streams import Stream
from ..log.write import View
from ..segment.segment import Segment
from .lane_places import LanePlaces
from .making_places import least_bytes, make_places
from .named_rows import Layout
from .read_counters import ReadCounters

PART = 4  # of the memory for sealed segments, for the tables of all lanes: more would drive out too much else
LEAST_CALLS = 256
MESSAGES_A_CALL = 32  # a call without the table costs as much as so many messages of the making

Content = tuple[int, int, int]  # the newest sealed segment, the messages, and the segments whose places are held


class _Wait:
    """How long until a lane's table is made.

    Attributes:
        calls: that have gone without since the last one was made. Calls that the newest segment answers are not
            counted; each of their messages counts as a call (`sampled`), since the table is for calls of one message.
        due: calls from which on it is looked whether it is worth it.
        newest, visible: the newest segment at some time, and its messages then. Reads of later ones ask for no table:
            whoever keeps up with the log would ask for another one all the time.
        made_of: what the last one was made of, or would have been.
        is_refused: that one had no room, or nothing to have.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.due = LEAST_CALLS
        self.newest = self.visible = 0
        self.made_of: Content | None = None
        self.is_refused = False


class LaneTables:
    """Makes the tables of a store's lanes. Any number of threads may use it.

    Calls are counted without a lock: one too few does no harm.
    """

    def __init__(self, counters: ReadCounters) -> None:
        self._counters = counters
        self._waits: dict[int, _Wait] = {}
        self._makes = False

    def missed(self, stream: Stream, offset: int) -> None:
        """A call has gone the way without the table."""
        lane = stream.lane
        table: LanePlaces | None = lane.index_memory.places.get(lane.index)
        if table is not None and table.has(stream.number, offset):
            return  # another table would not help
        wait = self._wait(lane)
        wait.calls += 1
        if wait.calls >= wait.due:
            self._make(lane, wait)

    def sampled(self, lane: Lane, newest: Segment, visible: int, entry: int, messages: int) -> None:
        """So many messages of the newest segment were read without it, one of them this entry of `visible`."""
        wait = self._wait(lane)
        if wait.newest != newest.sequence:
            wait.newest, wait.visible = newest.sequence, visible
        elif entry < wait.visible:
            wait.calls += messages
            if wait.calls >= wait.due:
                self._make(lane, wait)

    def _wait(self, lane: Lane) -> _Wait:
        return self._waits.get(lane.index) or self._waits.setdefault(lane.index, _Wait())

    def _make(self, lane: Lane, wait: _Wait) -> None:
        """Make the table if that is worth it by now. A thread that finds another one at it goes on without."""
        if self._makes or not lane.ring.is_own:
            return
        # No lock: an interrupt after its taking would leave it taken. Two tables at a time do no harm.
        self._makes = True
        try:
            view = lane.view
            content = _content(view)
            wait.due = max(LEAST_CALLS, content[1] // MESSAGES_A_CALL)
            if wait.calls < wait.due:
                return
            wait.calls = 0
            if view.open:
                wait.newest, wait.visible = view.open[-1].segment.sequence, view.open[-1].table.visible
            if content == wait.made_of and (wait.is_refused or lane.index in lane.index_memory.places):
                return
            wait.made_of, wait.is_refused = content, False
            most_bytes = lane.index_memory.frames.limit_bytes // PART // (lane.config.lanes or 1)
            if least_bytes(lane, view) > most_bytes:
                wait.is_refused = True
                return
            known: LanePlaces | None = lane.index_memory.places.get(lane.index)
            layout = None if known is None else known.layout
            if lane.config.lanes == 1 and (layout is None or layout.streams != len(lane.streams)):
                layout = Layout.of(lane.streams)
            try:
                made = make_places(lane, view, self._counters, most_bytes, layout)
            except MemoryError:  # the call that came by has its answer, or finds it without the table
                return
            wait.is_refused = made is None
            if made is not None:
                lane.index_memory.keep_places(lane.index, made)
                if lane.view is not view:  # a segment may have been removed: the table would keep its file
                    lane.index_memory.drop_places(lane.index)
        finally:
            self._makes = False


def _content(view: View) -> Content:
    messages = view.sealed_messages + sum([one.table.visible for one in view.open])
    newest = view.sealed[-1].segment.sequence if view.sealed else 0
    return newest, messages, sum([one.kept is not None for one in view.sealed])
