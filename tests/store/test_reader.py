"""Reads that take a way of their own: from the ring in few steps, in long runs, through reused buffers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreCorrupt
from stratalog.store.device.buffers import POOLED_BYTES
from stratalog.store.device.os_file import OsFile
from stratalog.store.format.layout import checksum64
from stratalog.store.read import reader as reader_module
from stratalog.store.read.finder import STEP_MESSAGES
from stratalog.store.segment import scanner as scanner_module
from stratalog.store.segment import windows
from stratalog.store.segment.sealed import LONG_RUN
from stratalog.store.segment.windows import WINDOW_BYTES
from stratalog.store.testing import TunedConfig
from tests.store.helpers import KIB, calls_that_read, small, tiny, until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", small()) as opened:
        yield opened


def lane_of(store: MessageStore) -> Any:
    return store._lanes[0]


def fill(store: MessageStore, count: int, size: int, queues: int = 3) -> dict[int, list[bytes]]:
    """`count` messages a queue, queue by turns; the content of each."""
    rows = [(index % queues, b"%d/%d-" % (index % queues, index // queues)) for index in range(count * queues)]
    messages = [(queue, head.ljust(size, b"%d" % queue)) for queue, head in rows]
    store.append_batch([("t", queue, data) for queue, data in messages])
    return {queue: [data for owner, data in messages if owner == queue] for queue in range(queues)}


def test_what_was_just_written_comes_from_the_ring(store: MessageStore) -> None:
    expected = fill(store, 20, 300)
    for limit in (1, 3, 7, 20, 100):
        assert store.get_range("t", 1, 5, limit) == dict(enumerate(expected[1][5 : 5 + limit]))
    reads = store.stats()["reads"]
    assert reads["device_bytes"] == 0
    assert reads["recent_messages"] == reads["messages"] == 1 + 3 + 7 + 15 + 15


def test_every_offset_is_right_while_the_ring_goes_round(store: MessageStore) -> None:
    ring_bytes, written, serial = lane_of(store).ring.size_bytes, 0, 0
    while written < 3 * ring_bytes:
        messages = [b"%07d" % (serial + index) * 1000 for index in range(40)]
        store.append_batch([("t", 0, data) for data in messages])
        assert store.get_range("t", 0, serial, 100) == dict(enumerate(messages))
        assert store.get_range("t", 0, serial + 39, 1) == {0: messages[-1]}
        assert [bytes(data) for data in store.read_batch("t", 0, serial).payloads()] == messages
        serial, written = serial + 40, written + sum(map(len, messages))


def test_message_that_is_overtaken_while_it_is_read_comes_from_the_file(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fill(store, 20, 300)
    ring, right = lane_of(store).ring, checksum64

    def overtaking(data: bytes) -> int:
        ring.low = lane_of(store).tail
        return right(data)

    monkeypatch.setattr(reader_module, "checksum64", overtaking)
    assert store.get_range("t", 2, 0, 100) == dict(enumerate(expected[2]))
    assert store.stats()["reads"]["device_bytes"] > 0


def test_damage_in_the_ring_is_never_returned(store: MessageStore) -> None:
    fill(store, 20, 300)
    ring = lane_of(store).ring
    at = ring._map.find(b"1/7-", 0)
    ring._map[at + 10 : at + 11] = b"!"
    assert len(store.get_range("t", 0, 0, 100)) == 20
    for read in calls_that_read(store).values():
        assert len(read("t", 1, 0, max_messages=100)) == 7
        with pytest.raises(StoreCorrupt) as raised:
            read("t", 1, 7, max_messages=100)
        assert raised.value.position == at - lane_of(store).segment.base
        assert len(read("t", 1, 8, max_messages=100)) == 12


@pytest.mark.parametrize("sealed", [False, True])
def test_long_queue_is_read_in_one_call(tmp_path: Path, sealed: bool) -> None:
    config = small(segment_bytes=256 * KIB if sealed else 16 << 20)
    with MessageStore.open(tmp_path / "store", config) as store:
        count = STEP_MESSAGES + 1000
        expected = fill(store, count, 20, queues=2)
        until(lambda: store.stats()["segments"]["open"] == 1)
        assert (store.stats()["segments"]["sealed"] > 0) == sealed
        assert store.get_range("t", 1, 10, count) == dict(enumerate(expected[1][10:]))
        batch = store.read_batch("t", 1, 10, max_messages=count)
        assert [bytes(data) for data in batch.payloads()] == expected[1][10:]
        assert batch.offsets.tolist() == list(range(10, count))
        whole = store.read("t", 1, 10, max_messages=count, max_bytes=1 << 30)
        assert batch.times_ms.tolist() == [message.timestamp_ms for message in whole]


def test_short_and_long_runs_of_a_sealed_segment_agree(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", small()) as store:
        expected = fill(store, 3 * LONG_RUN, 1000)
    with MessageStore.open(tmp_path / "store", small()) as store:
        assert store.stats()["segments"]["sealed"] > 1
        for queue, messages in expected.items():
            one_by_one = [store.get_range("t", queue, offset, 1)[0] for offset in range(len(messages))]
            assert list(store.get_range("t", queue, 0, 1000).values()) == one_by_one == messages


def test_payloads_stay_what_they_were_while_later_batches_are_read(store: MessageStore) -> None:
    expected = fill(store, 600, 1000)
    assert POOLED_BYTES < 600 * 1000
    kept = [(queue, store.read_batch("t", queue, 0, max_messages=600).payloads()) for queue in (0, 1, 2, 0, 1, 2)]
    one = store.read_batch("t", 1, 0, max_messages=600).payload(17)  # the batch itself is gone
    for _ in range(10):
        store.read_batch("t", 2, 0, max_messages=600)
    for queue, payloads in kept:
        assert [bytes(data) for data in payloads] == expected[queue]
    assert bytes(one) == expected[1][17]


def test_batches_of_a_scan_that_are_kept_stay_what_they_were_and_can_only_be_read(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner_module, "CHUNK_BYTES", 64 * KIB)
    rows = [data for part in range(8) for data in fill(store, 300, 500, queues=1)[0]]
    kept = list(store.scan())
    assert len(list(store.scan())) == len(kept) > 16
    assert [bytes(view) for batch in kept for view in batch.payloads()] == rows
    assert all(batch.buffer.readonly for batch in kept)


def test_max_bytes_cuts_between_messages_of_all_segments(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", small()) as store:
        fill(store, 600, 1000)
        for limit in (0, 999, 1000, 123_456, 300_000, 599_999, 600_000):
            count = max(1, limit // 1000)
            assert len(store.read_batch("t", 0, 0, max_messages=600, max_bytes=limit)) == count
            assert len(store.read("t", 0, 0, max_messages=600, max_bytes=limit)) == count


def test_read_ahead_stops_at_what_is_read_while_the_segment_is_written(store: MessageStore) -> None:
    fill(store, 100, 300)
    segment = lane_of(store).segment
    for _ in range(40):
        segment.windows._touches += 1
        segment.read(8192, 10)
    assert segment.windows.asked() == {0}


def test_read_ahead_grows_with_the_places_that_are_touched(tmp_path: Path) -> None:
    home = tmp_path / "store"
    with MessageStore.open(home, TunedConfig(segment_bytes=32 << 20, prewrite_bytes=64 << 20)) as store:
        fill(store, 20_000, 1000, queues=1)
    with MessageStore.open(home) as store:
        segment = lane_of(store).view.sealed[-1].segment
        segment.read(8192, 1)
        assert len(segment.windows.asked()) == 1
        for position in range(0, 20 << 20, WINDOW_BYTES):
            segment.read(position + 8192, 1)
        assert segment.windows._touches < 30 < len(segment.windows.asked())


class Watched:
    """A file that notes what is asked of it, in order."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.calls: list[tuple[str, int]] = []
        self.cached = True

    def will_need(self, position: int, size: int) -> None:
        self.calls.append(("will need", position))

    def read(self, position: int, size: int) -> bytes:
        self.calls.append(("read", position))
        return bytes(self.file.read(position, size))

    def is_cached(self, position: int) -> bool:
        self.calls.append(("look", position))
        return self.cached

    def populate(self, position: int, size: int) -> bool:
        return False

    def size(self) -> int:
        return int(self.file.size())


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[Any]:
    """A sealed segment of which nothing was read yet, with its file watched."""
    home = tmp_path / "store"
    config = TunedConfig(segment_bytes=4 << 20, prewrite_bytes=8 << 20, max_frame_bytes=1 << 20)
    with MessageStore.open(home, config) as store:
        fill(store, 8000, 1000, queues=1)
    with MessageStore.open(home) as store:
        segment = lane_of(store).view.sealed[-1].segment
        segment._data = Watched(segment.data)
        yield segment


def test_all_places_of_a_call_are_asked_for_before_the_first_is_read(cold: Any) -> None:
    places = [window * WINDOW_BYTES + 8192 for window in (0, 4, 9, 20)]
    found, total, reads = cold.read_places(places, [100] * 4)
    assert [name for name, _ in cold._data.calls] == ["will need"] * 4 + ["read"] * 4
    assert [position for name, position in cold._data.calls if name == "read"] == places
    assert (total, reads) == (400, 4)
    assert [cold.read(place, 100) for place in places] == found
    assert cold._data.calls[8:] == [("read", place) for place in places]  # nothing is asked for twice


def test_windows_that_the_page_cache_has_forgotten_are_asked_for_again(
    cold: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "LOOK_S", 0.0)
    places = list(range(0, cold.data.size(), WINDOW_BYTES))
    cold.read(places[0], 1)
    assert not cold.windows.all_asked
    for place in places:
        cold.read(place, 1)
    assert cold.windows.all_asked and len(cold.windows.asked()) == len(places)
    cold._data.calls.clear()
    cold.read(places[3], 1)
    assert cold._data.calls == [("look", places[3]), ("read", places[3])]
    cold._data.cached = False
    cold.read(places[3], 1)
    assert cold._data.calls[-2:] == [("will need", places[3]), ("read", places[3])]
    assert cold.windows.asked() == {3}  # others are asked for when they are touched, and more and more of them
    cold._data.cached = True
    for place in places:
        cold.read(place, 1)
    assert cold.windows.all_asked


def test_a_reader_looks_only_once_in_a_while_whether_the_page_cache_forgets(
    cold: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(windows, "monotonic", lambda: now)
    for _ in range(3):
        cold.read(8192, 1)
    assert ("look", 8192) not in cold._data.calls
    now += windows.LOOK_S
    for _ in range(3):
        cold.read(8192, 1)
    assert cold._data.calls.count(("look", 8192)) == 1


@pytest.mark.disk
def test_a_file_tells_whether_the_page_cache_has_a_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    file = OsFile(path, create=False, direct=False)
    file.force()
    file.read(0, 1 << 20)
    assert file.is_cached(0)
    file.drop_cached(0, 1 << 20)
    if file.is_cached(0) and file.is_cached(512 << 10):
        pytest.skip("this file system keeps its pages, or does not tell")
    file.read(0, 1 << 20)
    assert file.is_cached(0)
    assert file.is_cached(512 << 10)
    file.close()


def test_a_message_over_the_edge_of_a_window_asks_for_both(cold: Any) -> None:
    cold.read(7 * WINDOW_BYTES - 10, 20)
    assert {6, 7} <= cold.windows.asked()


def test_once_all_of_a_segment_was_asked_for_nobody_looks_any_more(cold: Any) -> None:
    size = cold.data.size()
    assert size > 2 << 20
    for position in range(0, size, WINDOW_BYTES):
        assert not cold.windows.all_asked
        cold.read(position, 1)
        if cold.windows.all_asked:
            break
    assert set(range(-(-size // WINDOW_BYTES))) <= cold.windows.asked()


def test_single_messages_of_a_segment_that_is_written_to_are_read_alone(store: MessageStore) -> None:
    """The second one of a window brings in the window."""
    fill(store, 100, 300)
    segment = lane_of(store).segment
    segment._data = watched = Watched(segment.data)
    segment.read(8192, 10)
    assert watched.calls == [("read", 8192)]
    assert segment.windows.asked() == set()
    segment.read(20_000, 10)
    assert watched.calls[1:] == [("will need", 0), ("read", 20_000)]
    assert segment.windows.asked() == {0}
    watched.calls.clear()
    segment.read_places([WINDOW_BYTES, WINDOW_BYTES + 9000], [10, 10])
    assert watched.calls == [("will need", WINDOW_BYTES), ("read", WINDOW_BYTES)]


def test_a_segment_that_is_written_to_is_never_all_asked_for(store: MessageStore) -> None:
    fill(store, 100, 300)
    segment = lane_of(store).segment
    for position in range(0, segment.data.size(), WINDOW_BYTES):
        segment.read(position, 10)
    assert not segment.windows.all_asked


@pytest.mark.linux
def test_populate_reads_a_range_or_says_that_it_did_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3 << 20))
    file = OsFile(path, create=False, direct=False)
    assert file.populate(0, 8 << 20)
    assert not file.populate(3 << 20, 4096)
    file.close()


def test_range_may_end_with_the_first_message_of_the_open_segment(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        while store.stats()["segments"]["sealed"] < 1:
            store.append("t", 0, bytes(1000))
        store.append_batch([("t", 0, bytes(1000))] * 3)
        until(lambda: store.stats()["segments"]["open"] == 1)
        (opened,) = store._lanes[0].view.open
        row = opened.table.row(0)
        assert row is not None
        for begin in range(row[0] - 3, row[0] + 1):
            count = row[0] + 1 - begin
            assert len(store.read("t", 0, begin, max_messages=count)) == count
            assert len(store.read_batch("t", 0, begin, max_messages=count)) == count
            assert len(store.get_range("t", 0, begin, count)) == count


def test_batch_may_be_longer_than_a_run(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        count = 2 * STEP_MESSAGES + 5
        for begin in range(0, count, 1000):
            store.append_batch([("t", 0, b"")] * min(1000, count - begin))
        assert store.read_batch("t", 0, 0, max_messages=count).offsets.tolist() == list(range(count))
