"""Moving messages to another topic: they are appended there and acknowledged here, all at once or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..format.arrays import Int64s
from ..format.blobs import ExtraColumns, gathered
from ..format.extras import Extras
from ..log.atomic_group import AtomicGroup
from ..read.message import MessageBatch
from .acknowledging import Acknowledging
from .committing import Committing, PendingMessages
from .delivery import joined
from .origin import Origin
from .state import State
from .stories import UNKNOWN_MS


class Moving:
    """Moves messages of one subscription. Any number of threads may use it."""

    def __init__(self, state: State, acks: Acknowledging) -> None:
        self._state = state
        self._acks = acks

    def move(self, topic: str, batches: Sequence[MessageBatch], receipts: Int64s, gone: Int64s) -> None:
        """Append messages to a topic by one call, in queues of their ids, with their keys, their properties and their
        origin; acknowledge them, whose receipts are `receipts` (n,), and those of `gone`. Raises as an append does.

        A transaction has all of it, unless it is too large for that: then the append comes first, and a crash in
        between leaves it alone.
        """
        over = np.concatenate([receipts, gone])
        if not batches:
            self._acks.ack(over)
            return
        batch = joined(batches)
        names = [(topic, queue_id) for _, queue_id in batch.stream_names]
        extras = [Extras(None, key, told) for key, told in zip(_keys(batch), self._told(batch, receipts), strict=True)]
        pending = PendingMessages()
        for at, (data, stream) in enumerate(zip(batch.payloads(), batch.stream_index.tolist(), strict=True)):
            _, queue_id = names[stream]
            pending.add(topic, queue_id, bytes(data), extras[at])
        appending = self._state.parts.appending
        assert appending is not None, "nothing is given out by a store that is only read"
        committing = Committing(appending, pending, {self._acks: over.tolist()}, are_again=True)
        if committing.fits:
            committing.let_pass()
            committing.hand_over(AtomicGroup.put_and_sleep)
            committing.compact_in_time()
        else:
            self._append(batch, names, extras)
            self._acks.ack(over)

    def _told(self, batch: MessageBatch, receipts: Int64s) -> list[bytes]:
        """The properties of each message, with its origin. Few: a dead letter is rare."""
        state = self._state
        with state.lock:
            rows = state.table.find(receipts)
            attempts, stories = state.table.places(rows).attempts.tolist(), state.table.stories(rows)
            reasons = state.reasons.texts(stories.reasons)
        back_ms = state.parts.clock.wall_ms() - state.now_ms()
        times = zip(stories.firsts_ms.tolist(), stories.lasts_ms.tolist(), strict=True)
        found = []
        for at, (attempt, reason, (first_ms, last_ms)) in enumerate(zip(attempts, reasons, times, strict=True)):
            _, queue_id = batch.stream_names[int(batch.stream_index[at])]
            origin = Origin(
                state.topic, queue_id, int(batch.offsets[at]), state.name, attempt,
                None if first_ms == UNKNOWN_MS else first_ms + back_ms,
                None if last_ms == UNKNOWN_MS else last_ms + back_ms, reason,
            )  # fmt: skip
            given = None if batch.extras is None else batch.extras[at].properties
            found.append(origin.told(given))
        return found

    def _append(self, batch: MessageBatch, names: Sequence[tuple[str, int]], extras: Sequence[Extras]) -> None:
        columns = ExtraColumns.of(extras)
        payload = gathered(batch.buffer, batch.positions, batch.lengths, np.arange(len(batch)))
        keys, told = columns.keys, columns.properties
        self._state.parts.append_columns(names, batch.stream_index, batch.lengths, payload, keys, told, None)


def _keys(batch: MessageBatch) -> list[bytes | None]:
    """The key of each message."""
    return [None] * len(batch) if batch.extras is None else [one.key for one in batch.extras]
