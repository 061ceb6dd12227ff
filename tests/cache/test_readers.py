"""Readers beside the thread that fills: no lock, and never a wrong byte."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator

import pytest

from stratalog.cache.block_cache import BlockCache
from stratalog.cache.chain import Chain
from stratalog.cache.rows import FIRST_LEAVES, Columns
from stratalog.cache.tier import Tier

from ..seeds import draw_seed
from .helpers import batch_of, check_blocks, consume, payload_of, tag_of

STREAMS = 6
ROUNDS = 80


@pytest.fixture(autouse=True)
def fast_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_a_reader_held_up_while_columns_grow_and_leaves_change_hands_gets_its_own_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reader has the columns and has not looked at its stream's leaves when all of it happens."""
    cache = BlockCache([Tier("off-heap", 600 * 512)], 512)
    cache.fill(batch_of([(1, offset, payload_of(1, offset, 60)) for offset in range(8)]))
    cache.fill(batch_of([(2, offset, payload_of(2, offset, 60)) for offset in range(8)]))
    (leaf,), find = cache.chains[1].leaves, Chain.find

    def held_up(chain: Chain, columns: Columns, offset: int, limit: int) -> list[tuple[int, int]]:
        if columns is cache.rows.columns and 10 not in cache.chains:
            cache.fill(batch_of([(stream, 0, payload_of(stream, 0, 60)) for stream in range(10, 10 + FIRST_LEAVES)]))
            cache.release(1, 8)
            cache.fill(batch_of([(2, offset, payload_of(2, offset, 60)) for offset in range(8, 16)]))
            assert leaf in cache.chains[2].leaves and columns is not cache.rows.columns
        return find(chain, columns, offset, limit)

    monkeypatch.setattr(Chain, "find", held_up)
    hit = cache.read(2, 0, 100)
    assert list(hit.offsets) == list(range(16))
    assert list(hit.payloads) == [payload_of(2, offset, 60) for offset in range(16)]


@pytest.mark.parametrize("evict", [True, False])
def test_readers_see_only_what_was_filled_while_blocks_come_and_go(evict: bool) -> None:
    seed = draw_seed()
    cache = BlockCache([Tier("heap", 8 * 512), Tier("off-heap", 8 * 512)], 512, evict=evict)
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
                hit = (consume if rng.random() < 0.5 else BlockCache.read)(cache, stream, first, 20)
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
    cache = BlockCache([Tier("heap", 8 * 512)], 512)
    cache.fill(batch_of([(0, offset, payload_of(0, offset, 512)) for offset in range(4)]))
    with cache._lock:
        cache.release(0, 3)  # would be a deadlock
        assert cache.space.free == 4
    cache.fill(batch_of([(0, 4, b"next")]))
    assert cache.space.free == 6


def test_closing_under_a_reader_is_no_error() -> None:
    for _ in range(50):
        cache = BlockCache([Tier("heap", 8 * 512), Tier("off-heap", 8 * 512)], 512)
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
