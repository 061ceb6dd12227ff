"""Readers that wait: woken for their own queue, never for another's, and never forgotten."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import InvalidMessage, MessageStore, OffsetOutOfRange, StoreClosed, StorePoisoned
from stratalog.store.read import waiting as waiting_module
from stratalog.store.read.async_reads import Looked, Wanted
from stratalog.store.read.waiting import Missing, ThreadRead
from stratalog.store.segment.open_table import OpenTable
from stratalog.store.segment.sealed import SealedSegment

from ..clocks import SteppedClock
from .disks import FailingDisk, GatedDisk
from .helpers import KIB, PATIENCE_S, crash_copy, flip_bit, full_frames, segment_path, start, tiny, until
from .interrupts import Interrupted, interrupt

AN_HOUR_MS = 3_600_000  # longer than a test may take: who waits is woken, or the test fails


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, tiny(lanes=2)) as opened:
        yield opened


def quiet(store: MessageStore) -> None:
    """Wait until both flushers of every lane sleep: they have told of all that came."""
    until(lambda: all(len(queue._sleepers) == 2 for queue in store._queues))


class Reader:
    """Waits in a thread for the next message of a queue, and counts how often it was awake."""

    def __init__(self, store: MessageStore, name: tuple[str, int], **wanted: int) -> None:
        self.looks = 0
        self.found: list[bytes] = []
        self._store, self._name, self._wanted = store, name, wanted
        self._offset = store.queue_bounds(*name)[1]
        waiting = len(store._waiting)
        self._worker = start(self._read)
        until(lambda: len(store._waiting) == waiting + 1)

    def _read(self) -> None:
        fetcher: Any = self._store._fetcher
        wanted, wait_ms = fetcher._wanted(
            *self._name, self._offset, 1000, 1 << 20, AN_HOUR_MS, **{"min_messages": 1, "min_bytes": 0, **self._wanted}
        )
        while not self.found:
            self.looks += 1
            looked = fetcher.look(wanted)
            missing = wanted.missing(looked)
            if missing is None:
                self.found = [message.data for message in looked.found]
            else:
                self._store._waiting.wait(wanted.name, missing, self._store._waiting.deadline_after(wait_ms))

    @property
    def is_asleep(self) -> bool:
        return not self.found

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
        assert (reader.looks, reader.found) == (2, [b"came"])


def test_readers_of_all_queues_of_a_batch_are_woken(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=1)) as store:
        readers = [Reader(store, ("wanted", queue)) for queue in range(5)]
        store.append_batch([("wanted", queue, b"came") for queue in range(5)])
        for reader in readers:
            reader.join()
            assert (reader.looks, reader.found) == (2, [b"came"])


@pytest.mark.parametrize("alignment", ["pad", "trim"])
def test_no_message_is_slept_through(tmp_path: Path, alignment: str) -> None:
    """Each message is awaited for an hour, some before and some after it came; many frames are durable in parts."""
    with MessageStore.open(tmp_path, tiny(alignment=alignment)) as store:
        count = 400

        def follow(queue: int) -> None:
            for offset in range(count):
                assert store.read("t", queue, offset, max_messages=1, wait_ms=AN_HOUR_MS)[0].data == b"%d" % offset * 30

        followers = [start(follow, queue) for queue in range(3)]
        for offset in range(count):
            tickets = [store.submit("t", queue, b"%d" % offset * 30) for queue in range(3)]
            if offset % 7 == 0:
                tickets[-1].result(PATIENCE_S)
        for follower in followers:
            follower.join()


def test_message_that_comes_between_the_look_and_the_sleep_is_not_missed(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appended behind the look, which has found nothing; the flusher has told of it before anybody waits."""
    fetcher, looks = store._fetcher, list[int]()
    look = fetcher.look

    def look_and_append(wanted: Wanted) -> Looked:
        looked = look(wanted)
        looks.append(len(looked.found))
        if len(looks) == 1:
            store.append("wanted", 0, b"came")
            quiet(store)
        return looked

    monkeypatch.setattr(fetcher, "look", look_and_append)
    found: list[bytes] = []
    start(lambda: found.append(store.read("wanted", 0, wait_ms=AN_HOUR_MS)[0].data)).join()
    assert (looks, found) == ([0, 1], [b"came"])


@pytest.mark.parametrize("name", [("t", 1), ("unknown", 0)])
@pytest.mark.parametrize("step_ms", [1, 60, 3_600_000])
def test_wait_ends_when_its_time_is_up_and_not_earlier(tmp_path: Path, name: tuple[str, int], step_ms: int) -> None:
    clock = SteppedClock()
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        store.append("t", 0, b"x")
        ends: list[float] = []

        def read() -> None:
            assert store.read(*name, wait_ms=60) == []
            ends.append(clock.monotonic_s())

        waiting = start(read)
        until(lambda: len(store._waiting) == 1)
        began = clock.monotonic_s()
        timers = store._waiting._timers
        assert timers is not None
        while not ends:
            clock.now += step_ms / 1000
            timers.wake()
            until(lambda: bool(ends) or timers.wheel.next_deadline_ms is None or clock.now - began < 0.06)
        waiting.join()
        assert ends[0] >= began + 0.06
        assert len(store._waiting) == 0
        clock.now = float(math.ceil(clock.now))  # a whole millisecond: else closing waits for one that never comes


@pytest.mark.parametrize("wait_ms", [10**15, 10**400])
def test_wait_may_be_longer_than_a_lock_can_wait(store: MessageStore, wait_ms: int) -> None:
    found: list[bytes] = []
    waiting = start(lambda: found.append(store.read("t", 0, wait_ms=wait_ms)[0].data))
    until(lambda: len(store._waiting) == 1)
    store.append("t", 0, b"came")
    waiting.join()
    assert found == [b"came"]


def test_reads_wait_where_there_can_be_no_thread(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the program ends: they look again and again."""

    def refuse(*given: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(waiting_module, "TimerThread", refuse)
    assert store.read("t", 0, wait_ms=50) == []
    assert asyncio.run(store.read_async("t", 0, wait_ms=50)) == []
    found: list[bytes] = []
    waiting = start(lambda: found.append(store.read("t", 0, wait_ms=AN_HOUR_MS)[0].data))
    store.append("t", 0, b"came")
    waiting.join()
    assert found == [b"came"]


def test_looks_of_the_flusher_and_of_a_loop_read_no_footer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be on the device, for which only a reader waits."""
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("idle", 0, b"x")
        for _ in range(300):
            store.append("t", 0, bytes(1000))
        until(lambda: store.stats()["segments"]["open"] == 1)
        readers = threading.local()
        first_of = SealedSegment.first_of

        def noted(segment: SealedSegment, number: int) -> tuple[int, int]:
            assert not getattr(readers, "is_told", False)
            return first_of(segment, number)

        monkeypatch.setattr(SealedSegment, "first_of", noted)
        reader = Reader(store, ("idle", 0))
        readers.is_told = True
        store._waiting.look_at_all()
        read = ThreadRead(store._waiting, ("idle", 0), Missing(1, 1, 0, 1, store._lanes[0].view.sealed.span, 1), 1000)
        assert not read.try_complete()
        assert ThreadRead(
            store._waiting, ("idle", 0), Missing(1, 1, 0, 1, (0, 0, 0), 1), 1000
        ).try_complete()  # to find out
        readers.is_told = False
        store.append("idle", 0, b"came")
        reader.join()


def test_wait_for_a_far_offset_is_out_of_range(store: MessageStore) -> None:
    store.append("t", 0, b"x")
    for topic in ("t", "unknown"):
        with pytest.raises(OffsetOutOfRange):
            store.read(topic, 0, 5, wait_ms=AN_HOUR_MS)


def test_read_waits_until_there_are_enough_messages(store: MessageStore) -> None:
    """It is completed by the append that satisfies it, and sleeps through those before."""
    reader = Reader(store, ("t", 0), min_messages=5)
    for number in range(4):
        store.append("t", 0, b"%d" % number)
    quiet(store)
    assert reader.is_asleep and reader.looks == 1
    store.append_batch([("t", 0, b"4"), ("t", 0, b"5")])
    reader.join()
    assert (reader.looks, reader.found) == (2, [b"0", b"1", b"2", b"3", b"4", b"5"])


def test_read_waits_until_there_are_enough_bytes(store: MessageStore) -> None:
    store.append("t", 0, b"before")
    reader = Reader(store, ("t", 0), min_messages=2, min_bytes=1000)
    for size in (600, 399):
        store.append("t", 0, bytes(size))
        store.append("t", 1, bytes(999))
        quiet(store)
        assert reader.is_asleep and reader.looks == 1
    store.append("t", 0, b"x")
    reader.join()
    assert (reader.looks, reader.found) == (2, [bytes(600), bytes(399), b"x"])


def test_read_that_waits_for_more_than_it_may_return_is_over_when_it_is_full(store: MessageStore) -> None:
    found: list[int] = []

    def read(**wanted: int) -> None:
        found.append(len(store.read("t", 0, wait_ms=AN_HOUR_MS, **wanted)))

    wanted = [
        {"max_messages": 3, "min_messages": 10}, {"max_bytes": 100, "min_bytes": 1000},
        {"max_bytes": 100, "min_messages": 10},
    ]  # fmt: skip
    full = [start(partial(read, **given)) for given in wanted]
    until(lambda: len(store._waiting) == 3)
    for _ in range(3):
        store.append("t", 0, bytes(40))
    for one in full:
        one.join()
    assert sorted(found) == [2, 2, 3]
    assert len(store.read("t", 0, wait_ms=AN_HOUR_MS, max_bytes=100, min_messages=10)) == 2  # it is cut at once


def test_read_returns_what_there_is_when_its_time_is_up(store: MessageStore) -> None:
    store.append("t", 0, b"x")
    assert [message.data for message in store.read("t", 0, wait_ms=20, min_messages=2)] == [b"x"]
    assert store.read("t", 0, 1, wait_ms=20, min_bytes=1) == []
    assert store.read("t", 0, 1, wait_ms=AN_HOUR_MS, min_messages=0) == []
    assert [message.data for message in store.read("t", 0, min_messages=2)] == [b"x"]  # it does not wait
    for name in ("min_messages", "min_bytes"):
        wrong: tuple[Any, ...] = (-1, 1.5, "1", None)
        for value in wrong:
            for wait_ms in (0, 1):
                with pytest.raises(InvalidMessage, match=name):
                    store.read("t", 0, wait_ms=wait_ms, **{name: value})


def test_read_that_waits_for_many_goes_on_through_new_segments(tmp_path: Path) -> None:
    """What came in segments that were sealed meanwhile is counted, too."""
    with MessageStore.open(tmp_path, tiny()) as store:
        reader = Reader(store, ("t", 0), min_messages=400, min_bytes=400)
        for _ in range(399):
            store.append("t", 0, bytes(1000))
        until(lambda: store.stats()["segments"]["sealed"] > 0)
        quiet(store)
        assert reader.is_asleep
        store.append("t", 0, b"")
        reader.join()
        assert len(reader.found) == 400


def test_wait_for_no_messages_is_over_at_once(store: MessageStore) -> None:
    assert store.read("t", 0, max_messages=0, wait_ms=AN_HOUR_MS) == []


def test_an_empty_message_is_enough_for_a_read_that_waits_unless_bytes_are_asked_for(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append("t", 0, b"")
    quiet(store)
    monkeypatch.setattr(store._waiting, "wait", lambda *_: pytest.fail("it sleeps"))
    assert [one.data for one in store.read("t", 0, wait_ms=AN_HOUR_MS)] == [b""]
    assert [one.data for one in store._fetcher.read("t", 0, 0, 32, 100, AN_HOUR_MS)] == [b""]
    assert [one.data for one in asyncio.run(asyncio.wait_for(store.read_async("t", 0, wait_ms=AN_HOUR_MS), 5))] == [b""]
    by_default = store._fetcher.read_async("t", 0, 0, 32, 100, AN_HOUR_MS)
    assert [one.data for one in asyncio.run(asyncio.wait_for(by_default, 5))] == [b""]
    looked = store._fetcher.look(Wanted("t", 0, 0, 32, 100))
    assert Wanted("t", 0, 0, 32, 100).missing(looked) is None
    assert Wanted("t", 0, 0, 32, 100, min_bytes=1).missing(looked) is not None
    assert not Wanted("t", 0, 0, 32, 100).is_choosy


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


def test_failed_write_leaves_readers_waiting_and_reads_go_on(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = MessageStore.open(tmp_path, tiny(), disk=disk)
    store.append("t", 0, b"first")
    quiet(store)
    reader = Reader(store, ("t", 1))
    disk.fail = "write"
    with pytest.raises(StorePoisoned):
        store.append("t", 2, b"lost")
    assert store.read("t", 0, wait_ms=AN_HOUR_MS)[0].data == b"first"
    store.close()
    with pytest.raises(StoreClosed):
        reader.join()


def test_interrupted_wait_leaves_nothing_behind(tmp_path: Path) -> None:
    """Its thread is woken by a message of its queue, and finds the interrupt; the next reader gets that message."""
    disk = GatedDisk()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        store.append("t", 0, b"first")
        waiting = start(lambda: store.read("t", 1, wait_ms=AN_HOUR_MS))
        until(lambda: len(store._waiting) == 1)
        while waiting.thread.is_alive():  # a callback of the collector's may have taken the first one for itself
            interrupt(waiting.thread)  # a thread that sleeps on a lock hears of it when it is woken
            store._waiting.wake_all()
            waiting.thread.join(1)
        with pytest.raises(Interrupted):
            waiting.join()
        assert len(store._waiting) == 0
        other = Reader(store, ("t", 1))
        store.append("t", 1, b"second")
        other.join()


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


def test_trim_wakes_a_read_that_waits_for_more_behind_messages_that_are_removed(store: MessageStore) -> None:
    store.append_batch([("t", 0, b"%d" % number) for number in range(3)])
    told: list[object] = []

    def read() -> None:
        try:
            told.append(store.read("t", 0, 0, wait_ms=AN_HOUR_MS, min_messages=9))
        except OffsetOutOfRange as error:
            told.append(error.first)

    reader = start(read)
    until(lambda: len(store._waiting) == 1)
    store.trim("t", 0, 2)
    reader.join(PATIENCE_S)
    assert told == [2]


def test_read_waits_on_behind_messages_that_a_repair_has_given_up(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        for number in range(4):
            store.append("t", 0, b"%d" % number)
        crash_copy(tmp_path / "s", tmp_path / "killed")
    last = full_frames(segment_path(tmp_path / "killed", 1))[-1]
    with MessageStore.open(tmp_path / "killed", tiny()) as store:  # its mark vouches for the last frame
        store.append("t", 1, b"x")
        crash_copy(tmp_path / "killed", tmp_path / "damaged")
    flip_bit(segment_path(tmp_path / "damaged", 1), last.payload_start)
    with MessageStore.open(tmp_path / "damaged", tiny(), repair=True) as store:
        assert store.queue_bounds("t", 0) == (0, 4)
        found: list[bytes] = []

        def read() -> None:
            found.extend(message.data for message in store.read("t", 0, wait_ms=AN_HOUR_MS, min_messages=5))

        reader = start(read)
        until(lambda: len(store._waiting) == 1)
        store.append("t", 0, b"4")
        quiet(store)
        assert not found
        store.append("t", 0, b"5")
        reader.join(PATIENCE_S)
        assert found == [b"0", b"1", b"2", b"4", b"5"]


def test_a_read_that_waits_keeps_no_segment_that_retention_removes(tmp_path: Path) -> None:
    """Each would keep its file and a descriptor, for as long as nothing comes."""
    with MessageStore.open(tmp_path, tiny(retention_bytes=10 * 64 * KIB)) as store:
        store.append("idle", 0, b"x")
        while len(store._lanes[0].view.sealed) < 5:
            store.append_batch([("busy", 0, bytes(7000))] * 8)
        reader = Reader(store, ("idle", 0))
        known = [weakref.ref(one) for one in store._lanes[0].view.sealed]
        while store._lanes[0].view.sealed.span[0] < 12:
            store.append_batch([("busy", 0, bytes(7000))] * 8)
        until(lambda: gc.collect() >= 0 and not any(one() for one in known))
        store.append("idle", 0, b"came")
        reader.join()
