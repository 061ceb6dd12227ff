"""A read that fails takes nothing from the consumers of others."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from stratalog.store import Delivery, MessageStore, StoreUnreadable, Subscription

from ...clocks import SteppedClock
from .helpers import TOPIC, fill, places


def fail(sub: Subscription) -> list[Delivery]:
    """A receive whose reading fails: what it has found elsewhere. It raises the error if that is nothing, and the next
    call does otherwise.
    """
    with patch.object(sub._dispatcher._scanner, "take", side_effect=StoreUnreadable("refused")):
        try:
            got = sub.receive(8)
        except StoreUnreadable:
            return []
    assert got
    with pytest.raises(StoreUnreadable):
        sub.receive(8)
    return got


@pytest.mark.parametrize("mode", ["shared", "ordered"])
def test_consumers_keep_their_messages_and_attempts(store: MessageStore, clock: SteppedClock, mode: str) -> None:
    fill(store, 2, 2)
    sub = store.subscribe(TOPIC, "a", mode=mode)  # type: ignore[call-overload]  # one of the two
    first, second = sub.receive(1) + sub.receive(1)
    sub.nack(first)
    (first,) = sub.receive(1)
    assert first.attempt == 2
    fail(sub)
    sub.ack(second)
    clock.now += 31
    (first,) = sub.receive(1)
    assert first.attempt == 3


def test_a_line_waits_for_an_acknowledgement_that_is_on_its_way(store: MessageStore) -> None:
    fill(store, 2)
    sub = store.subscribe(TOPIC, "a", mode="ordered")
    (first,) = sub.receive(1)
    journal = sub._state.journal
    real, beside = journal.append, []

    def append(records: list[bytes]) -> None:
        fail(sub)
        beside.extend(sub.receive())
        real(records)

    with patch.object(journal, "append", append):
        sub.ack_batch([first])
    assert beside == []
    assert places(sub.receive()) == [(0, 1)]
