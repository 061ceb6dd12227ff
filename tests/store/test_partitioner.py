"""Messages that name no queue: by key the same queue in every run, else one queue after the other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from stratalog.store import InvalidMessage, InvalidTopic, MessageStore

from .helpers import run_child, start, tiny

KEYS = [b"%d" % number for number in range(200)]
WAYS: dict[str, Callable[..., object]] = {
    "append": lambda store, *given, **named: store.append(*given, **named),
    "submit": lambda store, *given, **named: store.submit(*given, **named).result(),
    "append_async": lambda store, *given, **named: asyncio.run(appended(store, *given, **named)),
}


async def appended(store: MessageStore, *given: Any, **named: Any) -> int:
    return await store.append_async(*given, **named)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", tiny(lanes=2)) as opened:
        yield opened


def queue_of(store: MessageStore, key: bytes, topic: str = "t") -> int:
    """The queue that has this key; there is one."""
    (queue,) = [
        q for q in store.queues(topic) if any(m.key == key for m in store.read(topic, q, 0, max_messages=10_000))
    ]
    return queue


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("left_out", [True, False])
def test_queue_of_a_key_is_its_hash_among_the_queues(store: MessageStore, way: str, left_out: bool) -> None:
    for key in KEYS[:20]:
        if left_out:
            WAYS[way](store, "t", data=b"x", key=key, queues=7)
        else:
            WAYS[way](store, "t", None, b"x", key=key, queues=7)
        assert queue_of(store, key) == xxhash.xxh3_64_intdigest(key) % 7


def test_queue_of_a_key_is_what_it_was_in_the_first_version(store: MessageStore) -> None:
    """Stores that were written by others rely on these figures."""
    expected = {b"": 2, b"a": 7, b"order-1": 6, b"order-2": 4, bytes(100): 4}
    assert {key: store._appender._partitioner.choose("t", key, 8) for key in expected} == expected


def test_another_process_chooses_the_same_queue(store: MessageStore, tmp_path: Path) -> None:
    code = """
import sys
from stratalog import MessageStore
with MessageStore.open(sys.argv[1]) as store:
    for number in range(200):
        store.append("t", data=b"x", key=b"%d" % number, queues=[30, 10, 20])
"""
    for key in KEYS:
        store.submit("t", data=b"x", key=key, queues=[30, 10, 20])
    done = run_child(code, str(tmp_path / "other"))
    assert done.returncode == 0, done.stderr
    with MessageStore.open(tmp_path / "other") as other:
        store.flush()
        for queue in (10, 20, 30):
            mine, theirs = ([m.key for m in one.read("t", queue, 0, max_messages=1000)] for one in (store, other))
            assert mine and mine == theirs
        assert other.queues("t") == [10, 20, 30]


def test_without_a_key_it_is_one_queue_after_the_other(store: MessageStore) -> None:
    for number in range(10):
        store.append("t", data=b"%d" % number, queues=[5, 3, 8])
    found = {queue: [message.data for message in store.read("t", queue)] for queue in (5, 3, 8)}
    assert found == {5: [b"0", b"3", b"6", b"9"], 3: [b"1", b"4", b"7"], 8: [b"2", b"5", b"8"]}
    store.append("other", data=b"x", queues=4)  # each topic has a turn of its own
    assert store.queues("other") == [0]


def test_threads_share_the_turns(store: MessageStore) -> None:
    def produce() -> None:
        for _ in range(250):
            store.submit("t", data=b"x", queues=10)

    for worker in [start(produce) for _ in range(4)]:
        worker.join()
    store.flush()
    assert {queue: store.queue_bounds("t", queue) for queue in store.queues("t")} == dict.fromkeys(range(10), (0, 100))


def test_without_queues_it_chooses_among_those_of_the_topic(store: MessageStore) -> None:
    assert store.append("t", data=b"first") == 0
    assert store.queues("t") == [0]  # a new topic has one queue
    store.append("t", 17, b"x")
    store.append("t", 4, b"x")
    before = {queue: store.queue_bounds("t", queue)[1] for queue in (0, 4, 17)}
    for _ in range(9):
        store.append("t", data=b"x")
    assert {queue: store.queue_bounds("t", queue)[1] - count for queue, count in before.items()} == {0: 3, 4: 3, 17: 3}
    for key in KEYS[:10]:
        store.append("t", data=b"x", key=key)
        assert queue_of(store, key) == [0, 4, 17][xxhash.xxh3_64_intdigest(key) % 3]


def test_keys_are_spread(store: MessageStore) -> None:
    counts = Counter(store._appender._partitioner.choose("t", b"key %d" % number, 16) for number in range(16_000))
    assert set(counts) == set(range(16))
    assert all(800 < count < 1200 for count in counts.values())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("queues", [0, -1, True, 1.5, "3", b"3", [], (), {1, 2}, {1: 2}, 2**31 + 1], ids=repr)
def test_what_is_no_choice_is_refused(store: MessageStore, way: str, queues: Any) -> None:
    with pytest.raises(InvalidMessage, match="queues is a number"):
        WAYS[way](store, "t", data=b"x", queues=queues)
    assert store.stats()["streams"] == 0


@pytest.mark.parametrize("way", WAYS)
def test_other_mistakes_are_refused_and_make_no_queue(store: MessageStore, way: str) -> None:
    call = WAYS[way]
    for queues in ([-1], [2**31], ["a"], [None], [True]):
        with pytest.raises(InvalidTopic):
            call(store, "t", data=b"x", queues=queues)
    with pytest.raises(InvalidMessage, match="give one of the two"):
        call(store, "t", 3, b"x", queues=4)
    with pytest.raises(InvalidMessage, match="data is bytes"):
        call(store, "t", queues=4)
    with pytest.raises(InvalidMessage, match="key is bytes"):
        call(store, "t", data=b"x", key="text", queues=4)
    with pytest.raises(InvalidTopic):
        call(store, "", data=b"x", queues=4)
    with pytest.raises(InvalidTopic):
        call(store, ["t"], data=b"x")
    assert store.stats()["streams"] == 0


def test_numpy_numbers_are_numbers(store: MessageStore) -> None:
    store.append("t", data=b"x", queues=np.int64(3))  # type: ignore[arg-type]
    store.append("t", data=b"x", queues=list(np.arange(4, 6)))
    assert store.queues("t") == [0, 5]
