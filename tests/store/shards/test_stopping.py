"""A lane that stands still does not wait for a thread that waits for it."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreFull
from stratalog.store.log import stopping
from stratalog.store.log.lane import Lane
from stratalog.store.log.sealer import Sealer
from stratalog.store.log.stopping import stopped
from stratalog.store.log.written_lane import WrittenLane
from stratalog.store.segment.sealed import SealedSegment

from ..helpers import tiny


def test_retention_that_appends_does_not_hold_up_what_stops_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It copies what subscriptions wait for out of a segment before that goes."""
    monkeypatch.setattr(stopping, "PATIENCE_S", 10.0)
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

        roll = WrittenLane.roll

        def rolls(of_lane: WrittenLane) -> None:  # called when no frame can be built any more
            holds.set()
            roll(of_lane)

        monkeypatch.setattr(WrittenLane, "roll", rolls)
        upkeep.removal.guards.append(copies)
        store.delete_topic("t")
        assert in_guard.wait(60)
        store.append("u", 0, b"in the open segment")
        with stopped(flusher, upkeep.sealer):
            assert not store._lanes[0].view.open
        assert appended.wait(60)
        assert store.queue_bounds("copies", 0) == (0, 1)


def test_a_lane_whose_sealing_fails_stands_still_once_and_not_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large commit that waits tries it twice a second: each time appends would wait, and go on in another segment."""
    monkeypatch.setattr(stopping, "PATIENCE_S", 0.05)
    seal_now = Sealer.seal_now

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "no footer")

    with MessageStore.open(tmp_path, tiny()) as store:
        upkeep, [flusher], [lane] = store._upkeep, store._running.flushers, store._lanes
        store.append("t", 0, b"first")
        monkeypatch.setattr(Sealer, "seal_now", fails)
        with pytest.raises(StoreFull, match="no footer"), stopped(flusher, upkeep.sealer):
            raise AssertionError("it is not sealed")
        store.append("t", 0, b"second")
        segment = lane.segment
        for _ in range(3):
            with pytest.raises(StoreFull, match="no footer"), stopped(flusher, upkeep.sealer):
                raise AssertionError("it is not sealed")
            store.append("t", 0, b"more")
        assert lane.segment is segment
        monkeypatch.setattr(Sealer, "seal_now", seal_now)
        upkeep.sealer._pressed_s.clear()
        with stopped(flusher, upkeep.sealer):
            assert not lane.view.open
        assert store.append("t", 0, b"last") == 5
