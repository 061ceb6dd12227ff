"""A force vouches for a write only if that had ended before it began: durability "os", with two threads at writes."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from stratalog.store import MessageStore, StorePoisoned, commit_shards
from stratalog.store.log import write as write_module
from stratalog.store.log.request import Barrier
from stratalog.store.log.stopping import stopped
from stratalog.store.testing import Fault, SimulatedDisk

from .helpers import PATIENCE_S, tiny
from .shards.helpers import content, held, queues_of, staged
from .shards.test_repair import OLD, ROWS

pytestmark = pytest.mark.disk

# With blocks of 512 bytes no write overtakes another one.
CONFIG: dict[str, Any] = {
    "durability": "os", "flush_interval_ms": 86_400_000, "segment_bytes": 1 << 20, "block_bytes": 4096,
}  # fmt: skip


class Overtaken:
    """The first write that is not forced gets no processor until a forced one that was planned later has come back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.planned, self.passed = threading.Event(), threading.Event()
        real = write_module.Write.perform

        def perform(write: write_module.Write) -> None:
            if not write.force and not self.planned.is_set():
                self.planned.set()
                assert self.passed.wait(PATIENCE_S)
            real(write)
            if write.force:
                self.passed.set()

        monkeypatch.setattr(write_module.Write, "perform", perform)


def test_a_commit_is_not_acknowledged_before_an_overtaken_write_is_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimulatedDisk()
    with MessageStore.open(tmp_path, tiny(**CONFIG), disk=disk) as store:
        store.append_batch(OLD)
        store.flush()
        with held(store):
            commit_shards(tmp_path, staged(tmp_path, ROWS, disk=disk), name="q", wait_ms=0, disk=disk)
            order = Overtaken(monkeypatch)
            store.submit("before", 0, b"nobody waits for this one")
            assert order.planned.wait(PATIENCE_S)
            assert store.attach_pending() == 1
        left = disk.crash(Random(0), "none")  # what was forced, and nothing else
    with MessageStore.open(tmp_path, tiny(), disk=left) as store:
        assert content(store) == queues_of(OLD, [("before", 0, b"nobody waits for this one")], ROWS)


def test_a_lane_is_not_quiet_before_an_overtaken_write_is_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimulatedDisk()
    with MessageStore.open(tmp_path, tiny(**CONFIG), disk=disk) as store:
        store.append_batch(OLD)
        store.flush()
        order = Overtaken(monkeypatch)
        store.submit("before", 0, b"x")
        assert order.planned.wait(PATIENCE_S)
        with stopped(store._flushers[0], store._upkeep.sealer):
            left = disk.crash(Random(0), "none")
    with MessageStore.open(tmp_path, tiny(), disk=left) as store:
        assert content(store) == queues_of(OLD, [("before", 0, b"x")])


def test_no_frame_vouches_for_what_a_force_has_not_covered(tmp_path: Path) -> None:
    """By the steps of a flusher: the later write comes back first."""
    with MessageStore.open(tmp_path, tiny(**CONFIG), disk=SimulatedDisk()) as store:
        store.append("t", 0, b"first")
        store.flush()
        flusher = store._flushers[0]
        lane, queue = flusher.lane, flusher.queue
        mark, forced = lane.under_way.forced_mark, lane.under_way.forced
        with flusher.building:
            ticket, barrier = store.submit("t", 0, b"second"), Barrier()
            [earlier] = flusher.next_writes(late=True)
            queue.put(barrier)
            [later] = flusher.next_writes(late=True)
            assert (earlier.force, later.force) == (False, True)
            flusher.perform([later])
            assert (lane.under_way.forced_mark, lane.under_way.forced) == (mark, forced)
            assert not barrier.done()
            flusher.perform([earlier])
            assert lane.under_way.forced_mark > mark
            assert lane.under_way.forced == lane.durable
            assert barrier.done() and ticket.done()


def test_a_flush_is_not_answered_by_the_end_of_a_write_that_was_not_forced(tmp_path: Path) -> None:
    """A round of transactions takes the flush while the write of what came before is with the device."""
    with MessageStore.open(tmp_path, tiny(**CONFIG), disk=SimulatedDisk()) as store:
        store.append("t", 0, b"first")
        store.flush()
        flusher = store._flushers[0]
        with flusher.building:
            ticket, barrier = store.submit("t", 0, b"second"), Barrier()
            [earlier] = flusher.next_writes(late=True)
            flusher.queue.put(barrier)
            [force] = flusher.next_writes(late=True)
            flusher.perform([earlier])
            assert ticket.done() and not barrier.done()
            flusher.perform([force])
            assert barrier.done()


def test_a_force_that_was_put_off_and_fails_poisons_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    store = MessageStore.open(tmp_path, tiny(**CONFIG), disk=disk)
    store.append("t", 0, b"first")
    order = Overtaken(monkeypatch)
    ticket = store.submit("t", 0, b"second")
    assert order.planned.wait(PATIENCE_S)
    disk.inject(Fault("force", for_good=True))
    with pytest.raises(StorePoisoned), stopped(store._flushers[0], store._upkeep.sealer):
        raise AssertionError("the lane is not stopped")
    assert ticket.result(PATIENCE_S) == 1  # the kernel has it, which is all that it was promised
    with pytest.raises(StorePoisoned):
        store.append("t", 0, b"third")
    store.close()


def test_a_force_that_was_put_off_and_fails_is_not_tried_again_by_another_flusher(tmp_path: Path) -> None:
    """It comes back from its own write before the first one has told that the lane is lost."""
    disk = SimulatedDisk()
    with MessageStore.open(tmp_path, tiny(**CONFIG), disk=disk) as store:
        store.append("t", 0, b"first")
        flusher = store._flushers[0]
        lane, queue = flusher.lane, flusher.queue
        with flusher.building:
            barrier = Barrier()
            queue.put(barrier)
            [force] = flusher.next_writes(late=True)
            ticket = store.submit("t", 0, b"second")
            [later] = flusher.next_writes(late=True)
            disk.inject(Fault("force"))
            force.perform()
            with pytest.raises(OSError, match="injected"):
                lane.complete(force)
            later.perform()
            lane.complete(later)
            assert not barrier.done() and not ticket.done()
            flusher.fail(OSError("as its thread does it"))
        for one in (barrier, ticket):
            with pytest.raises(StorePoisoned, match="injected"):
                one.result(PATIENCE_S)
