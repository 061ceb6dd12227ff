"""Plans of bulk reads: what their parts give, taken together, is what a scan gives."""

from __future__ import annotations

import pickle
import random
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from stratalog.store import (
    InvalidMessage,
    InvalidTopic,
    LogOvertaken,
    LogPosition,
    MessageStore,
    ScanBatch,
    ScanFilter,
    ScanPart,
    ScanPlan,
    StoreCorrupt,
    StoreReader,
    StoreUnreadable,
    StoreUnusable,
    plan_scan,
    read_part,
)
from stratalog.store.device.disk import ReadingDisk
from stratalog.store.device.os_file import OsFile
from stratalog.store.plans import chunks as chunks_module
from stratalog.store.segment import scanner as scanner_module
from tests.seeds import draw_seed

from .helpers import crash_copy, flip_bit, full_frames, has_settled, seal_of, segment_path, segment_paths, tiny, until

STREAMS = [("orders", 0), ("orders", 1), ("bills", 0), ("bills", 70_000), ("é", 3)]
Name = tuple[str, int, int]  # topic, queue id, offset


class Row(NamedTuple):
    """What a message has beside its name."""

    data: bytes | None
    time_ms: int
    deliver_at_ms: int | None
    key: bytes | None
    properties: bytes | None


class Clock:
    """A wall clock that the test moves."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms


def rows_of(batches: Iterable[ScanBatch]) -> dict[Name, Row]:
    """Each message of some batches; none comes twice."""
    rows: dict[Name, Row] = {}
    for batch in batches:
        names = batch.streams.names()
        ends = batch.lengths.cumsum().tolist()
        for row, (number, offset) in enumerate(zip(batch.stream_index.tolist(), batch.offsets.tolist(), strict=True)):
            payload, end = batch.payload, ends[row]
            data = None if payload is None else bytes(payload[end - int(batch.lengths[row]) : end])
            due = None if batch.deliver_at_ms is None else int(batch.deliver_at_ms[row])
            blobs = [None if one is None else one.take(np.array([row])) for one in (batch.keys, batch.properties)]
            key, properties = [None if one is None or one.lengths[0] < 0 else bytes(one.data) for one in blobs]
            name = (*names[number], offset)
            assert name not in rows, f"{name} came twice"
            rows[name] = Row(data, int(batch.times_ms[row]), None if due is None or due < 0 else due, key, properties)
    return rows


def read_all(plan: ScanPlan, **options: Any) -> dict[Name, Row]:
    """What the parts give, each of them as another process gets it."""
    parts: list[ScanPart] = pickle.loads(pickle.dumps(plan.parts))
    return rows_of(batch for part in parts for batch in read_part(part, **options))


def scanned_rows(store: StoreReader) -> dict[Name, Row]:
    """The same by `scan`."""
    rows: dict[Name, Row] = {}
    for batch in store.scan():
        for at in range(len(batch)):
            extra = None if batch.extras is None else batch.extras[at]
            due, key, properties = (None, None, None) if extra is None else extra
            rows[batch.topic(at), batch.queue_id(at), int(batch.offsets[at])] = Row(
                bytes(batch.payload(at)), int(batch.times_ms[at]), due, key, properties
            )
    return rows


def fill(store: MessageStore, chance: random.Random, count: int) -> None:
    """Appends of all kinds: blocking ones, columns, small and large, with and without what is optional."""
    while count > 0:
        size = min(count, chance.choice([1, 3, 50, 400]))
        most = chance.choice([10, 200, 3_000])
        datas = [chance.randbytes(chance.randrange(most)) for _ in range(size)]
        if chance.random() < 0.3:
            for data in datas[:10]:
                name = chance.choice(STREAMS)
                store.append(
                    *name, data, key=b"k%d" % len(data), properties={"n": str(len(data))},
                    deliver_at_ms=chance.choice([None, 5_000]),
                )  # fmt: skip
            count -= min(size, 10)
            continue
        index = np.array([chance.randrange(len(STREAMS)) for _ in range(size)])
        store.append_columns(STREAMS, index, np.array([len(data) for data in datas]), b"".join(datas))
        count -= size


@pytest.mark.parametrize("lanes", [1, 3])
def test_parts_give_what_a_scan_gives_beside_a_writer_closed_and_crashed(tmp_path: Path, lanes: int) -> None:
    chance = random.Random(draw_seed())
    path = tmp_path / "store"
    with MessageStore.open(path, tiny(lanes=lanes)) as store:
        fill(store, chance, 3_000)
        store.trim("orders", 0, 40)
        fill(store, chance, 500)
        store.delete_topic("bills")
        fill(store, chance, 500)
        expected = scanned_rows(store)
        for part_bytes in (4_096, 100_000, 128 << 20):
            assert read_all(plan_scan(path, part_bytes=part_bytes)) == expected
        crashed = crash_copy(path, tmp_path / "crashed")
    assert read_all(plan_scan(path)) == expected
    (crashed / "LIVE").unlink()  # as after the death of the machine
    with MessageStore.open(crashed, read_only=True) as reader:
        durable = scanned_rows(reader)
    assert read_all(plan_scan(crashed, part_bytes=50_000)) == durable


def drawn_filter(chance: random.Random, times: list[int]) -> ScanFilter:
    """Any filter."""
    begin, end = sorted(chance.choices(range(0, 900), k=2))
    low, high = sorted(chance.choices([*times, 0, 1 << 50], k=2))
    topics = chance.sample(["orders", "bills", "é", "nothing"], chance.randrange(1, 4))
    starts = [(*name, chance.randrange(600)) for name in STREAMS]
    return ScanFilter(
        topics=chance.choice([None, tuple(topics)]),
        queue_ids=chance.choice([None, (0,), (1, 70_000), (9,)]),
        start_offset=chance.choice([0, begin]),
        end_offset=chance.choice([None, end]),
        start_ms=chance.choice([None, low]),
        end_ms=chance.choice([None, high]),
        starts=chance.choice([(), tuple(starts[:2])]),
    )


def meets(name: Name, row: Row, wanted: ScanFilter) -> bool:
    """The filter, message by message."""
    topic, queue, offset = name
    start = next((at for *stream, at in wanted.starts if stream == [topic, queue]), wanted.start_offset)
    return (
        (wanted.topics is None or topic in wanted.topics)
        and (wanted.queue_ids is None or queue in wanted.queue_ids)
        and start <= offset
        and (wanted.end_offset is None or offset < wanted.end_offset)
        and (wanted.start_ms is None or row.time_ms >= wanted.start_ms)
        and (wanted.end_ms is None or row.time_ms < wanted.end_ms)
    )


def test_batches_of_a_plan_can_be_pickled(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, random.Random(draw_seed()), 50)
    batches = [batch for part in plan_scan(tmp_path / "store").parts for batch in read_part(part)]
    assert rows_of(pickle.loads(pickle.dumps(batches))) == rows_of(batches) != {}


def test_filters_give_what_a_filter_of_everything_gives(tmp_path: Path) -> None:
    chance, clock = random.Random(draw_seed()), Clock()
    with MessageStore.open(tmp_path, tiny()) as store:
        store._lanes[0]._clock_ms = clock.wall_ms
        for _ in range(10):
            fill(store, chance, 200)
            clock.now_ms += chance.choice([0, 10, 500, -300])  # it may be set back
        store.trim("orders", 1, 100)
        expected = scanned_rows(store)
    below_the_trim = ScanFilter(topics=("orders",), queue_ids=(1,), start_offset=50)
    assert min(read_all(plan_scan(tmp_path, below_the_trim))) == ("orders", 1, 100)
    times = [row.time_ms for row in expected.values()]
    for _ in range(15):
        wanted = drawn_filter(chance, times)
        found = read_all(plan_scan(tmp_path, wanted, part_bytes=chance.choice([20_000, 1 << 30])))
        assert found == {name: row for name, row in expected.items() if meets(name, row, wanted)}, wanted


def test_plan_ends_where_the_log_was_durable_when_it_was_made(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        fill(store, random.Random(1), 300)
        expected, plan = scanned_rows(store), plan_scan(tmp_path)
        fill(store, random.Random(2), 3_000)  # the open segment is sealed meanwhile
        assert read_all(plan) == expected


def test_plans_from_end_to_end_give_each_message_once(tmp_path: Path) -> None:
    chance = random.Random(draw_seed())
    found: dict[Name, Row] = {}
    end: dict[int, LogPosition] | None = None
    with MessageStore.open(tmp_path, tiny(lanes=2)) as store:
        for _ in range(12):
            fill(store, chance, chance.choice([0, 5, 400]))
            plan = plan_scan(tmp_path, part_bytes=30_000, start=end)
            rows = read_all(plan)
            assert not rows.keys() & found.keys()
            found |= rows
            end = plan.end
        assert found == scanned_rows(store)


def test_positions_may_cut_a_frame(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        store.append_columns([("t", 0)], np.zeros(100, np.int64), np.ones(100, np.int64), bytes(range(100)))
    [(lane, end)] = plan_scan(tmp_path).end.items()
    assert end == LogPosition(1, 100, 100)
    middle = {lane: LogPosition(1, 37, 37)}
    before, behind = plan_scan(tmp_path, end=middle), plan_scan(tmp_path, start=middle)
    assert [offset for *_, offset in read_all(before)] == list(range(37))
    assert [offset for *_, offset in read_all(behind)] == list(range(37, 100))
    assert before.end == middle
    assert plan_scan(tmp_path, start={lane: end}).parts == []


class ReadDisk(ReadingDisk):
    """Counts the bytes that are read of each file."""

    def __init__(self) -> None:
        self.bytes: dict[str, int] = {}

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> OsFile:
        return _ReadFile(self.bytes, path)


class _ReadFile(OsFile):
    def __init__(self, counts: dict[str, int], path: Path) -> None:
        super().__init__(path, create=False, direct=False, write=False)
        self._counts = counts

    def read(self, position: int, size: int) -> bytes:
        self._counts[self.path.name] = self._counts.get(self.path.name, 0) + size
        return super().read(position, size)

    def read_into(self, views: Any, position: int) -> int:
        self._counts[self.path.name] = self._counts.get(self.path.name, 0) + sum(map(len, views))
        return super().read_into(views, position)


def test_without_payloads_they_are_not_read(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        for _ in range(4):
            store.append_columns([("t", 0)], np.zeros(100, np.int64), np.full(100, 20_000), bytes(2_000_000))
    plan, disk = plan_scan(tmp_path), ReadDisk()
    rows = read_all(plan, payload=False, optional=False, disk=disk)
    assert len(rows) == 400 and {row.data for row in rows.values()} == {None}
    assert sum(disk.bytes.values()) < 150_000
    assert [int(length) for part in plan for batch in read_part(part, payload=False) for length in batch.lengths] == [
        20_000
    ] * 400


def test_parts_without_payloads_are_sized_by_what_is_read(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for _ in range(40):
            store.append("t", 0, bytes(20_000))
        expected = {name: row._replace(data=None) for name, row in scanned_rows(store).items()}
        for source in ("open", "closed"):
            assert len(plan_scan(tmp_path, part_bytes=60_000).parts) > 10, source
            plan = plan_scan(tmp_path, part_bytes=60_000, payload=False)
            assert len(plan.parts) == 1 and plan.parts[0].size_bytes < 4_000
            assert read_all(plan, payload=False) == expected


@pytest.mark.parametrize("chunk_bytes", [1_000, 30_000])
def test_chunks_begin_and_end_with_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    """Most frames are larger than the small chunks, and several fit into the large ones."""
    monkeypatch.setattr(scanner_module, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(chunks_module, "CHUNK_BYTES", chunk_bytes)
    with MessageStore.open(tmp_path, tiny()) as store:
        fill(store, random.Random(draw_seed()), 1_500)
        expected = scanned_rows(store)
    for part_bytes in (20_000, 128 << 20):
        assert read_all(plan_scan(tmp_path, part_bytes=part_bytes)) == expected


def test_segments_without_anything_wanted_are_not_opened(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for at in range(60):
            store.append("early" if at < 30 else "late", 0, bytes(10_000))
    with MessageStore.open(tmp_path):
        pass  # a second opening begins a segment of its own
    disk, plan = ReadDisk(), plan_scan(tmp_path, ScanFilter(topics=("late",), start_offset=20))
    assert len(read_all(plan, disk=disk)) == 10
    everything = ReadDisk()
    read_all(plan_scan(tmp_path), disk=everything)
    assert len(disk.bytes) <= 4 < len(everything.bytes)


def test_frames_without_anything_wanted_are_not_read(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        for at in range(40):
            store.append("rare" if at % 10 == 0 else "often", 0, bytes(100_000))
        sealed = crash_copy(store.path, tmp_path / "copy")
    (sealed / "LIVE").unlink()
    with MessageStore.open(sealed):  # recovery seals what it has scanned
        pass
    assert seal_of(segment_path(sealed, 1)) is not None
    disk = ReadDisk()
    assert len(read_all(plan_scan(sealed, ScanFilter(topics=("rare",))), disk=disk)) == 4
    assert sum(disk.bytes.values()) < 600_000


# -- damage -------------------------------------------------------------------------------------------


def damaged_store(path: Path, count: int = 200, size: int = 800) -> tuple[Path, int, dict[Name, Row]]:
    """A store with a segment that is sealed; a position in the payload of a frame of it, and all messages."""
    with MessageStore.open(path, tiny()) as store:
        for begin in range(0, count, 4):  # a frame each
            store.append_batch([("t", at % 3, b"%04d" % at * (size // 4)) for at in range(begin, begin + 4)])
        until(lambda: has_settled(store))
        expected = scanned_rows(store)
    victim = segment_path(path, 1)
    frame = full_frames(victim)[5]
    return victim, frame.payload_start + 10, expected


def test_damaged_payload_is_an_error_with_file_and_position(tmp_path: Path) -> None:
    victim, position, _ = damaged_store(tmp_path)
    flip_bit(victim, position)
    plan = plan_scan(tmp_path)
    with pytest.raises(StoreCorrupt) as caught:
        read_all(plan)
    assert caught.value.file == str(victim) and position - 10 == caught.value.position
    assert len(read_all(plan, payload=False)) == 200  # what is not read is not missed


@pytest.mark.parametrize("where", ["payload", "head"])
def test_damage_can_be_told_and_stepped_over(tmp_path: Path, where: str) -> None:
    victim, position, expected = damaged_store(tmp_path)
    frame = full_frames(victim)[5]
    flip_bit(victim, position if where == "payload" else frame.header.position + 30)
    told: list[StoreCorrupt] = []
    found = read_all(plan_scan(tmp_path), on_damage=told.append)
    assert [one.file for one in told] == [str(victim)]
    missing = expected.keys() - found.keys()
    assert len(missing) == (1 if where == "payload" else frame.header.count)
    assert found == {name: row for name, row in expected.items() if name not in missing}


@pytest.mark.parametrize("at", [20, 200, 300, -20, -4_000])
def test_damaged_footer_is_made_again_of_the_frames(tmp_path: Path, at: int) -> None:
    """Whether the plan was made before the damage or behind it."""
    victim, _, expected = damaged_store(tmp_path, 2_000, 10)
    before, record = plan_scan(tmp_path, part_bytes=20_000), seal_of(victim)
    assert record is not None
    flip_bit(victim, record.footer_position + at % record.footer_bytes)
    behind = plan_scan(tmp_path, part_bytes=20_000)
    assert read_all(before) == read_all(behind) == expected


def test_message_without_its_right_offset_is_an_error(tmp_path: Path) -> None:
    """A frame of an older copy of the file, whole in itself, in the place of another one."""
    damaged_store(tmp_path)
    [part] = plan_scan(tmp_path).parts
    known = [one for one in part.ranges if one.known is not None]
    wrong = [replace(one, known=replace(one.known, offsets=one.known.offsets - 7)) for one in known if one.known]
    assert wrong
    with pytest.raises(StoreCorrupt, match="offset"):
        list(read_part(replace(part, ranges=tuple(wrong))))


def test_messages_that_a_repair_gave_up_are_left_out(tmp_path: Path) -> None:
    *_, expected = damaged_store(tmp_path)
    for sequence in (1, 2):
        for frame in full_frames(segment_path(tmp_path, sequence))[3:6]:
            flip_bit(segment_path(tmp_path, sequence), frame.header.position + 20)
    with MessageStore.open(tmp_path, tiny(), repair=True) as store:
        assert store.losses
        kept = scanned_rows(store)
    assert len(kept) < len(expected)
    assert read_all(plan_scan(tmp_path)) == kept
    assert read_all(plan_scan(tmp_path, ScanFilter(queue_ids=(1,)))) == {n: r for n, r in kept.items() if n[1] == 1}


@pytest.mark.parametrize("payload", [True, False])
@pytest.mark.parametrize("given_up", [(0, 1), (0, 7), (3, 6), (9, 10)])
def test_parts_that_were_planned_before_a_repair_give_what_it_has_left(
    tmp_path: Path, given_up: tuple[int, int], payload: bool
) -> None:
    """A repair gives frames other numbers."""
    damaged_store(tmp_path)
    plan = plan_scan(tmp_path, part_bytes=4_096)
    assert len(plan.parts) > 20
    for frame in full_frames(segment_path(tmp_path, 1))[slice(*given_up)]:
        flip_bit(segment_path(tmp_path, 1), frame.header.position + 20)
    with MessageStore.open(tmp_path, tiny(), repair=True) as store:
        assert store.losses
        kept = scanned_rows(store)
    found = read_all(plan, payload=payload, optional=payload, lengths=payload)
    assert found.keys() == kept.keys()
    assert not payload or found == kept


# -- retention ----------------------------------------------------------------------------------------


def test_segment_that_retention_removed_is_an_error_that_says_so(tmp_path: Path) -> None:
    damaged_store(tmp_path)
    plan = plan_scan(tmp_path)
    segment_path(tmp_path, 1).unlink()
    with pytest.raises(StoreUnreadable, match="retention removed"):
        read_all(plan)


def test_read_that_retention_overtakes_is_an_error_unless_it_is_told_to_go_on(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, bytes(100))
        early = plan_scan(tmp_path).end
        at_the_end = {0: LogPosition(1, 1)}
        for _ in range(40):
            store.append("t", 0, bytes(10_000))
    with MessageStore.open(tmp_path, tiny(retention_bytes=64 << 10)) as store:
        until(lambda: has_settled(store))
        assert store.queue_bounds("t", 0)[0] > 1
        for start in (early, at_the_end):
            with pytest.raises(LogOvertaken, match="on_lost=skip"):
                plan_scan(tmp_path, start=start)
        first, next_offset = store.queue_bounds("t", 0)
        found = read_all(plan_scan(tmp_path, start=early, skip_lost=True))
        assert [offset for *_, offset in found] == list(range(first, next_offset))


def test_read_that_had_all_of_what_retention_removed_goes_on(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for _ in range(12):
            store.append("t", 0, bytes(10_000))
        until(lambda: bool(store._lanes[0].view.sealed))
    with MessageStore.open(tmp_path, tiny(retention_bytes=64 << 10)) as store:
        for _ in range(12):
            store.append("t", 0, bytes(10_000))
        until(lambda: has_settled(store))
        first = plan_scan(tmp_path)
        [begin] = {min(one.sequence for part in first for one in part.ranges)}
        offset, _ = store.queue_bounds("t", 0)
    assert begin > 1
    start = {0: LogPosition(begin - 1, 5, offset)}  # one message a frame, so offsets count the log's messages
    assert read_all(plan_scan(tmp_path, start=start)) == read_all(first)
    with pytest.raises(LogOvertaken, match="removed 2 messages"):
        plan_scan(tmp_path, start={0: LogPosition(begin - 1, 3, offset - 2)})


# -- arguments ----------------------------------------------------------------------------------------


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    MessageStore.open(tmp_path / "store").close()
    wrong: list[dict[str, Any]] = [
        {"topics": (3,)}, {"topics": ("",)}, {"topics": ("\x01records",)}, {"queue_ids": (-1,)},
        {"queue_ids": (1 << 31,)}, {"start_offset": -1}, {"start_offset": 1 << 63}, {"end_offset": "5"},
        {"start_ms": 1.5}, {"end_ms": True}, {"starts": (("t", 0, -1),)}, {"starts": ((7, 0, 0),)},
        {"topics": "orders"}, {"topics": b"orders"}, {"topics": 3}, {"queue_ids": 3}, {"queue_ids": {1: 2}},
        {"starts": 5}, {"starts": (5,)}, {"starts": (("t", 0),)}, {"starts": {"t": 0}},
    ]  # fmt: skip
    for given in wrong:
        with pytest.raises((InvalidMessage, InvalidTopic)):
            ScanFilter(**given)
    for size in (0, -5, 4_095, 1.5, "many"):
        with pytest.raises(InvalidMessage, match="part_bytes"):
            plan_scan(tmp_path / "store", part_bytes=size)  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(InvalidMessage, match="ScanFilter"):
        plan_scan(tmp_path / "store", "orders")  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(StoreUnusable):
        plan_scan(tmp_path / "nowhere")


@pytest.mark.parametrize("wrong", [5, [LogPosition(1, 0, 0)], {0: None}, {0: (1, 0, 0)}, {0: LogPosition(1.5, 0, 0)}])  # type: ignore[arg-type]  # that is what is tested
def test_positions_that_no_plan_has_given_are_refused(tmp_path: Path, wrong: Any) -> None:
    MessageStore.open(tmp_path / "store").close()
    for given in ({"start": wrong}, {"end": wrong}):
        with pytest.raises(InvalidMessage, match="has a LogPosition for each lane"):
            plan_scan(tmp_path / "store", **given)


def test_what_is_no_part_is_refused(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.append("t", 0, b"x")
    plan: Any = plan_scan(tmp_path / "store")
    with pytest.raises(InvalidMessage, match="`parts` of a plan"):
        read_part(plan)
    skip: Any = "skip"
    with pytest.raises(InvalidMessage, match="on_damage is called"):
        read_part(plan.parts[0], on_damage=skip)


def test_filter_takes_any_iterables(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        store.append_batch([(topic, queue, b"x") for topic in ("order", "orders") for queue in range(4)])
    listed = ScanFilter(topics=["orders"], queue_ids=np.array([1, 3]))  # type: ignore[arg-type]  # that is what is tested
    assert listed == ScanFilter(topics=("orders",), queue_ids=(1, 3)) and hash(listed)
    assert sorted(read_all(plan_scan(tmp_path / "store", listed))) == [("orders", 1, 0), ("orders", 3, 0)]
    named = ScanFilter(topics={"orders"})  # type: ignore[arg-type]  # that is what is tested
    assert len(read_all(plan_scan(tmp_path / "store", named))) == 4


def test_plan_of_an_empty_store_has_no_part(tmp_path: Path) -> None:
    MessageStore.open(tmp_path / "store").close()
    plan = plan_scan(tmp_path / "store")
    assert plan.parts == [] and plan.end == {0: LogPosition(1, 0, 0)}
    with MessageStore.open(tmp_path / "store") as store:
        store.append("t", 0, b"first")
    assert len(read_all(plan_scan(tmp_path / "store", start=plan.end))) == 1


def test_plan_and_reading_change_no_file(tmp_path: Path) -> None:
    damaged_store(tmp_path / "store")
    before = {path: path.read_bytes() for path in segment_paths(tmp_path / "store")}
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    read_all(plan_scan(tmp_path / "store"))
    assert {path: path.read_bytes() for path in segment_paths(tmp_path / "store")} == before
    assert sorted(path.name for path in (tmp_path / "store").rglob("*")) == sorted(
        path.name for path in (tmp_path / "copy").rglob("*")
    )
