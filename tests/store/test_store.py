"""The public face: what goes in comes out, before and after reopening and sealing, in every configuration."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import (
    Message,
    MessageStore,
    StoreClosed,
    StorePoisoned,
)

from .disks import FailingDisk
from .helpers import contents, scanned, start, tiny, until

PAD_TRIM_ADAPTIVE = ["pad", "trim", "adaptive"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, tiny()) as opened:
        yield opened


def fill(store: MessageStore, count: int = 100) -> None:
    """Enough for several segments in queue ("fill", 0)."""
    for _ in range(count):
        store.append("fill", 0, bytes(3000))


def seal(store: MessageStore) -> None:
    """Append until what was there before is in sealed segments."""
    want = store.stats()["segments"]["sealed"] + 2
    fill(store, 60)
    until(lambda: bool(store.stats()["segments"]["sealed"] >= want))


# -- round trips --------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["force", "os"])
@pytest.mark.parametrize("alignment", PAD_TRIM_ADAPTIVE)
@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_every_way_in_and_every_way_out_agree(tmp_path: Path, lanes: int, alignment: str, durability: str) -> None:
    config = tiny(lanes=lanes, alignment=alignment, durability=durability)
    queues = [(f"t{topic}", queue) for topic in range(3) for queue in range(4)]
    expected: dict[tuple[str, int], dict[int, bytes]] = {name: {} for name in queues}
    with MessageStore.open(tmp_path, config) as store:
        for turn, (topic, queue) in itertools.product(range(6), queues):
            data = f"{topic}/{queue}/{turn}".encode() * (turn * 40)
            if turn % 3 == 0:
                offset = store.append(topic, queue, data)
            elif turn % 3 == 1:
                offset = store.submit(topic, queue, data).result()
            else:
                offset = int(store.append_batch([(topic, queue, data)])[0])
            assert offset == turn
            expected[topic, queue][offset] = data
        check(store, expected)
    for _ in range(2):
        with MessageStore.open(tmp_path, config) as store:
            assert store.stats()["lanes"] == lanes
            check(store, expected)
            for topic, queue in queues:
                offset = store.append(topic, queue, b"more")
                expected[topic, queue][offset] = b"more"
            seal(store)
            expected["fill", 0] = dict(enumerate([bytes(3000)] * store.queue_bounds("fill", 0)[1]))
            check(store, expected)


def check(store: MessageStore, expected: dict[tuple[str, int], dict[int, bytes]]) -> None:
    """read, get_range, read_batch, scan and queue_bounds all say `expected`."""
    assert contents(store, list(expected)) == expected
    assert scanned(store) == {name: rows for name, rows in expected.items() if rows}
    for (topic, queue), rows in expected.items():
        assert store.queue_bounds(topic, queue) == (0, len(rows))
        assert store.get_range(topic, queue, 0, len(rows) + 5) == rows
        batch = store.read_batch(topic, queue, 0)
        assert batch.offsets.tolist() == list(rows)
        assert [bytes(view) for view in batch.payloads()] == list(rows.values())


FACTS: list[dict[str, Any]] = [
    {},
    {"key": b"k"},
    {"key": b""},
    {"key": bytes(range(256))},
    {"properties": {}},
    {"properties": {"a": "b", "ü": "日本\n\0\"'", "": ""}},
    {"deliver_at_ms": 0},
    {"deliver_at_ms": 4_102_444_800_000, "key": b"all", "properties": {"x": "y" * 1000}},
]


def test_key_properties_and_delivery_time_come_back(store: MessageStore, tmp_path: Path) -> None:
    for index, facts in enumerate(FACTS):
        way = (store.append, lambda *a, **k: store.submit(*a, **k).result())[index % 2]
        assert way("t", 0, b"%d" % index, **facts) == index
    tickets = [store.submit("many", 0, b"%d" % index, **facts) for index, facts in enumerate(FACTS)]
    assert [ticket.result() for ticket in tickets] == list(range(len(FACTS)))
    check_facts(store)
    store.close()
    with MessageStore.open(tmp_path, tiny()) as again:
        check_facts(again)
        seal(again)
        check_facts(again)
    with MessageStore.open(tmp_path, tiny()) as again:
        check_facts(again)


def check_facts(store: MessageStore) -> None:
    for topic in ("t", "many"):
        messages = store.read(topic, 0)
        assert [facts_of(message) for message in messages] == FACTS
        assert [message.data for message in messages] == [b"%d" % index for index in range(len(FACTS))]
        batch = store.read_batch(topic, 0)
        assert [facts_of(batch.message(index)) for index in range(len(batch))] == FACTS
        assert [batch.message(index) for index in range(len(batch))] == messages
        by_scan = [
            batch.message(index) for batch in store.scan() for index in range(len(batch)) if batch.topic(index) == topic
        ]
        assert by_scan == messages


def facts_of(message: Message) -> dict[str, Any]:
    values = {name: getattr(message, name) for name in ("deliver_at_ms", "key", "properties")}
    return {name: value for name, value in values.items() if value is not None}


def test_timestamp_is_the_time_of_the_append(store: MessageStore, tmp_path: Path) -> None:
    before = time.time_ns() // 1_000_000
    store.append("t", 0, b"x")
    after = time.time_ns() // 1_000_000
    times = [store.read("t", 0)[0].timestamp_ms, int(store.read_batch("t", 0).times_ms[0])]
    store.close()
    with MessageStore.open(tmp_path, tiny()) as again:
        times.append(again.read("t", 0)[0].timestamp_ms)
        seal(again)
        times.append(again.read("t", 0)[0].timestamp_ms)
    assert len(set(times)) == 1
    assert before <= times[0] <= after


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 65_535, 65_536])
def test_sizes_around_the_borders(store: MessageStore, size: int) -> None:
    data = bytes(index % 253 for index in range(size))
    assert store.append("t", 0, data) == 0
    assert store.append_batch([("t", 0, data), ("t", 0, b""), ("t", 0, data)]).tolist() == [1, 2, 3]
    for _ in range(2):
        assert [message.data for message in store.read("t", 0)] == [data, data, b"", data]
        seal(store)


@pytest.mark.parametrize("kind", [bytearray, lambda data: memoryview(bytearray(data))])
def test_data_may_be_changed_after_it_was_handed_over(store: MessageStore, kind: Any) -> None:
    tickets = []
    for _ in range(50):
        data = kind(b"right" * 100)
        tickets.append(store.submit("t", 0, data))
        data[:5] = b"wrong"
    data = kind(b"right" * 100)
    batch = [("t", 0, data)]
    offsets = store.append_batch(batch)
    data[:5] = b"wrong"
    assert [ticket.result() for ticket in tickets] == list(range(50))
    assert offsets.tolist() == [50]
    assert {message.data for message in store.read("t", 0, 0, max_messages=100)} == {b"right" * 100}


def test_memoryview_of_other_items_is_its_bytes(store: MessageStore) -> None:
    numbers = np.arange(10, dtype=np.uint64)
    store.append("t", 0, numbers.data)
    store.append("t", 0, numbers.data[::2])
    assert [message.data for message in store.read("t", 0)] == [numbers.tobytes(), numbers[::2].tobytes()]


# -- append_batch -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 3])
def test_batch_of_many_queues_gives_each_its_offsets(tmp_path: Path, lanes: int) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        rows = [(f"t{index % 7}", index % 5, b"%d" % index) for index in range(1000)]
        offsets = store.append_batch(rows)
        assert offsets.dtype == np.int64
        counts: dict[tuple[str, int], int] = {}
        for (topic, queue, data), offset in zip(rows, offsets.tolist(), strict=True):
            assert offset == counts.get((topic, queue), 0)
            counts[topic, queue] = offset + 1
            assert store.read(topic, queue, offset, max_messages=1)[0].data == data


def test_batch_larger_than_frames_and_segments_is_cut(store: MessageStore) -> None:
    rows = [("t", 0, bytes([index % 256]) * 5000) for index in range(200)]
    assert store.append_batch(rows).tolist() == list(range(200))
    assert list(contents(store, [("t", 0)])["t", 0].values()) == [data for _, _, data in rows]
    assert store.stats()["segments"]["open"] + store.stats()["segments"]["sealed"] > 5


def test_batch_of_more_messages_than_a_frame_takes(store: MessageStore) -> None:
    assert store.append_batch([("t", 0, b"")] * 40_000).tolist() == list(range(40_000))
    assert store.queue_bounds("t", 0) == (0, 40_000)


def test_batch_of_many_new_queues_with_long_names(store: MessageStore) -> None:
    """Names alone fill many frames: 16,384 of them are 4 MiB."""
    rows = [(f"{index:06d}" + "x" * 240, 0, b"") for index in range(16_384)]
    worker = start(lambda: store.append_batch(rows))
    worker.join()
    assert store.queue_bounds(rows[-1][0], 0) == (0, 1)


# -- reading ------------------------------------------------------------------------------------------


def test_read_keeps_to_its_limits(store: MessageStore) -> None:
    store.append_batch([("t", 0, bytes(1000))] * 50)
    for read in (store.read, store.read_batch):
        assert len(read("t", 0)) in (32, 50)  # the defaults of the two
        assert len(read("t", 0, 0, max_messages=7)) == 7
        assert len(read("t", 0, 45, max_messages=100)) == 5
        assert len(read("t", 0, 0, max_messages=100, max_bytes=2500)) == 2
        assert len(read("t", 0, 0, max_messages=100, max_bytes=10)) == 1
        assert len(read("t", 0, 0, max_messages=0)) == 0
        assert len(read("t", 0, 50)) == 0


def test_read_across_sealed_and_open_segments(store: MessageStore) -> None:
    for index in range(120):
        store.append("t", 0, b"%03d" % index * 900)
    for begin, count in ((0, 120), (1, 118), (19, 3), (100, 64)):
        expected = [b"%03d" % index * 900 for index in range(begin, min(120, begin + count))]
        assert list(store.get_range("t", 0, begin, count).values()) == expected
        assert [message.data for message in store.read("t", 0, begin, max_messages=count)] == expected
        assert [bytes(view) for view in store.read_batch("t", 0, begin, max_messages=count).payloads()] == expected


def test_payloads_of_a_batch_are_views(store: MessageStore) -> None:
    store.append_batch([("t", 0, b"abc"), ("t", 0, b"defg")])
    batch = store.read_batch("t", 0)
    assert isinstance(batch.payload(0), memoryview)
    assert batch.lengths.tolist() == [3, 4]
    assert bytes(batch.buffer[int(batch.positions[1]) :][:4]) == b"defg"
    assert (batch.topic(0), batch.queue_id(0)) == ("t", 0)


# -- waiting ------------------------------------------------------------------------------------------


# -- closing ------------------------------------------------------------------------------------------


def test_everything_says_closed_after_close(store: MessageStore) -> None:
    store.append("t", 0, b"x")
    ticket = store.submit("t", 0, b"y")
    scan = store.scan()
    store.close()
    store.close()
    assert ticket.result() == 1
    for use in (
        lambda: store.append("t", 0, b""),
        lambda: store.append("other", 0, b""),
        lambda: store.submit("t", 0, b""),
        lambda: store.append_batch([("t", 0, b"")]),
        lambda: store.read("t", 0),
        lambda: store.read_batch("t", 0),
        lambda: store.get_range("t", 0, 0, 1),
        lambda: store.queue_bounds("t", 0),
        lambda: list(store.scan()),
        lambda: list(scan),
        store.flush,
    ):
        with pytest.raises(StoreClosed):
            use()
    assert store.stats()["streams"] >= 1


def test_scan_that_is_under_way_when_the_store_closes_says_so(store: MessageStore) -> None:
    fill(store, 100)
    scan = store.scan()
    next(scan)
    store.close()
    with pytest.raises(StoreClosed):
        list(scan)


def has_read(store: MessageStore) -> bool:
    return int(store.stats()["reads"]["messages"]) > 4


def has_some(offsets: list[int]) -> bool:
    return len(offsets) > 4


def test_readers_beside_close_get_their_messages_or_closed(tmp_path: Path) -> None:
    for _ in range(10):
        store = MessageStore.open(tmp_path, tiny(recent_bytes=1 << 20))
        store.append("t", 0, b"x" * 1000)

        def read_on(store: MessageStore = store) -> None:
            try:
                while True:
                    assert store.read("t", 0, 0, max_messages=1)[0].data == b"x" * 1000
                    store.get_range("t", 0, 0, 10)
            except StoreClosed:
                pass

        workers = [start(read_on) for _ in range(4)]
        until(partial(has_read, store))
        store.close()
        for worker in workers:
            worker.join()


def test_appends_beside_close_are_durable_or_refused(tmp_path: Path) -> None:
    total = 0
    for _ in range(10):
        store = MessageStore.open(tmp_path, tiny())
        offsets: list[int] = []

        def append_on(store: MessageStore = store, offsets: list[int] = offsets) -> None:
            try:
                while True:
                    offsets.append(store.append("t", 0, b"x"))
            except StoreClosed:
                pass

        workers = [start(append_on) for _ in range(4)]
        until(partial(has_some, offsets))
        store.close()
        for worker in workers:
            worker.join()
        assert sorted(offsets) == list(range(total, total + len(offsets)))
        total += len(offsets)
    with MessageStore.open(tmp_path, tiny()) as store:
        assert store.queue_bounds("t", 0) == (0, total)


def test_close_gives_all_file_descriptors_and_threads_back(tmp_path: Path) -> None:
    def use() -> None:
        with MessageStore.open(tmp_path, tiny(lanes=2)) as store:
            for index in range(60):
                store.append("t", index % 4, bytes(3000))
            sum(map(len, store.scan()))
            store.read("t", 0, 0, max_messages=100)

    use()
    files, threads = len(list(Path("/proc/self/fd").iterdir())), len(list(Path("/proc/self/task").iterdir()))
    for _ in range(4):
        use()
    gc.collect()
    # A thread of a scan ends a moment after it.
    until(lambda: len(list(Path("/proc/self/task").iterdir())) <= threads)
    until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= files)


def test_leaving_the_block_closes(tmp_path: Path) -> None:
    with pytest.raises(KeyError), MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"x")
        raise KeyError
    with pytest.raises(StoreClosed):
        store.append("t", 0, b"x")


# -- figures ------------------------------------------------------------------------------------------


def test_stats_count_what_was_done(store: MessageStore) -> None:
    store.append("t", 0, bytes(100))
    store.append_batch([("t", 1, bytes(50))] * 4)
    store.read("t", 1)
    stats = store.stats()
    assert stats["log"]["messages"] == 5
    assert stats["log"]["payload_bytes"] == 300
    assert stats["log"]["written_bytes"] >= 300
    assert stats["log"]["written_bytes"] % 4096 == 0
    assert stats["reads"]["messages"] == 4
    assert stats["streams"] == 2
    assert stats["poisoned"] is None
    assert stats["recovery"]["losses"] == []


def test_metadata_is_at_most_15_bytes_a_message(tmp_path: Path) -> None:
    """R8: frames and footers, without the padding of blocks and the headers of segments."""
    with MessageStore.open(tmp_path, tiny(segment_bytes=4 << 20, max_frame_bytes=1 << 20)) as store:
        for _ in range(8):
            store.append_batch([("t", index % 4, bytes(100)) for index in range(8000)])
        stats = store.stats()["log"]
        in_frames = stats["written_bytes"] - stats["payload_bytes"] - stats["padding_bytes"]
        assert in_frames / 64_000 < 11 + 0.5  # 10 and the frames' headers; a footer adds 4


# -- what people see ----------------------------------------------------------------------------------


def test_store_and_its_answers_show_what_they_are(store: MessageStore, tmp_path: Path) -> None:
    assert repr(store) == f"<MessageStore {str(tmp_path)!r}, open>"
    ticket = store.submit("orders", 3, b"x")
    assert repr(ticket) in ("<Ticket of 'orders'/3: not durable yet>", "<Ticket of 'orders'/3: offset 0>")
    ticket.result()
    assert repr(ticket) == "<Ticket of 'orders'/3: offset 0>"
    assert repr(store.read_batch("orders", 3)) == "<MessageBatch of 1 messages, 1 bytes>"
    store.close()
    assert repr(store) == f"<MessageStore {str(tmp_path)!r}, closed>"


def test_poisoned_store_and_failed_ticket_show_it(tmp_path: Path) -> None:
    disk = FailingDisk()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        store.append("t", 0, b"x")
        disk.fail = "write"
        ticket = store.submit("t", 0, b"y")
        with pytest.raises(StorePoisoned):
            ticket.result()
        assert repr(ticket) == "<Ticket of 't'/0: failed>"
        assert repr(store).endswith(", poisoned>")


def test_constructor_points_to_open() -> None:
    for arguments in (("data",), ("data", tiny())):
        with pytest.raises(TypeError, match=r"MessageStore\.open"):
            MessageStore(*arguments)
    assert not Path("data").exists()


def test_batch_of_a_scan_has_topics_and_queue_ids_as_columns(store: MessageStore) -> None:
    rows = [(f"t{index % 3}", index % 2, b"%d" % index) for index in range(10)]
    store.append("none", 9, b"")
    store.append_batch(rows)
    batch = list(store.scan())[-1]
    assert batch.topics == [topic for topic, _, _ in rows]
    assert batch.queue_ids.dtype == np.int32
    assert batch.queue_ids.tolist() == [queue for _, queue, _ in rows]
    assert [(message.topic, message.queue_id, message.data) for message in batch.messages()] == rows
    empty = store.read_batch("unknown", 0)
    assert (empty.topics, empty.queue_ids.tolist(), empty.messages()) == ([], [], [])


def test_scan_gives_what_was_durable_though_more_is_written_where_it_has_read_ahead(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        view = store._lanes[0].view
        count = 0
        while len(view.sealed) < 2 or len(view.open) > 1:
            store.append("t", 0, bytes(3000))
            view = store._lanes[0].view
            count += 1
        border = sum(sealed.record.entries for sealed in view.sealed)
        offsets: list[int] = []
        for batch in store.scan():
            offsets += batch.offsets.tolist()
            if len(offsets) == border - 1:  # in the last sealed segment: the open one has been read already
                time.sleep(0.05)  # for what it reads ahead; shorter, the test only sees less
                store.append("t", 0, bytes(3000))
        assert offsets[:count] == list(range(count))
        assert offsets == list(range(len(offsets)))


def test_stats_name_the_memory_of_queue_tables(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"x")
        tables = store.stats()["queue_tables"]
        assert tables.keys() == {"open_bytes", "open_messages", "sealed_bytes", "sealed_messages"}
        assert (tables["open_messages"], tables["sealed_messages"], tables["sealed_bytes"]) == (1, 0, 0)
