"""A compacted store has fewer segments and less in them, and all that its users can ask for is as it was."""

from __future__ import annotations

import random
import shutil
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import (
    LogOvertaken,
    MessageStore,
    ScanPlanner,
    ShardWriter,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreUnreadable,
    StoreUnusable,
    commit_shards,
    compact_store,
    verify_folder,
)
from stratalog.store.api import compacting as compacting_module
from stratalog.store.api import rebuilding
from stratalog.store.compact import plan as plan_module
from stratalog.store.format.footer import Footer
from stratalog.store.format.layout import BLOCK_BYTES
from stratalog.store.format.store_files import COMPACTED_FILE, LaneStart
from stratalog.store.log.stopping import stopped
from stratalog.store.shards.writer import ShardFile
from tests.clocks import WallClock
from tests.seeds import draw_seed

from ..disks import BadSectors
from ..helpers import (
    KIB,
    Snapshot,
    flip_bit,
    full_frames,
    has_settled,
    log_snapshot,
    memory_folder,
    overwrite,
    put_snapshot,
    run_child,
    seal_of,
    segment_paths,
    take_snapshot,
    tiny,
    until,
)
from ..killing import killed_at
from ..rebuild.test_footers import STREAMS, make
from .looks import NOW_MS, State, state, state_of


def rows_in(found: State) -> int:
    return sum(len(rows) for _, _, rows in found.values())


@pytest.fixture(scope="module")
def made() -> Snapshot:
    with memory_folder() as folder:
        make(folder / "s", draw_seed())
        return take_snapshot(folder / "s")


@pytest.fixture
def path(made: Snapshot, tmp_path: Path) -> Path:
    return put_snapshot(made, tmp_path / "s")


def test_reads_give_the_same_from_fewer_segments(path: Path) -> None:
    before = state_of(path)
    done = compact_store(path)
    assert state_of(path) == before
    assert done.segments < done.segments_before and done.size_bytes < done.size_before_bytes and done.removed > 0
    assert verify_folder(path).damages == []
    kept = lanes(path)
    again = compact_store(path)
    assert (again.store, again.segments, again.removed) == (str(path), done.segments, 0)
    assert lanes(path) == kept
    with MessageStore.open(path, tiny()) as store:
        assert store.losses == [] and state(store) == before
        for topic, queue_id in STREAMS:
            assert store.append(topic, queue_id, b"next") == before[topic, queue_id][1]


def test_what_was_trimmed_and_deleted_is_gone_and_offsets_of_what_was_trimmed_go_on(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for number in range(60):
            store.append(f"t{number % 3}", 0, bytes(5_000))
        store.trim("t0", 0, before_offset=15)
        store.delete_topic("t1")
    done = compact_store(tmp_path)
    assert (done.segments, done.removed) == (2, 15 + 20 + 2)  # with the two records
    assert done.size_bytes < 31 * 5_000 < 60 * 5_000 < done.size_before_bytes
    with MessageStore.open(tmp_path, tiny()) as store:
        assert store.topics() == ["t0", "t2"]
        assert store.queue_bounds("t0", 0) == (15, 20)
        assert store.append("t1", 0, b"anew") == 0  # nothing of the deleted topic is left
        assert store.append("t0", 0, b"next") == 20
        assert store.topics() == ["t0", "t1", "t2"]


def test_a_store_of_which_nothing_is_left_goes_on_with_its_offsets(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for _ in range(30):
            store.append("t", 0, bytes(5_000))
        store.delete_topic("t")
    assert compact_store(tmp_path).segments == 1
    MessageStore.open(tmp_path / "empty").close()
    assert compact_store(tmp_path / "empty").segments == 0
    with MessageStore.open(tmp_path) as store:
        assert store.append("t", 0, b"x") == 30


@pytest.mark.parametrize(("large", "small"), [("gone", "stays"), ("stays", "gone")])
def test_what_stays_is_weighed_by_its_bytes(tmp_path: Path, large: str, small: str) -> None:
    """A few large messages are most of a segment, and many small ones next to nothing."""
    with MessageStore.open(tmp_path) as store:
        for _ in range(30):
            store.append(large, 0, bytes(100_000))
            store.append_batch([(small, 0, b"x")] * 100)
        store.delete_topic("gone")
    done = compact_store(tmp_path)
    if large == "stays":
        assert done.size_bytes == done.size_before_bytes, "next to nothing would be gained"
    else:
        assert done.size_bytes < 0.1 * done.size_before_bytes


def test_a_small_store_is_left_where_little_would_go(tmp_path: Path) -> None:
    """Else each compaction would drop the small segment that the one before has made."""
    with MessageStore.open(tmp_path) as store:
        store.append_batch([("t", 0, bytes(100))] * 100)
        for _ in range(50):  # a block each, of which nothing stays
            store.append("u", 0, b"x")
        store.delete_topic("u")
    done = compact_store(tmp_path)
    assert (done.segments, done.removed) == (done.segments_before, 0)


def test_a_new_segment_is_about_as_large_as_was_asked_for(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for _ in range(20):
            store.append("stays", 0, bytes(30_000))
            store.append_batch([("gone", 0, b"x")] * 300)
        store.delete_topic("gone")
    compact_store(tmp_path, segment_bytes=200 * KIB)
    sizes = [file.stat().st_size for file in segment_paths(tmp_path, 0)]
    assert 4 <= len(sizes) <= 8 and max(sizes) < 230 * KIB


def test_one_small_message_of_a_large_segment_stays(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        store.append_batch([("gone", 0, b"x" * 40_000)] * 100 + [("stays", 0, b"")])
        store.delete_topic("gone")
    before = state_of(tmp_path)
    assert compact_store(tmp_path).removed > 100
    assert state_of(tmp_path) == before


def consumed(path: Path) -> tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]]:
    """What a subscription gets in a year, and what it has behind the delayed ones."""
    with MessageStore.open(path, tiny(), clock=WallClock(lambda: NOW_MS + 1)) as store:
        early = _taken(store)
    with MessageStore.open(path, tiny(), clock=WallClock(lambda: NOW_MS + 365 * 86_400_000)) as store:
        return early, _taken(store)


def _taken(store: MessageStore) -> list[tuple[int, bytes]]:
    subscription, found = store.subscribe("t", "billing"), []
    while deliveries := subscription.receive(100, wait_ms=0):
        for delivery in deliveries:
            found.append((delivery.message.offset, delivery.message.data))
            subscription.ack(delivery)
    return sorted(found)


@pytest.mark.parametrize("has_room", [True, False])
def test_subscriptions_and_pending_delays_go_on_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_room: bool
) -> None:
    """Also where the disk is full behind the lanes: that costs the indexes of the delays alone."""
    path, chance = tmp_path / "s", random.Random(draw_seed())
    with MessageStore.open(path, tiny(), clock=WallClock(lambda: NOW_MS)) as store:
        subscription = store.subscribe("t", "billing", start="earliest")
        for number in range(400):
            due = NOW_MS + chance.randrange(1, 30) * 86_400_000 if number % 3 == 0 else None
            store.submit("t", 0, b"%d" % number + bytes(800), deliver_at_ms=due)
            store.submit("other", 0, bytes(800))
        store.flush()
        for delivery in subscription.receive(200, wait_ms=0):
            if chance.random() < 0.5:
                subscription.ack(delivery)
        for offset in range(0, 60, 3):
            store.cancel_delayed("t", 0, offset)
        for offset in range(60, 120, 3):
            store.reschedule_delayed("t", 0, offset, NOW_MS + 40 * 86_400_000)
        store.delete_topic("other")
    shutil.copytree(path, tmp_path / "as it was")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if not has_room:
        monkeypatch.setattr(rebuilding, "join_index", full)
    assert compact_store(path).removed > 400
    assert any((path / "delayed").glob("*")) == has_room
    assert not (path / "rebuild").exists()
    assert consumed(path) == consumed(tmp_path / "as it was")


def commit(path: Path, name: str, rows: int) -> bool:
    with ShardWriter(path) as writer:
        writer.append_columns(STREAMS, np.arange(rows) % 4, np.full(rows, 1_000), bytes(rows * 1_000))
        return commit_shards(path, writer.finish(), name=name, batch=None).is_new


def test_bulk_commits_are_not_done_twice_behind_it(tmp_path: Path) -> None:
    MessageStore.open(tmp_path, tiny()).close()
    assert commit(tmp_path, "small", 40) and commit(tmp_path, "large", 6_000)
    with MessageStore.open(tmp_path) as store:
        store.delete_topic("bills")
    before = state_of(tmp_path)
    assert compact_store(tmp_path).removed > 0
    assert not commit(tmp_path, "small", 40) and not commit(tmp_path, "large", 6_000)
    assert state_of(tmp_path) == before
    assert commit(tmp_path, "third", 40)
    assert verify_folder(tmp_path).damages == []


@pytest.mark.parametrize("how", ["zeros", "bit"])
def test_each_footer_of_a_compacted_log_can_be_lost(path: Path, how: str) -> None:
    before = state_of(path)
    compact_store(path, segment_bytes=64 * KIB)
    for lane in range(2):
        for file in segment_paths(path, lane):
            record = seal_of(file)
            assert record is not None
            content = file.read_bytes()
            if how == "bit":
                flip_bit(file, record.footer_position + 40)
            else:
                overwrite(file, record.footer_position, bytes(record.footer_bytes))
            try:
                assert state_of(path) == before
            except StoreCorrupt:
                with MessageStore.open(path, repair=True) as store:
                    assert state(store) == before
                return  # a repair has made it again
            file.write_bytes(content)


def test_positions_of_the_old_log_are_refused_also_where_gaps_are_passed_over(path: Path) -> None:
    with ScanPlanner(path) as planner:
        begin, end = planner.begin(), planner.end()
    compact_store(path)
    with ScanPlanner(path) as planner:
        for position in (begin, end):
            for skip_lost in (False, True):
                with pytest.raises(LogOvertaken, match="was compacted since"):
                    planner.plan(start=position, skip_lost=skip_lost)
        fresh = planner.plan()
    with MessageStore.open(path, tiny()) as store:
        store.append("orders", 0, b"x")
    with ScanPlanner(path) as planner:
        assert sum(part.size_bytes for part in planner.plan(start=fresh.end)) < 100


@pytest.mark.parametrize("how", ["a flipped bit", "cut to nothing", "another store's"])
def test_a_damaged_note_of_a_compaction_is_told_and_a_repair_makes_it_again(path: Path, how: str) -> None:
    """Without it nobody can tell a position of the old log from one that retention has overtaken."""
    with ScanPlanner(path) as planner:
        begin = planner.begin()
    compact_store(path)
    note = path / "lane-00" / COMPACTED_FILE
    whole = LaneStart.unpack(note.read_bytes())
    assert whole is not None
    if how == "a flipped bit":
        flip_bit(note, 40)
    elif how == "cut to nothing":
        note.write_bytes(b"")
    else:
        note.write_bytes(whole._replace(store_id=bytes(16)).pack())
    for skip_lost in (False, True):
        with ScanPlanner(path) as planner, pytest.raises(StoreCorrupt, match="repair=True, which makes") as error:
            planner.plan(start=begin, skip_lost=skip_lost)
        assert error.value.file == str(note)
    with ScanPlanner(path) as planner:
        kept = planner.plan().end
        assert planner.plan(start=kept, skip_lost=True).parts == []
    assert [place.file for place in verify_folder(path).places] == [str(note)]
    before = state_of(path)  # it hinders no opening
    with MessageStore.open(path, tiny(), repair=True) as store:
        assert [(loss.file, loss.messages) for loss in store.losses] == [(str(note), 0)]
    assert state_of(path) == before
    assert verify_folder(path).damages == []
    with ScanPlanner(path) as planner, pytest.raises(LogOvertaken, match="was compacted since"):
        planner.plan(start=begin, skip_lost=True)


def test_a_note_of_a_compaction_that_the_device_refuses_to_read_is_no_log_without_one(path: Path) -> None:
    with ScanPlanner(path) as planner:
        begin = planner.begin()
    compact_store(path)
    note = path / "lane-00" / COMPACTED_FILE
    disk = BadSectors(note, 0, BLOCK_BYTES)
    with ScanPlanner(path, disk=disk) as planner:
        for skip_lost in (False, True):
            with pytest.raises(StoreUnreadable):
                planner.plan(start=begin, skip_lost=skip_lost)
    with MessageStore.open(path, tiny(), repair=True, disk=disk) as store:
        assert [loss.file for loss in store.losses] == [str(note)]
    with ScanPlanner(path, disk=disk) as planner, pytest.raises(LogOvertaken, match="was compacted since"):
        planner.plan(start=begin, skip_lost=True)


def test_retention_goes_on_behind_it(path: Path) -> None:
    compact_store(path, segment_bytes=64 * KIB)
    with MessageStore.open(path, tiny(retention_bytes=100 * KIB)) as store:
        end = store.queue_bounds("orders", 0)[1]
        for _ in range(40):
            store.append("orders", 0, bytes(10_000))
        until(lambda: has_settled(store))
        assert store.queue_bounds("orders", 0)[0] > end
    assert verify_folder(path).damages == []


def test_a_reader_that_is_open_meanwhile_goes_on(path: Path) -> None:
    with MessageStore.open(path, read_only=True) as reader:
        before = state(reader)
        compact_store(path)
        with MessageStore.open(path, tiny()) as store:
            offset = store.append("orders", 0, b"behind it")
            until(lambda: reader.queue_bounds("orders", 0)[1] == offset + 1)
            assert reader.read("orders", 0, offset)[0].data == b"behind it"
            assert state(reader) == state(store) != before


# -- what hinders it ----------------------------------------------------------------------------------


def test_what_its_own_opening_tidies_up_does_not_hinder_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An opening appends in the background, such as which copies of delayed messages nobody wants any more."""
    opened: list[MessageStore] = []
    real_open = MessageStore.open

    class Noted(MessageStore):
        @classmethod
        def open(cls, *given: Any, **named: Any) -> Any:
            opened.append(real_open(*given, **named))
            return opened[-1]

    @contextmanager
    def tidied(*given: Any) -> Iterator[None]:
        with stopped(*given):
            yield
        with suppress(StoreClosed):
            opened[-1].append("orders", 0, b"behind the seals")

    monkeypatch.setattr(compacting_module, "MessageStore", Noted)
    monkeypatch.setattr(compacting_module, "stopped", tidied)
    monkeypatch.setattr(compacting_module, "TRIES", 1)
    before = state_of(path)
    compact_store(path)
    assert len(opened) == 1
    assert state_of(path) == before


def test_an_open_store_is_refused(path: Path) -> None:
    with MessageStore.open(path), pytest.raises(StoreLocked):
        compact_store(path)
    with pytest.raises(StoreUnusable):
        compact_store(path / "lane-00")
    for wrong in (0, True, "1g", 4 << 30):
        with pytest.raises(StoreError, match="segment_bytes is an int"):
            compact_store(path, segment_bytes=wrong)  # type: ignore[arg-type]  # what a user may try


def lanes(path: Path) -> dict[str, bytes]:
    return {name: content for name, content in log_snapshot(path).items() if name.startswith("lane")}


def sealed(path: Path) -> Path:
    compacting_module._seal_all(path)
    return path


def test_damage_is_an_error_and_nothing_has_changed(path: Path) -> None:
    damage(path, data_that_stays(path))
    before = lanes(path)
    with pytest.raises(StoreCorrupt, match="damaged"):
        compact_store(path)
    assert lanes(path) == before and not (path / "compact").exists()


def test_offsets_that_a_repair_gave_up_are_refused(path: Path) -> None:
    damage(path, data_that_stays(path))
    give_up(path)
    before = lanes(sealed(path))
    with pytest.raises(StoreUnusable, match="a repair gave them up"):
        compact_store(path)
    assert lanes(path) == before


def test_damage_in_what_was_trimmed_is_no_hindrance(path: Path) -> None:
    data = random.Random(7).randbytes(1_000)
    with MessageStore.open(path) as store:
        store.append("trimmed", 0, data)
        store.append("trimmed", 0, b"stays")
        store.trim("trimmed", 0, 1)
    damage(sealed(path), data)
    give_up(path)
    before = state_of(path)
    compact_store(path)
    assert state_of(path) == before


def test_a_frame_that_a_repair_gave_up_is_no_hindrance_once_it_is_trimmed(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for _ in range(40):
            store.append("t", 0, bytes(5_000))
    file = segment_paths(sealed(tmp_path), 0)[1]
    flip_bit(file, full_frames(file)[1].header.position + 40)
    give_up(tmp_path)
    with pytest.raises(StoreUnusable, match="`trim` the queue past them"):
        compact_store(tmp_path)
    with MessageStore.open(tmp_path) as store:
        there = [one.offset for one in store.read("t", 0, 0, max_messages=100, max_bytes=1 << 30)]
        [gap] = set(range(40)) - set(there)
        store.trim("t", 0, gap + 1)
    before = state_of(tmp_path)
    assert compact_store(tmp_path).removed > 0
    assert state_of(tmp_path) == before and verify_folder(tmp_path).damages == []


def test_a_damaged_head_of_a_frame_that_stays_is_an_error(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for _ in range(40):
            store.append("t", 0, bytes(5_000))
        store.trim("t", 0, 1)
    file = segment_paths(sealed(tmp_path), 0)[1]
    flip_bit(file, full_frames(file)[1].header.position + 40)
    before = lanes(tmp_path)
    with pytest.raises(StoreCorrupt, match="a frame is damaged or missing"):
        compact_store(tmp_path)
    assert lanes(tmp_path) == before


def test_a_damaged_head_of_a_frame_that_goes_is_no_hindrance(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for _ in range(40):
            store.append("t", 0, bytes(5_000))
        store.trim("t", 0, 10)
    file = segment_paths(sealed(tmp_path), 0)[0]
    frame = full_frames(file)[1]
    flip_bit(file, frame.header.position + 40)
    before = state_of(tmp_path)
    assert before["t", 0][0] == 10 and compact_store(tmp_path).removed > 0
    assert state_of(tmp_path) == before and verify_folder(tmp_path).damages == []


def data_that_stays(path: Path) -> bytes:
    """The bytes of a message in a sealed segment that is not trimmed."""
    with MessageStore.open(sealed(path)) as store:
        return max((one.data for one in store.read("orders", 1, 0, max_messages=100)), key=len)


def damage(path: Path, data: bytes) -> None:
    """Damage the message with these bytes."""
    (file, at), *_ = [(file, at) for file in path.glob("lane-*/*.seg") if (at := file.read_bytes().find(data)) >= 0]
    flip_bit(file, at)


def give_up(path: Path) -> None:
    """Have a repair give up what is damaged."""
    with MessageStore.open(path, repair=True) as store:
        assert store.losses


def test_a_full_disk_is_an_error_and_nothing_has_changed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = lanes(sealed(path))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ShardFile, "add", full)
    with pytest.raises(StoreFull, match="Free some space"):
        compact_store(path)
    assert lanes(path) == before and not (path / "compact").exists()


@pytest.mark.parametrize("where", ["exchange", "write"])
def test_a_file_system_that_cannot_exchange_folders_is_told_from_a_write_that_fails(
    path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    before = lanes(sealed(path))

    def invalid(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    if where == "exchange":
        monkeypatch.setattr(compacting_module, "exchange", invalid)
    else:
        monkeypatch.setattr(ShardFile, "add", invalid)
    with pytest.raises(StoreUnusable if where == "exchange" else StoreUnreadable):
        compact_store(path, segment_bytes=64 * KIB)
    assert lanes(path) == before


def test_a_kill_at_any_step_leaves_each_lane_as_it_was_or_compacted(path: Path, tmp_path: Path) -> None:
    before, copy, counted = state_of(path), tmp_path / "copy", tmp_path / "steps"
    shutil.copytree(path, copy)
    steps = killed_at(-1, lambda: compact_store(copy, segment_bytes=64 * KIB), counted)
    assert steps > 50
    for step in random.Random(draw_seed()).sample(range(steps), 5):
        shutil.rmtree(copy)
        shutil.copytree(path, copy)
        killed_at(step, lambda: compact_store(copy, segment_bytes=64 * KIB), counted)
        with MessageStore.open(copy, tiny()) as store:
            assert store.losses == [] and state(store) == before
        compact_store(copy, segment_bytes=64 * KIB)
        assert state_of(copy) == before
        assert not (copy / "compact").exists() and verify_folder(copy).damages == []


FEW_DESCRIPTORS = """
import resource, sys
from stratalog.store import MessageStore, compact_store
from stratalog.testing import TunedConfig
config = TunedConfig(segment_bytes=65536, max_message_bytes=65536, max_frame_bytes=65536, recent_bytes=0)
with MessageStore.open(sys.argv[1], config) as store:
    for index in range(220):
        store.append("t", 0, bytes(40_000))
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
done = compact_store(sys.argv[1])
print(done.segments_before > 200, done.segments, done.removed)
"""


def test_a_store_of_more_segments_than_descriptors_is_compacted(tmp_path: Path) -> None:
    done = run_child(FEW_DESCRIPTORS, str(tmp_path))
    assert done.stdout.split() == ["True", "2", "0"], done.stderr
    with MessageStore.open(tmp_path) as store:
        assert store.queue_bounds("t", 0) == (0, 220)


def test_one_footer_is_mapped_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for _ in range(40):
            store.append("t", 0, bytes(40_000))
    footers: list[weakref.ref[Footer]] = []
    alive: list[int] = []
    lost = plan_module._check_lost

    def counted(folder: Path, footer: Footer, firsts: Any) -> None:
        footers.append(weakref.ref(footer))
        alive.append(sum(one() is not None for one in footers))
        lost(folder, footer, firsts)

    monkeypatch.setattr(plan_module, "_check_lost", counted)
    compact_store(tmp_path)
    assert len(alive) >= 39 and max(alive) <= 2
