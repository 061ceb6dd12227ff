"""Acknowledgements of one subscription that a transaction makes durable together with messages, in one frame."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..errors import StoreError, SubscriptionClosed
from ..format.cursors import pack_ones
from ..log.atomic_group import AtomicGroup
from ..log.streams import Stream
from .group_commit import Settle
from .in_flight import AckRow
from .settings import stale
from .state import State


class JointAcks:
    """Messages of one subscription that one transaction acknowledges. They go the way of `submit_ack`.

    Attributes:
        receipts: of the messages.
        rows: the messages that are ACKED; those that were removed are left out, as acknowledged.
        request: has their record; None until there is one. Its answer settles the rows.
    """

    def __init__(
        self, state: State, receipts: Collection[int], settle: Settle, finish: Callable[[], None]
    ) -> None:  # fmt: skip
        """Use `Acknowledging.joint`. `finish` finishes earlier calls that an interrupt has ended."""
        self.receipts = receipts
        self.rows: list[AckRow] = []
        self.request: AtomicGroup | None = None
        self._state, self._settle, self._finish = state, settle, finish

    @property
    def stream(self) -> Stream:
        """The hidden stream of the subscription's records."""
        stream = self._state.journal.stream
        assert stream is not None, "it has given messages out, so it is durable"
        return stream

    def check(self) -> None:
        """Raises StaleReceipt, SubscriptionClosed if the messages cannot be acknowledged."""
        self._finish()
        with self._state.lock:
            self._found()

    def mark(self) -> None:
        """Make the messages ACKED: nobody gets them again, and nobody else can acknowledge them.

        Raises StaleReceipt, SubscriptionClosed: then none is ACKED.
        """
        state = self._state
        self._finish()
        with state.lock:
            rows = self._found()
            start, life = state.journal.next_offset, state.cursor.life
            for receipt, row in rows:
                queue_id, offset, _ = state.table.place_of(row)
                self.rows += [AckRow(life, state.cursor.queue(queue_id).era, receipt, queue_id, offset)]
                state.table.acknowledge_one(row, start)

    def _found(self) -> list[tuple[int, int]]:
        """The receipt and the row of each message that was not removed. Under the lock."""
        state, rows, missing = self._state, list[tuple[int, int]](), list[int]()
        if state.cursor.settings is None:
            raise SubscriptionClosed(f"the subscription {state.name!r} of {state.topic!r} was deleted; subscribe again")
        state.take_in()
        for receipt in self.receipts:
            row = state.table.row_of(receipt)
            if row >= 0:
                rows.append((receipt, row))
            elif receipt not in state.table.removed:
                missing.append(receipt)
        if missing:
            raise stale(state.name, missing)
        return rows

    def record(self) -> bytes:
        """The record of the messages, which are at least one."""
        record = pack_ones(self.rows[0].life, [(row.queue_id, row.era, row.offset) for row in self.rows])
        self._state.journal.count([record])
        return record

    def settle(self, error: StoreError | None) -> None:
        """The messages have their outcome: see `Acknowledging.settle`. It may be called again."""
        if self.rows:
            self._settle(self.rows, error)

    def finish(self, error: StoreError) -> None:
        """Settle the messages with an error, unless the request is on its way: then its answer does it."""
        if self.request is None or not self.request.is_accepted:
            self.settle(error)

    def compact_in_time(self) -> None:
        """Compact the subscription's records if they have grown."""
        self._state.compact_in_time()

    @property
    def wants_compaction(self) -> bool:
        """Whether `compact_in_time` has something to do."""
        return self._state.journal.wants_compaction
