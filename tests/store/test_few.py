"""`read_batch` of a few messages: without the ways for many and for recent ones."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stratalog.store import MessageBatch, MessageStore, StoreCorrupt
from stratalog.store.format.layout import HAS_KEYS
from stratalog.store.log.write import OpenSegment
from stratalog.store.read import reader
from stratalog.store.read.bulk import LEAST_MESSAGES
from stratalog.store.read.frame_times import common_time, times_of
from stratalog.store.segment.sealed_segments import SealedSegments
from stratalog.store.testing import TunedConfig
from tests.store.helpers import KIB, flip_bit, segment_path, small, until

from ..seeds import draw_seed

QUEUES = 60
ALL = 1 << 30
CONFIG = small(segment_bytes=512 * KIB)
# A ring that has next to nothing.
COLD = TunedConfig(recent_bytes=0, segment_bytes=8 << 20, max_frame_bytes=256 * KIB, max_message_bytes=256 * KIB)


def few(store: MessageStore, queue: int, offset: int, limit: int, max_bytes: int = ALL) -> MessageBatch:
    """The way itself."""
    stream = store._streams.get("t", queue)
    assert stream is not None
    return store._fetcher.reader._batch(stream, offset, limit, max_bytes)


def fill(store: MessageStore, rng: random.Random, count: int = 1500) -> list[list[bytes]]:
    """Frames of a few messages of all lengths, queues mixed; the content of each queue."""
    rows: list[list[bytes]] = [[] for _ in range(QUEUES)]
    while count > 0:
        batch = []
        for _ in range(rng.randrange(1, 6)):
            queue = rng.randrange(QUEUES)
            data = rng.randbytes(rng.choice((0, 0, 1, 100, 3000, 9000)))
            rows[queue].append(data)
            batch.append(("t", queue, data))
        store.append_batch(batch)
        count -= len(batch)
    return rows


def check(store: MessageStore, rows: list[list[bytes]], rng: random.Random) -> None:
    for queue, datas in enumerate(rows):
        offset = rng.randrange(len(datas))
        limit = rng.randrange(1, min(LEAST_MESSAGES, len(datas) - offset + 1))
        stamps = [message.timestamp_ms for message in store.read("t", queue, offset, max_messages=limit)]
        for batch in (few(store, queue, offset, limit), store.read_batch("t", queue, offset, max_messages=limit)):
            assert [bytes(data) for data in batch.payloads()] == datas[offset : offset + limit]
            assert batch.offsets.tolist() == [*range(offset, offset + limit)]
            assert batch.times_ms.tolist() == stamps
            assert (batch.topics, batch.queue_ids.tolist()) == (["t"] * limit, [queue] * limit)
            assert batch.buffer.readonly
            assert batch.extras is None


def test_it_gives_what_was_written_in_sealed_and_open_segments_ring_and_device(tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, rng)
        until(lambda: store.stats()["segments"]["open"] == 1)
        assert len(store._lanes[0].view.sealed) > 3
        check(store, rows, rng)
        store._lanes[0].index_memory.frames.limit(1)  # what was kept goes, and the frames' heads take its place
        check(store, rows, rng)
    with MessageStore.open(tmp_path, CONFIG) as store:
        check(store, rows, rng)
        check(store, rows, rng)
        assert store.stats()["reads"]["recent_messages"] == 0


def test_read_batch_of_few_messages_asks_for_no_head_of_a_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path, COLD) as store:
        rows = fill(store, random.Random(draw_seed()))
        monkeypatch.setattr(reader, "columns_of", None)
        for queue, datas in enumerate(rows):
            batch = store.read_batch("t", queue, 0, max_messages=4096)
            assert [bytes(data) for data in batch.payloads()] == datas


def test_message_without_bytes_at_the_end_of_a_frame_has_that_frames_time() -> None:
    segment: Any = SimpleNamespace(sequence=1)
    table = SimpleNamespace(frame_position=[0, 100, 200], frame_time=[1, 2, 3], frame_flags=[0, 0, 0])
    view: Any = SimpleNamespace(open=[OpenSegment(segment, cast(Any, table))], sealed=SealedSegments())
    assert times_of(view, [(segment, at) for at in (40, 100, 140, 240)]) == [1, 1, 2, 3]
    assert [common_time(view, segment, 40, last) for last in (40, 100, 101, 140)] == [1, 1, None, None]
    assert [common_time(view, segment, first, 240) for first in (100, 140, 200, 201)] == [None, None, None, 3]


def test_one_time_for_all_is_said_only_where_one_frame_without_optional_columns_has_all() -> None:
    segment: Any = SimpleNamespace(sequence=1)
    flags = [0, HAS_KEYS, 0]
    table = SimpleNamespace(frame_position=[0, 100, 200], frame_time=[1, 2, 3], frame_flags=flags)
    view: Any = SimpleNamespace(open=[OpenSegment(segment, cast(Any, table))], sealed=SealedSegments())
    assert common_time(view, segment, 40, 60) == 1
    assert common_time(view, segment, 140, 160) is None
    assert common_time(view, segment, 240, 10**6) == 3
    assert common_time(view, cast(Any, SimpleNamespace(sequence=2)), 40, 60) is None


def test_times_are_the_right_segments_also_where_segments_were_given_up_between_them() -> None:
    def sealed(sequence: int) -> Any:
        frames = [10, 50], [sequence, 100 * sequence], [0, 0]
        return SimpleNamespace(segment=SimpleNamespace(sequence=sequence), frames=frames)

    each = [sealed(sequence) for sequence in (3, 4, 7, 8, 9)]
    view: Any = SimpleNamespace(open=[], sealed=SealedSegments().with_newest(each))
    places = [(one.segment, at) for one in each for at in (20, 60)]
    assert times_of(view, places) == [3, 300, 4, 400, 7, 700, 8, 800, 9, 900]
    for gone in (2, 5, 6, 10):
        assert times_of(view, [*places, (sealed(gone).segment, 20)]) is None


def test_optional_columns_come_with_them_and_no_more_bytes_than_asked_for(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        for index in range(10):
            store.append("t", 0, bytes([index]) * 100)
        assert len(few(store, 0, 0, 10, 999)) == 9
        assert len(store.read_batch("t", 0, 0, max_messages=10, max_bytes=999)) == 9
        assert len(few(store, 0, 0, 10, 1000)) == 10
        store.append("t", 0, b"y", key=b"k")
        extras = store.read_batch("t", 0, 0, max_messages=11).extras
        assert extras is not None
        assert extras[10].key == b"k"
        assert few(store, 0, 0, 10).extras is None
        assert len(few(store, 0, 11, 1)) == len(few(store, 0, 0, 0)) == 0


def test_damaged_message_is_never_returned(tmp_path: Path) -> None:
    datas = [random.Random(index).randbytes(3000) for index in range(800)]
    with MessageStore.open(tmp_path, CONFIG) as store:
        for begin in range(0, len(datas), 8):
            store.append_batch([("t", begin // 8, data) for data in datas[begin : begin + 8]])
        until(lambda: store.stats()["segments"]["open"] == 1)
    path = segment_path(tmp_path, 1)
    flip_bit(path, path.read_bytes().index(datas[3]) + 1500)
    with MessageStore.open(tmp_path, CONFIG) as store:
        with pytest.raises(StoreCorrupt):
            few(store, 0, 0, 8)
        assert [bytes(data) for data in store.read_batch("t", 0, 0, max_messages=8).payloads()] == datas[:3]
        with pytest.raises(StoreCorrupt):
            store.read_batch("t", 0, 3, max_messages=1)
        assert [bytes(data) for data in store.read_batch("t", 0, 4, max_messages=8).payloads()] == datas[4:8]
        assert len(few(store, 1, 0, 8)) == 8
