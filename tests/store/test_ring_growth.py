"""The ring of a busy store grows within its limit; that of an idle one does not."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog import MessageStore, StoreConfig
from stratalog.store.log import ring_growth
from stratalog.store.log.ring_growth import GROWING, RingGrowth, grown_bytes, wants_more
from stratalog.store.log.written_lane import WrittenLane
from stratalog.store.read import caches
from stratalog.store.testing import TunedConfig
from tests.seeds import draw_seed
from tests.store.helpers import until

MIB = 1 << 20
FIRST_BYTES = 4 * MIB  # of the ring
SMALL = TunedConfig(max_frame_bytes=64 << 10, max_message_bytes=64 << 10)


@pytest.fixture(autouse=True)
def _small_rings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(caches, "RECENT_BYTES", FIRST_BYTES)
    monkeypatch.setattr(caches, "MOST_RECENT_BYTES", 64 * MIB)
    yield
    gc.collect()


def lane_of(store: MessageStore) -> WrittenLane:
    return store._lanes[0]


def test_the_ring_of_a_busy_store_grows_and_serves_what_it_has(tmp_path: Path) -> None:
    rng, written = random.Random(draw_seed()), []
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        ring = lane_of(store).ring
        first = ring.size_bytes
        assert first < ring.limit_bytes
        for number in range(900):
            data = rng.randbytes(rng.randint(1, 60_000))
            written.append(data)
            assert store.append("t", number % 3, data) == number // 3
            if number % 50 == 0 and wants_more(lane_of(store)):
                until(lambda: not wants_more(lane_of(store)))
        assert first < ring.size_bytes <= ring.limit_bytes
        assert store.stats()["recent_bytes"] == ring.size_bytes
        for queue in range(3):
            found = store.get_range("t", queue, 0, 1000)
            assert list(found.values()) == written[queue::3]
            assert store.read_batch("t", queue).payloads() == written[queue::3]
        assert store.stats()["reads"]["recent_bytes"] > 2 * first  # by both ways of reading


def test_the_ring_of_an_idle_store_has_few_pages(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        store.append("t", 0, b"one")
        time.sleep(0.6)  # longer than the background's tick
        ring = lane_of(store).ring
        assert (ring.size_bytes, ring.grown_bytes) == (ring._first_bytes, 0)
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        time.sleep(0.1)  # the background's first look
        assert lane_of(store).ring.warm <= 2 * MIB


@pytest.mark.parametrize(
    "config",
    [
        TunedConfig(recent_bytes=FIRST_BYTES),
        StoreConfig(memory_limit_bytes=64 * MIB),
        StoreConfig(memory_limit_bytes=0),
        TunedConfig(read_cache_bytes=MIB),
        StoreConfig(cache="plan"),
    ],
)
def test_a_ring_whose_size_follows_from_the_settings_does_not_grow(tmp_path: Path, config: StoreConfig) -> None:
    with MessageStore.open(tmp_path / "store", config) as store:
        ring = lane_of(store).ring
        assert ring.limit_bytes == ring.size_bytes


@pytest.mark.parametrize("what", ["memory", "share"])
def test_a_ring_does_not_grow_where_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    available = 0 if what == "memory" else 1 << 40
    if what == "share":
        monkeypatch.setattr(ring_growth, "MOST_GROWN_BYTES", 0)  # other stores of the process have all of it
    monkeypatch.setattr(RingGrowth.__init__, "__defaults__", (lambda: available,))
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        ring = lane_of(store).ring
        for _ in range(3 * ring.size_bytes // 60_000):
            store.append("t", 0, bytes(60_000))
        until(lambda: wants_more(lane_of(store)))
        time.sleep(0.2)  # the background has looked
        assert ring.grown_bytes == 0
        assert len(store.read_batch("t", 0)) == 3 * (ring.size_bytes // 60_000)


def test_closed_stores_count_for_nothing(tmp_path: Path) -> None:
    gc.collect()  # what other tests have left
    before = grown_bytes()
    for number in range(2):
        with MessageStore.open(tmp_path / str(number), SMALL) as store:
            lane_of(store).ring.warm_up(1 << 40)
            lane_of(store).ring.grow()
            assert grown_bytes() == before + lane_of(store).ring.grown_bytes > before
        del store
        gc.collect()
    assert grown_bytes() == before
    assert [reference() for reference in GROWING].count(None) <= 1
