"""A commit that fails in the middle of its writes: what a lane has in memory then proves nothing."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreError, StoreFull, StorePoisoned, commit_shards
from stratalog.store.live import publisher
from stratalog.store.log.reserve import Reserve
from stratalog.store.log.writes import WritesInFlight
from stratalog.store.testing import Fault, SimulatedDisk

from ..helpers import PATIENCE_S, tiny
from ..interrupts import interrupt_at
from ..test_forces import CONFIG, Overtaken
from .helpers import Row, attaching, content, held, queues_of, rows_of, staged
from .test_together import OLD, ROWS, each_way, waiting

__all__ = ["each_way"]
WIDE = rows_of("wide", 60, queues=12, size=1000)
FILES = ("log/written_lane.py", "log/room.py", "log/spares.py")
FULL: list[Row] = [("t0", queue, b"x" * 3000) for queue in range(12)] * 3


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_commit_whose_write_has_failed_keeps_its_manifest_until_the_next_opening(tmp_path: Path, nth: int) -> None:
    """The background looks again at once, and again."""
    disk = SimulatedDisk()
    store = MessageStore.open(tmp_path, tiny(lanes=2), disk=disk)
    store.append_batch(OLD)
    with held(store):
        waiting(tmp_path, ROWS, disk=disk)
        disk.inject(Fault("write", nth=nth))
        with suppress(StoreError):  # one that seals is tried again
            store.attach_pending()
    if store._poison is not None:  # else nothing was changed
        for _ in range(2):
            with pytest.raises(StorePoisoned):
                store.attach_pending()
        with pytest.raises(StorePoisoned):
            store._applied_batches("q", -1)
    store.close()
    with MessageStore.open(tmp_path, disk=disk) as again:
        assert content(again) == queues_of(OLD, ROWS)
    assert not commit_shards(tmp_path, staged(tmp_path, ROWS, disk=disk), name="q", disk=disk).is_new


def test_an_interrupt_while_a_commit_makes_room_leaves_the_lane_whole_or_poisoned(tmp_path: Path) -> None:
    """Its lane goes on in another segment for the commit."""
    for place in range(0, 1000, 4):  # a dozen in a row are between the two segments
        disk, path = SimulatedDisk(), tmp_path / str(place)
        with MessageStore.open(path, tiny(lanes=1), disk=disk) as store:
            store.append_batch(FULL[:15])
            with held(store):
                waiting(path, WIDE[:20], disk=disk)
                has_come, _ = interrupt_at(place, FILES, store.attach_pending)
                is_poisoned = store._poison is not None
                if not is_poisoned:
                    store.attach_pending()
                    store.append_batch(FULL)
                    assert content(store) == queues_of(FULL[:15], WIDE[:20], FULL)
        with MessageStore.open(path, disk=disk) as again:
            assert content(again) == queues_of(FULL[:15], WIDE[:20], () if is_poisoned else FULL)
        if not has_come:
            return
    raise AssertionError("the work has no end")


def test_a_commit_that_has_begun_with_its_frames_asks_for_no_larger_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first frame has made the lane's footers larger, and the disk is full: it had room before it began."""
    attaching(monkeypatch.setattr, as_segments=False, frame_bytes=1)
    with MessageStore.open(tmp_path, tiny(lanes=1), disk=SimulatedDisk()) as store, held(store):
        store.append_batch(OLD)
        waiting(tmp_path, ROWS, disk=store._disk)
        reserve, hold = store._lanes[0].for_records, WritesInFlight.hold
        assert reserve is not None

        def hold_on_a_full_disk(self: WritesInFlight, position: int) -> None:
            hold(self, position)
            reserve.is_ready = False
            monkeypatch.setattr(Reserve, "secure", raises)

        def raises(*_: object) -> None:
            raise StoreFull("no space")

        monkeypatch.setattr(WritesInFlight, "hold", hold_on_a_full_disk)
        assert store.attach_pending() == 1
        with pytest.raises(StoreFull):
            store.append(*OLD[0])
        monkeypatch.undo()
        store.append(*OLD[0])
        assert content(store) == queues_of(OLD, ROWS, OLD[:1])


def test_a_flusher_that_tells_other_processes_and_a_commit_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit's write has come back before that of a flusher, who so accounts for both, and then tells."""
    with MessageStore.open(tmp_path, tiny(**CONFIG), disk=SimulatedDisk()) as store, held(store):
        store.append_batch(OLD)
        store.flush()
        waiting(tmp_path, ROWS, disk=store._disk)
        order = Overtaken(monkeypatch)
        ticket = store.submit("before", 0, b"slow")
        assert order.planned.wait(PATIENCE_S)
        telling, way = threading.Event(), store._lanes[0].under_way
        hold, tell = publisher._hold, way.on_forced
        assert tell is not None

        def hold_and_tell(*given: Any) -> None:
            hold(*given)
            telling.set()

        monkeypatch.setattr(publisher, "_hold", hold_and_tell)

        def tell_late() -> None:
            if threading.current_thread() is not threading.main_thread():
                telling.wait(0.2)
            tell()

        way.on_forced = tell_late
        assert store.attach_pending() == 1
        assert ticket.result(PATIENCE_S) == 0
        assert content(store) == queues_of(OLD, [("before", 0, b"slow")], ROWS)
