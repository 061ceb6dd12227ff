"""What all subscriptions of a store read ahead has one bound, and loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.store import MessageStore

from ...clocks import SteppedClock
from ..helpers import tiny
from .helpers import TOPIC, fill, places


@pytest.mark.parametrize("subscriptions", [8, 32])
def test_idle_subscriptions_hold_no_more_than_their_share(tmp_path: Path, subscriptions: int) -> None:
    with MessageStore.open(tmp_path / "s", tiny(segment_bytes=1 << 20, memory_limit_bytes=8 << 20)) as store:
        store.append_batch([(TOPIC, at % 4, bytes(10_000)) for at in range(80)])
        subs = [store.subscribe(TOPIC, f"s{at}") for at in range(subscriptions)]
        for sub in subs:
            (got,) = sub.receive(1)
            sub.ack(got)
        held = [sub._dispatcher._scanner.held_bytes for sub in subs]
        figures = store.stats()["subscriptions"]
        assert sum(held) <= figures["read_ahead_limit_bytes"] + max(held)
        assert figures["read_ahead_limit_bytes"] < 1 << 20
        assert figures["in_flight_bytes"] > 0
        for sub in subs:
            left = []
            while batch := sub.receive():
                left += places(batch)
            assert len(set(left)) == len(left) == 79, "what was given back is read anew"


def test_what_was_read_long_ago_is_given_back(store: MessageStore, clock: SteppedClock) -> None:
    fill(store, 50)
    idle, other = store.subscribe(TOPIC, "idle"), store.subscribe(TOPIC, "other")
    idle.receive(1)
    assert idle._dispatcher._scanner.held_bytes > 0
    clock.now += 11
    other.receive(1)
    assert idle._dispatcher._scanner.held_bytes == 0
    assert [at for _, at in places(idle.receive(10))] == list(range(1, 11))
