"""Bounds of many streams at once are those of each, wherever in the groups of footers the log begins."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreCorrupt
from stratalog.store.read.finder import Finder
from tests.seeds import draw_seed

from .helpers import KIB, flip_bit, has_settled, seal_of, segment_paths, tiny, until


def grown(path: Path, chance: random.Random, queues: int) -> None:
    """A store of some lanes and a few dozen segments, of which retention may have removed the first."""
    kept = chance.choice((None, chance.randrange(100, 900) * KIB))
    with MessageStore.open(path, tiny(lanes=chance.choice((1, 2)), retention_bytes=kept)) as store:
        for nth in range(chance.randrange(5, 40)):
            many = chance.randrange(1, queues) if nth else queues  # the first footer has all names
            some = chance.sample(range(queues), many)
            store.append_batch([("t", queue_id, bytes(chance.randrange(40_000 // many))) for queue_id in some])
            if chance.random() < 0.1:
                queue_id = chance.choice(some)
                low, end = store.queue_bounds("t", queue_id)
                store.trim("t", queue_id, chance.randint(low, end))
        until(lambda: has_settled(store))


def check(path: Path, chance: random.Random) -> None:
    """By the writer, by a reader, and by a writer that has nothing open yet; of all queues and of some."""
    for read_only in (True, False):
        try:
            opened = MessageStore.open(path, tiny(), read_only=read_only)
        except StoreCorrupt:
            continue  # names or next offsets are only in a footer that was damaged
        with opened as store:
            for _ in range(2):
                expected = {queue_id: store.queue_bounds("t", queue_id) for queue_id in store.queues("t")}
                assert store._fetcher.bounds_of_topic("t") == expected
                streams = list(store._fetcher._topics["t"].values())
                some = chance.sample(streams, chance.randint(0, len(streams)))
                assert store._fetcher.reader.finder.bounds_of(some) == [expected[one.queue_id] for one in some]
                if isinstance(store, MessageStore):
                    store.append("t", chance.choice(list(expected)), b"one more")


@pytest.mark.parametrize("nth", range(6))
def test_bounds_of_many_queues_are_those_of_each(tmp_path: Path, nth: int) -> None:
    chance = random.Random(draw_seed() + nth)
    grown(tmp_path / "s", chance, chance.choice((2, 5, 30)))
    check(tmp_path / "s", chance)
    sealed = [
        (path, record) for path in segment_paths(tmp_path / "s") if (record := seal_of(path)) and record.footer_bytes
    ][1:]
    for path, record in chance.sample(sealed, min(len(sealed), chance.choice((1, 3)))):
        flip_bit(path, record.footer_position + chance.randrange(record.footer_bytes))
    check(tmp_path / "s", chance)


def test_behind_retention_no_queue_is_searched_for_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path / "s", tiny(retention_bytes=500 * KIB)) as store:
        store.append_batch([("t", queue_id, b"x") for queue_id in range(3_000)])
        for _ in range(50):  # until the log begins behind a full footer
            for _ in range(30):
                store.append_batch([("t", queue_id, bytes(1_000)) for queue_id in range(0, 3_000, 100)])
            until(lambda: has_settled(store))
            if not store._lanes[0].view.sealed[0].record.full:
                break
        expected = {queue_id: store.queue_bounds("t", queue_id) for queue_id in range(3_000)}
        assert not store._lanes[0].view.sealed[0].record.full, "the test is of small footers"
        monkeypatch.delattr(Finder, "bounds")
        assert store._fetcher.bounds_of_topic("t") == expected
