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
from .state import State


class Moving:
    """Moves messages of one subscription. Any number of threads may use it."""

    def __init__(self, state: State, acks: Acknowledging) -> None:
        self._state = state
        self._acks = acks

    def move(self, topic: str, batches: Sequence[MessageBatch], receipts: Int64s) -> None:
        """Append messages to a topic by one call, in queues of their ids, with their keys and properties; acknowledge
        them, and what else is in `receipts`. Raises as an append does.

        One frame has all of it, unless it is too large for that, or in several lanes: then the append comes first, and
        a crash in between leaves it alone.
        """
        if not batches:
            self._acks.ack(receipts)
            return
        batch = joined(batches)
        names = [(topic, queue_id) for _, queue_id in batch.stream_names]
        appending = self._state.parts.appending
        assert appending is not None, "nothing is given out by a store that is only read"
        committing = Committing(appending, _pending(batch, names), {self._acks: receipts.tolist()}, are_again=True)
        if committing.fits:
            committing.let_pass()
            committing.hand_over(AtomicGroup.put_and_sleep)
            committing.compact_in_time()
        else:
            self._append(batch, names)
            self._acks.ack(receipts)

    def _append(self, batch: MessageBatch, names: Sequence[tuple[str, int]]) -> None:
        extras = None if batch.extras is None else ExtraColumns.of(batch.extras)
        payload = gathered(batch.buffer, batch.positions, batch.lengths, np.arange(len(batch)))
        columns = (None, None) if extras is None else (extras.keys, extras.properties)
        self._state.parts.append_columns(names, batch.stream_index, batch.lengths, payload, *columns, None)


def _pending(batch: MessageBatch, names: Sequence[tuple[str, int]]) -> PendingMessages:
    """The messages of a batch, without delivery times. Few: a dead letter is rare."""
    pending = PendingMessages()
    for at, (data, stream) in enumerate(zip(batch.payloads(), batch.stream_index.tolist(), strict=True)):
        given = None if batch.extras is None else batch.extras[at]
        has_more = given is not None and (given.key is not None or given.properties is not None)
        extras = Extras(None, given.key, given.properties) if given is not None and has_more else None
        topic, queue_id = names[stream]
        pending.add(topic, queue_id, bytes(data), extras)
    return pending
