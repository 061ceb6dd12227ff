"""Limits of subscriptions that a run's seed draws: their own, and small ones that a run of some messages meets."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final
from unittest import mock

FOLDER: Final = "stratalog.store.subscriptions"
DRAWN: Final[dict[str, tuple[float, ...]]] = {
    f"{FOLDER}.journal.LEAST_BYTES": (300, 60, 3_000),
    f"{FOLDER}.journal.READ_MESSAGES": (5, 1, 4096),
    f"{FOLDER}.scanner.AHEAD_MESSAGES": (4, 1, 256),
    f"{FOLDER}.scanner.HELD_BYTES": (8 << 20, 0, 2_000),
    f"{FOLDER}.scanner.SKIPPED_MESSAGES": (4096, 2),
    f"{FOLDER}.scanner.MOST_CHUNKS": (64, 2),
    f"{FOLDER}.scanner.FEW_QUEUES": (64, 1),
    f"{FOLDER}.news.FEW_QUEUES": (64, 1, 1),
    f"{FOLDER}.news.FEW_MESSAGES": (64, 0),
    f"{FOLDER}.read_ahead.IDLE_S": (10.0, 0.05),
    f"{FOLDER}.delays.DUE_PLACES": (6, 1, 1024),
    f"{FOLDER}.dispatcher.NOTED_MESSAGES": (10_000, 3),
    f"{FOLDER}.ordering.MOST_PARKED": (10_000, 2),
    f"{FOLDER}.delivery.FETCHED": (4096, 2),
    f"{FOLDER}.redelivery.MOVED_MESSAGES": (4096, 1),
    f"{FOLDER}.in_flight.BUSY_ROWS": (1024, 4),
    f"{FOLDER}.state.LISTED_TOGETHER": (1024, 2),
}


@contextmanager
def drawn_limits(seed: int) -> Iterator[None]:
    """For a run, and for all that is opened of what it leaves."""
    chance = random.Random(f"limits of subscriptions {seed}")
    with ExitStack() as stack:
        for name, values in DRAWN.items():
            stack.enter_context(mock.patch(name, chance.choice(values)))
        yield
