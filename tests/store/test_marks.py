"""Marks claim what is durable of the log, and never the zeros behind it.

A frame that was never written might have begun in the place of these zeros: a mark that claims them would have its
absence taken for damage, when a power cut loses the first of two writes and keeps the second.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreFull
from stratalog.store.config import Durability

from .disks import GatedDisk
from .helpers import frames_of, segment_path, small, start, until


@pytest.mark.parametrize("settings", [{"alignment": "pad"}, {"alignment": "trim"}, {"durability": "os"}])
def test_marks_end_with_a_frame_or_within_one(tmp_path: Path, settings: dict[str, Any]) -> None:
    with MessageStore.open(tmp_path / "store", small(**settings)) as store:
        for size in range(1, 9000, 700):
            store.append("t", 0, bytes(size))
            store.flush()
    frames = [frame.header for frame in frames_of(segment_path(tmp_path / "store", 1))]
    assert len(frames) > 10
    marks = [later.durable_position for _, later in pairwise(frames)]
    assert all(mark <= earlier.end for mark, (earlier, _) in zip(marks, pairwise(frames), strict=True))
    assert marks[-1] > 8192


@pytest.mark.usefixtures("marks")
@pytest.mark.parametrize("durability", ["force", "os"])
def test_quiet_lane_writes_one_mark_and_then_nothing(tmp_path: Path, durability: Durability) -> None:
    """One that vouched for itself, too, would follow for ever, and retention would in the end make room for them."""
    with MessageStore.open(tmp_path / "store", small(durability=durability)) as store:
        store.append("t", 0, b"x")
        store.flush()
        lane = store._lanes[0]
        until(lambda: not lane.wants_mark() and lane.marked == lane.under_way.forced_mark)
        for _ in range(5):
            store._upkeep._mark_idle()
            store.flush()
        assert store.stats()["log"]["frames"] == 2
    with MessageStore.open(tmp_path / "store", small(durability=durability)) as store:
        store._upkeep._mark_idle()
        store.flush()
        assert store.stats()["log"]["frames"] == 0  # the close has said all


def test_mark_without_room_does_not_fail_the_flush_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, tried = GatedDisk(), list[int]()
    with MessageStore.open(tmp_path / "store", small(), disk=disk) as store:
        store.append("t", 0, b"x")
        lane = store._lanes[0]

        def no_room(*_given: object) -> None:
            tried.append(1)
            raise StoreFull("no space for another segment")

        monkeypatch.setattr(lane, "build_mark", no_room)
        monkeypatch.setattr(lane, "wants_mark", lambda: True)
        store._running.mark(lane)
        store.flush()
        assert tried
        # While a write is with the device, mark and flush gather, and are one batch.
        disk.gate.clear()
        ticket = store.submit("t", 0, b"y")
        disk.waiting.acquire()
        before = len(tried)
        store._running.mark(lane)
        flush = start(store.flush)
        disk.gate.set()
        flush.join()
        assert ticket.result() == 1
        assert len(tried) > before
        assert store.stats()["poisoned"] is None
