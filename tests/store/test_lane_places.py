"""The table of a lane's places: reads by it give what the log has, and nothing that is gone."""

from __future__ import annotations

import random
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from stratalog.store import MessageStore, OffsetOutOfRange, StoreCorrupt, commit_shards
from stratalog.store.device.leased import WINDOW_BYTES
from stratalog.store.format.layout import checksum64
from stratalog.store.log.streams import Stream
from stratalog.store.read import lane_places, lane_tables
from stratalog.store.read.lane_places import _STREAM, ROW, STREAM_BYTES, LanePlaces
from stratalog.store.read.making_places import make_places
from stratalog.store.segment.copies import PART
from stratalog.store.segment.index import KeptPlaces
from tests.store.disks import OneSlowDisk
from tests.store.helpers import KIB, PATIENCE_S, flip_bit, segment_path, small, until
from tests.store.shards.helpers import attaching, staged
from tests.store.test_by_parts import QUEUES, check, fill
from tests.store.test_leased import has_leases

from ..seeds import draw_seed

if TYPE_CHECKING:
    from _typeshed import TraceFunction

CONFIG = small(segment_bytes=512 * KIB)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call that goes without a table makes one."""
    monkeypatch.setattr(lane_tables, "LEAST_CALLS", 1)
    monkeypatch.setattr(lane_tables, "MESSAGES_A_CALL", 1 << 30)


def table(store: MessageStore) -> LanePlaces | None:
    found: LanePlaces | None = store._lanes[0].index_memory.places.get(0)
    return found


def make(store: MessageStore) -> LanePlaces:
    """Have the table made now."""
    lane = store._lanes[0]
    made = make_places(lane, lane.view, store._fetcher.reader.counters, 1 << 30)
    assert made is not None
    lane.index_memory.keep_places(0, made)
    return made


def settle(store: MessageStore) -> None:
    until(lambda: store.stats()["segments"]["open"] == 1)


def joined(rows: list[list[bytes]], more: list[list[bytes]]) -> list[list[bytes]]:
    return [datas + behind for datas, behind in zip(rows, more, strict=True)]


def by_table(store: MessageStore, queue: int, offset: int, limit: int) -> tuple[bool, dict[int, bytes]]:
    found: dict[int, bytes] = {}
    stream, made = store._streams.get("t", queue), table(store)
    assert stream is not None
    assert made is not None
    return made.copied(stream, offset, limit, found), found


def test_it_gives_what_was_written_in_sealed_and_open_segments_ring_and_device(at_once: None, tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, rng, 2000)
        settle(store)
        for _ in range(2):
            check(store, rows, rng)
        made = table(store)
        assert made is not None
        assert made.entries == sum(map(len, rows))
        assert by_table(store, 0, len(rows[0]) - 3, 10) == (True, dict(enumerate(rows[0][-3:])))
        rows = joined(rows, fill(store, rng, 1000))  # behind the table
        check(store, rows, rng)
    with MessageStore.open(tmp_path, CONFIG) as store:
        for _ in range(2):
            check(store, rows, rng)
        assert table(store) is not None


def test_what_lies_in_mapped_pages_comes_by_the_table_and_is_counted(tmp_path: Path) -> None:
    if not has_leases(tmp_path):
        pytest.skip("no leases on this file system")
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        rows = fill(store, rng, 1000)
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        for queue in range(QUEUES):
            assert store.get_range("t", queue, 0, 1000) == dict(enumerate(rows[queue]))
        make(store)
        before: dict[str, Any] = {}
        for queue, whole in enumerate(rows):
            datas = whole[:100]  # the last ones are in the open segment, which is not mapped

            def is_mapped(queue: int = queue, datas: list[bytes] = datas) -> bool:
                assert store.get_range("t", queue, 0, 100) == dict(enumerate(datas))
                before.update({**store.stats()["reads"]})
                is_all, found = by_table(store, queue, 0, 100)  # false again where the machine stood still meanwhile
                assert not is_all or found == dict(enumerate(datas))
                return is_all

            until(is_mapped)
            after = store.stats()["reads"]
            assert after["messages"] - before["messages"] == len(datas)
            assert after["device_payload_bytes"] - before["device_payload_bytes"] == sum(map(len, datas))
            assert after["device_least_bytes"] == 1


def test_a_removed_segment_is_read_no_more_although_the_ring_has_it(tmp_path: Path) -> None:
    config = small(segment_bytes=512 * KIB, retention_bytes=2 << 20, recent_bytes=64 << 20)
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, config) as store:
        fill(store, rng, 50)
        made = make(store)
        fill(store, rng, 1000)
        until(lambda: store.queue_bounds("t", 0)[0] > 5)
        stream, found = store._streams.get("t", 0), dict[int, bytes]()
        assert stream is not None
        assert store._lanes[0].ring.low == 0
        assert not made.copied(stream, 0, 5, found)
        assert found == {}
        with pytest.raises(OffsetOutOfRange):
            store.get_range("t", 0, 0, 5)


def test_a_trim_in_the_middle_of_a_read_is_told_with_the_offset_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has the first messages, and the trim comes before the log is asked for the others."""
    copied = LanePlaces.copied
    with MessageStore.open(tmp_path, CONFIG) as store:
        fill(store, random.Random(draw_seed()), 500)
        settle(store)
        make(store)

        def some_copied(self: LanePlaces, stream: Stream, offset: int, limit: int, found: dict[int, bytes]) -> bool:
            copied(self, stream, offset, 2, found)
            store.trim("t", 0, before_offset=offset + 4)
            return False

        with monkeypatch.context() as patch:
            patch.setattr(LanePlaces, "copied", some_copied)
            with pytest.raises(OffsetOutOfRange, match="offset 1 is outside 't'/0, which holds offsets 5 to"):
                store.get_range("t", 0, 1, 5)


def test_a_removed_segment_is_not_kept_by_the_table(tmp_path: Path) -> None:
    config = small(segment_bytes=512 * KIB, retention_bytes=2 << 20)
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, config) as store:
        fill(store, rng, 200)
        until(lambda: bool(store._lanes[0].view.sealed))
        make(store)
        oldest = weakref.ref(store._lanes[0].view.sealed[0].segment)
        fill(store, rng, 1000)
        until(lambda: oldest() is None)  # its file is used again only then
        assert table(store) is None


def test_what_an_older_open_segment_gets_later_is_not_missed(tmp_path: Path) -> None:
    disk = OneSlowDisk()
    with MessageStore.open(tmp_path, CONFIG, disk=disk) as store:
        lane, queue = store._lanes[0], store._queues[0]
        queue.sizer.overlap_bytes = 1  # a second write goes beside the first one, however small it is
        store.append("t", 0, b"first")
        for _ in range(11):
            store.append("t", 1, bytes(40 * KIB))
        disk.waiting.release()  # one write may wait
        disk.gate.clear()
        tickets = [store.submit("t", 0, b"second")]
        assert disk.holds.wait(PATIENCE_S)
        tickets.append(store.submit("t", 1, bytes(60 * KIB)))  # does not fit into the segment
        until(lambda: len(lane.view.open) == 2)
        assert lane.view.open[0].table.visible < lane.view.open[0].table.entries
        make(store)
        disk.gate.set()
        for ticket in tickets:
            ticket.result(PATIENCE_S)
        assert store.get_range("t", 0, 0, 10) == {0: b"first", 1: b"second"}
        settle(store)
        assert store.get_range("t", 0, 0, 10) == {0: b"first", 1: b"second"}
        assert by_table(store, 0, 0, 10) == (False, {0: b"first"})


def test_trimmed_messages_are_not_given(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, random.Random(draw_seed()), 200)
        make(store)
        assert by_table(store, 0, 0, 3) == (True, dict(enumerate(rows[0][:3])))
        store.trim("t", 0, before_offset=2)
        assert by_table(store, 0, 1, 3) == (False, {})
        with pytest.raises(OffsetOutOfRange):
            store.get_range("t", 0, 1, 3)
        assert by_table(store, 0, 2, 3) == (True, dict(enumerate(rows[0][2:5])))


def test_damage_ends_the_result_before_it_and_is_told_at_its_place(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, random.Random(draw_seed()), 50)
        store.append("t", 0, b"wanted" * 100)
        place = len(rows[0])
        rows = joined(rows, fill(store, random.Random(1), 1000))
    path = segment_path(tmp_path, 1)
    flip_bit(path, path.read_bytes().index(b"wanted" * 100) + 50)
    with MessageStore.open(tmp_path, CONFIG) as store:
        for _ in range(3):
            assert store.get_range("t", 0, 0, place + 5) == dict(enumerate(rows[0][:place]))
            for queue in range(1, QUEUES):
                assert store.get_range("t", queue, 0, 1000) == dict(enumerate(rows[queue]))
            with pytest.raises(StoreCorrupt):
                store.get_range("t", 0, place, 5)
            assert store.get_range("t", 0, place + 1, 1000) == dict(enumerate(rows[0][place:]))
            make(store)
        if has_leases(tmp_path):

            def is_mapped() -> bool:
                assert store.get_range("t", 0, 0, place) == dict(enumerate(rows[0][:place]))
                return by_table(store, 0, 0, place)[0]

            until(is_mapped)
            assert by_table(store, 0, 0, place + 5) == (False, dict(enumerate(rows[0][:place])))


def test_what_the_ring_loses_during_a_copy_comes_from_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, random.Random(draw_seed()), 50)
        made, ring = make(store), store._lanes[0].ring
        assert by_table(store, 0, 0, 5)[0]
        right = checksum64

        def overtakes(data: bytes) -> int:
            ring.reserve(ring.low + ring.size_bytes + (1 << 20))
            return right(data)

        monkeypatch.setattr(lane_places, "checksum64", overtakes)
        before = store.stats()["reads"]["recent_messages"]
        assert by_table(store, 0, 0, 5) == (False, {})
        assert store.stats()["reads"]["recent_messages"] == before
        assert store.get_range("t", 0, 0, 5) == dict(enumerate(rows[0][:5]))
        assert made.entries == 50


@pytest.fixture
def beside_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[MessageStore, list[bytes]]]:
    """A queue with messages of the ring, of segments that a bulk commit attached, and of the ring again."""
    attaching(monkeypatch.setattr, as_segments=True)
    parts = [[b"%s %d" % (kind, number) for number in range(10)] for kind in (b"first", b"attached", b"last")]
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        for data in parts[0]:
            store.append("t", 0, data)
        commit_shards(store.path, staged(Path(store.path), [("t", 0, data) for data in parts[1]]), name="commit")
        until(lambda: store.queue_bounds("t", 0) == (0, 20))
        for data in parts[2]:
            store.append("t", 0, data)
        for sealed in store._lanes[0].view.sealed[1:]:  # the commit's record and its shard, as a reader looks at them
            for frame in range(len(sealed.index.footer.frame_position)):
                sealed.head(sealed.index, None, frame)
            assert sealed.segment.base is None
        yield store, [data for part in parts for data in part]


def test_the_ring_is_asked_on_both_sides_of_what_a_commit_attached(
    beside_a_commit: tuple[MessageStore, list[bytes]],
) -> None:
    store, datas = beside_a_commit
    assert make(store)._is_split

    def recent() -> int:
        return int(store.stats()["reads"]["recent_messages"])

    before = recent()
    assert by_table(store, 0, 20, 10) == (True, dict(enumerate(datas[20:])))
    assert recent() == before + 10
    found = by_table(store, 0, 0, 30)[1]
    assert found == dict(enumerate(datas[: len(found)]))
    assert len(found) >= 10

    def is_all() -> bool:
        assert store.get_range("t", 0, 0, 30) == dict(enumerate(datas))
        before = recent()
        return by_table(store, 0, 0, 30) == (True, dict(enumerate(datas))) and recent() == before + 20

    if has_leases(Path(store.path).parent):
        until(is_all)


@pytest.mark.parametrize("overtaken_at", range(30))
def test_what_the_ring_loses_during_a_copy_on_both_sides_of_a_commit_is_not_given(
    beside_a_commit: tuple[MessageStore, list[bytes]], monkeypatch: pytest.MonkeyPatch, overtaken_at: int
) -> None:
    store, datas = beside_a_commit
    if not has_leases(Path(store.path).parent):
        pytest.skip("no leases on this file system")
    make(store)
    until(lambda: bool(store.get_range("t", 0, 0, 30)) and by_table(store, 0, 0, 30)[0])
    ring, right, calls = store._lanes[0].ring, checksum64, list[int]()

    def overtakes(data: bytes) -> int:
        calls.append(1)
        if len(calls) == overtaken_at + 1:
            ring.reserve(ring.low + ring.size_bytes + (1 << 20))
        return right(data)

    monkeypatch.setattr(lane_places, "checksum64", overtakes)
    assert by_table(store, 0, 0, 30) == (False, {})
    calls.clear()
    assert store.get_range("t", 0, 0, 30) == dict(enumerate(datas))


def test_messages_longer_than_a_window_are_left_to_others_in_a_mapping(tmp_path: Path) -> None:
    config = small(max_message_bytes=4 << 20, segment_bytes=16 << 20)
    long = random.Random(draw_seed()).randbytes(WINDOW_BYTES + 5)
    datas = [b"short", long] * 20
    with MessageStore.open(tmp_path / "store", config) as store:
        for data in datas:
            store.append("t", 0, data)
        settle(store)
        make(store)
        last = len(datas) - 1
        assert by_table(store, 0, last, 1) == (True, {0: long})  # of the ring
    if not has_leases(tmp_path):
        pytest.skip("no leases on this file system")
    with MessageStore.open(tmp_path / "store", config) as store:
        assert store.get_range("t", 0, 0, 100) == dict(enumerate(datas))
        make(store)
        oldest = store._lanes[0].view.sealed[0].segment

        def calls() -> int:
            return int(store.stats()["reads"]["device_reads"])

        def is_mapped() -> bool:
            assert store.get_range("t", 0, 0, 4) == dict(enumerate(datas[:4]))
            before = calls()
            found = by_table(store, 0, 0, 1)
            return oldest.leased is not None and calls() == before and found == (True, {0: b"short"})

        until(is_mapped)
        before = calls()
        found = by_table(store, 0, 1, 1)
        assert found == ((True, {0: long}) if calls() > before else (False, {}))
        assert store.get_range("t", 0, 0, 100) == dict(enumerate(datas))


def test_a_gap_in_the_offsets_leaves_the_stream_to_the_long_way(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, random.Random(draw_seed()), 1000)
        settle(store)
        sealed = store._lanes[0].view.sealed[1]
        kept = sealed.kept
        assert kept is not None
        first, start, entries = (np.array(column) for column in kept.columns[1:4])
        first[0] += 1
        flat = np.array(kept.flat).reshape(-1, 3)
        sealed._kept[0] = KeptPlaces(first, start, entries, flat)
        made = make(store)
        number = [store._streams.get("t", queue) for queue in range(QUEUES)]
        has = [made.has(stream.number, 0) for stream in number if stream is not None]
        numbers = [stream.number for stream in number if stream is not None]
        assert has == [number != 0 for number in numbers]
        assert made.entries == 1000 - len(rows[numbers.index(0)])
        sealed._kept[0] = kept
        for queue in range(QUEUES):
            assert store.get_range("t", queue, 0, 1000) == dict(enumerate(rows[queue]))
            with pytest.raises(OffsetOutOfRange):
                store.get_range("t", queue, 1 << 62, 3)


def test_it_stays_within_its_part_of_the_memory_and_has_the_newest_segments(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, random.Random(draw_seed()), 2000)
        settle(store)
        lane, counters = store._lanes[0], store._fetcher.reader.counters
        assert make_places(lane, lane.view, counters, 100) is None
        most = 16 * (2000 // 2 + QUEUES + 1)
        made = make_places(lane, lane.view, counters, most)
        assert made is not None
        assert 0 < made.entries <= 1000
        lane.index_memory.keep_places(0, made)
        assert by_table(store, 0, 0, 1)[1] == {}
        check(store, rows, random.Random(draw_seed()))
        used = lane.index_memory.frames.used_bytes
        lane.index_memory.keep_places(0, make_places(lane, lane.view, counters, most) or made)
        assert lane.index_memory.frames.used_bytes == used
        lane.index_memory.drop_places(0)
        assert lane.index_memory.frames.used_bytes == used - made.size_bytes


@pytest.mark.parametrize("lanes", [1, 4])
def test_the_tables_of_all_lanes_have_one_part_of_the_memory(
    at_once: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lanes: int
) -> None:
    """Else they drive each other out, and are made again in a reader's call each time."""
    asked: list[int] = []

    def makes(*given: Any) -> None:
        asked.append(given[3])

    monkeypatch.setattr(lane_tables, "make_places", makes)
    with MessageStore.open(tmp_path, small(lanes=lanes)) as store:
        for queue in range(512):
            store.append("t", queue, b"x")
        for queue in 2 * list(range(512)):
            assert store.get_range("t", queue, 0, 1) == {0: b"x"}
        held = store._lanes[0].index_memory
        least, most = (limit // PART // lanes for limit in (held.frames.limit_bytes, held.limit_bytes))
    assert asked
    assert least <= min(asked) <= max(asked) <= most  # footers take a part of the memory


def test_a_read_that_has_its_answer_does_not_fail_for_a_table_that_has_no_room(
    at_once: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    def no_room(*given: object) -> None:
        calls.append(given)
        raise MemoryError

    monkeypatch.setattr(lane_tables, "make_places", no_room)
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, random.Random(draw_seed()), 500)
        for _ in range(3):
            for queue in range(QUEUES):
                assert store.get_range("t", queue, 0, 100) == dict(enumerate(rows[queue][:100]))
        assert calls


def test_whoever_reads_what_was_just_written_has_no_table_made(at_once: None, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        for number in range(300):
            store.append("t", 0, b"%d" % number)
            assert store.get_range("t", 0, number, 32) == {0: b"%d" % number}
        assert table(store) is None
        for _ in range(2):
            for number in range(300):
                assert store.get_range("t", 0, number, 1) == {0: b"%d" % number}
        assert table(store) is not None


def test_a_table_that_has_all_is_not_made_again(at_once: None, tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, rng, 1000)
        settle(store)
        check(store, rows, rng)
        made = table(store)
        assert made is not None
        check(store, rows, rng)
        assert table(store) is made


def test_a_slower_thread_with_an_older_view_hides_nothing_from_others(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        lane = store._lanes[0]
        store.append("t", 0, b"first")
        made, older = make(store), lane.view
        store.append_batch([("t", 1, bytes(40 * KIB))] * 20)  # does not fit into the segment
        store.append("t", 0, b"second")
        both = {0: b"first", 1: b"second"}
        assert lane.view.open[-1].segment is not older.open[-1].segment
        looked = []

        def at_each_step(frame: FrameType, event: str, _: object) -> TraceFunction | None:
            """Another thread reads while this one compares its view, which is older."""
            if frame.f_code is not LanePlaces._fitted.__code__ or frame.f_locals["view"] is not older:
                return None
            assert store.get_range("t", 0, 0, 10) == both
            looked.append(event)
            return at_each_step

        before = sys.gettrace()
        sys.settrace(at_each_step)
        try:
            made._fitted(older)
        finally:
            sys.settrace(before)
        assert len(looked) > 5
        assert store.get_range("t", 0, 0, 10) == both


def test_what_the_ring_has_lost_of_the_open_segment_is_kept_once_it_is_read_again(tmp_path: Path) -> None:
    config = small(segment_bytes=16 << 20, recent_bytes=1 << 20)
    with MessageStore.open(tmp_path, config) as store:
        rows = fill(store, random.Random(draw_seed()), 2500)
        settle(store)
        lane = store._lanes[0]
        made, segment = make(store), lane.view.open[0].segment
        assert segment.base is not None
        older = [sum(place < lane.ring.low for place in places_of(made, store, queue)) for queue in range(QUEUES)]
        assert lane.ring.low - segment.base > 1 << 20

        def calls() -> int:
            before = store.stats()["reads"]["device_reads"]
            for queue, count in enumerate(older):
                for offset in range(0, count, 16):
                    limit = min(16, count - offset)
                    datas = dict(enumerate(rows[queue][offset : offset + limit]))
                    assert store.get_range("t", queue, offset, limit) == datas
            return int(store.stats()["reads"]["device_reads"] - before)

        first = calls()
        until(lambda: calls() < first // 4)
        held = lane.index_memory.frames
        kept = [item for item in held.items if item.home is segment.copies.windows]
        assert kept
        assert sum(item.size_bytes for item in kept) <= held.limit_bytes // PART + 400 * len(kept)
        for item in kept:
            item.data = bytes(len(item.data))  # as if it had been copied before the messages were written
        calls()
        until(lambda: calls() < first // 4)


def places_of(made: LanePlaces, store: MessageStore, queue: int) -> list[int]:
    """The lane positions of a queue's messages."""
    stream = store._streams.get("t", queue)
    assert stream is not None
    begin, _, end = _STREAM(made._index, STREAM_BYTES * stream.number)
    rows = ROW.iter_unpack(made._rows[ROW.size * begin : ROW.size * end])
    return [made._bases[which] + at for which, at, _, _ in rows]
