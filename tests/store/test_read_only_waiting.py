"""Readers that wait for a message of another process."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreClosed, StoreCorrupt
from stratalog.store.device import mapped
from stratalog.store.format.layout import DATA_START
from stratalog.store.live import follower, publisher

from ..seeds import draw_seed
from .helpers import PATIENCE_S, ROOT, flip_bit, memory_folder, segment_path, start, tiny, until

PATIENCE_MS = int(PATIENCE_S * 1000)
CHILD = """
import sys
from stratalog.store import MessageStore

with MessageStore.open(sys.argv[1], read_only=True) as reader:
    print("open", flush=True)
    for offset in range(int(sys.argv[2])):
        (message,) = reader.read("t", 0, offset, max_messages=1, wait_ms=100_000)
        print(message.data.decode(), flush=True)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made / "store"


def test_another_process_is_woken_for_each_message(folder: Path) -> None:
    with MessageStore.open(folder, tiny()) as store:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder), "50"], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        for number in range(50):
            store.append("t", 0, b"%d" % number)
            assert child.stdout.readline() == f"{number}\n"
        assert child.wait(PATIENCE_S) == 0


def test_no_message_is_slept_through_whatever_the_time_between_two(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer leaves those unwoken who cannot be asleep yet. Whoever sleeps then, sleeps here for good."""
    monkeypatch.setattr(follower, "PATIENCE_S", 10 * PATIENCE_S)
    random = Random(draw_seed())
    with MessageStore.open(folder, tiny()) as store, MessageStore.open(folder, read_only=True) as reader:
        seen = appended = 0

        def read() -> None:
            nonlocal seen
            while seen < 400:
                seen += len(reader.read("t", 0, seen, wait_ms=PATIENCE_MS // 4))

        def has_seen_all() -> bool:
            return seen == appended

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        for appended in range(1, 401):
            store.append("t", 0, b"x")
            if random.random() < 0.7:
                time.sleep(random.choice((0.25, 0.5, 1, 2)) * follower.AWAKE_S)
            if appended % 10 == 0:
                until(has_seen_all, PATIENCE_S / 4)
        thread.join(PATIENCE_S)
        assert seen == 400


def test_nobody_sleeps_through_a_message_behind_a_writer_that_was_held_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held up between the move of the bell and the wake: readers count from the move."""
    monkeypatch.setattr(follower, "PATIENCE_S", 10 * PATIENCE_S)
    held_up_s, calls = 0.0, 0

    def monotonic() -> float:
        nonlocal calls
        calls += 1
        if calls % 2 == 0:  # the one behind the move
            time.sleep(held_up_s)
        return time.monotonic()

    monkeypatch.setattr(publisher, "monotonic", monotonic)
    with MessageStore.open(folder, tiny()) as store, MessageStore.open(folder, read_only=True) as reader:
        store.append("t", 0, b"x")
        for offset in range(1, 20):
            waiting = start(lambda at=offset: reader.read("t", 0, at, wait_ms=PATIENCE_MS // 4)[0])
            until(lambda: len(reader._waiting) == 1)
            time.sleep(3 * follower.AWAKE_S)
            store.append("other", 0, b"x")
            held_up_s = 0.9 * follower.AWAKE_S
            store.append("other", 0, b"x")
            held_up_s = 0.0
            time.sleep(0.001)
            store.append("t", 0, b"x")
            waiting.join(PATIENCE_S / 4)


def test_nobody_sleeps_through_a_mark_that_comes_meanwhile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a move of the bell that the reader has seen, a mark comes alone, while the reader is held up."""
    monkeypatch.setattr(follower, "PATIENCE_S", 10 * PATIENCE_S)
    with MessageStore.open(folder, tiny()) as store, MessageStore.open(folder, read_only=True) as reader:
        watcher: Any = vars(reader)["_fetcher"].follower
        real = watcher.follow
        steps: Iterator[Callable[[], object]] = iter(())

        def follow() -> None:
            real()
            if threading.current_thread().name not in ("MainThread", "read"):
                next(steps, lambda: None)()

        watcher.follow = follow
        for offset in range(20):
            store.append("other", 0, b"x")  # wakes the watching thread, if it sleeps still: nobody waits now
            time.sleep(2 * publisher.RING_EVERY_S)

            def mark_alone() -> None:
                store.append("t", 0, b"x")
                time.sleep(2 * follower.AWAKE_S)

            def read(offset: int = offset) -> None:
                assert reader.read("t", 0, offset, wait_ms=PATIENCE_MS // 4)

            steps = iter([lambda: store.append("other", 0, b"x"), mark_alone])
            waiting = start(read)
            waiting.join(PATIENCE_S / 4)


@pytest.mark.parametrize("way", ["futex", "polling"])
def test_waiting_reader_gets_the_message_of_its_queue_and_of_no_other(
    folder: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "polling":
        monkeypatch.setattr(mapped, "_SLEEP", None)
    found: list[bytes] = []
    with MessageStore.open(folder, tiny(lanes=2)) as store, MessageStore.open(folder, read_only=True) as reader:

        def wait() -> None:
            found.append(reader.read("late", 3, wait_ms=PATIENCE_MS)[0].data)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: len(reader._waiting) > 0)
        for number in range(20):
            store.append("other", number, b"x")
        assert not found
        store.append("late", 3, b"come")
        thread.join(PATIENCE_S)
        assert found == [b"come"]


def test_many_threads_and_coroutines_wait_in_one_reader(folder: Path) -> None:
    count = 30
    with MessageStore.open(folder, tiny()) as store, MessageStore.open(folder, read_only=True) as reader:

        async def main() -> list[bytes]:
            waits = [reader.read_async("t", queue, 0, max_messages=1, wait_ms=PATIENCE_MS) for queue in range(count)]
            told = asyncio.get_running_loop().run_in_executor(None, append)
            found = await asyncio.gather(*waits)
            await told
            return [messages[0].data for messages in found]

        def append() -> None:
            until(lambda: len(reader._waiting) == count)
            for queue in reversed(range(count)):
                store.append("t", queue, b"%d" % queue)

        assert asyncio.run(main()) == [b"%d" % queue for queue in range(count)]


def test_time_that_is_up_gives_nothing(folder: Path) -> None:
    with MessageStore.open(folder, tiny()), MessageStore.open(folder, read_only=True) as reader:
        assert reader.read("t", 0, wait_ms=20) == []
        assert asyncio.run(reader.read_async("t", 0, wait_ms=20)) == []


def test_async_reads_give_what_reads_give(folder: Path) -> None:
    with MessageStore.open(folder, tiny()) as store, MessageStore.open(folder, read_only=True) as reader:
        for number in range(100):
            store.append("t", 0, b"%d" % number * 300)
            messages = asyncio.run(reader.read_async("t", 0, number))
            assert [one.data for one in messages] == [b"%d" % number * 300]
        assert asyncio.run(reader.read_async("t", 0, 0, max_messages=100)) == reader.read("t", 0, 0, max_messages=100)


def test_wait_goes_on_with_the_next_writer(folder: Path) -> None:
    MessageStore.open(folder, tiny()).close()
    found: list[int] = []
    with MessageStore.open(folder, read_only=True) as reader:
        thread = threading.Thread(target=lambda: found.append(len(reader.read("t", 0, wait_ms=PATIENCE_MS))))
        thread.start()
        until(lambda: len(reader._waiting) > 0)
        with MessageStore.open(folder, tiny()) as store:
            store.append("t", 0, b"x")
            thread.join(PATIENCE_S)
        assert found == [1]


def test_damage_that_stops_the_follower_wakes_who_waits(folder: Path) -> None:
    raised: list[BaseException] = []
    with MessageStore.open(folder, tiny()) as store, MessageStore.open(folder, read_only=True) as reader:
        store.append("t", 0, b"x")
        assert reader.queue_bounds("t", 0) == (0, 1)

        def wait() -> None:
            try:
                reader.read("t", 1, wait_ms=PATIENCE_MS)
            except StoreCorrupt as error:
                raised.append(error)

        follower: Any = vars(reader)["_fetcher"].follower
        real, lane = follower.follow, store._lanes[0]
        follower.follow = lambda: None  # until the frame is there, and harmed
        at = lane.tail - lane.segment.base if lane.segment is not None and lane.segment.base is not None else 0
        assert at > DATA_START
        store.append("t", 0, b"harmed")
        flip_bit(segment_path(folder, 1), at + 20)
        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: len(reader._waiting) > 0)
        follower.follow = real
        thread.join(PATIENCE_S)
        assert raised


def test_closing_wakes_who_waits_and_ends_the_thread(folder: Path) -> None:
    raised: list[BaseException] = []
    before = threading.active_count()
    with MessageStore.open(folder, tiny()):
        reader = MessageStore.open(folder, read_only=True)

        def wait() -> None:
            try:
                reader.read("t", 0, wait_ms=PATIENCE_MS)
            except StoreClosed as error:
                raised.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: len(reader._waiting) > 0)
        reader.close()
        thread.join(PATIENCE_S)
        assert raised
    until(lambda: threading.active_count() <= before)


def test_reader_that_waits_for_nothing_looks_at_nothing(folder: Path) -> None:
    """No message comes: between its time-outs the thread sleeps."""
    with MessageStore.open(folder, tiny()) as store, MessageStore.open(folder, read_only=True) as reader:
        store.append("t", 0, b"x")
        reader.read("t", 0, 1, wait_ms=1)
        gc.collect()  # what other tests have left is nobody's time here
        looks, spent = reader.stats()["live"]["looks"], time.process_time()
        assert reader.read("t", 0, 1, wait_ms=300) == []
        assert reader.stats()["live"]["looks"] <= looks + 1
        assert time.process_time() - spent < 0.25
