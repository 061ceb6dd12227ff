"""A lane that stands still does not wait for a thread that waits for it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from stratalog.store import MessageStore
from stratalog.store.log import quiet as quiet_module
from stratalog.store.log.lane import Lane
from stratalog.store.log.quiet import quiet
from stratalog.store.segment.sealed import SealedSegment

from ..helpers import tiny


def test_retention_that_appends_does_not_hold_up_what_stops_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It copies what subscriptions wait for out of a segment before that goes."""
    monkeypatch.setattr(quiet_module, "PATIENCE_S", 10.0)
    in_guard, holds, appended = threading.Event(), threading.Event(), threading.Event()
    with MessageStore.open(tmp_path, tiny()) as store:
        upkeep, [flusher] = store._upkeep, store._running.flushers
        for _ in range(30):
            store.append("t", 0, bytes(10_000))

        def copies(lane: Lane, oldest: SealedSegment) -> bool:
            if not appended.is_set():
                in_guard.set()
                holds.wait(60)
                store.append("copies", 0, b"x")
                appended.set()
            return True

        roll = quiet_module._roll

        def rolls(of_lane: Lane) -> None:  # called when no frame can be built any more
            holds.set()
            roll(of_lane)

        monkeypatch.setattr(quiet_module, "_roll", rolls)
        upkeep.removal.guards.append(copies)
        store.delete_topic("t")
        assert in_guard.wait(60)
        store.append("u", 0, b"in the open segment")
        with quiet(flusher, upkeep.sealer):
            assert not store._lanes[0].view.open
        assert appended.wait(60)
        assert store.queue_bounds("copies", 0) == (0, 1)
