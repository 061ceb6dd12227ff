"""The table of what was given out: how many rows it keeps."""

from __future__ import annotations

import numpy as np
import pytest

from stratalog.store.format.arrays import Int64s
from stratalog.store.subscriptions.in_flight import BUSY_ROWS, NEVER, InFlight, Places
from stratalog.store.subscriptions.parts import ReceiptNumbers

BURST = 100_000


def given(table: InFlight, first: int, rows: int) -> None:
    """Give messages of queue 0 out."""
    offsets = np.arange(first, first + rows)
    table.add(Places(np.zeros(rows, np.int64), offsets, np.ones(rows, np.int64)), NEVER)


def table_of(rows: int) -> InFlight:
    """A table that has given so many messages out, and has room for as many."""
    table = InFlight(ReceiptNumbers().take)
    given(table, 0, rows - 1)
    given(table, rows - 1, 1)
    return table


def test_the_rows_of_a_burst_go_with_the_next_message_when_few_are_left() -> None:
    """Each look goes over all rows, with the state's lock."""
    table = table_of(BURST)
    table.remove(np.arange(1, BURST))
    given(table, BURST, 1)
    assert len(table._states) <= BUSY_ROWS
    assert table.offsets_of(0).tolist() == [0, BURST]


def test_rows_are_not_dropped_again_and_again_while_most_are_left() -> None:
    """A table with many messages out would be copied for each one that is acknowledged."""
    table = table_of(BURST)
    table.remove(np.arange(BURST // 2))
    columns = table._columns
    for at in range(100):
        given(table, BURST + at, 1)
    assert table._columns is columns
    assert len(table) == BURST // 2 + 100


def test_rows_are_listed_before_they_are_late_so_that_an_interrupt_loses_none() -> None:
    table = InFlight(ReceiptNumbers().take)
    table.add(Places(np.zeros(3, np.int64), np.arange(3), np.ones(3, np.int64)), 10)

    def interrupted(_receipts: Int64s) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.expire(11, interrupted)
    came: list[int] = []
    table.expire(11, lambda receipts: came.extend(receipts.tolist()))
    assert came == table.receipts(table.live()).tolist()
