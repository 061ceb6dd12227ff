"""All reads by offset treat the ends of a queue alike: empty at the next offset, an error outside the bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import CacheConfig, MessageStore, OffsetOutOfRange

from .helpers import has_settled, memory_folder, start, tiny, until

Read = Callable[..., int]
READS: dict[str, Read] = {
    "read": lambda store, *place, most: len(store.read(*place, max_messages=most)),
    "read that waits": lambda store, *place, most: len(store.read(*place, max_messages=most, wait_ms=1)),
    "read_batch": lambda store, *place, most: len(store.read_batch(*place, max_messages=most)),
    "get_range": lambda store, *place, most: len(store.get_range(*place, most)),
    "read_async": lambda store, *place, most: len(asyncio.run(awaited(store, *place, max_messages=most))),
    "read_async that waits": lambda store, *place, most: len(
        asyncio.run(awaited(store, *place, max_messages=most, wait_ms=1))
    ),
}
CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "cached": {"cache": CacheConfig(heap_bytes=1 << 20)},
}


async def awaited(store: MessageStore, *given: Any, **named: Any) -> list[Any]:
    return await store.read_async(*given, **named)


@pytest.fixture(scope="module", params=CONFIGS)
def store(request: pytest.FixtureRequest) -> Iterator[MessageStore]:
    """Queue 0 begins behind 0 and has sealed and open segments; 1 is sealed and over, 2 lost everything, 3 is new."""
    config = tiny(retention_bytes=192 << 10, **CONFIGS[request.param])
    with memory_folder() as folder, MessageStore.open(folder, config) as opened:
        opened.append("t", 2, b"soon removed")
        while opened.queue_bounds("t", 2) != (1, 1) or opened.queue_bounds("t", 0)[0] == 0:
            opened.append("t", 0, bytes(3000))
        opened.append("t", 1, b"last")
        for _ in range(30):
            opened.append("t", 0, bytes(3000))
        opened.append("t", 3, b"new")
        until(lambda: has_settled(opened))  # what is sealed later counts as well, and would move the bounds again
        yield opened


@pytest.mark.parametrize("way", READS)
def test_outside_the_bounds_is_an_error_and_the_next_offset_is_empty(store: MessageStore, way: str) -> None:
    read = READS[way]
    for queue in range(4):
        first, end = store.queue_bounds("t", queue)
        assert read(store, "t", queue, end, most=10) == 0
        if end > first:
            assert read(store, "t", queue, first, most=10) == min(10, end - first)
            assert read(store, "t", queue, end - 1, most=10) == 1
        for offset in (end + 1, end + 1000, 1 << 70, *range(first)):
            with pytest.raises(OffsetOutOfRange) as caught:
                read(store, "t", queue, offset, most=10)
            assert (caught.value.first, caught.value.next_offset) == (first, end)


@pytest.mark.parametrize("way", READS)
def test_queue_that_was_never_used_ends_at_0(store: MessageStore, way: str) -> None:
    assert READS[way](store, "never", 0, 0, most=10) == 0
    with pytest.raises(OffsetOutOfRange):
        READS[way](store, "never", 0, 1, most=10)


@pytest.mark.parametrize("way", READS)
def test_number_of_0_messages_is_empty_within_the_bounds_and_an_error_behind_them(
    store: MessageStore, way: str
) -> None:
    first, end = store.queue_bounds("t", 0)
    for offset in (first, end):
        assert READS[way](store, "t", 0, offset, most=0) == 0
    with pytest.raises(OffsetOutOfRange):
        READS[way](store, "t", 0, end + 1, most=0)


@pytest.mark.parametrize("way", READS)
def test_reader_at_the_end_beside_a_producer_sees_no_error(tmp_path: Path, way: str) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:

        def produce() -> None:
            for _ in range(120):
                store.append("t", 0, b"x")

        producer, at = start(produce), 0
        while at < 120:
            at += READS[way](store, "t", 0, at, most=10)
        producer.join()
        assert at == 120
