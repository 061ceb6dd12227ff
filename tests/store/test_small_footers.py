"""Small footers, and a full one now and then: each message is found, and each queue goes on."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stratalog.store import (
    MessageStore,
    ScanFilter,
    ShardWriter,
    StoreConfig,
    StoreCorrupt,
    StoreReader,
    commit_shards,
    compact_store,
    inspect_folder,
    plan_scan,
    read_part,
    verify_folder,
)
from stratalog.store.format.footer import Footer, FooterData
from stratalog.store.format.layout import SEALED, SealRecord
from stratalog.store.format.records import StreamLow
from stratalog.store.log.sealer import Sealer
from stratalog.store.log.trims import trim_requests
from stratalog.store.read.finder import first_offset
from stratalog.store.segment import groups as groups_module
from stratalog.store.segment import sealing
from stratalog.store.segment.groups import Groups
from stratalog.store.segment.present import LEVEL_RATIO, MOST_STEPS, Present
from stratalog.store.segment.sealed import SealedSegment
from stratalog.store.segment.sealed_segments import SealedSegments
from stratalog.store.testing import TunedConfig

from . import golden
from .helpers import crash_copy, flip_bit, segment_path, until

Queue = tuple[str, int]
Rows = dict[Queue, list[bytes]]
BUSY, IDLE = 4, 60


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Also of lanes of a few streams; each 4th is full."""
    monkeypatch.setattr(sealing, "FEW_STREAMS", 0)
    monkeypatch.setattr(sealing, "SMALL_SHARE", 0)
    monkeypatch.setattr(sealing, "GROUP_SEGMENTS", 4)
    yield


def config() -> StoreConfig:
    return TunedConfig(segment_bytes=1 << 16, prewrite_bytes=0)


def fill(store: MessageStore, rows: Rows, segments: int, seed: int = 1) -> None:
    """Append until so many segments are sealed: a few busy queues, and a message of an idle one here and there."""
    chance = random.Random(seed)
    end = len(sealed_of(store)) + segments
    for number in range(IDLE if not rows else 0):
        append(store, rows, (f"idle-{number}", 0), b"first")
    while len(sealed_of(store)) < end:
        for number in range(BUSY):
            append(store, rows, (f"busy-{number}", number), chance.randbytes(700))
        if chance.random() < 0.3:
            append(store, rows, (f"idle-{chance.randrange(IDLE)}", 0), chance.randbytes(20))


def append(store: MessageStore, rows: Rows, queue: Queue, data: bytes) -> None:
    known = rows.setdefault(queue, [])
    assert store.append(*queue, data) == len(known)
    known.append(data)


def sealed_of(store: StoreReader) -> SealedSegments:
    return store._lanes[0].view.sealed


def settle(store: MessageStore) -> None:
    until(lambda: len(store._lanes[0].view.open) <= 1)


def check(store: StoreReader, rows: Rows) -> None:
    for queue, expected in rows.items():
        assert store.queue_bounds(*queue) == (0, len(expected))
        assert [message.data for message in store.read(*queue, 0, max_messages=len(expected) + 1)] == expected
        for offset in {0, len(expected) // 2, len(expected) - 1}:
            assert {at: bytes(data) for at, data in store.get_range(*queue, offset, 2).items()} == dict(
                enumerate(expected[offset : offset + 2])
            )
            batch = store.read_batch(*queue, offset, max_messages=3)
            assert [bytes(data) for data in batch.payloads()] == expected[offset : offset + 3]


def kinds(store: StoreReader) -> list[int]:
    return [one.record.full for one in sealed_of(store)]


# -- the format ---------------------------------------------------------------------------------------------


def small_data() -> FooterData:
    """The golden footer as a small one, of the streams 1, 7 and 70,000."""
    return replace(golden.footer_data(), stream=np.array([1, 7, 70_000], np.uint32), trimmed={}, presence=None)


def footer_of(data: FooterData) -> Footer:
    content = data.pack(7)
    return Footer(None, "file", SealRecord(SEALED, 7, 1 << 20, 0, 4, 4096, len(content), 70_001, 0), content)


def test_a_small_footer_comes_back() -> None:
    footer = footer_of(small_data())
    footer.check_entries()
    assert not footer.is_full and footer.numbers.tolist() == [1, 7, 70_000]
    assert [footer.row_of(number) for number in (0, 1, 6, 7, 70_000, 70_001)] == [-1, 0, -1, 1, 2, -1]
    rows = footer.rows_of(np.array([7, 0, 70_000, 80_000])).tolist()
    assert rows[0] == 1 and rows[2] == 2 and min(rows[1], rows[3]) >= 3
    assert footer.data().stream is not None


@pytest.mark.parametrize("numbers", [[1, 1, 2], [2, 1, 3]])
def test_rows_that_do_not_ascend_are_damage(numbers: list[int]) -> None:
    with pytest.raises(StoreCorrupt, match="table of streams makes no sense"):
        footer_of(replace(small_data(), stream=np.array(numbers, np.uint32)))


def told(present: Present, streams: int, sequence: int) -> list[list[int]]:
    """The segments of each stream, and those of any, as the full footer has them."""
    columns = present.columns(streams, sequence)
    assert columns is not None
    start, steps = columns.start.tolist(), columns.steps.tolist()
    return [[sequence - step for step in steps[low:high]] for low, high in itertools.pairwise(start)]


def test_a_full_footer_says_in_which_segments_of_its_group_a_stream_is() -> None:
    present = Present.since(10)
    present = present.with_segment(11, np.array([3, 5], np.uint32)).with_segment(12, np.array([5], np.uint32))
    present = present.with_segment(13, np.array([0], np.uint32)).with_segment(14, np.empty(0, np.uint32))
    assert told(present, 7, 15) == [[13], [], [], [11], [], [11, 12], [], []]
    assert [list(present.segments_of(number)) for number in (5, 4, 0)] == [[11, 12], [], [13]]
    assert present.rows == 4 and present.end == 14


def test_a_segment_of_which_nothing_is_known_may_have_each_stream() -> None:
    present = Present.since(10).with_segment(11, None).with_segment(12, np.array([1], np.uint32))
    assert told(present, 3, 13) == [[], [12], [], [11]]
    assert list(present.segments_of(1)) == [11, 12] and list(present.segments_of(2)) == [11]


def test_where_segments_are_too_far_away_a_full_footer_does_not_tell() -> None:
    present = Present.since(1).with_segment(2, np.array([1], np.uint32))
    assert present.columns(2, 2 + MOST_STEPS) is not None and present.columns(2, 3 + MOST_STEPS) is None


def test_a_thousand_segments_are_a_few_levels_and_each_row_is_found() -> None:
    chance, present, expected = random.Random(1), Present.since(7), dict[int, list[int]]()
    steps = 0
    for sequence in range(8, 1024):
        numbers = sorted(chance.sample(range(3000), chance.randrange(40)))
        before = {id(level) for level in present.levels}
        present = present.with_segment(sequence, np.array(numbers, np.uint32))
        steps += sum(len(level) for level in present.levels if id(level) not in before)
        for number in numbers:
            expected.setdefault(number, []).append(sequence)
    assert present.rows == sum(map(len, expected.values())) and len(present.levels) <= 8
    assert steps < 8 * LEVEL_RATIO * present.rows
    assert {number: list(present.segments_of(number)) for number in range(3000)} == {
        number: expected.get(number, []) for number in range(3000)
    }
    assert told(present, 3000, 1024)[:-1] == [expected.get(number, []) for number in range(3000)]


# -- a store ------------------------------------------------------------------------------------------------


def test_each_fourth_footer_is_full_and_all_is_found(tmp_path: Path) -> None:
    rows: Rows = {}
    with MessageStore.open(tmp_path, config()) as store:
        fill(store, rows, 14)
        settle(store)
        assert kinds(store)[:9] == [1, 0, 0, 0, 1, 0, 0, 0, 1]
        small_bytes = max(one.footer.stream_count for one in sealed_of(store) if not one.record.full)
        assert small_bytes < BUSY + IDLE // 2
        check(store, rows)
    assert verify_folder(tmp_path).damages == []
    for _ in range(2):
        with MessageStore.open(tmp_path, config()) as store:
            check(store, rows)
            fill(store, rows, 3, seed=2)
            append(store, rows, ("later", 7), b"new")
            check(store, rows)
    report = inspect_folder(tmp_path)
    assert report["totals"]["messages"] == sum(map(len, rows.values())) and len(report["queues"]) == len(rows)


def test_after_a_kill_all_is_found_and_the_queues_go_on(tmp_path: Path) -> None:
    rows: Rows = {}
    with MessageStore.open(tmp_path / "s", config()) as store:
        fill(store, rows, 10)
        append(store, rows, ("late", 0), b"late")
        settle(store)
        crash_copy(tmp_path / "s", tmp_path / "killed")
    with MessageStore.open(tmp_path / "killed", config()) as store:
        check(store, rows)
        fill(store, rows, 6, seed=3)
        check(store, rows)
    assert verify_folder(tmp_path / "killed").damages == []


def test_readers_in_another_opening_follow(tmp_path: Path) -> None:
    rows: Rows = {}
    with MessageStore.open(tmp_path, config()) as store:
        fill(store, rows, 6)
        with MessageStore.open(tmp_path, config(), read_only=True) as reader:
            check(reader, rows)
            fill(store, rows, 6, seed=4)
            append(store, rows, ("fresh", 0), b"new")
            until(lambda: reader.queue_bounds("fresh", 0)[1] == 1)
            check(reader, rows)


def test_scans_and_compaction_have_the_same(tmp_path: Path) -> None:
    rows: Rows = {}
    with MessageStore.open(tmp_path, config()) as store:
        fill(store, rows, 12)
        store.trim("busy-1", 1, 20)
    found: dict[tuple[Queue, int], bytes] = {}
    for part in plan_scan(tmp_path, ScanFilter(), part_bytes=1 << 16).parts:
        for batch in read_part(part):
            names, ends = batch.streams.names(), np.cumsum(batch.lengths).tolist()
            assert batch.payload is not None
            for number, offset, end, size in zip(
                batch.stream_index.tolist(), batch.offsets.tolist(), ends, batch.lengths.tolist(), strict=True
            ):
                found[names[number], offset] = bytes(batch.payload[end - size : end])
    expected = {(queue, at): data for queue, datas in rows.items() for at, data in enumerate(datas)}
    expected = {key: data for key, data in expected.items() if key[0] != ("busy-1", 1) or key[1] >= 20}
    assert found == expected
    compact_store(tmp_path)
    assert verify_folder(tmp_path).damages == []
    with MessageStore.open(tmp_path, config()) as store:
        for queue, datas in rows.items():
            low = 20 if queue == ("busy-1", 1) else 0
            assert store.queue_bounds(*queue) == (low, len(datas))
            assert [message.data for message in store.read(*queue, low, max_messages=len(datas))] == datas[low:]


def test_retention_waits_with_the_newest_full_footer_until_there_is_another(tmp_path: Path) -> None:
    rows: Rows = {}
    with MessageStore.open(tmp_path, replace(config(), retention_bytes=1)) as store:
        chance = random.Random(3)
        for number in range(500):
            append(store, rows, (f"busy-{number % BUSY}", number % BUSY), chance.randbytes(700))
            append(store, rows, (f"idle-{chance.randrange(IDLE)}", 0), b"x")
            known = kinds(store)
            assert not known or any(known)
        assert sealed_of(store)[0].segment.sequence > 5
    with MessageStore.open(tmp_path, config()) as store:
        assert {queue: store.queue_bounds(*queue)[1] for queue in rows} == {
            queue: len(datas) for queue, datas in rows.items()
        }
        for queue, datas in rows.items():
            low = store.queue_bounds(*queue)[0]
            assert [message.data for message in store.read(*queue, low, max_messages=len(datas) + 1)] == datas[low:]


# -- damage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sequence", range(2, 10))
def test_a_damaged_footer_costs_nothing_while_its_neighbours_tell(tmp_path: Path, sequence: int) -> None:
    rows: Rows = {}
    with MessageStore.open(tmp_path, config()) as store:
        fill(store, rows, 10)
        settle(store)
        one = next(one for one in sealed_of(store) if one.segment.sequence == sequence)
        flip_bit(segment_path(tmp_path, sequence), one.record.footer_position + 200)
        one.let_go()
        check(store, rows)
    assert len(verify_folder(tmp_path).damages) >= 1
    with MessageStore.open(tmp_path, config(), repair=True) as store:
        assert not any(loss.messages for loss in store.losses)
        check(store, rows)
        fill(store, rows, 5, seed=9)
        check(store, rows)
    assert verify_folder(tmp_path).damages == []


@pytest.mark.parametrize("sequence", range(2, 10))
def test_a_store_is_whole_behind_the_repair_of_a_lost_segment(tmp_path: Path, sequence: int) -> None:
    rows: Rows = {}
    with MessageStore.open(tmp_path, config()) as store:
        fill(store, rows, 10)
        settle(store)
    segment_path(tmp_path, sequence).unlink()
    with MessageStore.open(tmp_path, config(), repair=True) as store:
        assert store.losses
        for queue, datas in rows.items():
            assert store.queue_bounds(*queue)[1] == len(datas)
            found = store.read(*queue, 0, max_messages=len(datas))
            assert {message.offset: message.data for message in found}.items() <= dict(enumerate(datas)).items()
    assert verify_folder(tmp_path).damages == []


def test_a_repair_of_a_lost_oldest_segment_leaves_a_store_that_is_whole(tmp_path: Path) -> None:
    """Nothing before the next small footer tells of the streams that this one does not have."""
    rows: Rows = {}
    with MessageStore.open(tmp_path / "s", replace(config(), retention_bytes=1)) as store:
        append(store, rows, ("busy-0", 0), b"first")
        for number in range(IDLE):
            append(store, rows, (f"idle-{number}", 0), b"first")
        while sealed_of(store)[:1] == () or sealed_of(store)[0].segment.sequence == 1:
            append(store, rows, ("busy-0", 0), bytes(700))
        store._upkeep.removal._config = config()
    with MessageStore.open(tmp_path / "s", config()) as store:
        fill(store, rows, 2)
        settle(store)
        assert kinds(store)[:2] == [1, 0], "the first has the table of the lane's streams"
        append(store, rows, ("late", 0), b"open")
        first, other = (sealed_of(store)[at].segment.path.relative_to(tmp_path / "s") for at in (0, 1))
        killed = crash_copy(tmp_path / "s", tmp_path / "killed")
    (killed / first).write_bytes((killed / other).read_bytes())
    with MessageStore.open(killed, config(), repair=True) as store:
        assert store.losses
    assert verify_folder(killed).damages == []


@pytest.mark.parametrize("harm", ["the footer", "the end"])
@pytest.mark.parametrize("late", [1, 2])
def test_a_queue_that_only_a_lost_footer_names_keeps_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int, harm: str
) -> None:
    """It came while the footer of an older segment was made, so no other footer names it: its frame alone does."""
    monkeypatch.setattr(Sealer, "seal_full", lambda sealer, rest_s=0: None)
    rows: Rows = {}
    with MessageStore.open(tmp_path / "s", config()) as store:
        append(store, rows, ("busy", 0), b"first")
        old = segment_path(tmp_path / "s", 1).read_bytes()
        sealer = store._upkeep.sealer
        while len(sealer._full) < 2:
            append(store, rows, ("busy", 0), bytes(700))
        for number, (lane, full) in enumerate(list(sealer._full)[:2]):
            if number < late:
                append(store, rows, (f"late-{number}", 0), b"late")
            sealer.seal_now(lane, full)
        first, second = sealed_of(store)
        assert (first.record.full, first.record.streams) == (1, 2)
        assert second.footer.numbers.tolist() == [0, 2][:late] and second.record.streams == 1 + late
        crash_copy(tmp_path / "s", tmp_path / "killed")
    path, lost = tmp_path / "killed", 0
    if harm == "the footer":
        flip_bit(segment_path(path, 1), first.record.footer_position + 100)
    else:
        segment_path(path, 1).write_bytes(old)
        lost = first.record.entries - 1
    with MessageStore.open(path, config(), repair=True) as store:
        assert sum(loss.messages or 0 for loss in store.losses) == lost
        assert set(store.topics()) == {topic for topic, _ in rows}
        for queue, datas in rows.items():
            left = {at: data for at, data in enumerate(datas) if queue != ("busy", 0) or not 0 < at <= lost}
            assert {message.offset: message.data for message in store.read(*queue, 0, max_messages=len(datas))} == left
    assert verify_folder(path).damages == []
    with MessageStore.open(path, config(), repair=True) as store:
        assert store.losses == []


# -- whoever looks first --------------------------------------------------------------------------------------


def test_a_search_from_the_middle_of_the_log_hides_no_message_before_it(tmp_path: Path) -> None:
    rows: Rows = {}
    with MessageStore.open(tmp_path, config()) as store:
        fill(store, rows, 7)
        settle(store)
        lane = store._lanes[0]
        for at in range(len(sealed_of(store))):
            lane.groups = Groups()  # nobody has looked at these segments
            first_offset(lane, lane.view, 0, at)
            check(store, rows)


@pytest.mark.parametrize(("gone", "kept"), [(0, 128), (4, 128), (9, 1)])
def test_a_reader_with_a_view_of_before_finds_what_that_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: int, kept: int
) -> None:
    monkeypatch.setattr("stratalog.store.segment.groups.GONE_KEPT", kept)
    rows: Rows = {}
    with MessageStore.open(tmp_path, config()) as store:
        fill(store, rows, 10)
        settle(store)
        sealed, places = sealed_of(store), [(number, at) for number in range(BUSY + IDLE) for at in range(0, 400, 19)]
        assert [one.record.full for one in sealed[:10]] == [1, 0, 0, 0, 1, 0, 0, 0, 1, 0]
        for end in range(5, 10):
            before, groups = SealedSegments().with_newest(sealed[:end]), Groups()
            groups.known_at(before)
            groups.known_at(sealed[gone:10])  # by a quicker one, when retention has removed so many
            assert (groups._since > 0) == (kept == 1)
            assert [groups.where(before, *place) for place in places] == [
                Groups().where(before, *place) for place in places
            ]
            assert [groups.first_from(before, number, 1) for number in range(BUSY + IDLE)] == [
                Groups().first_from(before, number, 1) for number in range(BUSY + IDLE)
            ]


# -- steps --------------------------------------------------------------------------------------------------


def test_a_search_of_an_idle_queue_asks_few_footers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "GROUP_SEGMENTS", 16)
    asked: list[int] = []
    real = SealedSegment.first_of
    real_offset = SealedSegment.first_offset

    def first_of(one: SealedSegment, number: int) -> tuple[int, int]:
        asked.append(one.segment.sequence)
        return real(one, number)

    def first_offset(one: SealedSegment, number: int) -> int:
        asked.append(one.segment.sequence)
        return real_offset(one, number)

    rows: Rows = {}
    most = []
    with MessageStore.open(tmp_path, config()) as store:
        for segments in (30, 80):
            fill(store, rows, segments)
            settle(store)
            with monkeypatch.context() as patch:
                patch.setattr(SealedSegment, "first_of", first_of)
                patch.setattr(SealedSegment, "first_offset", first_offset)
                steps = []
                lane = store._lanes[0]
                for queue, datas in rows.items():
                    if queue[0].startswith("idle"):
                        number = store._streams.topics[queue[0]][queue[1]].number
                        for offset in range(len(datas)):
                            asked.clear()
                            lane.groups.where(lane.view.sealed, number, offset)
                            steps.append(len(asked))
                most.append(max(steps))
    assert most[1] <= most[0] + 8 <= 20


@pytest.mark.parametrize("read_only", [False, True])
def test_an_opening_keeps_no_descriptor_of_the_small_footers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    monkeypatch.setattr(sealing, "GROUP_SEGMENTS", 1024)
    rows: Rows = {}
    kept: list[int] = []
    with MessageStore.open(tmp_path, config()) as store:
        for number in range(IDLE):
            append(store, rows, (f"idle-{number}", 0), b"first")
    for segments in (10, 60):
        with MessageStore.open(tmp_path, config()) as store:
            fill(store, rows, segments)
            settle(store)
        before = len(os.listdir("/proc/self/fd"))
        with MessageStore.open(tmp_path, config(), read_only=read_only) as store:
            assert sum(not full for full in kinds(store)) >= segments
            assert store.queue_bounds("idle-7", 0) == (0, len(rows["idle-7", 0]))
            kept.append(len(os.listdir("/proc/self/fd")) - before)
            check(store, rows)
    assert kept[1] <= kept[0] + 2


def test_no_small_footer_is_read_twice_at_an_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "GROUP_SEGMENTS", 1024)
    rows: Rows = {}
    with MessageStore.open(tmp_path, config()) as store:
        fill(store, rows, 20)
        settle(store)
    looked: list[int] = []
    real = SealedSegment.in_file

    def in_file(one: SealedSegment) -> object:
        looked.append(one.segment.sequence)
        return real(one)

    with MessageStore.open(tmp_path, config()) as store:
        monkeypatch.setattr(SealedSegment, "in_file", in_file)
        lane = store._lanes[0]
        number = store._streams.topics["idle-3"][0].number
        assert lane.groups.where(lane.view.sealed, number, 0) == 0
        assert len(set(looked)) <= 2


# -- damage in a large group ----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [False, True], ids=["the newest group", "an older group"])
def test_a_lost_footer_costs_a_search_few_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: bool) -> None:
    monkeypatch.setattr(sealing, "GROUP_SEGMENTS", 80)
    rows: Rows = {}
    with MessageStore.open(tmp_path, config()) as store:
        fill(store, rows, 120 if end else 70)
        settle(store)
        lane, sealed = store._lanes[0], sealed_of(store)
        lost = sealed[30]
        flip_bit(lost.segment.path, lost.record.footer_position + 200)
        for one in sealed:
            one.let_go()
        lost._is_lost = True  # nor do its frames tell it
        real, asked = SealedSegment.first_of, list[int]()

        def first_of(one: SealedSegment, number: int) -> tuple[int, int]:
            asked.append(one.segment.sequence)
            return real(one, number)

        monkeypatch.setattr(SealedSegment, "first_of", first_of)
        number = store._streams.topics["busy-1"][1].number
        count = sum(real(sealed[-1], number))  # behind it is the open one
        most = 0
        for offset in range(0, count, 3):
            asked.clear()
            found = lane.groups.around_damage(sealed, number, offset)
            most = max(most, len(asked))
            first, messages = (0, 0) if found == 30 else real(sealed[found], number)
            assert found != 30 and first <= offset
            if offset >= first + messages:
                assert found == 29, "it is in the lost one"
            try:
                assert lane.groups.where(sealed, number, offset) == found
            except StoreCorrupt:
                assert found == 29
        assert most <= 14


# -- bulk commits and compaction ------------------------------------------------------------------------------


def test_bulk_commits_and_compaction_write_small_footers_that_all_is_found_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.store.shards.lane_attach.SMALL_BYTES", 0)
    rows: Rows = {}
    folder = tmp_path / "s"
    with MessageStore.open(folder, config()) as store:
        fill(store, rows, 3)
        for number in range(12):
            queues = [(f"busy-{number % BUSY}", number % BUSY), (f"idle-{number}", 0), (f"new-{number // 4}", 1)]
            with ShardWriter(folder) as writer:
                datas = [b"%d-%d" % (number, at) for at in range(3)]
                writer.append_columns(queues, [0, 1, 2], [len(data) for data in datas], b"".join(datas))
                shards = writer.finish()
            commit_shards(folder, shards, name=f"commit {number}", wait_ms=0)
            store.attach_pending()
            for queue, data in zip(queues, datas, strict=True):
                rows.setdefault(queue, []).append(data)
            check(store, rows)
        fill(store, rows, 3, seed=8)
        settle(store)
        assert sum(kinds(store)) <= len(kinds(store)) // 4 + 2
        assert all(one.footer.presence is not None for one in sealed_of(store)[1:] if one.record.full)
        check(store, rows)
        crash_copy(folder, tmp_path / "killed")
    for one in (folder, tmp_path / "killed"):
        assert verify_folder(one).damages == []
        with MessageStore.open(one, config()) as store:
            check(store, rows)
    compact_store(folder)
    assert verify_folder(folder).damages == []
    with MessageStore.open(folder, config()) as store:
        check(store, rows)
        assert kinds(store)[0] == 1 and all(
            one.footer.presence is not None for one in sealed_of(store)[1:] if one.record.full
        )


def lows(store: StoreReader, queues: int) -> list[int]:
    return [store.queue_bounds("t", queue)[0] for queue in range(queues)]


def test_trims_are_in_the_small_footers_since_the_full_one_and_last(tmp_path: Path) -> None:
    """Through clean ends and crashes in any place between two full footers."""
    wanted, rows = [0] * 40, Rows()
    with MessageStore.open(tmp_path / "0", config()) as store:
        store.append_batch([("t", queue, b"x") for queue in range(40)] * 40)
    for step in range(24):
        with MessageStore.open(tmp_path / str(step), config()) as store:
            assert lows(store, 40) == wanted
            for queue in (step, (7 * step) % 40):
                wanted[queue] = max(wanted[queue], step + 1)
                store.trim("t", queue, wanted[queue])
            fill(store, rows, segments=step % 4, seed=step)
            for one in store._lanes[0].view.sealed:
                if not one.record.full:
                    assert len(one.footer.trimmed_stream) <= 8
            crash_copy(tmp_path / str(step), tmp_path / "crashed")
        shutil.move(tmp_path / (str(step) if step % 3 else "crashed"), tmp_path / str(step + 1))
        shutil.rmtree(tmp_path / "crashed", ignore_errors=True)
        assert verify_folder(tmp_path / str(step + 1)).damages == []
        if step % 5 == 0:
            with MessageStore.open(tmp_path / str(step + 1), read_only=True) as reader:
                assert lows(reader, 40) == wanted


def test_a_trim_that_the_full_footer_says_already_is_no_damage_where_small_ones_leave_it_out(tmp_path: Path) -> None:
    rows: Rows = {}
    with MessageStore.open(tmp_path / "s", config()) as store:
        fill(store, rows, 8)
        store.trim("busy-1", 1, 9)
        while not (newest := sealed_of(store)[-1]).record.full or not newest.footer.trimmed:
            fill(store, rows, 1)
        lane, stream = store._lanes[0], store._streams.get("busy-1", 1)
        assert stream is not None
        late_in: set[int] = set()
        while not any(one.segment.sequence in late_in and not one.record.full for one in sealed_of(store)):
            late_in.add(lane.view.open[-1].segment.sequence)
            (late,) = trim_requests(lane.lows, [(stream, StreamLow(5))], 4096)  # of a thread that was slow
            lane.queue.put(late)
            late.result()
            fill(store, rows, 1)
    with MessageStore.open(tmp_path / "s", config()) as store:
        fill(store, rows, 1)
        assert store.queue_bounds("busy-1", 1)[0] == 9
    assert verify_folder(tmp_path / "s").damages == []


def test_a_seal_adds_to_the_list_of_full_footers_and_does_not_copy_it(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", config()) as store:
        rows: Rows = {}
        fill(store, rows, 9)
        groups, old = store._lanes[0].groups, sealed_of(store)
        before = groups.known_at(old)
        fulls, many = before[0], len(before[0])
        fill(store, rows, 9)
        new = sealed_of(store)
        groups_module._with(before, new)  # as a look that an interrupt has ended: nobody has its answer
        known = groups.known_at(new)
        assert known[0] is fulls and fulls == [one.segment.sequence for one in new if one.record.full]
        assert len(fulls) > many
        assert groups.known_at(old)[0] == fulls[:many], "an older view has its own"
        check(store, rows)


def test_a_reader_has_the_trims_of_a_full_footer_that_is_not_the_newest(tmp_path: Path) -> None:
    rows = Rows()
    with MessageStore.open(tmp_path, config()) as store:
        store.append_batch([("t", queue, b"x") for queue in range(40)] * 40)
        store.trim("t", 3, 5)
        fill(store, rows, segments=6)
        store.trim("t", 4, 6)
        with MessageStore.open(tmp_path, read_only=True) as reader:
            assert lows(reader, 6) == [0, 0, 0, 5, 6, 0]
            fill(store, rows, segments=3)
            store.trim("t", 5, 7)
            fill(store, rows, segments=7)
            assert lows(reader, 6) == [0, 0, 0, 5, 6, 7]
        settle(store)
        newest = [one for one in sealed_of(store) if not one.record.full][-1]
        assert not newest.footer.trimmed, "there is a full one behind all of them"


def test_many_trims_bring_a_full_footer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each small one would have them all."""
    monkeypatch.setattr(sealing, "GROUP_SEGMENTS", 1000)
    rows = Rows()
    with MessageStore.open(tmp_path, config()) as store:
        store.append_batch([("t", queue, b"x") for queue in range(100)] * 10)
        fill(store, rows, segments=2)
        for queue in range(60):
            store.trim("t", queue, 5)
        fill(store, rows, segments=30)
        sealed = store._lanes[0].view.sealed
        fulls = [at for at, one in enumerate(sealed) if one.record.full]
        assert 2 <= len(fulls) <= 3, "one at the beginning, and one or two with the trims"
        assert len(sealed[fulls[-1]].footer.trimmed_stream) == 60
        assert not any(len(one.footer.trimmed_stream) for one in sealed[fulls[-1] + 2 :])
