"""Many producers at once, and producers that are interrupted while they wait."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, PublishBufferFull, StoreError
from stratalog.store.log.queue import WRITES_IN_FLIGHT

from ..seeds import draw_seed
from .disks import GatedDisk, OneSlowDisk
from .helpers import PATIENCE_S, Worker, contents, handed_over, run_child, small, start, tiny, until
from .interrupts import Interrupted, interrupt


@pytest.fixture
def store(tmp_path: Path, disk: GatedDisk) -> Iterator[MessageStore]:
    # No segment fills here: the next one would be made behind the shut gate, and the test would wait for it.
    opened = MessageStore.open(tmp_path, small(segment_bytes=1 << 20), disk=disk)
    opened.append("t", 0, b"first")
    yield opened
    disk.gate.set()
    opened.close()


# -- threads ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("alignment", ["pad", "trim", "adaptive"])
def test_twenty_producers_get_dense_offsets_in_their_order(tmp_path: Path, alignment: str, lanes: int) -> None:
    config = tiny(alignment=alignment, lanes=lanes)
    producers, each = 20, 40
    answers: dict[int, list[int]] = {number: [] for number in range(producers)}
    with MessageStore.open(tmp_path, config) as store:

        def produce(number: int) -> None:
            for turn in range(each):
                answers[number].append(store.append("shared", turn % 2, b"%d:%d" % (number, turn) * 20))

        for worker in [start(produce, number) for number in range(producers)]:
            worker.join()
        check_order(store, answers, each)
    with MessageStore.open(tmp_path, config) as store:
        check_order(store, answers, each)


def check_order(store: MessageStore, answers: dict[int, list[int]], each: int) -> None:
    queues = [("shared", 0), ("shared", 1)]
    found = contents(store, queues)
    for queue in (0, 1):
        offsets = sorted(offset for mine in answers.values() for offset in mine[queue::2])
        assert offsets == list(range(len(answers) * each // 2))
        for number, mine in answers.items():
            assert mine[queue::2] == sorted(mine[queue::2])
            for turn in range(queue, each, 2):
                assert found["shared", queue][mine[turn]] == b"%d:%d" % (number, turn) * 20


def test_all_kinds_of_producers_at_once(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=2, publish_buffer_bytes=32 << 10)) as store:

        def blocking() -> None:
            for _ in range(60):
                store.append("a", 0, b"a" * 500)

        def pipelined() -> None:
            tickets = [store.submit("b", 0, b"b" * 500) for _ in range(120)]
            assert [ticket.result() for ticket in tickets] == list(range(120))

        def batches() -> None:
            for turn in range(12):
                rows = [("c", index % 3, b"c" * 500) for index in range(30)]
                assert store.append_batch(rows)[0] == turn * 10

        def coroutines() -> None:
            async def produce(queue: int) -> None:
                for turn in range(30):
                    assert await store.append_async("d", queue, b"d" * 500) == turn

            async def main() -> None:
                await asyncio.gather(*map(produce, range(8)))

            asyncio.run(main())

        def flushes() -> None:
            for _ in range(20):
                store.flush()

        for worker in [start(work) for work in (blocking, pipelined, batches, coroutines, flushes)]:
            worker.join()
        counts = [store.queue_bounds(*name)[1] for name in (("a", 0), ("b", 0), ("c", 2), ("d", 7))]
        assert counts == [60, 120, 120, 30]


def test_producers_make_new_queues_at_once(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=2)) as store:
        workers = [start(lambda: [store.append("same", queue, b"x") for queue in range(100)]) for _ in range(6)]
        for worker in workers:
            worker.join()
        assert all(store.queue_bounds("same", queue) == (0, 6) for queue in range(100))
    with MessageStore.open(tmp_path, tiny()) as store:
        assert all(store.queue_bounds("same", queue) == (0, 6) for queue in range(100))


# -- interrupts ---------------------------------------------------------------------------------------


@pytest.fixture
def interrupts_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the test tools' callbacks of the garbage collector, which can only report them to this hook."""
    report = sys.unraisablehook
    monkeypatch.setattr(sys, "unraisablehook", lambda what: report(what) if what.exc_type is not Interrupted else None)


def was_handed_over(store: MessageStore, messages: int) -> bool:
    return handed_over(store) == messages


@pytest.mark.usefixtures("interrupts_anywhere")
def test_interrupted_producer_does_not_stall_the_others(store: MessageStore, disk: GatedDisk) -> None:
    """Each position in the chain of wake-ups, the first and the last included, is interrupted once."""
    for victim in range(8):
        disk.gate.clear()
        base = store.queue_bounds("t", 0)[1]
        workers = []
        for index in range(8):
            workers.append(start(store.append, "t", 0, b"%d" % index))
            until(partial(was_handed_over, store, base + index + 1))  # in this order, and all are in their appends
        interrupt(workers[victim].thread)
        disk.gate.set()
        for index, worker in enumerate(workers):
            if index != victim:
                worker.join()
            else:
                worker.thread.join(PATIENCE_S)
                assert not worker.thread.is_alive()
        store.flush()
        assert store.queue_bounds("t", 0)[1] == base + 8  # what was handed over becomes durable all the same


@pytest.mark.usefixtures("interrupts_anywhere")
def test_thread_whose_wait_was_interrupted_appends_on(store: MessageStore, disk: GatedDisk) -> None:
    answers: list[object] = []

    def produce() -> None:
        try:
            store.append("t", 0, b"interrupted")
        except Interrupted:
            answers.append("interrupted")
        answers.extend(store.append("t", 0, b"%d" % turn) for turn in range(20))

    disk.gate.clear()
    worker = start(produce)
    until(lambda: handed_over(store) == 2)  # it sleeps in its wait, most often; right also if it does not yet
    interrupt(worker.thread)
    disk.gate.set()
    worker.join()
    assert answers[-20:] == list(range(2, 22))
    assert [message.data for message in store.read("t", 0, 2)] == [b"%d" % turn for turn in range(20)]


@pytest.mark.usefixtures("interrupts_anywhere")
def test_interrupts_at_random_moments_stall_nobody_and_mix_nothing_up(tmp_path: Path) -> None:
    """Also between two bytecodes of `append`: the next append of the thread must get its own answer."""
    seed = draw_seed()
    chance = random.Random(seed)
    ended = threading.Event()
    with MessageStore.open(tmp_path, tiny(segment_bytes=1 << 20)) as store:
        wrong: list[tuple[int, bytes]] = []
        counts = [0] * 6

        def produce(number: int) -> None:
            turn = 0
            while not ended.is_set():
                turn += 1
                data = b"%d:%d" % (number, turn)
                try:
                    offset = store.append("t", number, data)
                    if store.read("t", number, offset, max_messages=1)[0].data != data:
                        wrong.append((offset, data))
                    counts[number] += 1
                except Interrupted:
                    pass
                except StoreError as error:
                    wrong.append((-1, repr(error).encode()))

        def produce_for_ever(number: int) -> None:
            while not ended.is_set():
                with contextlib.suppress(Interrupted):  # it may hit outside of the inner block
                    produce(number)

        workers = [start(produce_for_ever, number) for number in range(6)]

        def alive(number: int) -> Worker:
            """The worker; begun again if an interrupt hit the few bytecodes that stand outside of every block."""
            if number < 3 and not workers[number].thread.is_alive():
                workers[number] = start(produce_for_ever, number)
            return workers[number]

        def all_got_on(before: list[int]) -> bool:
            return all(alive(number) and counts[number] > before[number] for number in range(6))

        for _ in range(500):
            interrupt(alive(chance.randrange(3)).thread)  # the other three are never interrupted
            time.sleep(chance.random() * 0.004)  # the random moment
        for _ in range(2):
            until(partial(all_got_on, list(counts)))
        ended.set()
        for worker in workers:
            worker.thread.join(PATIENCE_S)
            assert not worker.thread.is_alive()
        assert not any(worker.errors for worker in workers[3:])
        assert wrong == []


SIGNALLED = """
import os, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored: in a script's background, by nohup
from stratalog import MessageStore
from stratalog.testing import TunedConfig
from tests.store.disks import GatedDisk
from tests.store.helpers import handed_over, until
disk = GatedDisk()
store = MessageStore.open(sys.argv[1], TunedConfig(segment_bytes=65536, recent_bytes=0), disk=disk)
store.append("t", 0, b"first")
disk.gate.clear()
others = [threading.Thread(target=store.append, args=("t", 0, b"%d" % i)) for i in range(4)]
for thread in others: thread.start()
def press():
    until(lambda: handed_over(store) == 6)  # the main thread is in its append, and stays there: the gate is shut
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=press, daemon=True).start()
try:
    store.append("t", 0, b"main")
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted")
disk.gate.set()
for thread in others: thread.join(100)
print(sum(thread.is_alive() for thread in others), store.append("t", 0, b"next"))
store.close()
"""


@pytest.mark.parametrize("inherited", [signal.default_int_handler, signal.SIG_IGN])
def test_control_c_interrupts_a_waiting_append_and_nothing_else(tmp_path: Path, inherited: Any) -> None:
    before = signal.signal(signal.SIGINT, inherited)  # a child inherits that a signal is ignored
    try:
        done = run_child(SIGNALLED, str(tmp_path))
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.stdout.split() == ["interrupted", "0", "6"], done.stderr


# -- asyncio ------------------------------------------------------------------------------------------


def test_cancelled_coroutine_leaves_the_others_alone(store: MessageStore, disk: GatedDisk) -> None:
    async def main() -> list[object]:
        disk.gate.clear()
        tasks = [asyncio.ensure_future(store.append_async("t", 0, b"%d" % index)) for index in range(10)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        tasks[9].cancel()
        disk.gate.set()
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    found = asyncio.run(main())
    assert [index for index, answer in enumerate(found) if isinstance(answer, asyncio.CancelledError)] == [3, 9]
    assert [answer for answer in found if isinstance(answer, int)] == [1, 2, 3, 5, 6, 7, 8, 9]
    assert store.append("t", 0, b"after") == 11


def test_loop_that_ends_with_appends_in_flight_harms_nobody(store: MessageStore, disk: GatedDisk) -> None:
    async def main() -> None:
        disk.gate.clear()
        for _ in range(5):
            store.append_async("t", 0, b"left behind")

    asyncio.run(main())
    waiting = start(store.append, "t", 0, b"x")
    disk.gate.set()
    waiting.join()
    assert store.queue_bounds("t", 0) == (0, 7)


def full_store(path: Path, disk: GatedDisk, timeout_ms: int) -> MessageStore:
    store = MessageStore.open(path, tiny(publish_buffer_bytes=4096, append_timeout_ms=timeout_ms), disk=disk)
    store.append("t", 0, b"first")
    disk.gate.clear()
    for _ in range(4):
        store.submit("t", 0, bytes(1000))
    return store


def test_full_buffer_does_not_stop_the_loop(tmp_path: Path, disk: GatedDisk) -> None:
    store = full_store(tmp_path, disk, 30_000)

    async def main() -> int:
        future = store.append_async("t", 0, bytes(1000))
        for _ in range(10):  # the loop turns while the append waits
            await asyncio.sleep(0)
        assert not future.done()
        disk.gate.set()
        return await future

    assert asyncio.run(main()) == 5
    store.close()


@pytest.mark.parametrize("timeout_ms", [40, 1500])
def test_awaited_append_gives_up_after_the_time_that_is_set(tmp_path: Path, timeout_ms: int) -> None:
    """The loop is asked for that time, and the append fails when the loop says that it is over."""
    disk, delays = GatedDisk(), list[float]()
    store = MessageStore.open(tmp_path, tiny(publish_buffer_bytes=4096, append_timeout_ms=timeout_ms), disk=disk)
    store.append("t", 0, b"first")
    disk.gate.clear()
    store.submit("t", 0, bytes(4000))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        later = loop.call_later

        def call_later(delay: float, *what: Any, **how: Any) -> asyncio.TimerHandle:
            delays.append(delay)
            return later(0.0 if delay < PATIENCE_S else delay, *what, **how)

        loop.call_later = call_later  # type: ignore[method-assign, assignment]
        with pytest.raises(PublishBufferFull):
            await asyncio.wait_for(store.append_async("t", 0, bytes(1000)), PATIENCE_S)

    try:
        asyncio.run(main())
    finally:
        disk.gate.set()
        store.close()
    assert timeout_ms / 1000 in delays


def test_append_async_outside_a_loop_is_refused(store: MessageStore) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        store.append_async("t", 0, b"not handed over")
    assert store.append("t", 0, b"x") == 1
    assert store.queue_bounds("t", 0) == (0, 2)


def test_one_slow_write_is_not_overtaken_until_the_ring_is_full(tmp_path: Path) -> None:
    disk = OneSlowDisk()
    config = tiny(recent_bytes=0, max_message_bytes=65_536, publish_buffer_bytes=64 << 20)
    with MessageStore.open(tmp_path, config, disk=disk) as store:
        store.append("t", 0, b"first")
        disk.waiting.release()  # one write may wait
        disk.gate.clear()
        tickets = [store.submit("t", 0, bytes(30_000))]
        assert disk.holds.wait(PATIENCE_S)  # else a later one might be the first to come to the disk
        tickets += [store.submit("t", 0, bytes(30_000)) for _ in range(599)]  # more than the ring has room for
        until(lambda: store._queues[0]._in_flight >= WRITES_IN_FLIGHT)  # a batch may be more than one
        assert store._lanes[0].poison is None
        assert not any(ticket.done() for ticket in tickets)  # all lie behind the slow one
        assert len(store._queues[0]._items) > 300  # and the others wait
        disk.gate.set()
        assert [ticket.result(PATIENCE_S) for ticket in tickets] == list(range(1, 601))


def test_refused_appends_keep_nothing_of_their_callers(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, tiny())
    store.append("t", 0, b"x")
    store.close()
    depths = set()
    for _ in range(5):
        with pytest.raises(StoreError) as caught:
            store.append("t", 0, bytes(1000))
        depths.add(len(caught.traceback))
    assert len(depths) == 1
