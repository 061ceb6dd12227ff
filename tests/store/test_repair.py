"""Opening with `repair=True`: the damaged range is set aside and told of, everything else stays as it was."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreCorrupt, verify_folder
from stratalog.store.format.footer import HEADER_BYTES
from stratalog.store.format.frame import Frame
from stratalog.store.format.layout import BLOCK_BYTES, CLOSED, DATA_START
from stratalog.store.recovery.repair import Loss

from ..seeds import draw_seed
from .disks import BadSectors, MortalDisk
from .helpers import (
    contents,
    crash_copy,
    flip_bit,
    frames_of,
    full_frames,
    overwrite,
    put_snapshot,
    scanned,
    seal_of,
    segment_path,
    segment_paths,
    take_snapshot,
    tiny,
    until,
)
from .test_recovery import QUEUES, Rows, count, is_part, long_story, short_story

TINY = tiny()
Damage = Callable[[Path], None]


@pytest.fixture
def long(folder: Path) -> tuple[Path, Rows]:
    """A closed store of several sealed segments."""
    with MessageStore.open(folder / "s", TINY) as store:
        expected = long_story(store)
    return folder / "s", expected


def repair(path: Path, expected: Rows, *, lost: int) -> None:
    """Repair; at most `lost` messages may be gone, and the store must work as any other from then on."""
    with MessageStore.open(path, TINY, repair=True) as store:
        rows = check(store, expected, lost)
        assert store.losses, "nothing was told of"
        assert store.stats()["recovery"]["losses"]
        for loss in store.losses:
            assert is_set_aside(path, loss)
        for topic, queue in QUEUES:
            offset = store.append(topic, queue, b"new")
            assert offset == store.queue_bounds(topic, queue)[1] - 1
            assert offset not in rows[topic, queue]
            rows[topic, queue][offset] = b"new"
        assert contents(store, QUEUES) == rows
    with MessageStore.open(path, TINY) as store:  # no damage is left: it opens without a repair
        assert store.losses == []
        assert contents(store, QUEUES) == rows
        assert scanned(store) == {name: mine for name, mine in rows.items() if mine}
    assert verify_folder(path).damages == []


def is_set_aside(path: Path, loss: Loss) -> bool:
    """There is a copy of all bytes that were set aside; and none where there were none."""
    if loss.quarantined_to is None:
        return loss.size_bytes == 0
    copy = Path(loss.quarantined_to)
    return copy.parent == path / "quarantine" and copy.stat().st_size == loss.size_bytes > 0


def check(store: MessageStore, expected: Rows, lost: int) -> Rows:
    rows = contents(store, QUEUES)
    assert is_part(rows, expected)
    assert count(rows) >= count(expected) - lost
    assert scanned(store) == {name: mine for name, mine in rows.items() if mine}
    for topic, queue in QUEUES:
        last = max(rows[topic, queue], default=-1)
        assert store.queue_bounds(topic, queue)[1] >= last + 1
    return rows


def last_frame(path: Path) -> Frame:
    return full_frames(path)[-1]


def damage_payload(path: Path) -> None:
    flip_bit(path, full_frames(path)[3].payload_start + 7)


def damage_header(path: Path) -> None:
    flip_bit(path, full_frames(path)[3].header.position + 20)


def damage_first_frame(path: Path) -> None:
    flip_bit(path, DATA_START + 20)


def damage_last_frame(path: Path) -> None:
    flip_bit(path, last_frame(path).header.position + 20)


def damage_last_payload(path: Path) -> None:
    flip_bit(path, last_frame(path).header.end - 1)


def zero_a_block(path: Path) -> None:
    overwrite(path, full_frames(path)[3].header.position // BLOCK_BYTES * BLOCK_BYTES, bytes(BLOCK_BYTES))


def damage_footer(path: Path) -> None:
    record = seal_of(path)
    assert record is not None
    flip_bit(path, record.footer_position + 30)


def damage_entries(path: Path) -> None:
    record = seal_of(path)
    assert record is not None
    overwrite(path, record.footer_position + record.footer_bytes - 400, b"\x01" * 200)


def damage_seal(path: Path) -> None:
    flip_bit(path, BLOCK_BYTES + 20)


def damage_segment_header(path: Path) -> None:
    flip_bit(path, 30)


def cut_in_half(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


IN_A_SEGMENT = 16
CASES: list[tuple[Damage, int]] = [
    (damage_payload, 1), (damage_header, 1), (damage_first_frame, 1), (damage_last_frame, 1),
    (damage_last_payload, 1), (zero_a_block, 3), (cut_in_half, IN_A_SEGMENT), (Path.unlink, IN_A_SEGMENT),
    (damage_segment_header, IN_A_SEGMENT),
]  # fmt: skip


TOLD = [(*case, sequence) for case in CASES for sequence in (1, 2, 4)]


@pytest.mark.parametrize(("damage", "lost", "sequence"), TOLD, ids=[f"{case[0].__name__}-{case[2]}" for case in TOLD])
def test_damage_is_set_aside_and_later_messages_keep_their_offsets(
    long: tuple[Path, Rows], damage: Damage, lost: int, sequence: int
) -> None:
    path, expected = long
    damage(segment_path(path, sequence))
    with pytest.raises(StoreCorrupt), MessageStore.open(path, TINY) as store:
        check(store, expected, 0)
    if damage is Path.unlink:
        repair_of_missing(path, expected, segment_path(path, sequence))
    else:
        repair(path, expected, lost=lost)


def repair_of_missing(path: Path, expected: Rows, missing: Path) -> None:
    """There is nothing to set aside, and the footer behind says how much is gone; the rest of `repair` holds."""
    with MessageStore.open(path, TINY, repair=True) as store:
        rows = check(store, expected, IN_A_SEGMENT)
        assert store.losses == [Loss(str(missing), 0, 0, count(expected) - count(rows), None)]
        assert count(rows) < count(expected)
    assert not (path / "quarantine").exists()
    with MessageStore.open(path, TINY) as store:
        assert contents(store, QUEUES) == rows
    assert verify_folder(path).damages == []


@pytest.mark.parametrize("damage", [damage_footer, damage_entries, damage_seal])
@pytest.mark.parametrize("sequence", [1, 2, 4])
def test_damage_to_what_can_be_made_again_loses_nothing(long: tuple[Path, Rows], damage: Damage, sequence: int) -> None:
    path, expected = long
    damage(segment_path(path, sequence))
    for _ in range(2):
        with MessageStore.open(path, TINY, repair=True) as store:
            check(store, expected, 0)
    with MessageStore.open(path, TINY) as store:
        check(store, expected, 0)
    assert verify_folder(path).damages == []


def test_repair_of_a_healthy_store_changes_nothing(long: tuple[Path, Rows]) -> None:
    path, expected = long
    for _ in range(2):
        with MessageStore.open(path, TINY, repair=True) as store:
            assert store.losses == []
            check(store, expected, 0)
            assert [store.queue_bounds(*name) for name in QUEUES] == [(0, len(expected[name])) for name in QUEUES]
    assert not (path / "quarantine").exists()


def test_repair_of_a_new_folder_makes_a_store(folder: Path) -> None:
    with MessageStore.open(folder / "new", TINY, repair=True) as store:
        assert store.append("a", 0, b"x") == 0
        assert store.losses == []


def test_repair_after_retention_keeps_names_offsets_and_messages(folder: Path) -> None:
    """The first segments are gone, so that streams and offsets are known from footers alone."""
    path = folder / "s"
    with MessageStore.open(path, tiny(retention_bytes=300 << 10)) as store:
        for index in range(200):
            store.append(*QUEUES[index % 3], b"%04d" % index * 700)
        until(lambda: bool(store.queue_bounds(*QUEUES[0])[0] > 0))
    with MessageStore.open(path, TINY) as store:
        rows = contents(store, QUEUES)
        bounds = [store.queue_bounds(*name) for name in QUEUES]
    for damage, repairing in ((False, True), (True, False), (True, True)):
        if damage:  # also its record: the footer of the oldest segment is found without it
            oldest = segment_paths(path)[0]
            assert seal_of(oldest) is not None
            damage_seal(oldest)
        with MessageStore.open(path, TINY, repair=repairing) as store:
            made_again = [(loss.file, loss.position, loss.messages) for loss in store.losses]
            assert made_again == ([(str(oldest), BLOCK_BYTES, 0)] if damage and repairing else [])
            assert [store.queue_bounds(*name) for name in QUEUES] == bounds
            assert contents(store, QUEUES) == rows
    assert verify_folder(path).damages == []


def test_repair_of_one_lane_leaves_the_others_alone(folder: Path) -> None:
    config = tiny(lanes=3)
    path = folder / "s"
    queues = [("t", queue) for queue in range(9)]
    with MessageStore.open(path, config) as store:
        for index in range(180):
            store.append(*queues[index % 9], b"%04d" % index * 500)
        before = contents(store, queues)
    victim = segment_paths(path, 1)[0]
    damage_header(victim)
    with MessageStore.open(path, config, repair=True) as store:
        after = contents(store, queues)
        assert count(before) - count(after) == 1
        assert is_part(after, before)
        changed = {name for name in queues if after[name] != before[name]}
        assert {store._streams.topics[topic][queue].lane.index for topic, queue in changed} == {1}
        assert [Path(loss.file) for loss in store.losses] == [victim]
    assert verify_folder(path).damages == []


def test_damage_in_two_places_is_told_twice(long: tuple[Path, Rows]) -> None:
    path, expected = long
    damage_header(segment_path(path, 1))
    damage_payload(segment_path(path, 3))
    with MessageStore.open(path, TINY, repair=True) as store:
        assert [Path(loss.file).name[-7:] for loss in store.losses] == ["001.seg", "003.seg"]
        assert [loss.messages for loss in store.losses] == [1, 1]
        check(store, expected, 2)


def test_one_bad_message_of_a_batch_costs_that_one_alone(folder: Path) -> None:
    path = folder / "s"
    with MessageStore.open(path, TINY) as store:
        expected = short_story(store)
    segment = segment_path(path, 1)
    frame = max(frames_of(segment), key=lambda frame: frame.header.count)
    flip_bit(segment, int(frame.starts()[4]))
    with MessageStore.open(path, TINY, repair=True) as store:
        rows = check(store, expected, 1)
        assert [loss.messages for loss in store.losses] == [1]
        missing = {(name, at) for name, mine in expected.items() for at in mine if at not in rows[name]}
        assert len(missing) == 1
        ((topic, queue), offset) = missing.pop()
        assert [message.offset for message in store.read(topic, queue, 0)] == list(rows[topic, queue])
        assert store.read(topic, queue, offset, max_messages=1)[0].offset == offset + 1
        assert store.read_batch(topic, queue, 0).offsets.tolist() == list(rows[topic, queue])


def two_batches(store: MessageStore) -> Rows:
    """Single messages that name the queues, two batches, and a message behind them."""
    expected: Rows = {name: {} for name in QUEUES}
    for name in QUEUES:
        expected[name][store.append(*name, b"first")] = b"first"
    for turn in range(2):
        rows = [(*QUEUES[index % 3], b"batch %d;" % turn * index) for index in range(8)]
        for (topic, queue, data), offset in zip(rows, store.append_batch(rows).tolist(), strict=True):
            expected[topic, queue][offset] = data
    expected["a", 0][store.append("a", 0, b"last")] = b"last"
    return expected


def test_flipped_bytes_all_over_a_frame_can_be_repaired(folder: Path) -> None:
    """Whatever is damaged in the middle, at most that frame is lost."""
    with MessageStore.open(folder / "s", TINY) as store:
        expected = two_batches(store)
    snapshot = take_snapshot(folder / "s")
    segment = segment_path(folder / "s", 1)
    frame = max(frames_of(segment), key=lambda frame: frame.header.count)
    for at in range(frame.header.position + draw_seed() % 13, frame.header.end, 13):
        put_snapshot(snapshot, folder / "s")
        flip_bit(segment, at, at % 8)
        with MessageStore.open(folder / "s", TINY, repair=True) as store:
            check(store, expected, frame.header.count)
            assert store.losses
        with MessageStore.open(folder / "s", TINY) as store:
            check(store, expected, frame.header.count)
        assert verify_folder(folder / "s").damages == []


def test_queue_whose_name_was_in_the_lost_frame_keeps_its_messages_under_a_name_of_ours(folder: Path) -> None:
    with MessageStore.open(folder / "s", TINY) as store:
        store.append("a", 0, b"0")
        store.append("lost", 5, b"names the queue")
        store.append("lost", 5, b"later")
        store.append("a", 0, b"1")
    flip_bit(segment_path(folder / "s", 1), full_frames(segment_path(folder / "s", 1))[1].header.position + 20)
    for repairing in (True, False):
        with MessageStore.open(folder / "s", TINY, repair=repairing) as store:
            assert contents(store, [("a", 0)]) == {("a", 0): {0: b"0", 1: b"1"}}
            ((name, rows),) = [(name, rows) for name, rows in scanned(store).items() if name != ("a", 0)]
            assert rows == {1: b"later"}
            assert store.read(*name, 1)[0].data == b"later"
    assert verify_folder(folder / "s").damages == []


# -- what a repair must not do beside ------------------------------------------------------------------


def test_flipped_seal_record_of_a_repaired_segment_costs_a_scan_and_no_message(long: tuple[Path, Rows]) -> None:
    """Its frames were written behind another header than the one that the repair wrote."""
    path, expected = long
    for damage, lost in ((damage_segment_header, 0), (Path.unlink, IN_A_SEGMENT)):
        victim = segment_path(path, 2)
        damage(victim)
        with MessageStore.open(path, TINY, repair=True) as store:
            rows = check(store, expected, lost)
            bounds = [store.queue_bounds(*name) for name in QUEUES]
        flip_bit(victim, BLOCK_BYTES + 20)
        with MessageStore.open(path, TINY) as store:
            assert contents(store, QUEUES) == rows
            assert [store.queue_bounds(*name) for name in QUEUES] == bounds
        assert verify_folder(path).damages == []


def test_flipped_names_of_the_newest_footer_are_made_again(folder: Path) -> None:
    with MessageStore.open(folder / "s", TINY) as store:
        expected = short_story(store)
        crash_copy(folder / "s", folder / "crashed")
    path = folder / "crashed"
    MessageStore.open(path, TINY).close()  # recovery seals the segment
    record = seal_of(segment_path(path, 1))
    assert record is not None
    flip_bit(segment_path(path, 1), record.footer_position + HEADER_BYTES + 5)
    with pytest.raises(StoreCorrupt):
        MessageStore.open(path, TINY)
    with MessageStore.open(path, TINY, repair=True) as store:
        check(store, expected, 0)
        assert [(loss.file, loss.position, loss.messages) for loss in store.losses] == [
            (str(segment_path(path, 1)), record.footer_position, 0)
        ]
    assert verify_folder(path).damages == []


def test_second_repair_leaves_what_the_first_one_set_aside(long: tuple[Path, Rows]) -> None:
    path, _ = long
    held: dict[Path, bytes] = {}
    for position in (30, 31, 32):
        flip_bit(segment_path(path, 2), position)
        with MessageStore.open(path, TINY, repair=True) as store:
            (loss,) = store.losses
        assert loss.quarantined_to is not None
        assert Path(loss.quarantined_to) not in held
        assert all(file.read_bytes() == before for file, before in held.items())
        held[Path(loss.quarantined_to)] = Path(loss.quarantined_to).read_bytes()
    assert len(list((path / "quarantine").iterdir())) == 3


def test_missing_lane_folder_is_a_loss_of_unknown_size(folder: Path) -> None:
    path, config = folder / "s", tiny(lanes=2)
    with MessageStore.open(path, config) as store:
        for queue in range(8):
            store.append("t", queue, b"x")
        queues = [("t", stream.queue_id) for stream in store._lanes[0].streams]
        rows = contents(store, queues)
    shutil.rmtree(path / "lane-01")
    with pytest.raises(StoreCorrupt):
        MessageStore.open(path, config)
    with MessageStore.open(path, config, repair=True) as store:
        assert store.losses == [Loss(str(path / "lane-01"), 0, 0, None, None, offsets_may_repeat=True)]
        assert contents(store, queues) == rows
    assert verify_folder(path).damages == []


def test_missing_segments_in_a_row_are_counted_by_the_first_one(long: tuple[Path, Rows]) -> None:
    path, expected = long
    for sequence in (2, 3):
        segment_path(path, sequence).unlink()
    with MessageStore.open(path, TINY, repair=True) as store:
        rows = check(store, expected, 2 * IN_A_SEGMENT)
        lost = count(expected) - count(rows)
        missing = [str(segment_path(path, sequence)) for sequence in (2, 3)]
        assert store.losses == [Loss(missing[0], 0, 0, lost, None), Loss(missing[1], 0, 0, 0, None)]
    assert verify_folder(path).damages == []


def test_end_of_a_segment_that_is_cut_off_is_counted(long: tuple[Path, Rows]) -> None:
    path, expected = long
    victim = segment_path(path, 2)
    frame = full_frames(victim)[5]
    with victim.open("r+b") as file:
        file.truncate(frame.header.end)
    with MessageStore.open(path, TINY, repair=True) as store:
        rows = check(store, expected, IN_A_SEGMENT)
        assert store.losses == [Loss(str(victim), frame.header.end, 0, count(expected) - count(rows), None)]
        assert count(rows) < count(expected)
    assert verify_folder(path).damages == []


def test_segments_missing_before_a_closed_one_are_told_of(folder: Path) -> None:
    """START says where the log begins, and the closed one's header how much is before it. Names are gone."""
    path = folder / "s"
    with MessageStore.open(path, TINY) as store:
        rows = [("t", 0, b"%04d" % index * 700) for index in range(100)]
        assert [store.append(*row) for row in rows] == list(range(100))
        until(lambda: store.stats()["segments"]["open"] == 1)
    closed = next(at for at in segment_paths(path) if (record := seal_of(at)) and record.state == CLOSED)
    held = sum(frame.header.count for frame in full_frames(closed))
    for sealed in segment_paths(path):
        if sealed < closed:
            sealed.unlink()
    with pytest.raises(StoreCorrupt):
        MessageStore.open(path, TINY)
    with MessageStore.open(path, TINY, repair=True) as store:
        first, *rest = [segment_path(path, number) for number in range(1, int(closed.stem))]
        assert store.losses == [
            Loss(str(first), 0, 0, 100 - held, None, offsets_may_repeat=True),
            *(Loss(str(other), 0, 0, 0, None) for other in rest),
        ]
        ((_, mine),) = scanned(store).items()
        assert mine == {at: rows[at][2] for at in range(100 - held, 100)}
    assert verify_folder(path).damages == []


@pytest.mark.parametrize("block", [0, 1, 4, 9, -1])
def test_block_that_the_device_refuses_to_read_is_repaired_as_damage(long: tuple[Path, Rows], block: int) -> None:
    path, expected = long
    victim = segment_path(path, 2)
    begin = range(0, victim.stat().st_size, BLOCK_BYTES)[block]
    disk = BadSectors(victim, begin, begin + BLOCK_BYTES)
    with MessageStore.open(path, TINY, repair=True, disk=disk) as store:
        rows = check(store, expected, 2)
        bounds = [store.queue_bounds(*name) for name in QUEUES]
    assert bounds == [(0, len(expected[name])) for name in QUEUES]
    with MessageStore.open(path, TINY, disk=disk) as store:
        assert contents(store, QUEUES) == rows
    assert verify_folder(path).damages == []


def test_repair_can_be_repeated_wherever_it_crashes(folder: Path, long: tuple[Path, Rows]) -> None:
    path, expected = long
    victim = segment_path(path, len([at for at in segment_paths(path) if full_frames(at)]) - 1)
    with victim.open("r+b") as file:
        file.truncate(full_frames(victim)[1].header.end)
    whole = take_snapshot(path)
    with MessageStore.open(path, TINY, repair=True) as store:
        rows = check(store, expected, IN_A_SEGMENT)
    crashes = 0
    while True:
        put_snapshot(whole, path)
        disk = MortalDisk(crashes, ("write", "truncate"), Died)
        try:
            MessageStore.open(path, TINY, repair=True, disk=disk).close()
        except Died:
            crashes += 1
        else:
            break
        with MessageStore.open(path, TINY, repair=True) as store:
            assert contents(store, QUEUES) == rows
        assert verify_folder(path).damages == []
    assert crashes > 5


class Died(BaseException):
    """The process is gone."""
