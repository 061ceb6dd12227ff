"""Dead letters: messages that were given out too often move to another topic (R30)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ..errors import StoreError
from ..format.blobs import Blobs, ExtraColumns, gathered
from ..read.message import MessageBatch
from .delivery import joined
from .fetching import Fetched, fetch_readable
from .in_flight import Is, Places
from .room import Room
from .settings import Settings
from .state import State

Int64s = npt.NDArray[np.int64]
RETRY_MS = 1000  # a message that cannot be fetched, or not be moved, comes again so much later
MOVED_MESSAGES = 4096  # by one append
MOVED_BYTES = 4 << 20


def are_dead(settings: Settings | None, places: Places) -> npt.NDArray[np.bool_]:
    """(n,) which messages were given out as often as the settings allow, and have a topic to go to."""
    if settings is None or settings.max_attempts is None or settings.dead_letter_topic is None:
        return np.zeros(places.size, np.bool_)
    return places.attempts >= settings.max_attempts


def bury(state: State, topic: str, receipts: Int64s, fetch: Callable[[Room, Places], Fetched]) -> None:
    """Append messages to the dead letters' topic and acknowledge them; what a late consumer has acknowledged stays out.

    They get receipts that nobody knows first: so no consumer can acknowledge them beside this. Raises StoreError, and
    those that were not acknowledged come again then: all but those that cannot be read were moved, or none could be.
    """
    receipts, places = _claim(state, receipts)
    failed: list[StoreError] = []
    try:
        while len(receipts):
            found, bad = fetch_readable(Room(MOVED_MESSAGES, MOVED_BYTES), fetch, places, failed)
            if found.batches:
                _append(state, topic, found.batches)
            over = np.concatenate([found.rows, found.gone])
            if len(over):
                state.ack(receipts[over])
            hold_back(state, receipts[bad])
            left = np.delete(np.arange(len(receipts)), np.concatenate([over, bad]))
            receipts, places = receipts[left], places.take(left)
    except StoreError:
        hold_back(state, receipts)
        raise
    if failed:
        raise failed[0]


def _append(state: State, topic: str, batches: Sequence[MessageBatch]) -> None:
    """Append messages to a topic, in queues of their ids, with their keys and properties: all by one call."""
    batch = joined(batches)
    extras = None if batch.extras is None else ExtraColumns.of(batch.extras)
    payload = gathered(batch.buffer, batch.positions, batch.lengths, np.arange(len(batch)))
    state.parts.append_columns(
        [(topic, queue_id) for _, queue_id in batch.stream_names], batch.stream_index, batch.lengths, payload,
        *_columns(extras), None,
    )  # fmt: skip


def _columns(extras: ExtraColumns | None) -> tuple[Blobs | None, Blobs | None]:
    return (None, None) if extras is None else (extras.keys, extras.properties)


def hold_back(state: State, receipts: Int64s) -> None:
    """These could not be fetched or moved: others go first."""
    if not len(receipts):
        return
    with state.lock:
        rows = state.table.find(receipts)
        state.table.hold(rows[rows >= 0], state.now_ms() + RETRY_MS)


def _claim(state: State, receipts: Int64s) -> tuple[Int64s, Places]:
    """New receipts of those messages that still wait to be given out again."""
    table = state.table
    with state.lock:
        rows = table.find(receipts)
        rows = rows[rows >= 0]
        states = table.states(rows)
        rows = rows[(states == Is.LATE) | (states == Is.BACK)]
        places, old = table.places(rows), table.receipts(rows)
        new = state.enter(places, state.now_ms() + RETRY_MS)
        table.remove(table.find(old))  # found anew: room for the new ones may have moved the rows
    return new, places
