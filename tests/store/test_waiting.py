"""Readers that wait: woken for their own queue, never for another's, and never forgotten."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, OffsetOutOfRange, StoreClosed, StorePoisoned
from stratalog.store.device.clock import SystemClock
from stratalog.store.read import waiting as waiting_module
from stratalog.store.segment.open_table import OpenTable

from .disks import FailingDisk, GatedDisk
from .helpers import PATIENCE_S, Worker, start, tiny, until

AN_HOUR_MS = 3_600_000  # longer than a test may take: who waits is woken, or the test fails
FOR_EVER_S = 1e9


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, tiny(lanes=2)) as opened:
        yield opened


def quiet(store: MessageStore) -> None:
    """Wait until both flushers of every lane sleep: they have told of all that came."""
    until(lambda: all(len(queue._sleepers) == 2 for queue in store._queues))


class Reader:
    """Waits for a message of a queue, and counts how often it was awake."""

    def __init__(self, store: MessageStore, name: tuple[str, int]) -> None:
        self.looks = 0
        self.answers: list[bool] = []
        self._store, self._name = store, name
        self._before = store.queue_bounds(*name)[1]
        hung = len(store._waiting)
        self._worker = start(self._wait)
        until(lambda: len(store._waiting) == hung + 1 and self.looks == 1)

    def _wait(self) -> None:
        self.answers.append(self._store._waiting.wait(self._name, FOR_EVER_S, self._look))

    def _look(self) -> bool:
        self.looks += 1
        return self._store.queue_bounds(*self._name)[1] > self._before

    def join(self) -> None:
        """It was woken."""
        self._worker.join()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("queues", [1, 30])
def test_reader_sleeps_through_the_messages_of_other_queues(store: MessageStore, queues: int, known: bool) -> None:
    """`queues` a batch: fewer and more than there are readers. In two lanes whose streams have the same numbers."""
    if known:
        for queue in range(3):
            store.append("wanted", queue, b"first")
    quiet(store)
    readers = [Reader(store, ("wanted", queue)) for queue in range(3)]
    for turn in range(20):
        store.append_batch([("busy", queue, b"%d" % turn) for queue in range(queues)])
        store.append("busy", turn, b"alone")
    store.append("wanted", 1, b"it came")
    readers[1].join()
    store.flush()
    assert [reader.looks for reader in readers] == [1, 2, 1]
    store.append_batch([("wanted", 0, b"came"), ("busy", 0, b""), ("wanted", 2, b"came")])
    readers[0].join()
    readers[2].join()
    assert [reader.looks for reader in readers] == [2, 2, 2]
    assert len(store._waiting) == 0


def test_all_readers_of_a_queue_are_woken(store: MessageStore) -> None:
    readers = [Reader(store, ("wanted", 0)) for _ in range(5)]
    store.append("wanted", 0, b"came")
    for reader in readers:
        reader.join()
        assert (reader.looks, reader.answers) == (2, [True])


@pytest.mark.parametrize("alignment", ["pad", "trim"])
def test_no_message_is_slept_through(tmp_path: Path, alignment: str) -> None:
    """Each message is awaited for an hour, some before and some after it came; many frames are durable in parts."""
    with MessageStore.open(tmp_path, tiny(alignment=alignment)) as store:
        count = 400

        def follow(queue: int) -> None:
            for offset in range(count):
                assert store.read("t", queue, offset, 1, wait_ms=AN_HOUR_MS)[0].data == b"%d" % offset * 30

        followers = [start(follow, queue) for queue in range(3)]
        for offset in range(count):
            tickets = [store.submit("t", queue, b"%d" % offset * 30) for queue in range(3)]
            if offset % 7 == 0:
                tickets[-1].result(PATIENCE_S)
        for follower in followers:
            follower.join()


def test_message_that_comes_between_the_look_and_the_sleep_is_not_missed(store: MessageStore) -> None:
    """Appended within the look itself, which has answered "nothing" by then."""
    looks: list[int] = []

    def look() -> bool:
        looks.append(store.queue_bounds("wanted", 0)[1])
        if len(looks) == 1:
            store.append("wanted", 0, b"came")
            until(lambda: len(store._waiting) == 0)  # the flusher tells of it a moment after its answer
        return looks[-1] > 0

    waiting = start(lambda: store._waiting.wait(("wanted", 0), FOR_EVER_S, look))
    waiting.join()
    assert looks == [0, 1]


class SleepersClock(SystemClock):
    """A clock that only sleepers move; stands for the module `threading` as well."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic_s(self) -> float:
        return self.now

    def Lock(self) -> Any:
        clock = self

        class Bell:
            def acquire(self, timeout: float = 0.0) -> bool:
                clock.now += timeout
                return timeout == 0.0

        return Bell()


@pytest.mark.parametrize("name", [("t", 1), ("unknown", 0)])
def test_wait_ends_when_its_time_is_up_and_not_later(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, name: tuple[str, int]
) -> None:
    store.append("t", 0, b"x")
    clock = SleepersClock()
    monkeypatch.setattr(store._shared, "clock", clock)
    monkeypatch.setattr(store._waiting, "_clock", clock)
    monkeypatch.setattr(waiting_module, "threading", clock)
    assert store.read(*name, wait_ms=60) == []
    assert clock.now == pytest.approx(1000.06)
    assert len(store._waiting) == 0


@pytest.mark.parametrize("wait_ms", [10**15, 10**400])
def test_wait_may_be_longer_than_a_lock_can_wait(store: MessageStore, wait_ms: int) -> None:
    found: list[bytes] = []
    waiting = start(lambda: found.append(store.read("t", 0, wait_ms=wait_ms)[0].data))
    until(lambda: len(store._waiting) == 1)
    store.append("t", 0, b"came")
    waiting.join()
    assert found == [b"came"]


def test_wait_for_a_far_offset_is_out_of_range(store: MessageStore) -> None:
    store.append("t", 0, b"x")
    for topic in ("t", "unknown"):
        with pytest.raises(OffsetOutOfRange):
            store.read(topic, 0, 5, wait_ms=AN_HOUR_MS)


def test_wait_for_no_messages_is_over_at_once(store: MessageStore) -> None:
    assert store.read("t", 0, max_messages=0, wait_ms=AN_HOUR_MS) == []


def test_close_wakes_every_reader(store: MessageStore) -> None:
    store.append("t", 0, b"x")

    def wait(topic: str, offset: int) -> None:
        store.read(topic, 0, offset, wait_ms=AN_HOUR_MS)

    waiting = [start(wait, *given) for given in (("t", 1), ("t", 1), ("unknown", 0))]
    until(lambda: len(store._waiting) == 3)
    store.close()
    for worker in waiting:
        with pytest.raises(StoreClosed):
            worker.join()


def test_failed_write_wakes_every_reader_and_reads_go_on(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = MessageStore.open(tmp_path, tiny(), disk=disk)
    store.append("t", 0, b"first")
    quiet(store)
    reader = Reader(store, ("t", 1))
    disk.fail = "write"
    with pytest.raises(StorePoisoned):
        store.append("t", 2, b"lost")
    until(lambda: reader.looks >= 2)  # more, where both flushers tell of it
    assert store.read("t", 0, wait_ms=AN_HOUR_MS)[0].data == b"first"
    store.close()
    with pytest.raises(StoreClosed):
        reader.join()


class Interrupted(BaseException):
    """What is thrown into a waiting thread."""


def interrupt(worker: Worker) -> None:
    assert worker.thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(worker.thread.ident), ctypes.py_object(Interrupted))


def test_interrupted_wait_leaves_nothing_behind(tmp_path: Path) -> None:
    """Its thread is woken by a message of its queue, and finds the interrupt; the next reader gets that message."""
    disk = GatedDisk()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        store.append("t", 0, b"first")
        waiting = start(lambda: store.read("t", 1, wait_ms=AN_HOUR_MS))
        until(lambda: len(store._waiting) == 1)
        interrupt(waiting)  # a thread that sleeps on a lock hears of it when it is woken
        store._waiting.wake_all()
        with pytest.raises(Interrupted):
            waiting.join()
        assert len(store._waiting) == 0
        other = Reader(store, ("t", 1))
        store.append("t", 1, b"second")
        other.join()


def test_bell_of_nobody_is_rung_once_and_gone(store: MessageStore) -> None:
    """What an interrupt in the unluckiest place leaves behind."""
    bell = threading.Lock()
    bell.acquire()
    store._waiting._bells["t", 0] = {bell: None}
    reader = Reader(store, ("t", 0))
    store.append("t", 0, b"came")
    reader.join()
    assert bell.acquire(timeout=PATIENCE_S)
    assert len(store._waiting) == 0


def test_writes_look_nothing_up_while_nobody_waits(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    few_numbers = OpenTable.few_numbers

    def note(table: OpenTable, begin: int, end: int) -> list[int]:
        looked.append(end - begin)
        return few_numbers(table, begin, end)

    monkeypatch.setattr(OpenTable, "few_numbers", note)
    store.append_batch([("t", queue, b"x") for queue in range(10)])
    quiet(store)
    assert looked == []
    reader = Reader(store, ("t", 0))
    looked.clear()  # its look has made rows
    store.append_batch([("t", 0, b"y")] * 3)
    reader.join()
    assert looked[0] == 3
