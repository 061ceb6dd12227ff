"""The publish buffer: its cap, who waits at it and how that ends; order; flush as a barrier."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.store import MessageStore, PublishBufferFull, StoreClosed, StoreFull, Ticket
from stratalog.store.log import row_build
from stratalog.store.log.request import Barrier
from stratalog.store.log.ticket import SubmitRequest

from .disks import GatedDisk
from .helpers import PATIENCE_S, start, tiny, until
from .interrupts import Interrupted

CAP = 4096
KILO = bytes(1000)


class Stage:
    """A store whose disk has a gate, with one durable message in queue ("t", 0)."""

    def __init__(self, path: Path, timeout_ms: int) -> None:
        self.disk = GatedDisk()
        config = tiny(publish_buffer_bytes=CAP, append_timeout_ms=timeout_ms)
        self.store = MessageStore.open(path, config, disk=self.disk)
        self.store.append("t", 0, b"first")

    def fill(self) -> list[Ticket]:
        """Shut the gate, and hand messages over until one more would not fit."""
        self.disk.gate.clear()
        return [self.store.submit("t", 0, KILO) for _ in range(CAP // 1000)]

    def end(self) -> None:
        self.disk.gate.set()
        self.store.close()


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, 30_000)
    yield stage
    stage.end()


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, 60)
    yield stage
    stage.end()


def test_append_waits_while_the_buffer_is_full(patient: Stage) -> None:
    tickets = patient.fill()
    waiting = start(patient.store.append, "t", 0, KILO)
    until(lambda: len(patient.store._queues[0]._line) == 1)
    assert waiting.thread.is_alive()
    assert not any(ticket.done() for ticket in tickets)
    patient.disk.gate.set()
    waiting.join()
    assert [ticket.result() for ticket in tickets] == [1, 2, 3, 4]
    assert patient.store.queue_bounds("t", 0) == (0, 6)


def test_submit_and_append_batch_wait_as_well(patient: Stage) -> None:
    patient.fill()
    waiting = [start(patient.store.submit, "t", 0, KILO), start(patient.store.append_batch, [("t", 0, KILO)])]
    until(lambda: len(patient.store._queues[0]._line) == 2)
    assert all(worker.thread.is_alive() for worker in waiting)
    patient.disk.gate.set()
    for worker in waiting:
        worker.join()
    patient.store.flush()
    assert patient.store.queue_bounds("t", 0) == (0, 7)


def test_full_buffer_is_an_error_after_the_timeout_and_the_message_is_not_accepted(hasty: Stage) -> None:
    tickets = hasty.fill()
    began = time.monotonic()
    with pytest.raises(PublishBufferFull, match="publish_buffer_bytes"):
        hasty.store.append("t", 0, KILO)
    assert time.monotonic() - began > 0.05
    with pytest.raises(PublishBufferFull):
        hasty.store.submit("t", 0, KILO)
    with pytest.raises(PublishBufferFull):
        hasty.store.append_batch([("t", 0, KILO)])
    hasty.disk.gate.set()
    assert [ticket.result() for ticket in tickets] == [1, 2, 3, 4]
    assert hasty.store.append("t", 0, b"after") == 5


def test_message_larger_than_the_cap_is_accepted_into_an_empty_buffer(patient: Stage) -> None:
    assert patient.store.append("t", 0, bytes(3 * CAP)) == 1
    assert patient.store.append_batch([("t", 0, bytes(CAP)), ("t", 0, bytes(CAP))]).tolist() == [2, 3]


def used_bytes(store: MessageStore) -> int:
    used = store.stats()["publish_buffer"]["used_bytes"]
    assert isinstance(used, int)
    return used


def test_what_is_not_durable_counts_and_is_given_back(patient: Stage) -> None:
    patient.disk.gate.clear()
    tickets = [
        patient.store.submit("t", 0, KILO, key=b"k" * 100, properties={"a": "b"}), patient.store.submit("t", 1, KILO)
    ]  # fmt: skip
    batch = start(patient.store.append_batch, [("t", 0, b"x" * 500), ("t", 1, b"x" * 300)])
    expected = 1000 + 100 + len('{"a":"b"}') + 1000 + 500 + 300
    until(lambda: used_bytes(patient.store) == expected)
    assert not any(ticket.done() for ticket in tickets)
    patient.disk.gate.set()
    batch.join()
    for _ in range(50):
        patient.store.append("t", 0, KILO, key=b"k" * 100, properties={"a": "b"})
    until(lambda: used_bytes(patient.store) == 0)


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_cap_is_over_all_lanes(tmp_path: Path, lanes: int) -> None:
    cap, size = 64 << 10, 1000
    disk = GatedDisk()
    config = tiny(lanes=lanes, publish_buffer_bytes=cap, append_timeout_ms=0, segment_bytes=1 << 20)
    with MessageStore.open(tmp_path, config, disk=disk) as store:
        queues = [next(q for q in range(99) if store._appender._stream("t", q).lane is lane) for lane in store._lanes]
        store.append_batch([("t", queue, b"first") for queue in queues])
        until(lambda: used_bytes(store) == 0)
        disk.gate.clear()
        for queue in queues:
            with pytest.raises(PublishBufferFull):
                for _ in range(cap // size + 1):
                    store.submit("t", queue, bytes(size))
        used = used_bytes(store)
        disk.gate.set()
        assert cap - lanes * size < used <= cap
        assert store.stats()["publish_buffer"]["cap_bytes"] == cap


@pytest.mark.parametrize("before", [True, False])
def test_flush_does_not_fail_with_a_message_that_has_no_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """They stand in one batch: the messages get the error, the barrier waits for what came before it."""
    disk = GatedDisk()
    store = MessageStore.open(tmp_path, tiny(), disk=disk)
    earlier = []
    if before:
        store.append("t", 0, b"first")
        disk.gate.clear()
        earlier = [store.submit("t", 0, b"earlier")]
        until(lambda: store._queues[0]._in_flight > 0)
    queue = store._queues[0]
    with monkeypatch.context() as patched:

        def full(*_given: object) -> None:
            raise StoreFull("no space for another segment")

        patched.setattr(row_build, "make_room", full)
        with queue._lock:  # so that no builder takes one without the other
            ticket, barrier = SubmitRequest(store._appender._stream("t", 0), b"lost", 4), Barrier()
            for request in (ticket, barrier):
                queue._accept(request, request.size_bytes)
        if before:
            disk.gate.set()
        assert barrier.result(PATIENCE_S) == -1
        with pytest.raises(StoreFull):
            ticket.result(PATIENCE_S)
        assert [each.result() for each in earlier] == [1] * before
        until(lambda: queue._under_way == 0)
    store.flush()
    assert store.append("t", 0, b"next") == 2 * before
    store.close()


def flush_waits(store: MessageStore) -> bool:
    """A flush has handed its barrier over, and is not answered."""
    waiting = [*store._queues[0]._items]
    for frame in [*store._lanes[0].under_way._pending]:
        waiting += frame.requests
    return any(type(request) is Barrier for request in waiting)


def test_flush_waits_for_what_was_handed_over_before(patient: Stage) -> None:
    patient.disk.gate.clear()
    ticket = patient.store.submit("t", 0, b"x")
    flushing = start(patient.store.flush)
    until(lambda: flush_waits(patient.store))
    assert flushing.thread.is_alive()
    patient.disk.gate.set()
    flushing.join()
    assert ticket.done()


def test_many_threads_may_wait_for_one_ticket(patient: Stage) -> None:
    patient.disk.gate.clear()
    ticket = patient.store.submit("t", 0, b"x")
    assert isinstance(ticket, SubmitRequest)
    results: list[int] = []
    waiting = [start(lambda: results.append(ticket.result())) for _ in range(5)]
    until(lambda: len(ticket._waiters or ()) == 5)
    patient.disk.gate.set()
    for worker in waiting:
        worker.join()
    assert results == [1] * 5


def test_close_refuses_who_waits_for_space_and_keeps_what_was_accepted(patient: Stage) -> None:
    tickets = patient.fill()
    waiting = start(patient.store.append, "t", 0, KILO)
    until(lambda: len(patient.store._queues[0]._line) == 1)
    closing = start(patient.store.close)
    with pytest.raises(StoreClosed):
        waiting.join()
    patient.disk.gate.set()
    closing.join()
    assert [ticket.result() for ticket in tickets] == [1, 2, 3, 4]


def test_producers_are_answered_though_nobody_follows(patient: Stage) -> None:
    """The last slow producers of a run never stall: a batch of one is a batch."""
    barrier = threading.Barrier(4)

    def produce(count: int) -> None:
        barrier.wait()
        for _ in range(count):
            patient.store.append("t", 1, b"x" * 50)

    workers = [start(produce, count) for count in (1, 10, 50, 200)]
    for worker in workers:
        worker.join()
    assert patient.store.queue_bounds("t", 1) == (0, 261)


def test_flush_of_a_lane_that_has_nothing_leaves_nobody_under_way(tmp_path: Path) -> None:
    """The sizer would take each for a producer that is about to come, and hold tails back for it."""
    with MessageStore.open(tmp_path, tiny()) as store:
        for _ in range(5):
            store.flush()
        store.append("t", 0, b"x")
        until(lambda: store._queues[0]._under_way == 0)


@pytest.mark.parametrize("woken", [False, True])
def test_interrupt_of_a_wake_up_leaves_no_message_that_nobody_looks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, woken: bool
) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"first")
        queue = store._queues[0]
        until(lambda: len(queue._sleepers) == 2)
        wake = queue._wake_builder

        def interrupted() -> None:
            if woken:
                wake()
            raise Interrupted

        with monkeypatch.context() as patched:
            patched.setattr(queue, "_wake_builder", interrupted)
            with pytest.raises(Interrupted):
                store.submit("t", 0, b"never handed over")
        until(lambda: len(queue._sleepers) == 2)
        assert (len(queue._items), queue.used_bytes) == (0, 0)
        assert store.append("t", 0, b"next") == 1
