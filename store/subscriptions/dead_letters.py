"""Dead letters: messages that were given out too often move to another topic (R30)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..errors import StoreError
from ..read.message import Message
from .fetching import fetch
from .in_flight import Is, Places
from .settings import Settings
from .state import State

Int64s = npt.NDArray[np.int64]
RETRY_MS = 1000  # a message that cannot be fetched, or not be moved, comes again so much later


def are_dead(settings: Settings | None, places: Places) -> npt.NDArray[np.bool_]:
    """(n,) which messages were given out as often as the settings allow, and have a topic to go to."""
    if settings is None or settings.max_attempts is None or settings.dead_letter_topic is None:
        return np.zeros(places.size, np.bool_)
    return places.attempts >= settings.max_attempts


def bury(state: State, topic: str, receipts: Int64s, copied: Callable[[int, int], Message | None]) -> None:
    """Append messages to the dead letters' topic and acknowledge them; what a late consumer has acknowledged stays out.

    They get receipts that nobody knows first: so no consumer can acknowledge them beside this. Raises StoreError, and
    they come again then.
    """
    receipts, places = _claim(state, receipts)
    if not len(receipts):
        return
    try:
        found = fetch(state.parts.reads, state.topic, places.queues, places.offsets, copied)
        for batch in found.batches:
            for message in batch.messages():
                state.parts.append(
                    topic, message.queue_id, message.data, None, message.key, message.properties, None
                )  # fmt: skip
        state.ack(receipts)
    except StoreError:
        with state.lock:
            rows = state.table.find(receipts)
            state.table.hold(rows[rows >= 0], state.now_ms() + RETRY_MS)
        raise


def _claim(state: State, receipts: Int64s) -> tuple[Int64s, Places]:
    """New receipts of those messages that still wait to be given out again."""
    table = state.table
    with state.lock:
        rows = table.find(receipts)
        rows = rows[rows >= 0]
        states = table.states(rows)
        rows = rows[(states == Is.LATE) | (states == Is.BACK)]
        places, old = table.places(rows), table.receipts(rows)
        new = table.add(places, state.now_ms() + RETRY_MS)
        table.remove(table.find(old))  # found anew: room for the new ones may have moved the rows
    return new, places
