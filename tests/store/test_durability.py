"""What the answer of an append promises, by `durability`: which bytes may still be lost to a power cut."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreError, StorePoisoned
from stratalog.store.api import running
from stratalog.store.format.layout import BLOCK_BYTES
from stratalog.store.log.streams import lane_of
from stratalog.store.log.ticket import SubmitRequest
from stratalog.store.testing import Fault, Operation, SimulatedDisk

from .disks import FailingDisk, RecordingDisk
from .helpers import PATIENCE_S, contents, crash_copy, has_settled, start, tiny, until

pytestmark = pytest.mark.disk


@pytest.mark.parametrize("alignment", ["pad", "trim", "adaptive"])
def test_force_means_that_nothing_answered_is_unforced(tmp_path: Path, alignment: str) -> None:
    disk = RecordingDisk()
    with MessageStore.open(tmp_path, tiny(alignment=alignment, segment_bytes=1 << 20), disk=disk) as store:
        for index in range(60):  # less than half a segment: nothing is written in the background
            store.append("t", 0, bytes(2000 + index))
            assert disk.unforced_blocks() == 0


def test_os_forces_everything_at_flush(tmp_path: Path) -> None:
    disk = RecordingDisk()
    config = tiny(durability="os", flush_interval_ms=3_600_000, segment_bytes=1 << 20)
    with MessageStore.open(tmp_path, config, disk=disk) as store:
        for _ in range(20):
            store.append("t", 0, bytes(3000))
        assert disk.unforced_blocks() > 0, "os does not force before the answer"
        store.flush()
        assert disk.unforced_blocks() == 0
        ticket = store.submit("t", 0, bytes(3000))
        store.flush()
        assert ticket.done()
        assert disk.unforced_blocks() == 0


def test_os_flush_forces_earlier_writes_as_well(tmp_path: Path) -> None:
    """The flush finds something new to write: its force must not be for those bytes alone."""
    disk = RecordingDisk()
    config = tiny(durability="os", flush_interval_ms=3_600_000, segment_bytes=1 << 20)
    with MessageStore.open(tmp_path, config, disk=disk) as store:
        store.append("t", 0, bytes(10_000))
        disk.gate.clear()
        tickets = [store.submit("t", 0, bytes(10_000))]
        disk.waiting.acquire()  # its write is under way
        tickets.append(store.submit("t", 0, bytes(10_000)))
        flushing = start(store.flush)
        until(lambda: store._queues[0]._barriers == 1)
        disk.gate.set()
        flushing.join()
        assert all(ticket.done() for ticket in tickets)
        assert disk.unforced_blocks() == 0


def test_os_forces_after_the_interval(tmp_path: Path) -> None:
    disk = RecordingDisk()
    with MessageStore.open(tmp_path, tiny(durability="os", flush_interval_ms=20), disk=disk) as store:
        for _ in range(5):
            store.append("t", 0, bytes(3000))
        until(lambda: disk.unforced_blocks() == 0)


def test_os_forces_a_segment_before_it_is_sealed(tmp_path: Path) -> None:
    disk = RecordingDisk()
    config = tiny(durability="os", flush_interval_ms=3_600_000)
    with MessageStore.open(tmp_path, config, disk=disk) as store:
        for _ in range(60):
            store.append("t", 0, bytes(3000))
        until(lambda: store.stats()["segments"]["open"] == 1)
        sealed = [str(sealed.segment.path) for sealed in store._lanes[0].view.sealed]
        assert len(sealed) > 1
        assert [path for path in sealed if disk.unforced[path]] == []  # others are being made ahead


def test_os_survives_the_death_of_the_process(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "a", tiny(durability="os")) as store:
        sent = {store.append("t", 0, b"%d" % index): b"%d" % index for index in range(50)}
        crash_copy(tmp_path / "a", tmp_path / "b")
    with MessageStore.open(tmp_path / "b", tiny()) as store:
        assert contents(store, [("t", 0)]) == {("t", 0): sent}


def test_who_is_told_of_the_poison_finds_every_lane_poisoned(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = MessageStore.open(tmp_path, tiny(lanes=2), disk=disk)
    one, other = (next(q for q in range(99) if lane_of("t", q, 2) == lane) for lane in range(2))
    told: list[str] = []
    answer = SubmitRequest.answer

    def look(ticket: SubmitRequest, error: StoreError | None = None) -> None:
        """In the place of a producer that is told: appends to the other lane."""
        if error is not None:
            told.append(str(store.stats()["poisoned"]))
            with pytest.raises(StorePoisoned):
                store.submit("t", other, b"refused")
        answer(ticket, error)

    store.append("t", one, b"x")
    store.append("t", other, b"x")
    disk.fail = "write"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SubmitRequest, "answer", look)
        with pytest.raises(StorePoisoned):
            store.submit("t", one, b"lost").result(60)
    assert told[0] is not None
    store.close()


@pytest.mark.parametrize("broken", ["write", "force"])
def test_failed_write_poisons_appends_and_spares_reads(tmp_path: Path, broken: str) -> None:
    disk = FailingDisk()
    store = MessageStore.open(tmp_path, tiny(lanes=2), disk=disk)
    sent = {queue: {store.append("t", queue, b"x%d" % queue): b"x%d" % queue} for queue in range(8)}
    disk.fail = broken
    with pytest.raises(StorePoisoned):
        store.append("t", 0, b"lost")
    disk.fail = ""  # the device is well again: the store stays poisoned all the same
    for queue in range(8):
        with pytest.raises(StorePoisoned, match="open"):
            store.append("t", queue, b"refused")
    with pytest.raises(StorePoisoned):
        store.submit("t", 0, b"refused").result()
    with pytest.raises(StorePoisoned):
        store.append_batch([("t", 0, b"refused")])
    with pytest.raises(StorePoisoned):
        store.flush()
    assert store.stats()["poisoned"]
    queues = [("t", queue) for queue in range(8)]
    assert contents(store, queues) == {("t", queue): rows for queue, rows in sent.items()}
    store.close()
    with MessageStore.open(tmp_path, tiny()) as again:
        for queue in range(8):
            found = contents(again, [("t", queue)])["t", queue]
            assert {offset: found.get(offset) for offset in sent[queue]} == sent[queue]
            assert again.append("t", queue, b"new") == len(found)


def test_messages_that_a_recovery_finds_behind_a_failed_force_survive_the_next_power_cut(tmp_path: Path) -> None:
    """The kernel takes their blocks for clean, so a force alone brings them nowhere."""
    disk = SimulatedDisk()
    store = MessageStore.open(tmp_path, tiny(), disk=disk)
    store.append("t", 0, b"durable")
    disk.inject(Fault("force", for_good=True))
    with pytest.raises(StorePoisoned):
        store.append("t", 0, bytes(9000))
    left = disk.kill()
    store.close()
    left.inject()
    assert left.is_in_doubt()
    with MessageStore.open(tmp_path, tiny(), disk=left) as again:
        found = contents(again, [("t", 0)])
        assert len(found["t", 0]) == 2, "the kernel has the message"
        cuts = [left.crash(random.Random(seed), "none") for seed in range(5)]
    for cut in cuts:
        with MessageStore.open(tmp_path, tiny(), disk=cut) as last:
            assert contents(last, [("t", 0)]) == found


def test_seal_record_of_a_killed_process_is_durable_before_more_is_built_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the record's force: the kernel has it, the device has not. Retention then leaves nothing else that
    tells where queues begin."""
    monkeypatch.setattr(running, "RESUME_BELOW_BYTES", 0)  # a close seals the last segment
    disk = SimulatedDisk()
    records: list[Path] = []
    killed: list[SimulatedDisk] = []

    def note(operation: Operation) -> None:
        if operation.kind == "write" and (operation.position, operation.size) == (BLOCK_BYTES, BLOCK_BYTES):
            records.append(operation.path)
        elif operation.kind == "force" and operation.path in records and not killed:
            killed.append(disk.kill())

    with MessageStore.open(tmp_path, tiny(segment_bytes=1 << 20), disk=disk) as store:
        for _ in range(20):
            store.append_batch([("t", 0, b"")] * 10_000)
        until(lambda: store.stats()["segments"]["open"] == 1)
        disk.on_operation = note
    left = killed[0]
    with MessageStore.open(tmp_path, tiny(segment_bytes=1 << 20, retention_bytes=1), disk=left) as store:
        until(lambda: has_settled(store) and store.queue_bounds("t", 0)[0] > 65_536)
        bounds = store.queue_bounds("t", 0)
        cut = left.crash(random.Random(1), "none")
    with MessageStore.open(tmp_path, disk=cut.copy(), read_only=True) as reader:
        assert reader.queue_bounds("t", 0) == bounds == (bounds[0], 200_000)
    with MessageStore.open(tmp_path, tiny(), disk=cut) as again:
        assert again.queue_bounds("t", 0) == bounds


def test_failed_write_fails_everything_in_flight(tmp_path: Path) -> None:
    disk = FailingDisk()
    with MessageStore.open(tmp_path, tiny(segment_bytes=1 << 20), disk=disk) as store:
        store.append("t", 0, b"x")
        disk.fail = "write"
        tickets = []
        for _ in range(20):
            try:
                tickets.append(store.submit("t", 0, bytes(3000)))
            except StorePoisoned:
                break
        for ticket in tickets:
            with pytest.raises(StorePoisoned):
                ticket.result(PATIENCE_S)


def test_device_that_fails_at_close_is_an_error_of_ours_and_loses_nothing(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = MessageStore.open(tmp_path, tiny(), disk=disk)
    store.append("t", 0, b"x")
    disk.fail = "write"
    with contextlib.suppress(StoreError):
        store.close()
    with MessageStore.open(tmp_path, tiny()) as again:
        assert contents(again, [("t", 0)]) == {("t", 0): {0: b"x"}}


def test_frame_that_lacks_bytes_of_a_message_poisons_the_store_and_never_gets_into_the_log(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"first")
        stream = store._streams.get("t", 0)
        assert stream is not None
        broken = SubmitRequest(stream, b"", 40)  # as a bug would have it
        stream.lane.queue.put(broken)
        with pytest.raises(StorePoisoned):
            broken.result(PATIENCE_S)
    with MessageStore.open(tmp_path, tiny()) as store:
        assert contents(store, [("t", 0)]) == {("t", 0): {0: b"first"}}
