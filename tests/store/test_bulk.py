"""`read_batch` in columns all the way: what it gives, and what it leaves to the long way."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import MessageBatch, MessageStore, OffsetOutOfRange, StoreCorrupt
from stratalog.store.read import bulk as bulk_module
from stratalog.store.read.bulk import LARGEST_WASTE
from tests.store.helpers import KIB, flip_bit, place_of, segment_path, small, until

from ..seeds import draw_seed

QUEUES = 3


def fill(store: MessageStore, rng: random.Random, count: int, *, mixed: bool) -> list[list[bytes]]:
    """`count` batches of 50 messages of all lengths, each of one queue or of all; the content of each queue."""
    rows: list[list[bytes]] = [[] for _ in range(QUEUES)]
    for number in range(count):
        batch = []
        for _ in range(50):
            queue = rng.randrange(QUEUES) if mixed else number % QUEUES
            data = rng.randbytes(rng.choice((0, 1, 100, 1000, 3000)))
            rows[queue].append(data)
            batch.append(("t", queue, data))
        store.append_batch(batch)
    return rows


def bulk(store: MessageStore) -> Any:
    """The way itself: (queue, offset, limit, max_bytes) -> what it answers."""
    way: Any = store._fetcher.reader._bulk
    return lambda queue, *rest: way.read_batch(store._streams.get("t", queue), *rest)


def datas(batch: MessageBatch) -> list[bytes]:
    return [bytes(data) for data in batch.payloads()]


def check(store: MessageStore, rows: list[list[bytes]], rng: random.Random) -> int:
    """Random ranges of all queues, by `read_batch`; how many the bulk way answered."""
    answered = 0
    for _ in range(60):
        queue, limit = rng.randrange(QUEUES), rng.choice((64, 100, 1000))
        offset = rng.randrange(len(rows[queue]))
        expected = rows[queue][offset : offset + limit]
        batch = store.read_batch("t", queue, offset, max_messages=limit)
        assert datas(batch) == expected
        assert batch.offsets.tolist() == list(range(offset, offset + len(expected)))
        long = store._fetcher.reader._batch(store._streams.get("t", queue), offset, limit, 1 << 30)  # type: ignore[arg-type]
        assert batch.times_ms.tolist() == long.times_ms.tolist()
        assert (batch.topics, batch.queue_ids.tolist()) == (long.topics, long.queue_ids.tolist())
        found = bulk(store)(queue, offset, limit, 1 << 30)
        answered += found is not None
        assert found is None or datas(found) == expected
    return answered


@pytest.mark.parametrize("mixed", [False, True])
def test_it_gives_what_was_written_in_sealed_and_open_segments_ring_and_device(tmp_path: Path, mixed: bool) -> None:
    rng = random.Random(draw_seed())
    config = small(segment_bytes=512 * KIB)
    with MessageStore.open(tmp_path, config) as store:
        rows = fill(store, rng, 200, mixed=mixed)
        until(lambda: store.stats()["segments"]["open"] == 1)
        assert check(store, rows, rng) > 20
        reads = store.stats()["reads"]
        assert reads["recent_messages"] > 0
        assert reads["device_messages"] > 0
        store._lanes[0].index_memory.frames.limit(1)  # what was kept goes, and the frames' heads take its place
        assert check(store, rows, rng) > 20
    with MessageStore.open(tmp_path, config) as store:
        assert check(store, rows, rng) > 20


def test_gaps_between_the_payloads_are_a_part_of_them_at_most(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small()) as store:
        rows = fill(store, random.Random(1), 60, mixed=False)
        batch = bulk(store)(0, 0, 500, 1 << 30)
        payload = int(batch.lengths.sum())
        assert payload <= int(batch.positions[-1] + batch.lengths[-1]) <= payload * (LARGEST_WASTE + 1) // LARGEST_WASTE
        assert batch.buffer.readonly
        again = batch.columns()
        assert bytes(again.payload) == b"".join(rows[0][:500])


def test_it_ends_in_front_of_the_message_that_would_pass_the_bytes(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small()) as store:
        store.append_batch([("t", 0, bytes([index]) * 1000) for index in range(200)])
        assert len(bulk(store)(0, 0, 200, 100_000)) == 100
        assert len(bulk(store)(0, 0, 200, 100_999)) == 100
        assert len(bulk(store)(0, 0, 200, 1)) == 1
        assert len(bulk(store)(0, 100, 200, 1 << 30)) == 100


def test_what_is_not_usual_goes_the_long_way(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small()) as store:
        store.append_batch([("t", 0, b"x" * 100) for _ in range(200)])
        assert bulk(store)(0, 200, 100, 1 << 30) is None
        assert bulk(store)(0, 0, 0, 1 << 30) is None
        store.append("t", 0, b"y", key=b"k")
        assert bulk(store)(0, 0, 300, 1 << 30) is None
        batch = store.read_batch("t", 0, 0, max_messages=300)
        assert batch.extras is not None
        assert batch.extras[200].key == b"k"
        assert bulk(store)(0, 0, 200, 1 << 30).extras is None


def test_every_offset_is_right_while_the_ring_goes_round(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small()) as store:
        ring_bytes, written, serial = store._lanes[0].ring.size_bytes, 0, 0
        while written < 3 * ring_bytes:
            messages = [b"%07d" % (serial + index) * 100 for index in range(70)]
            store.append_batch([("t", index % 2, data) for index, data in enumerate(messages + messages)])
            assert datas(bulk(store)(0, serial, 70, 1 << 30)) == messages[::2] * 2
            assert datas(bulk(store)(1, serial, 70, 1 << 30)) == messages[1::2] * 2
            serial, written = serial + 70, written + 2 * sum(map(len, messages))
        assert store.stats()["reads"]["device_messages"] == 0


def test_trimmed_messages_are_not_given(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small()) as store:
        store.append_batch([("t", 0, bytes([index])) for index in range(200)])
        store.trim("t", 0, 50)
        with pytest.raises(OffsetOutOfRange):
            bulk(store)(0, 49, 100, 1 << 30)
        assert bulk(store)(0, 50, 100, 1 << 30).offsets[0] == 50


def test_message_that_is_overtaken_while_it_is_read_comes_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path, small()) as store:
        rows = [bytes([index]) * 1100 for index in range(200)]
        store.append_batch([("t", 0, data) for data in rows])
        ring, right = store._lanes[0].ring, bulk_module._fill_recent

        def overtaking(*given: Any) -> bool:
            ring.low = store._lanes[0].tail
            return right(*given)

        monkeypatch.setattr(bulk_module, "_fill_recent", overtaking)
        assert bulk(store)(0, 0, 100, 1 << 30) is None
        assert datas(store.read_batch("t", 0, 0, max_messages=100)) == rows[:100]
        assert store.stats()["reads"]["device_messages"] == 100


def test_damaged_message_is_never_returned(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small()) as store:
        for _ in range(10):
            store.append_batch([("t", 0, b"%03d" % index * 200) for index in range(100)])
        until(lambda: len(store._lanes[0].view.sealed) > 1)
        position = place_of(store, ("t", 0), 70)[1]
    flip_bit(segment_path(tmp_path, 1), position + 5, 3)
    with MessageStore.open(tmp_path, small()) as store:
        assert bulk(store)(0, 0, 100, 1 << 30) is None
        assert len(store.read_batch("t", 0, 0, max_messages=100)) == 70
        with pytest.raises(StoreCorrupt) as caught:
            store.read_batch("t", 0, 70, max_messages=100)
        assert caught.value.position == position
        assert segment_path(tmp_path, 1).name in str(caught.value)


def test_disk_without_vectored_reads_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path, small()) as store:
        rows = fill(store, random.Random(2), 40, mixed=False)
        until(lambda: len(store._lanes[0].view.sealed) > 1)
        file = store._lanes[0].view.sealed[0].segment.data
        monkeypatch.setattr(file, "read_into", None)
        found = bulk(store)(0, 0, 100, 1 << 30)
        assert datas(found) == rows[0][:100]


def test_buffers_are_used_again(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small()) as store:
        store.append_batch([("t", 0, bytes([index]) * 1000) for index in range(200)])
        batch = bulk(store)(0, 0, 200, 1 << 30)
        first = batch.buffer.obj
        other = bulk(store)(0, 0, 100, 1 << 30)
        assert other.buffer.obj is not first
        del batch, other, first
        assert np.count_nonzero([bulk(store)(0, 0, 200, 1 << 30) is not None for _ in range(3)]) == 3
        assert len(store._fetcher.reader.buffers._kept) <= 2
        assert bulk_module.MOST_MESSAGES > 4096
