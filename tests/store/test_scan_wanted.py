"""A scan with a filter gives the messages of a whole scan that meet it, and reads no segment that has none of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.plans import ScanFilter
from stratalog.store import InvalidMessage, Message, MessageStore, StoreReader
from stratalog.store.read import scan
from tests.clocks import WallClock
from tests.seeds import draw_seed

from .helpers import has_settled, tiny, until

TOPICS = ("a", "b", "c")
START_MS = 1_000_000


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[MessageStore, random.Random]]:
    """Of two lanes and many segments, with messages of several times, trims and a deleted topic."""
    chance, now = random.Random(draw_seed()), [START_MS]
    with MessageStore.open(tmp_path / "s", tiny(lanes=2), clock=WallClock(lambda: now[0])) as store:
        for _ in range(150):
            now[0] += chance.choice((0, 1, 1_000))
            topic = chance.choice((*TOPICS, "gone"))
            rows = [(topic, chance.randrange(4), bytes(chance.randrange(3_000))) for _ in range(chance.randrange(1, 9))]
            store.append_batch(rows)
        store.append("a", 1, b"with key", key=b"k", deliver_at_ms=START_MS)
        for topic, queue_id in (("a", 0), ("c", 3)):
            store.trim(topic, queue_id, store.queue_bounds(topic, queue_id)[1] // 2)
        store.delete_topic("gone")
        until(lambda: has_settled(store))
        store.append_batch([(topic, 2, b"open") for topic in TOPICS])
        yield store, chance


def drawn(chance: random.Random, last_ms: int) -> ScanFilter:
    """Some of the ways to want less than all."""
    given: dict[str, Any] = {}
    if chance.random() < 0.5:
        given["topics"] = tuple(chance.sample((*TOPICS, "gone", "none"), 2))
    if chance.random() < 0.3:
        given["queue_ids"] = tuple(chance.sample(range(5), 2))
    if chance.random() < 0.3:
        given["start_offset"] = chance.randrange(200)
    if chance.random() < 0.3:
        given["end_offset"] = chance.randrange(250)
    if chance.random() < 0.3:
        given["starts"] = ((chance.choice(TOPICS), chance.randrange(4), chance.randrange(200)),)
    if chance.random() < 0.4:
        given["start_ms"] = chance.randint(START_MS - 10, last_ms + 10)
    if chance.random() < 0.4:
        given["end_ms"] = chance.randint(START_MS - 10, last_ms + 10)
    return ScanFilter(**given)


def meets(message: Message, wanted: ScanFilter) -> bool:
    own = {(topic, queue_id): offset for topic, queue_id, offset in wanted.starts}
    return (
        (wanted.topics is None or message.topic in wanted.topics)
        and (wanted.queue_ids is None or message.queue_id in wanted.queue_ids)
        and message.offset >= own.get((message.topic, message.queue_id), wanted.start_offset)
        and (wanted.end_offset is None or message.offset < wanted.end_offset)
        and wanted.wants_time(message.timestamp_ms, message.timestamp_ms)
    )


def messages_of(store: StoreReader, wanted: ScanFilter) -> list[Message]:
    batches = list(store.scan(wanted))
    assert all(map(len, batches))
    return [message for batch in batches for message in batch.messages()]


def test_a_filtered_scan_gives_what_meets_the_filter(stores: tuple[MessageStore, random.Random]) -> None:
    store, chance = stores
    every = [message for batch in store.scan() for message in batch.messages()]
    last_ms = max(message.timestamp_ms for message in every)
    some = 0
    with MessageStore.open(store.path, read_only=True) as reader:
        for _ in range(60):
            wanted = drawn(chance, last_ms)
            expected = [message for message in every if meets(message, wanted)]
            assert messages_of(store, wanted) == expected, wanted
            assert messages_of(reader, wanted) == expected, wanted
            some += 0 < len(expected) < len(every)
    assert some


def test_segments_without_what_is_wanted_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    begun = scan._Part.__init__

    def begin(part: Any, *given: Any) -> None:
        read.append(part)
        begun(part, *given)

    now = [START_MS]
    with MessageStore.open(tmp_path / "s", tiny(), clock=WallClock(lambda: now[0])) as store:
        store.append("seldom", 0, b"first")
        for at in range(300):
            now[0] = START_MS + at
            store.append("often", 0, bytes(4_000))
        store.append("seldom", 0, b"last")
        until(lambda: has_settled(store))
        assert len(store._lanes[0].view.sealed) > 10
        monkeypatch.setattr(scan._Part, "__init__", begin)
        assert [one.data for one in messages_of(store, ScanFilter(topics=("seldom",)))] == [b"first", b"last"]
        assert len(read) <= 3
        for few in (ScanFilter(end_ms=START_MS + 5), ScanFilter(start_ms=START_MS + 295)):
            read.clear()
            assert 0 < sum(map(len, store.scan(few))) < 10
            assert len(read) <= 4


def test_what_is_no_filter_is_refused(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s") as store, pytest.raises(InvalidMessage, match="ScanFilter"):
        store.scan("topic")  # type: ignore[arg-type]
