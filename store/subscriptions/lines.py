"""Gives messages out in order, by the lines of `ordering`: those to redeliver, those whose turn has come, new ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, repeat

import numpy as np
import numpy.typing as npt

from ..format.arrays import Int64s
from ..format.blobs import ExtraColumns
from ..read.message import MessageBatch
from .delivery import Fetches, Room, in_turn, joined, queue_ids_of, taken
from .in_flight import NOTHING, Places, RowState
from .ordering import NOT_GIVEN, Line, Order
from .state import State


class Lines:
    """The part of a dispatcher that keeps an order. One thread at a time."""

    def __init__(self, state: State, fetch: Callable[[Room, Places], Fetches]) -> None:
        """`fetch` fetches messages as far as they fit."""
        self.state = state
        self._fetch = fetch

    def begin(self) -> None:
        """A call of a consumer begins."""
        if self.state.order is not None:
            with self.state.lock:
                self.state.order.begin()

    # -- messages to redeliver ------------------------------------------------------------------------

    def next_redelivered(self, receipts: Int64s, enough: int, queue_id: int | None = None) -> Int64s:
        """The messages to redeliver now, in order, together with others of their lines whose turn has come. With a
        queue, `receipts` are all of that one, listed or not.

        It stops once it has `enough`. A message that has to wait is taken off the list: its line is blocked, and is
        looked at again when one of its messages is acknowledged or comes again. Under the state's lock.
        """
        order, table = self.state.order, self.state.table
        assert order is not None, "only ordered subscriptions have lines"
        places, stirred = table.places(table.find(receipts)), order.stirred
        others = [] if queue_id is None else [line for line in stirred if line.name[0] != queue_id]
        stirred = stirred if queue_id is None else [line for line in stirred if line.name[0] == queue_id]
        listed = zip(places.pairs(), receipts.tolist(), strict=True)
        lines = ((order.line_of(*at), receipt) for at, receipt in listed)
        found, seen, count, looked = [NOTHING], set[Line](), 0, 0
        for line, receipt in chain(zip(stirred, repeat(NOT_GIVEN)), lines):
            if count >= enough:
                break
            looked += 1
            if line in seen:
                continue
            if line is None:
                found.append(np.array([receipt], np.int64))
            else:
                seen.add(line)
                found.append(self._of_line(line, enough - count))
            count += len(found[-1])
        order.stirred = others + stirred[looked:]
        turn, known = np.concatenate(found), receipts[: max(0, looked - len(stirred))]
        waits = ~np.isin(known, turn)
        if waits.any():
            self.state.unlist(known[waits])
        self.state.redeliver(turn if queue_id is not None else turn[~np.isin(turn, receipts)])
        return turn

    def before(self, found: Fetches, places: Places, bad: Int64s) -> Fetches:
        """The messages found at some places, without those after one of the places `bad` (n,) in their line."""
        if not len(bad):
            return found
        kept = np.flatnonzero(self.are_free(places, bad)[found.rows])
        return found._replace(batches=[taken(joined(found.batches), kept)], rows=found.rows[kept])

    def are_free(self, places: Places, stuck: Int64s) -> npt.NDArray[np.bool_]:
        """(n,) which places are in no line, or before all of the places `stuck` (m,) of their line."""
        order, first = self.state.order, dict[Line, int]()
        assert order is not None, "only ordered subscriptions have lines"
        with self.state.lock:
            lines = [order.line_of(*at) for at in places.pairs()]
        for at in sorted(stuck.tolist(), reverse=True):
            line = lines[at]
            if line is not None:
                first[line] = at
        return np.array([line is None or first.get(line, at) >= at for at, line in enumerate(lines)], np.bool_)

    def _of_line(self, line: Line, most: int) -> Int64s:
        """The receipts of a line's messages to redeliver now: none while a consumer has others of the line."""
        receipts, table = np.array(list(line.out.values()), np.int64), self.state.table
        rows = table.find(receipts)
        states = np.where(rows < 0, RowState.GONE, table.states(rows))
        back = (states == RowState.LATE) | (states == RowState.BACK)
        end = len(rows) if back.all() else int(back.argmin())  # all wait that are after one that comes later
        if (states == RowState.OUT).any():
            end = 0
        end = min(end, most)  # the others wait for these
        line.is_blocked = end < len(rows)
        return receipts[:end]

    def not_after_gaps(self, batch: MessageBatch, still: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """(n,) which of the first messages go out: none after one of its line whose acknowledgement is on its way. If
        that acknowledgement fails, its message comes before them. Under the state's lock.
        """
        order = self.state.order
        assert order is not None, "only ordered subscriptions have lines"
        queues, offsets = queue_ids_of(batch)[: len(still)].tolist(), batch.offsets[: len(still)].tolist()
        gaps, found = set[Line](), still.copy()
        for at, place in enumerate(zip(queues, offsets, strict=True)):
            line = order.line_of(*place)
            if line is None:  # in no line, or acknowledged for good
                continue
            if not still[at]:
                gaps.add(line)
            found[at] &= line not in gaps
        return found

    # -- whose turn has come --------------------------------------------------------------------------

    def take_freed(self, room: Room, found: list[MessageBatch], queue_id: int | None = None) -> None:
        """Add messages whose turn has come: the ones before them are acknowledged."""
        order = self.state.order
        while order is not None and order.freed and room.is_open:
            with self.state.lock:
                freed = order.next_freed(room.messages, queue_id)
                if not freed:
                    order.went(freed)
                    break
            batches = self._fetch_freed(order, freed, room)
            found += batches
            if batches:
                break  # else all were gone, which frees the next

    def _fetch_freed(self, order: Order, freed: Sequence[tuple[Line, int]], room: Room) -> list[MessageBatch]:
        state = self.state
        places = Places(*np.array([(line.name[0], at, 0) for line, at in freed], np.int64).reshape(-1, 3).T)
        found = self._fetch(room, places)
        with state.lock:
            order.went(freed[: found.looked])
        state.drop(places.take(found.gone))
        return in_turn(found).batches

    # -- new ones -------------------------------------------------------------------------------------

    def limit_of(self, queue_id: int) -> int:
        """The number of new messages of a queue that may be read now."""
        order = self.state.order
        assert order is not None, "only ordered subscriptions ask"
        with self.state.lock:
            limit = order.limit_of(queue_id)
        return limit

    def reopened(self) -> list[int]:
        """The queues whose new messages may be read again since the last call."""
        order = self.state.order
        if order is None or not order.reopened:
            return []
        with self.state.lock:
            reopened, order.reopened = order.reopened, []
        return reopened

    def admitted(self, batches: Sequence[MessageBatch]) -> list[MessageBatch]:
        """The new messages that may go out now; the others wait for their turn."""
        found: list[MessageBatch] = []
        for batch in batches:
            rows = np.flatnonzero(self._are_admitted(batch))
            if len(rows):
                found.append(batch if len(rows) == len(batch) else taken(batch, rows))
        return found

    def _are_admitted(self, batch: MessageBatch) -> npt.NDArray[np.bool_]:
        order = self.state.order
        assert order is not None, "only ordered subscriptions ask"
        keys = None
        if order.by_key and batch.extras is not None:
            extras = ExtraColumns.of(batch.extras)
            keys = [extras.key(at) for at in range(len(batch))]
        mine = queue_ids_of(batch)
        found = np.zeros(len(batch), np.bool_)
        with self.state.lock:
            for queue_id in np.unique(mine).tolist():
                rows = np.flatnonzero(mine == queue_id)
                of_queue = None if keys is None else [keys[row] for row in rows.tolist()]
                found[rows] = order.admit(queue_id, batch.offsets[rows].tolist(), of_queue)
        return found
