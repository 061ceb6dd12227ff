"""Sealing that falls behind holds appends back; sealing that fails is tried seldom, and is told of."""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, PublishBufferFull, StoreFull
from stratalog.store.log.queue import WRITES_IN_FLIGHT
from stratalog.store.log.sealer import MOST_REST_S, MOST_WAITING, PRESSED_S, REST_S, Sealer
from stratalog.store.log.upkeep import Upkeep
from stratalog.store.segment.sealing import seal
from tests.clocks import SteppedClock

from .helpers import KIB, PATIENCE_S, tiny, until

SEAL = "stratalog.store.log.sealer.seal"
SMALL: dict[str, Any] = {"max_message_bytes": 16 * KIB, "max_frame_bytes": 16 * KIB}


def test_appends_wait_with_their_time_out_while_sealing_falls_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def slow(*given: Any) -> Any:
        assert go_on.wait(PATIENCE_S)
        return seal(*given)

    monkeypatch.setattr(SEAL, slow)
    config = tiny(**SMALL, append_timeout_ms=20, publish_buffer_bytes=64 * KIB)
    with MessageStore.open(tmp_path, config) as store:
        sealer, lane = store._upkeep.sealer, store._lanes[0]
        try:
            while sealer.waiting(lane) < MOST_WAITING:
                with suppress(PublishBufferFull):  # a slow device
                    store.submit("t", 0, bytes(8 * KIB))
            with pytest.raises(PublishBufferFull):
                for _ in range(1000):
                    store.submit("t", 0, bytes(8 * KIB))
            # The writes in flight may have filled some more.
            assert MOST_WAITING <= store.stats()["segments"]["unsealed"] <= MOST_WAITING + WRITES_IN_FLIGHT
        finally:
            go_on.set()
        store.flush()
        until(lambda: store.stats()["segments"]["unsealed"] == 0)
        first, end = store.queue_bounds("t", 0)
        assert first == 0 and store.append("t", 0, b"more") == end


def test_appends_are_refused_when_footers_cannot_be_written_and_go_on_when_they_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SteppedClock()
    attempts: list[float] = []

    def broken(*_: Any) -> Any:
        attempts.append(clock.now)
        raise OSError(28, "no space for a footer")

    monkeypatch.setattr(SEAL, broken)
    with MessageStore.open(tmp_path, tiny(**SMALL), clock=clock) as store:
        sent = 0
        with pytest.raises(StoreFull, match=r"wait for their footers.*no space for a footer"):
            while sent < 1000:
                store.append("t", 0, bytes(8 * KIB))
                sent += 1
        assert sent < 1000 and store._upkeep.sealer.waiting(store._lanes[0]) == MOST_WAITING
        assert store.stats()["segments"]["failed_seals"] >= 1
        assert store.queue_bounds("t", 0) == (0, sent)  # what was refused has no offset
        monkeypatch.setattr(SEAL, seal)
        clock.now += PRESSED_S
        assert store.append("t", 0, bytes(8 * KIB)) == sent
        assert store.stats()["segments"]["failed_seals"] == 0


def test_sealing_that_fails_again_and_again_rests_longer_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Upkeep, "_run", lambda upkeep: None)  # the test takes its steps
    clock = SteppedClock()
    attempts: list[float] = []

    def broken(*_: Any) -> Any:
        attempts.append(clock.now)
        raise OSError(5, "the device")

    monkeypatch.setattr(SEAL, broken)
    with MessageStore.open(tmp_path, tiny(**SMALL), clock=clock) as store:
        for _ in range(12):
            store.append("t", 0, bytes(8 * KIB))
        sealer = store._upkeep.sealer
        assert sealer.waiting(store._lanes[0]) >= 1
        for _ in range(2 * 600):  # twice a second, for ten minutes
            store._upkeep._try(sealer.seal_full)
            clock.now += 0.5
        rests = [after - before for before, after in pairwise(attempts)]
        assert rests[0] == REST_S and rests[-1] == MOST_REST_S and rests == sorted(rests)
        assert len(attempts) < 20
        assert "the device" in str(store.stats()["last_background_error"])
        monkeypatch.undo()


def test_lane_that_cannot_be_sealed_keeps_no_other_from_its_footers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Sealer.seal_now

    def seal_now(sealer: Sealer, lane: Any, full: Any) -> None:
        if lane.index == 0:
            raise OSError(5, "the device of lane 0")
        real(sealer, lane, full)

    monkeypatch.setattr(Sealer, "seal_now", seal_now)
    with MessageStore.open(tmp_path, tiny(**SMALL, lanes=2)) as store:
        refused: set[int] = set()
        for number in range(400):
            try:
                store.append("t", number % 16, bytes(8 * KIB))
            except StoreFull:
                refused.add(number % 16)
        sealed = {lane.index: len(lane.view.sealed) for lane in store._lanes}
        assert sealed[0] == 0 and sealed[1] > MOST_WAITING
        assert refused and len(refused) < 16
        monkeypatch.undo()
