"""Readers beside the thread that fills: no lock, and never a wrong byte."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator

import pytest

from cache.block_cache import BlockCache
from cache.tier import HeapTier, OffHeapTier

from .helpers import batch_of, check_blocks, payload_of, tag_of

STREAMS = 6
ROUNDS = 400


@pytest.fixture(autouse=True)
def fast_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("evict", [True, False])
def test_readers_see_only_what_was_filled_while_blocks_come_and_go(evict: bool) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    cache = BlockCache([HeapTier(8 * 512), OffHeapTier(8 * 512)], 512, evict=evict)
    done = threading.Event()
    wrong: list[object] = []
    found = [0]
    newest = [0] * STREAMS

    def look(number: int) -> None:
        rng = random.Random(seed + number)
        while not done.is_set():
            stream = rng.randrange(STREAMS)
            try:
                first = newest[stream] - rng.randrange(30)
                hit = cache.read(stream, first, 20, consume=rng.random() < 0.5)
            except Exception as error:
                wrong.append(error)
                return
            for offset, data, tag in zip(*hit, strict=True):
                found[0] += 1
                if data != payload_of(stream, offset, offset * 37 % 900) or tag != tag_of(stream, offset):
                    wrong.append((stream, offset, len(data)))

    readers = [threading.Thread(target=look, args=(number,)) for number in range(3)]
    for reader in readers:
        reader.start()
    rng = random.Random(seed)
    turns = 0
    while turns < ROUNDS or (not found[0] and not wrong):  # the readers may come late to a processor
        turns += 1
        rows = []
        for _ in range(rng.randrange(1, 20)):
            stream = rng.randrange(STREAMS)
            offset = newest[stream] = newest[stream] + 1
            rows.append((stream, offset, payload_of(stream, offset, offset * 37 % 900)))
        cache.fill(batch_of(rows))
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == [] and found[0] > 0
    cache.stats()  # has the releases done that are still noted
    check_blocks(cache)


def test_a_release_never_waits_for_the_thread_that_fills() -> None:
    cache = BlockCache([HeapTier(8 * 512)], 512)
    cache.fill(batch_of([(0, offset, payload_of(0, offset, 512)) for offset in range(4)]))
    with cache._lock:
        cache.release(0, 3)  # would be a deadlock
        assert cache.space.free == 4
    cache.fill(batch_of([(0, 4, b"next")]))
    assert cache.space.free == 6


def test_closing_under_a_reader_is_no_error() -> None:
    for _ in range(50):
        cache = BlockCache([HeapTier(8 * 512), OffHeapTier(8 * 512)], 512)
        cache.fill(batch_of([(0, offset, payload_of(0, offset, 200)) for offset in range(30)]))
        started = threading.Event()
        wrong: list[object] = []

        def look(cache: BlockCache = cache, started: threading.Event = started, wrong: list[object] = wrong) -> None:
            try:
                while hit := cache.read(0, 0, 30):
                    started.set()
                    if not hit.offsets:
                        return
                    wrong += [at for at, data in zip(*hit[:2], strict=True) if data != payload_of(0, at, 200)]
            except Exception as error:
                wrong.append(error)

        reader = threading.Thread(target=look)
        reader.start()
        started.wait()
        cache.close()
        reader.join()
        assert wrong == []
