"""Acknowledgements of one subscription that a transaction makes durable together with messages."""

from __future__ import annotations

from collections.abc import Collection

from ...index.locks import let_pass
from ..errors import StoreError, SubscriptionClosed
from ..format.cursors import pack_one, pack_ones
from ..log.atomic_group import AtomicGroup
from ..log.streams import Stream
from .ack_row import AckRow
from .group_commit import Settle
from .journal import journal_bytes
from .settings import stale
from .state import TAKEN_TOGETHER, State

RECORD_ACKS = 16_384  # acknowledgements of a record, at the most: 384 KiB


class JointAcks:
    """Messages of one subscription that one transaction acknowledges. They go the way of `submit_ack`.

    Attributes:
        journal: the subscription's records.
        receipts: of the messages.
        rows: the messages that are ACKED; those that were removed are left out, as acknowledged.
        request: has their records; None until there is one. Its answer settles the rows.
    """

    __slots__ = ("_record_bytes", "_settle", "_state", "journal", "receipts", "request", "rows")

    def __init__(self, state: State, receipts: Collection[int], settle: Settle) -> None:
        """Use `Acknowledging.joint`."""
        self.receipts = receipts
        self.rows: list[AckRow] = []
        self.request: AtomicGroup | None = None
        self._record_bytes = 0
        self._state, self._settle = state, settle
        self.journal = state.journal

    @property
    def topic(self) -> str:
        """The topic of the messages."""
        return self._state.topic

    @property
    def stream(self) -> Stream:
        """The hidden stream of the subscription's records."""
        stream = self.journal.stream
        assert stream is not None, "it has given messages out, so it is durable"
        return stream

    def let_pass(self) -> None:
        """Let other threads pass that want the subscription's lock. Not for coroutines: see `ack_one_async`."""
        if self._state.lock.locked():
            let_pass(self._state.lock)

    def check(self) -> None:
        """Raises StaleReceipt, SubscriptionClosed if the messages cannot be acknowledged."""
        with self._state.lock:
            self._found()

    def mark(self) -> None:
        """Make the messages ACKED: nobody gets them again, and nobody else can acknowledge them.

        Raises StaleReceipt, SubscriptionClosed: then none is ACKED.
        """
        state, table, marked = self._state, self._state.table, self.rows
        with state.lock:
            rows = self._found()
            start, cursor = self.journal.next_offset, state.cursor
            for receipt, row in zip(self.receipts, rows, strict=True):
                if row >= 0:
                    queue_id, offset, _ = table.place_of(row)
                    marked.append(AckRow(cursor.life, cursor.queue(queue_id).era, receipt, queue_id, offset))
                    table.acknowledge_one(row, start)

    def _found(self) -> list[int]:
        """The row of each message, -1 if it was removed. Under the lock."""
        state = self._state
        if state.cursor.settings is None:
            raise SubscriptionClosed(f"the subscription {state.name!r} of {state.topic!r} was deleted; subscribe again")
        if len(state.stored) >= TAKEN_TOGETHER:
            state.take_in()
        rows = list(map(state.table.row_of, self.receipts))
        if -1 in rows:
            pairs, removed = zip(self.receipts, rows, strict=True), state.table.removed
            missing = [receipt for receipt, row in pairs if row < 0 and receipt not in removed]
            if missing:
                raise stale(state.name, missing)
        return rows

    def records(self) -> list[bytes]:
        """The records of the messages: mostly a single one; none if all messages were removed."""
        rows = self.rows
        if len(rows) == 1:
            life, era, _, queue_id, offset = rows[0]
            records = [pack_one(life, queue_id, era, offset)]
        else:
            records = [
                pack_ones(rows[0].life, [(row.queue_id, row.era, row.offset) for row in rows[at : at + RECORD_ACKS]])
                for at in range(0, len(rows), RECORD_ACKS)
            ]
        self._record_bytes = journal_bytes(records)
        return records

    def settle(self, error: StoreError | None) -> None:
        """The messages have their outcome: see `Acknowledging.settle`. It may be called again."""
        if not self.rows:
            return
        self._settle(self.rows, error)
        if error is None:
            # Here it is one thread, where all that commit would wait for a lock.
            self.journal.count_bytes(self._record_bytes)

    def finish(self, error: StoreError) -> None:
        """Settle the messages with an error, unless the request is on its way: then its answer does it."""
        if self.request is None or not self.request.is_accepted:
            self.settle(error)

    def compact_in_time(self) -> None:
        """Compact the subscription's records if they have grown."""
        self._state.compact_in_time()
