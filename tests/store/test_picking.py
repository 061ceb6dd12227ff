"""Messages by their places, in any order and in many queues: the same as by single reads."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stratalog.store import MessageStore, OffsetOutOfRange, StoreConfig
from stratalog.store.read.picking import Picks
from stratalog.store.segment.sealed import SealedSegment
from tests.seeds import draw_seed

from .helpers import has_settled, tiny, until

QUEUES = 3
ALL = 1 << 40


def picked(store: MessageStore, places: list[tuple[int, int]], max_bytes: int = ALL, *, is_first: bool = True) -> Picks:
    queues, offsets = np.array(places, np.int64).reshape(-1, 2).T
    return store._fetcher.read_at("t", queues, offsets, max_bytes, is_first=is_first)


def fill(store: MessageStore, count: int, sizes: list[int], chance: random.Random) -> None:
    for number in range(count):
        data, key = b"%d" % number + bytes(chance.choice(sizes)), b"k%d" % number
        store.append("t", number % QUEUES, data, key=key, deliver_at_ms=number)


@pytest.mark.parametrize(
    "config",
    [
        tiny(),
        tiny(lanes=2, recent_bytes=128 << 10),
        tiny(cache="plan", memory_limit_bytes=64 << 20),
        tiny(read_cache_bytes=1 << 20),
    ],
    ids=["one lane", "two lanes", "message cache", "read cache"],
)
def test_picked_messages_are_those_that_single_reads_give(tmp_path: Path, config: StoreConfig) -> None:
    chance = random.Random(draw_seed())
    count = 600
    with MessageStore.open(tmp_path / "s", config) as store:
        fill(store, count, [10, 2_000], chance)
        until(lambda: len(store._lanes[0].view.sealed) > 1)
        store.trim("t", 0, 20)
        first = {0: 20, 1: 0, 2: 0}
        every = [(queue_id, offset) for queue_id in range(QUEUES) for offset in range(count // QUEUES + 5)]
        for _ in range(30):
            places = chance.sample(every, chance.choice([1, 5, 200]))
            there = [row for row, (queue, at) in enumerate(places) if first[queue] <= at < count // QUEUES]
            picks = picked(store, places)
            assert (picks.rows.tolist(), picks.looked) == (there, len(places))
            assert picks.batch.messages() == [store.read("t", *places[row], max_messages=1)[0] for row in there]


def test_picked_messages_end_where_the_next_one_does_not_fit(tmp_path: Path) -> None:
    chance = random.Random(draw_seed())
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        fill(store, 60, [0, 500, 3_000], chance)
        every = [(queue_id, offset) for queue_id in range(QUEUES) for offset in range(20)]
        for max_bytes in (0, 1, 700, 4_000, 20_000):
            places = chance.sample(every, 40)
            sizes = np.array([len(store.read("t", *place, max_messages=1)[0].data) for place in places])
            fitting = int(sizes.cumsum().searchsorted(max_bytes, side="right"))
            picks = picked(store, places, max_bytes, is_first=False)
            assert picks.rows.tolist() == list(range(fitting)) and picks.looked == fitting
            picks = picked(store, places, max_bytes)
            assert picks.rows.tolist() == list(range(max(1, fitting)))


def test_place_of_a_queue_without_messages_is_said_to_be_out_of_range(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        store.append("t", 0, b"x")
        with pytest.raises(OffsetOutOfRange):
            picked(store, [(0, 0), (9, 0)])


def test_many_places_of_a_long_segment(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny(segment_bytes=1 << 20)) as store:
        store.append_batch([("t", 0, b"%d" % number) for number in range(3_000)])
        offsets: npt.NDArray[np.int64] = np.random.default_rng(draw_seed()).permutation(3_000)
        picks = picked(store, [(0, offset) for offset in offsets.tolist()])
        assert [int(bytes(payload)) for payload in picks.batch.payloads()] == offsets.tolist()


def test_a_pick_of_old_messages_looks_at_their_segments_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    real = SealedSegment.pick

    def pick(sealed: SealedSegment, *given: Any) -> Any:
        looked.append(sealed.segment.sequence)
        return real(sealed, *given)

    with MessageStore.open(tmp_path / "s", tiny()) as store:
        for number in range(400):
            store.append("t", number % QUEUES, b"%d" % number + bytes(4_000))
        until(lambda: has_settled(store))
        assert len(store._lanes[0].view.sealed) > 20
        monkeypatch.setattr(SealedSegment, "pick", pick)
        places = [(0, 3), (1, 3), (2, 60), (0, 999), (0, 1_000), (1, 1_001)]
        picks = picked(store, places)
        assert [bytes(payload).strip(b"\0") for payload in picks.batch.payloads()] == [b"9", b"10", b"182"]
        assert len(looked) <= 4 and len(set(looked)) == len(looked)
