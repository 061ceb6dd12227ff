"""A clock that a test moves wakes all that sleep by it, and nobody else ends their sleep."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stratalog.index import TimerThread, TimingWheel
from stratalog.store import Message, MessageStore, PublishBufferFull, StoreReader
from stratalog.store.format.live_page import LIVE_FILE
from stratalog.store.testing import SimulatedDisk, VirtualClock

from ..seeds import draw_seed
from .disks import GatedDisk
from .helpers import KIB, PATIENCE_S, start, tiny, until

DAY_MS = 86_400_000
ODD_MS = [1, 57, 300, 1001, 1003, 4350, 65_535, 86_400_001]  # of which some fractions of a second are not exact


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(tmp_path: Path, clock: VirtualClock) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as opened:
        yield opened


def sleeps(store: StoreReader, count: int = 1) -> None:
    """Return once so many reads wait."""
    until(lambda: len(store._waiting) == count)


# -- the clock ----------------------------------------------------------------------------------------


def test_time_passes_only_when_the_clock_is_moved() -> None:
    clock = VirtualClock(start_ms=5_000)
    assert (clock.wall_ms(), before := clock.monotonic_s()) == (5_000, before)
    assert clock.advance(ms=1_500) == clock.wall_ms() == 6_500
    assert clock.monotonic_s() - before == pytest.approx(1.5)
    assert clock.jump_wall(ms=-6_000) == clock.wall_ms() == 500
    assert clock.monotonic_s() - before == pytest.approx(1.5)


def test_the_monotonic_time_is_a_whole_number_of_ms_after_any_moves() -> None:
    clock, chance = VirtualClock(), random.Random(draw_seed())
    first, passed = clock.monotonic_s() * 1000, 0
    for ms in [*ODD_MS, *(chance.randrange(10 ** chance.randrange(1, 11)) for _ in range(300)), 100 * 365 * DAY_MS]:
        clock.advance(ms=ms)
        passed += ms
        assert clock.monotonic_s() * 1000 == first + passed


@pytest.mark.parametrize("wrong", [1.5, True, "1", None])
def test_what_is_no_whole_number_of_ms_is_refused(wrong: Any) -> None:
    clock = VirtualClock()
    for call in (lambda: clock.advance(ms=wrong), lambda: clock.jump_wall(ms=wrong), lambda: VirtualClock(wrong)):
        with pytest.raises(TypeError, match="is an int, a number of milliseconds"):
            call()


def test_times_out_of_range_are_refused_and_nothing_has_moved() -> None:
    clock = VirtualClock(start_ms=100)
    before = clock.monotonic_s()
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: clock.advance(ms=-1), "time does not go back"),
        (lambda: clock.jump_wall(ms=-101), "is from 0 to"),
        (lambda: clock.jump_wall(ms=1 << 60), "is from 0 to"),
        (lambda: clock.advance(ms=201 * 365 * DAY_MS), "moves by at most"),
        (lambda: VirtualClock(-1), "is from 0 to"),
    ]
    for call, sentence in refused:
        with pytest.raises(ValueError, match=sentence):
            call()
    assert (clock.wall_ms(), clock.monotonic_s()) == (100, before)


def test_moves_by_many_threads_all_count() -> None:
    clock = VirtualClock(start_ms=0)
    workers = [start(lambda: [clock.advance(ms=1) for _ in range(500)]) for _ in range(4)]
    for worker in workers:
        worker.join()
    assert clock.wall_ms() == 2_000


def test_one_that_cannot_be_woken_keeps_the_others_from_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def wake(self) -> None:
            raise RuntimeError("broken")

    class Sound:
        woken = 0

        def wake(self) -> None:
            self.woken += 1

    clock, broken, sound = VirtualClock(), Broken(), Sound()
    clock.watch(broken)
    clock.watch(sound)
    with caplog.at_level(logging.ERROR, "stratalog"):
        clock.advance(ms=1)
    assert sound.woken == 1
    assert "could not be told that its clock was moved" in caplog.text
    clock.forget(sound)
    clock.forget(sound)
    clock.advance(ms=1)
    assert sound.woken == 1


def test_a_clock_keeps_nothing_of_stores_that_were_closed_or_dropped(tmp_path: Path, clock: VirtualClock) -> None:
    for at in range(3):
        store = MessageStore.open(tmp_path / f"{at}", tiny(), clock=clock)
        store.append("t", 0, b"x")
        waiting = start(partial(store.read, "t", 1, wait_ms=1_000))
        sleeps(store)
        assert clock._sleepers
        clock.advance(ms=1_000)
        waiting.join()
        with store.subscribe("t", "s") as sub:
            sub.receive()
        store.close()
        assert not clock._sleepers  # while the program has the store, closed
    with pytest.warns(ResourceWarning):
        dropped = weakref.ref(store := MessageStore.open(tmp_path / "dropped", tiny(), clock=clock))
        store.append("t", 0, b"x", deliver_at_ms=clock.wall_ms() + 5)
        del store
        gc.collect()
    assert dropped() is None
    until(lambda: not gc.collect() and not clock._sleepers)
    clock.advance(ms=DAY_MS)


def test_a_thread_of_timers_goes_by_the_clock(clock: VirtualClock) -> None:
    rung = threading.Event()
    with TimerThread(TimingWheel(), clock) as timers:
        for ms in ODD_MS:
            rung.clear()
            timers.add_after(ms, rung.set)
            clock.advance(ms=ms - 1)
            assert not rung.wait(0.01)
            clock.advance(ms=1)
            assert rung.wait(PATIENCE_S)
    assert not clock._sleepers


# -- reads --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait_ms", [*ODD_MS, DAY_MS])
def test_a_thread_that_reads_waits_until_the_clock_has_moved_so_far_and_no_shorter(
    store: MessageStore, clock: VirtualClock, wait_ms: int
) -> None:
    clock.advance(ms=100)
    found: list[list[Message]] = []
    reader = start(lambda: found.append(store.read("t", 0, wait_ms=wait_ms)))
    sleeps(store)
    clock.advance(ms=wait_ms - 1)
    time.sleep(0.02)
    assert not found
    clock.advance(ms=1)
    reader.join()
    assert found == [[]]


def test_a_wait_of_a_moment_does_not_end_by_the_time_of_the_machine(store: MessageStore, clock: VirtualClock) -> None:
    found: list[list[Message]] = []
    reader = start(lambda: found.append(store.read("t", 0, wait_ms=1)))
    sleeps(store)
    time.sleep(1.2)  # longer than a thread sleeps before it looks at the clock by itself
    assert not found
    clock.advance(ms=1)
    reader.join()
    assert found == [[]]


def test_a_batch_that_waits_ends_with_the_clock(store: MessageStore, clock: VirtualClock) -> None:
    found: list[int] = []
    reader = start(lambda: found.append(len(store.read_batch("t", 0, wait_ms=DAY_MS))))
    sleeps(store)
    clock.advance(ms=DAY_MS)
    reader.join()
    assert found == [0]


def test_coroutines_that_read_wait_for_a_day_and_one_of_them_moves_the_clock(
    store: MessageStore, clock: VirtualClock
) -> None:
    async def main() -> list[list[Message]]:
        reads = [asyncio.create_task(store.read_async("t", queue, wait_ms=DAY_MS)) for queue in range(50)]
        while len(store._waiting) < 50:
            await asyncio.sleep(0.001)
        clock.advance(ms=DAY_MS - 1)
        done, _ = await asyncio.wait(reads, timeout=0.02)
        assert not done
        clock.advance(ms=1)
        return await asyncio.wait_for(asyncio.gather(*reads), PATIENCE_S)

    assert asyncio.run(main()) == [[]] * 50


def test_a_message_ends_a_wait_while_the_clock_stands_still(store: MessageStore) -> None:
    found: list[list[Message]] = []
    reader = start(lambda: found.append(store.read("t", 0, wait_ms=DAY_MS)))
    sleeps(store)
    store.append("t", 0, b"came")
    reader.join()
    assert [message.data for message in found[0]] == [b"came"]


@pytest.mark.parametrize("in_loop", [False, True], ids=["thread", "coroutine"])
def test_a_read_that_is_about_to_sleep_when_the_clock_moves_does_not_wait_for_another_day(
    store: MessageStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, in_loop: bool
) -> None:
    """The clock moves after the read has looked at it, before it is among those that wait."""
    watch, moved = store._waiting._watch, threading.Event()

    def watch_later(*given: Any) -> float:
        if not moved.is_set():
            clock.advance(ms=DAY_MS)
            moved.set()
        return watch(*given)

    async def read() -> list[Message]:
        return await asyncio.wait_for(store.read_async("t", 0, wait_ms=DAY_MS), PATIENCE_S)

    monkeypatch.setattr(store._waiting, "_watch", watch_later)
    reader = start((lambda: asyncio.run(read())) if in_loop else partial(store.read, "t", 0, wait_ms=DAY_MS))
    reader.join()
    assert moved.is_set()


def test_stores_and_a_reader_share_a_clock(tmp_path: Path, clock: VirtualClock) -> None:
    with (
        MessageStore.open(tmp_path / "one", tiny(), clock=clock) as one,
        MessageStore.open("/two", tiny(), disk=SimulatedDisk(), clock=clock) as two,
        MessageStore.open(tmp_path / "one", read_only=True, clock=clock) as reader,
    ):
        stores: list[StoreReader] = [one, two, reader]
        reads = [start(partial(store.read, "t", 0, wait_ms=DAY_MS)) for store in stores]
        for store in stores:
            sleeps(store)
        clock.advance(ms=DAY_MS)
        for read in reads:
            read.join()


def test_a_reader_follows_a_writer_that_was_opened_again_while_its_clock_stands_still(
    tmp_path: Path, clock: VirtualClock
) -> None:
    with MessageStore.open(tmp_path / "one", tiny(), clock=clock) as writer:
        writer.append("t", 0, b"0")
    (tmp_path / "one" / LIVE_FILE).unlink()  # the reader finds none, and has to look again
    with MessageStore.open(tmp_path / "one", read_only=True, clock=clock) as reader:
        assert len(reader.read("t", 0)) == 1
        with MessageStore.open(tmp_path / "one", tiny(), clock=clock) as writer:
            writer.append("t", 0, b"1")
            until(lambda: len(reader.read("t", 0)) == 2)
            found: list[list[Message]] = []
            waiting = start(lambda: found.append(reader.read("t", 0, 2, wait_ms=DAY_MS)))
            sleeps(reader)
            writer.append("t", 0, b"2")
            waiting.join()
            assert [message.data for message in found[0]] == [b"2"]


def test_random_moves_end_each_wait_at_its_time(store: MessageStore, clock: VirtualClock) -> None:
    """Threads that wait at random, moves at random: each wait is over when the clock says so, none before."""
    chance, first = random.Random(draw_seed()), clock.wall_ms()
    ended: dict[int, int] = {}

    def read(at: int, wait_ms: int) -> None:
        assert store.read("t", at, wait_ms=wait_ms) == []
        ended[at] = clock.wall_ms() - first

    waits = {at: chance.randrange(1, 3_000) for at in range(20)}
    readers = [start(read, at, wait_ms) for at, wait_ms in waits.items()]
    sleeps(store, 20)
    while clock.wall_ms() - first < 3_000:
        passed = clock.advance(ms=chance.randrange(1, 400)) - first
        until(lambda passed=passed: all(at in ended for at, wait in waits.items() if wait <= passed))  # type: ignore[misc]
        assert set(ended) == {at for at, wait in waits.items() if wait <= passed}
    for reader in readers:
        reader.join()


# -- at the cap of the publish buffer -----------------------------------------------------------------

CAP = {"publish_buffer_bytes": 64 * KIB, "append_timeout_ms": DAY_MS}


@pytest.fixture
def full(tmp_path: Path, clock: VirtualClock) -> Iterator[MessageStore]:
    """A store whose publish buffer is full, as its device does not answer."""
    disk = GatedDisk()
    with MessageStore.open(tmp_path / "full", tiny(**CAP), disk=disk, clock=clock) as opened:
        disk.gate.clear()
        for _ in range(3):
            opened.submit("t", 0, bytes(30 * KIB)) if opened._queues[0].used_bytes < 60 * KIB else None
        try:
            yield opened
        finally:
            disk.gate.set()


def test_a_producer_at_the_cap_gives_up_by_the_clock(full: MessageStore, clock: VirtualClock) -> None:
    errors: list[BaseException] = []

    def append() -> None:
        with pytest.raises(PublishBufferFull) as refused:
            full.append("t", 0, bytes(30 * KIB))
        errors.append(refused.value)

    producer = start(append)
    until(lambda: len(full._queues[0]._line) == 1)
    clock.advance(ms=DAY_MS - 1)
    time.sleep(0.02)
    assert not errors
    clock.advance(ms=1)
    producer.join()
    assert len(errors) == 1


@pytest.mark.parametrize("how", ["append_async", "append_batch_async"])
def test_a_coroutine_at_the_cap_gives_up_by_the_clock(full: MessageStore, clock: VirtualClock, how: str) -> None:
    async def main() -> None:
        data = bytes(30 * KIB)
        future: asyncio.Future[Any]
        future = full.append_async("t", 0, data) if how == "append_async" else full.append_batch_async([("t", 0, data)])
        assert len(full._queues[0]._line) == 1
        clock.advance(ms=DAY_MS - 1)
        await asyncio.sleep(0.02)
        assert not future.done()
        await asyncio.to_thread(clock.advance, ms=1)
        with pytest.raises(PublishBufferFull):
            await asyncio.wait_for(future, PATIENCE_S)
        assert not full._shared.sleepers._calls

    asyncio.run(main())


def test_a_coroutine_at_the_cap_does_not_give_up_by_the_time_of_the_machine(tmp_path: Path) -> None:
    disk = GatedDisk()
    config = tiny(publish_buffer_bytes=64 * KIB, append_timeout_ms=20)
    with MessageStore.open(tmp_path / "full", config, disk=disk, clock=VirtualClock()) as store:

        async def main() -> None:
            first = store.append_async("t", 0, bytes(60 * KIB))
            future = store.append_async("t", 0, bytes(60 * KIB))
            assert len(store._queues[0]._line) == 1
            done, _ = await asyncio.wait([first, future], timeout=0.1)
            assert not done
            disk.gate.set()
            assert await asyncio.wait_for(future, PATIENCE_S) == 1
            assert not store._shared.sleepers._calls

        disk.gate.clear()
        try:
            asyncio.run(main())
        finally:
            disk.gate.set()


# -- upkeep -------------------------------------------------------------------------------------------


def test_retention_by_age_goes_by_the_clock(tmp_path: Path, clock: VirtualClock) -> None:
    config = tiny(retention_ms=7 * DAY_MS)
    with MessageStore.open(tmp_path / "store", config, clock=clock) as store:
        for _ in range(40):
            store.append("t", 0, bytes(8 * KIB))
        clock.advance(ms=7 * DAY_MS)
        store.append("t", 0, b"young")
        assert store.queue_bounds("t", 0)[0] == 0
        clock.advance(ms=1)
        until(lambda: store.queue_bounds("t", 0)[0] > 0)


def test_a_move_wakes_upkeep_at_once(tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratalog.store.log.upkeep.TICK_S", 1e6)  # else it would look by itself
    config = tiny(retention_ms=DAY_MS)
    with MessageStore.open(tmp_path / "store", config, clock=clock) as store:
        for _ in range(40):
            store.append("t", 0, bytes(8 * KIB))
        until(lambda: store.stats()["segments"]["unsealed"] == 0)
        clock.advance(ms=DAY_MS + 1)
        until(lambda: clock.advance(ms=1) > 0 and store.queue_bounds("t", 0)[0] > 0)


def test_lazy_forces_go_by_the_clock(tmp_path: Path, clock: VirtualClock) -> None:
    config = tiny(durability="os", flush_interval_ms=1_001)
    with MessageStore.open(tmp_path / "store", config, clock=clock) as store:
        lane = store._lanes[0]
        store.append("t", 0, b"x")
        store._upkeep.wake()
        time.sleep(0.02)
        assert lane.tail > lane.under_way.forced
        clock.advance(ms=1_001)
        until(lambda: lane.tail == lane.under_way.forced)
