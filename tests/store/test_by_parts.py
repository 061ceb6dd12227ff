"""Finding messages in parts, and fetching the bytes of these: as `get_range` has it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, OffsetOutOfRange, StoreCorrupt
from stratalog.store.segment.held import HeldMemory
from stratalog.store.segment.index import joined_heads
from stratalog.store.segment.segment import Segment
from stratalog.store.testing import TunedConfig
from tests.store.helpers import KIB, flip_bit, has_settled, mark, segment_path, small, until

from ..seeds import draw_seed

QUEUES = 5


def fill(store: MessageStore, rng: random.Random, count: int) -> list[list[bytes]]:
    """`count` messages of all lengths, queues mixed; the content of each queue."""
    rows: list[list[bytes]] = [[] for _ in range(QUEUES)]
    for _ in range(count // 50):
        batch = []
        for _ in range(50):
            queue = rng.randrange(QUEUES)
            data = rng.randbytes(rng.choice((1, 100, 3000, 20_000)))
            rows[queue].append(data)
            batch.append(("t", queue, data))
        store.append_batch(batch)
    return rows


def by_parts(store: MessageStore) -> Any:
    """`get_range` without tables of places and the like: (topic, queue, offset, limit) -> what it answers."""
    reader: Any = store._fetcher.reader
    return lambda topic, queue, *rest: reader._range(store._streams.get(topic, queue), *rest)


def check(store: MessageStore, rows: list[list[bytes]], rng: random.Random) -> None:
    """Random ranges of all queues: by parts, and by `get_range`."""
    for _ in range(100):
        queue, limit = rng.randrange(QUEUES), rng.choice((1, 2, 7, 40, 1000))
        offset = rng.randrange(len(rows[queue]))
        expected = dict(enumerate(rows[queue][offset : offset + limit]))
        assert store.get_range("t", queue, offset, limit) == expected
        assert by_parts(store)("t", queue, offset, limit) == expected


def kept(store: MessageStore) -> list[bool]:
    return [bool(sealed._kept) for sealed in store._lanes[0].view.sealed]


def test_it_gives_what_was_written_in_sealed_and_open_segments_ring_and_device(tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    config = small(segment_bytes=512 * KIB)
    with MessageStore.open(tmp_path, config) as store:
        rows = fill(store, rng, 3000)
        until(lambda: store.stats()["segments"]["open"] == 1)
        assert len(kept(store)) > 5
        assert all(kept(store))
        check(store, rows, rng)
        reads = store.stats()["reads"]
        assert reads["recent_messages"] > 0
        assert reads["device_messages"] > 0
        store._lanes[0].index_memory.frames.limit(1)  # what was kept goes, and the frames' heads take its place
        assert sum(kept(store)) <= 1
        check(store, rows, rng)
    with MessageStore.open(tmp_path, config) as store:
        assert not any(kept(store))
        check(store, rows, rng)
        for queue, datas in enumerate(rows):
            assert [
                message.data for message in store.read("t", queue, 0, max_messages=5000, max_bytes=1 << 30)
            ] == datas


def test_kept_places_stay_within_the_memory_for_sealed_segments(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small(segment_bytes=512 * KIB)) as store:
        store._lanes[0].index_memory = memory = HeldMemory(64 * KIB)
        rng = random.Random(draw_seed())
        rows = fill(store, rng, 2000)
        until(lambda: store.stats()["segments"]["open"] == 1)
        assert sum(kept(store)) > 0
        assert memory.frames.used_bytes <= memory.limit_bytes
        check(store, rows, rng)
    with MessageStore.open(tmp_path / "small", small(segment_bytes=512 * KIB)) as store:
        store._lanes[0].index_memory = HeldMemory(1)  # one table would be more than all of it
        fill(store, rng, 500)
        until(lambda: store.stats()["segments"]["open"] == 1)
        assert len(kept(store)) > 0
        assert not any(kept(store))


def test_a_flipped_bit_is_damage(tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, small(segment_bytes=512 * KIB)) as store:
        store.append("t", 0, b"wanted" * 100)
        rows = fill(store, rng, 500)
    path = segment_path(tmp_path, 1)
    flip_bit(path, path.read_bytes().index(b"wanted" * 100) + 50)
    with MessageStore.open(tmp_path, small(segment_bytes=512 * KIB)) as store:
        for get_range in (by_parts(store), store.get_range):
            with pytest.raises(StoreCorrupt):
                get_range("t", 0, 0, 5)
        assert store.get_range("t", 0, 1, 20) == dict(enumerate(rows[0][:20]))


def test_what_is_not_there_is_an_error_below_the_first_offset_alone(tmp_path: Path) -> None:
    config = small(segment_bytes=512 * KIB, retention_bytes=2 << 20)
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, config) as store:
        rows = fill(store, rng, 2000)
        until(lambda: has_settled(store) and store.queue_bounds("t", 0)[0] > 0)  # the first offset stays now
        first, behind = store.queue_bounds("t", 0)
        assert behind == len(rows[0])
        for get_range in (by_parts(store), store.get_range):
            with pytest.raises(OffsetOutOfRange):
                get_range("t", 0, first - 1, 5)
            assert get_range("t", 0, behind, 5) == get_range("t", 0, first, 0) == {}


def test_messages_of_which_a_mapping_has_the_first_ones_alone_come_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, config, real = random.Random(draw_seed()), small(segment_bytes=512 * KIB), Segment.copied

    def copied(segment: Segment, flat: Any, entries: Any, found: dict[int, bytes]) -> int:
        return real(segment, flat, entries[: rng.randrange(1 + len(entries))], found)

    with MessageStore.open(tmp_path, config) as store:
        rows = fill(store, rng, 1000)
    monkeypatch.setattr(Segment, "copied", copied)
    with MessageStore.open(tmp_path, config) as store:
        for _ in range(3):
            check(store, rows, rng)
            for queue, datas in enumerate(rows):
                offset = rng.randrange(len(datas) - 20)
                found = store.read("t", queue, offset, max_messages=20, max_bytes=1 << 30)
                assert [(one.offset, one.data) for one in found] == [*enumerate(datas[offset : offset + 20], offset)]
                assert store.read_batch("t", queue, offset, max_messages=20).messages() == found


def test_a_store_with_a_read_cache_asks_it(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, TunedConfig(read_cache_bytes=4 << 20, segment_bytes=512 * KIB)) as store:
        assert not store._fetcher.reader.bytes.is_log


def test_heads_of_all_frames_become_one_table(tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    config = small(segment_bytes=512 * KIB)
    with MessageStore.open(tmp_path, config) as store:
        rows = fill(store, rng, 2000)
    with MessageStore.open(tmp_path, config) as store:
        sealed = store._lanes[0].view.sealed
        heads = [len(one.index.frame_entry) for one in sealed]
        for queue in range(QUEUES):
            assert store.get_range("t", queue, 0, 1000) == dict(enumerate(rows[queue]))
        assert [len(one.index.heads) for one in sealed] == heads
        assert all(kept(store))
        for one in sealed:
            one.index.heads.clear()  # nothing asks for them any more
        check(store, rows, rng)
        assert not any(one.index.heads for one in sealed)


def test_heads_become_a_table_although_some_frames_have_no_messages(tmp_path: Path) -> None:
    config, rng = small(segment_bytes=512 * KIB), random.Random(draw_seed())
    rows: list[list[bytes]] = [[] for _ in range(QUEUES)]
    with MessageStore.open(tmp_path, config) as store:
        for _ in range(12):
            for queue, datas in enumerate(fill(store, rng, 50)):
                rows[queue] += datas
            mark(store)
    with MessageStore.open(tmp_path, config) as store:
        sealed = store._lanes[0].view.sealed
        begins = [one.index.footer.frame_entry for one in sealed]
        assert any((begin[1:] == begin[:-1]).any() for begin in begins)
        check(store, rows, rng)
        for queue, datas in enumerate(rows):
            assert store.get_range("t", queue, 0, 1000) == dict(enumerate(datas))
        assert all(kept(store))
        check(store, rows, rng)


def test_heads_that_do_not_agree_with_the_footer_become_no_table(tmp_path: Path) -> None:
    config = small(segment_bytes=512 * KIB)
    with MessageStore.open(tmp_path, config) as store:
        fill(store, random.Random(1), 1000)
    with MessageStore.open(tmp_path, config) as store:
        one = store._lanes[0].view.sealed[0]
        index, count = one.index, one.record.entries
        frames = range(len(index.frame_entry))
        heads = [one.head(index, None, frame) for frame in frames]
        assert joined_heads(index, count) is not None
        del index.heads[1]
        assert joined_heads(index, count) is None
        index.heads[1] = heads[0]  # of another frame
        assert joined_heads(index, count) is None
        index.heads[1] = heads[1]
        assert joined_heads(index, count + 1) is None
        right = heads[1].rows
        for at in (0, 4):  # another stream's, or another offset's
            heads[1].rows = right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :]
            assert joined_heads(index, count) is None
        heads[1].rows = right
        assert joined_heads(index, count) is not None
