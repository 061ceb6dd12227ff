"""The rows of a lane's places by topic and queue id: what they give, and what only the stream can say."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.store import InvalidTopic, MessageStore, OffsetOutOfRange, StoreClosed
from stratalog.store.format.layout import checksum64
from stratalog.store.log.streams import Lows, Stream
from stratalog.store.read import lane_places
from stratalog.store.read.lane_places import RENAME_CALLS, ROW, LanePlaces
from stratalog.store.read.making_places import make_places
from stratalog.store.read.named_rows import SPARE_IDS, Layout, NamedRows
from stratalog.store.segment.copies import WINDOW_BYTES
from stratalog.store.segment.segment import Segment
from tests.store.helpers import KIB, flip_bit, segment_path, small, until
from tests.store.interrupts import interrupt_at, places
from tests.store.test_by_parts import QUEUES, fill
from tests.store.test_leased import has_leases

from ..seeds import draw_seed

CONFIG = small(segment_bytes=512 * KIB)


def named(store: MessageStore) -> LanePlaces:
    """Have the table made now, with names."""
    lane = store._lanes[0]
    made = make_places(lane, lane.view, store._fetcher.reader.counters, 1 << 30, Layout.of(lane.streams))
    assert made is not None
    lane.index_memory.keep_places(0, made)
    return made


def by_name(
    store: MessageStore, topic: str, queue_id: int, offset: int, limit: int
) -> tuple[bool | None, dict[int, bytes]]:
    found: dict[int, bytes] = {}
    lane = store._lanes[0]
    made: LanePlaces = lane.index_memory.places[0]
    return made.copied_by_name(lane, topic, queue_id, offset, limit, found), found


def test_every_queue_of_every_topic_is_found_by_its_name(tmp_path: Path) -> None:
    rng = random.Random(draw_seed())
    names = [(topic, queue) for topic in ("a", "b", "c") for queue in rng.sample(range(40), 20)]
    rows: dict[tuple[str, int], list[bytes]] = {name: [] for name in names}
    with MessageStore.open(tmp_path, CONFIG) as store:
        for _ in range(30):
            batch = [(*rng.choice(names), rng.randbytes(rng.choice((1, 900, 9000)))) for _ in range(40)]
            for topic, queue, data in batch:
                rows[topic, queue].append(data)
            store.append_batch(batch)
        store.subscribe("a", "s").close()  # has hidden streams
        named(store)
        for (topic, queue), datas in rows.items():
            if datas:
                assert by_name(store, topic, queue, 0, len(datas)) == (True, dict(enumerate(datas)))
            for offset, limit in ((0, 3), (len(datas) // 2, 5), (len(datas) - 1, 9)):
                if 0 <= offset < len(datas):
                    expected = dict(enumerate(datas[offset : offset + limit]))
                    assert by_name(store, topic, queue, offset, limit) == (True, expected)
                    assert store.get_range(topic, queue, offset, limit) == expected
            assert by_name(store, topic, queue, len(datas), 1) == (None, {})
            assert store.get_range(topic, queue, len(datas), 1) == {}
        for stream in store._lanes[0].streams:
            if stream.topic.startswith("\x01"):
                assert by_name(store, stream.topic, stream.queue_id, 0, 1) == (None, {})


def test_numbers_that_name_no_queue_find_none(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        for queue in (0, 1, 2, 1 << 30):
            store.append("t", queue, b"%d" % queue)
        store.append("u", 0, b"u")
        named(store)
        assert by_name(store, "t", 2, 0, 1) == (True, {0: b"2"})
        for queue in (-1, -2, 3, 4, SPARE_IDS, 1 << 30, 1 << 62, 1 << 80):
            assert by_name(store, "t", queue, 0, 1) == (None, {})
        for offset, limit in ((-1, 1), (1, 1), (1 << 70, 1), (0, 0), (0, -1), (0, 1 << 70)):
            assert by_name(store, "t", 0, offset, limit) == (None, {})
        for queue in (-1, 1):
            assert by_name(store, "u", queue, 0, 1) == (None, {})
        assert by_name(store, "v", 0, 0, 1) == (None, {})
        assert store.get_range("t", 1 << 30, 0, 1) == {0: b"%d" % (1 << 30)}
        for wrong in (True, -1, 1.0):
            with pytest.raises(InvalidTopic):
                store.get_range("t", wrong, 0, 1)  # type: ignore[arg-type]
    with pytest.raises(StoreClosed):
        store.get_range("t", 0, 0, 1)


def test_a_trimmed_message_is_not_given_and_the_others_get_their_names_again(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, random.Random(draw_seed()), 500)
        named(store)
        assert by_name(store, "t", 0, 1, 3) == (True, dict(enumerate(rows[0][1:4])))
        store.trim("t", 0, before_offset=2)
        for _ in range(RENAME_CALLS // 2 - 1):
            assert by_name(store, "t", 0, 2, 3) == (None, {})
            with pytest.raises(OffsetOutOfRange):
                store.get_range("t", 0, 1, 3)
        for _ in range(3):
            assert by_name(store, "t", 0, 1, 3) == (None, {})
        assert by_name(store, "t", 0, 2, 3) == (True, dict(enumerate(rows[0][2:5])))
        for queue in range(1, QUEUES):
            assert by_name(store, "t", queue, 0, 3) == (True, dict(enumerate(rows[queue][:3])))
        store.delete_topic("t")
        with pytest.raises(OffsetOutOfRange):
            store.get_range("t", 0, 2, 3)
        named(store)
        for queue in range(QUEUES):
            assert by_name(store, "t", queue, len(rows[queue]) - 1, 1) == (None, {})


def test_a_trim_while_names_are_made_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        fill(store, random.Random(draw_seed()), 500)
        store.trim("t", 1, before_offset=1)
        column, mine = Lows.column, threading.get_ident()

        def trimmed_behind(*given: object) -> object:
            lows = column(*given)  # type: ignore[arg-type]
            if threading.get_ident() == mine:  # and not the upkeep, which looks for segments that may go
                monkeypatch.undo()
                store.trim("t", 0, before_offset=2)
            return lows

        monkeypatch.setattr(Lows, "column", trimmed_behind)
        made = named(store)
        assert made._names is not None
        assert made._names.shown != store._lanes[0].lows.shown
        with pytest.raises(OffsetOutOfRange):
            store.get_range("t", 0, 1, 3)


def test_what_came_behind_the_table_is_not_missed(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, random.Random(draw_seed()), 500)
        named(store)
        more = fill(store, random.Random(1), 500)
        store.append("t", QUEUES, b"new queue")
        for queue in range(QUEUES):
            datas = rows[queue] + more[queue]
            first = len(rows[queue]) - 2
            assert by_name(store, "t", queue, first, 5) == (False, dict(enumerate(datas[first : first + 2])))
            assert store.get_range("t", queue, first, 5) == dict(enumerate(datas[first : first + 5]))
            assert store.get_range("t", queue, 0, 1000) == dict(enumerate(datas))
        assert store.get_range("t", QUEUES, 0, 5) == {0: b"new queue"}


def test_damage_ends_the_result_before_it_and_what_the_table_gave_is_not_read_again(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        rows = fill(store, random.Random(draw_seed()), 50)
        store.append("t", 0, b"wanted" * 100)
        place = len(rows[0])
        fill(store, random.Random(1), 1000)
    path = segment_path(tmp_path, 1)
    flip_bit(path, path.read_bytes().index(b"wanted" * 100) + 50)
    with MessageStore.open(tmp_path, CONFIG) as store:
        for _ in range(3):
            assert store.get_range("t", 0, 0, place + 5) == dict(enumerate(rows[0]))
            store.get_range("t", 0, place + 1, 1000)
            for queue in range(1, QUEUES):
                store.get_range("t", queue, 0, 1000)
            named(store)
        if has_leases(tmp_path):

            def is_mapped() -> bool:
                assert store.get_range("t", 0, 0, place) == dict(enumerate(rows[0]))
                return bool(by_name(store, "t", 0, 0, place)[0])

            until(is_mapped)
            assert by_name(store, "t", 0, 0, place + 5) == (False, dict(enumerate(rows[0])))
            assert store.get_range("t", 0, 0, place + 5) == dict(enumerate(rows[0]))


def test_what_the_ring_loses_behind_other_messages_comes_from_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that has messages from outside the ring and then of it, while the ring is overtaken."""
    with MessageStore.open(tmp_path, small(segment_bytes=16 << 20, recent_bytes=1 << 20)) as store:
        rows = fill(store, random.Random(draw_seed()), 2500)
        lane = store._lanes[0]
        made, ring, segment = named(store), lane.ring, lane.view.open[0].segment
        assert segment.base is not None
        assert ring.low - segment.base > 1 << 20
        stream = store._streams.get("t", 0)
        assert stream is not None
        begin = made._index[2 * stream.number]
        older = next(at for at in range(len(rows[0])) if made._position(begin + at) >= ring.low)
        expected = dict(enumerate(rows[0][older - 3 : older + 3]))

        def is_whole() -> bool:
            assert store.get_range("t", 0, older - 3, 6) == expected
            return by_name(store, "t", 0, older - 3, 6) == (True, expected)

        until(is_whole)
        right, reads = checksum64, store._fetcher.reader.counters
        before = reads.recent_messages

        def overtakes(data: bytes) -> int:
            if data == expected[5]:  # the last one: all of the ring's are copied
                ring.reserve(ring.low + ring.size_bytes + (1 << 20))
            return right(data)

        monkeypatch.setattr(lane_places, "checksum64", overtakes)
        assert by_name(store, "t", 0, older - 3, 6) == (False, {index: expected[index] for index in range(3)})
        assert reads.recent_messages == before


def test_a_message_across_two_windows_is_kept_with_the_first(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small(segment_bytes=16 << 20, recent_bytes=1 << 20)) as store:
        rows = fill(store, random.Random(draw_seed()), 2500)
        lane = store._lanes[0]
        made, segment = named(store), lane.view.open[0].segment
        queue, across = next(
            (stream.queue_id, offset)
            for stream in lane.streams
            for offset in range(len(rows[stream.queue_id]))
            if _is_across(made, segment, made._index[2 * stream.number] + offset, lane.ring.low)
        )

        def is_kept() -> bool:
            for other, datas in enumerate(rows):
                for offset in range(0, len(datas), 16):
                    assert store.get_range("t", other, offset, 16) == dict(enumerate(datas[offset : offset + 16]))
            before = store.stats()["reads"]["device_reads"]
            whole = by_name(store, "t", queue, across, 1) == (True, {0: rows[queue][across]})
            return whole and bool(store.stats()["reads"]["device_reads"] == before)

        until(is_kept, 10)


def _is_across(made: LanePlaces, segment: Segment, row: int, low: int) -> bool:
    """Whether a message of a segment that the ring has lost begins in one window and ends in the next one."""
    which, at, length, _ = ROW.unpack_from(made._rows, ROW.size * row)
    if made._segments[which] is not segment or made._position(row) >= low:
        return False
    first, last = at // WINDOW_BYTES, (at + length - 1) // WINDOW_BYTES
    return bool(first < last)


@pytest.mark.parametrize("is_recent", [False, True])
def test_each_loop_compares_the_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_recent: bool) -> None:
    if not has_leases(tmp_path):
        pytest.skip("no leases on this file system")
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        rows = fill(store, random.Random(draw_seed()), 1000)
        if is_recent:
            named(store)
            assert_compared(store, rows[0], len(rows[0]) - 3, monkeypatch)
            return
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        for queue in range(QUEUES):
            store.get_range("t", queue, 0, 1000)
        named(store)

        def is_mapped() -> bool:
            assert store.get_range("t", 0, 0, 3) == dict(enumerate(rows[0][:3]))
            return by_name(store, "t", 0, 0, 3) == (True, dict(enumerate(rows[0][:3])))

        until(is_mapped)
        assert_compared(store, rows[0], 0, monkeypatch)


def assert_compared(store: MessageStore, datas: list[bytes], offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of three messages has a wrong checksum, and is not given."""
    right, wrong = checksum64, datas[offset + 1]
    monkeypatch.setattr(lane_places, "checksum64", lambda data: right(data) ^ (data == wrong))
    assert by_name(store, "t", 0, offset, 3) == (False, {0: datas[offset]})


def test_a_store_of_more_lanes_has_no_names(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small(lanes=2, segment_bytes=512 * KIB)) as store:
        rows = fill(store, random.Random(draw_seed()), 500)
        for _ in range(300):
            for queue in range(QUEUES):
                assert store.get_range("t", queue, 0, 3) == dict(enumerate(rows[queue][:3]))


def test_a_layout_has_a_place_for_each_id_that_is_not_far_out(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        for queue in (5, 0, 1 << 30, SPARE_IDS + 7, SPARE_IDS + 8):
            store.append("t", queue, b"x")
        streams = store._lanes[0].streams
        layout = Layout.of(streams)
        ids = {streams[number].queue_id: place for number, place in zip(layout.numbers, layout.places, strict=True)}
        assert ids == {5: 5, 0: 0, SPARE_IDS + 7: SPARE_IDS + 7, SPARE_IDS + 8: SPARE_IDS + 8}
        assert layout.size == 2 * 5 + SPARE_IDS
        made = named(store)
        assert made._names is not None
        assert isinstance(made._names, NamedRows)
        assert made._names.number(SPARE_IDS + 7) == 3


def test_a_layout_is_made_while_streams_are_defined(tmp_path: Path) -> None:
    class Growing(list[Stream]):
        """Gets another one whenever somebody has walked over it."""

        def __iter__(self) -> Iterator[Stream]:
            yield from super().__iter__()
            self.append(self[0])

    with MessageStore.open(tmp_path, CONFIG) as store:
        store.append_batch([("t", queue, b"x") for queue in range(3)])
        layout = Layout.of(Growing(store._lanes[0].streams))
        assert len(layout.numbers) >= 3


def test_names_of_very_many_topics_are_left_out_and_the_table_is_made(tmp_path: Path) -> None:
    """They cost more memory than rows: then queues are found by their streams."""
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.append_batch([(f"t{number}", 0, b"x") for number in range(3_000)])
        lane = store._lanes[0]
        layout = Layout.of(lane.streams)
        assert layout.size_bytes > 3_000 * 200
        made = make_places(lane, lane.view, store._fetcher.reader.counters, 2 * layout.size_bytes, layout)
        assert made is not None
        assert made.layout is None
        assert made.entries == 3_000


def test_queues_behind_the_last_place_of_a_topic_are_not_those_of_the_next_topic(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.append_batch([("a", 0, b"a"), ("b", 0, b"b"), ("c", 0, b"c")])
        named(store)
        for topic in "abc":
            for queue in range(1, 5):
                with pytest.raises(OffsetOutOfRange):
                    store.get_range(topic, queue, 1, 1)
                assert store.get_range(topic, queue, 0, 1) == {}


def test_an_interrupt_while_a_table_is_made_keeps_none_from_being_made_later(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.append_batch([("t", queue, b"x") for queue in range(3)])
        lane, tables = store._lanes[0], store._fetcher.reader.tables
        for place in places():
            wait = tables._wait(lane)
            wait.calls, wait.made_of = 1 << 30, None
            came, _ = interrupt_at(
                place,
                ("store/read/lane_tables.py",),
                lambda wait=wait: tables._make(lane, wait),  # type: ignore[misc]
            )
            assert not tables._makes
            if not came:
                break
        assert 0 in lane.index_memory.places
