"""The property of a repair where damage needs a closer look than random damage gets: see `tests/fuzz`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.store import MessageStore, StoreCorrupt, inspect_folder, verify_folder
from stratalog.store.format.layout import CLOSED, DATA_START
from stratalog.store.log.sealer import Sealer
from stratalog.store.recovery import reindex

from .damage import Sample, check_repair, take_sample
from .helpers import (
    Queue,
    contents,
    crash_copy,
    flip_bit,
    full_frames,
    has_settled,
    memory_folder,
    overwrite,
    put_snapshot,
    scanned,
    seal_of,
    segment_paths,
    take_snapshot,
    tiny,
    until,
)

QUEUES: list[Queue] = [("a", 0), ("a", 1), ("bee", 0)]
TINY = tiny()

Samples = dict[str, Sample]


def fill(store: MessageStore, begin: int, end: int, queues: list[Queue] = QUEUES) -> None:
    for index in range(begin, end):
        store.append(*queues[index % len(queues)], b"%04d" % index * 700)


@pytest.fixture(scope="module")
def samples() -> Iterator[Samples]:
    """Small closed stores, with and without retention."""
    with memory_folder() as folder:
        found: Samples = {}
        snapshots = []
        with MessageStore.open(folder / "one", TINY) as store:
            fill(store, 0, 8)
        snapshots.append(take_snapshot(folder / "one"))
        with MessageStore.open(folder / "one", TINY) as store:
            fill(store, 8, 80)
            snapshots.append(take_snapshot(folder / "one"))
            fill(store, 80, 120)
        found["closed"] = take_sample(folder / "one", TINY, QUEUES, snapshots)
        with MessageStore.open(folder / "kept", tiny(retention_bytes=300 << 10)) as store:
            fill(store, 0, 200)
            until(lambda: has_settled(store))
        found["retained"] = take_sample(folder / "kept", TINY, QUEUES, [])
        yield found


@pytest.fixture(scope="module")
def many() -> Iterator[Sample]:
    """More than 65,536 messages of one queue, of which retention has removed more than 65,536."""
    with memory_folder() as folder:
        with MessageStore.open(folder / "s", tiny(retention_bytes=400 << 10)) as store:
            for turn in range(50):
                store.append_batch([("a", 0, b"%d" % (2000 * turn + index)) for index in range(2000)])
                store.append("bee", 0, b"%d" % turn)
            until(lambda: has_settled(store))
            assert store.queue_bounds("a", 0)[0] > 1 << 16
        yield take_sample(folder / "s", TINY, [("a", 0), ("bee", 0)], [])


# -- offsets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("footers", [1, 2, 4])
def test_messages_keep_their_offsets_when_the_oldest_footers_are_lost(many: Sample, folder: Path, footers: int) -> None:
    """Nothing before them tells where the queue begins; the next whole footer does."""
    path = put_snapshot(many.files, folder / "s")
    for victim in segment_paths(path)[:footers]:
        record = seal_of(victim)
        assert record is not None
        flip_bit(victim, record.footer_position + 40)
    losses = check_repair(path, many)
    assert [loss.messages for loss in losses] == [0] * footers


def test_offset_of_a_lost_last_message_is_not_given_again(folder: Path) -> None:
    """Nothing tells of which queue it was: each leaves one offset out."""
    path = folder / "s"
    with MessageStore.open(path, TINY) as store:
        fill(store, 0, 12)
    segment = segment_paths(path)[0]
    flip_bit(segment, full_frames(segment)[-1].header.position + 20)
    with MessageStore.open(path, TINY, repair=True) as store:
        assert [(loss.messages, loss.offsets_may_repeat) for loss in store.losses] == [(1, False)]
        assert [store.append(*name, b"new") for name in QUEUES] == [5, 5, 4]
    assert verify_folder(path).ok


def test_loss_says_that_offsets_may_repeat_when_the_names_of_queues_are_lost(folder: Path) -> None:
    path = folder / "s"
    with MessageStore.open(path, TINY) as store:
        store.append("a", 0, b"0")
        store.append("lost", 5, b"names the queue")
    segment = segment_paths(path)[0]
    flip_bit(segment, full_frames(segment)[1].header.position + 20)
    with MessageStore.open(path, TINY, repair=True) as store:
        assert [(loss.messages, loss.offsets_may_repeat) for loss in store.losses] == [(1, True)]
        assert "offsets_may_repeat=True" in repr(store.losses[0])
        assert store.stats()["recovery"]["losses"][0]["offsets_may_repeat"]
        assert store.append("a", 0, b"1") == 2
        assert store.append("lost", 5, b"again") == 0


@pytest.mark.parametrize(("most", "is_kept"), [(30, True), (3, False)])
def test_more_lost_messages_than_a_footer_can_leave_out_are_shared_by_several(
    samples: Samples, folder: Path, monkeypatch: pytest.MonkeyPatch, most: int, is_kept: bool
) -> None:
    """Each lost segment leaves out its share. Of far too many the repair tells, and does not raise."""
    path = put_snapshot(samples["closed"].files, folder / "s")
    lost = segment_paths(path)[1:4]
    for victim in lost:
        victim.unlink()
    monkeypatch.setattr(reindex, "MOST_ENTRIES", most)
    if is_kept:
        losses = check_repair(path, samples["closed"])
        assert [Path(loss.file) for loss in losses] == lost
        assert losses[0].messages is not None and losses[0].messages > most
    else:
        with MessageStore.open(path, TINY, repair=True) as store:
            assert any(loss.offsets_may_repeat for loss in store.losses)


def test_lost_only_footer_behind_retention_says_that_offsets_may_repeat(folder: Path) -> None:
    """The queue "old" has no message left: with the footer its name and its offsets are lost, and no message."""
    path = folder / "s"
    with MessageStore.open(path, tiny(retention_bytes=0)) as store:
        store.append("old", 0, b"x")
        fill(store, 0, 60)
        until(lambda: store.stats()["segments"] == {**store.stats()["segments"], "sealed": 1, "open": 1})
        sealed = store._lanes[0].view.sealed[0].segment.path
        kept = contents(store, QUEUES)
    record = seal_of(sealed)
    assert record is not None
    flip_bit(sealed, record.footer_position + 40)
    with MessageStore.open(path, TINY, repair=True) as store:
        assert [(loss.file, loss.messages) for loss in store.losses] == [(str(sealed), 0)]
        assert store.losses[0].offsets_may_repeat
        found = scanned(store)
        assert sorted(mine for rows in found.values() for mine in rows.values()) == sorted(
            mine for rows in kept.values() for mine in rows.values()
        )
        assert store.append("old", 0, b"new") == 0
    assert verify_folder(path).ok


@pytest.mark.parametrize(("named_later", "may_repeat"), [(False, True), (True, False)])
def test_lost_frame_of_a_log_that_was_not_closed_may_have_named_a_queue(
    folder: Path, named_later: bool, may_repeat: bool
) -> None:
    """Nothing tells how many queues the lane had. A name in a later frame does: queues are numbered without a gap."""
    with MessageStore.open(folder / "s", TINY) as store:
        store.append("a", 0, b"0")
        store.append("a", 0, b"1")
        if named_later:
            store.append("b", 0, b"0")
        for _ in range(3):  # the next frames say that those before were durable
            store.append("a", 0, b"2")
        path = crash_copy(folder / "s", folder / "crashed")
    segment = segment_paths(path)[0]
    flip_bit(segment, full_frames(segment)[1].header.position + 20)
    with MessageStore.open(path, TINY, repair=True) as store:
        assert [(loss.messages, loss.offsets_may_repeat) for loss in store.losses] == [(1, may_repeat)]


# -- files out of their place -------------------------------------------------------------------------


@pytest.mark.parametrize("first_plainly", [False, True])
def test_old_copy_of_a_closed_segment_before_later_ones_is_repaired(
    samples: Samples, folder: Path, first_plainly: bool
) -> None:
    sample = samples["closed"]
    path = put_snapshot(sample.files, folder / "s")
    victim = segment_paths(path)[0]
    victim.write_bytes(sample.old["lane-00/000000000001.seg"][0])
    record = seal_of(victim)
    assert record is not None and record.state == CLOSED
    if first_plainly:
        with pytest.raises(StoreCorrupt):
            MessageStore.open(path, TINY)
    assert check_repair(path, sample)


def test_old_copy_of_a_closed_segment_does_not_hide_a_segment_without_header_and_record(folder: Path) -> None:
    with MessageStore.open(folder / "s", TINY) as store:
        fill(store, 0, 3)
    old = segment_paths(folder / "s")[0].read_bytes()
    with MessageStore.open(folder / "s", TINY) as store:
        fill(store, 3, 16)
        held = contents(store, QUEUES)
    first, second = segment_paths(folder / "s")[:2]
    assert len(full_frames(second)) > 1
    first.write_bytes(old)
    overwrite(second, 0, b"garbage" * (DATA_START // 7))
    report = verify_folder(folder / "s")
    assert not report.ok and inspect_folder(folder / "s")["problems"]
    with pytest.raises(StoreCorrupt):
        MessageStore.open(folder / "s", TINY)
    with MessageStore.open(folder / "s", TINY, repair=True) as store:
        found = contents(store, QUEUES)
        assert store.losses
        assert all(found[queue][offset] == held[queue][offset] for queue in QUEUES for offset in found[queue])
        assert max(found[QUEUES[0]]) == max(held[QUEUES[0]])


def test_old_copy_of_a_closed_segment_does_not_hide_what_one_frame_behind_it_vouches_for(folder: Path) -> None:
    """The frame's segment has no header, and nothing vouches for the frame itself; but it vouches for those before."""
    with MessageStore.open(folder / "s", TINY) as store:
        fill(store, 0, 3)
    old = segment_paths(folder / "s")[0].read_bytes()
    with MessageStore.open(folder / "s", TINY) as store:
        turn = 3
        while len(store._lanes[0].view.open) + len(store._lanes[0].view.sealed) < 2:
            fill(store, turn, turn + 1)
            turn += 1
        held = contents(store, QUEUES)
        path = crash_copy(folder / "s", folder / "crashed")
    first, second = segment_paths(path)[:2]
    first.write_bytes(old)
    overwrite(second, 0, b"\xff" * 40)
    report = verify_folder(path)
    assert not report.ok
    with pytest.raises(StoreCorrupt):
        MessageStore.open(path, TINY)
    with MessageStore.open(path, TINY, repair=True) as store:
        found = contents(store, QUEUES)
        assert store.losses
        assert all(found[queue][offset] == held[queue][offset] for queue in QUEUES for offset in found[queue])


def test_messages_of_exchanged_oldest_segments_are_counted(samples: Samples, folder: Path) -> None:
    sample = samples["retained"]
    path = put_snapshot(sample.files, folder / "s")
    one, two = segment_paths(path)[:2]
    held = sum(frame.header.count for at in (one, two) for frame in full_frames(at))
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    losses = check_repair(path, sample)
    assert [loss.messages for loss in losses] == [held, 0]


def test_segment_of_another_store_is_not_ours_although_its_header_is_damaged(samples: Samples, folder: Path) -> None:
    """Frames do not name their store; the next segment's header tells that it does not continue this one."""
    sample = samples["closed"]
    with MessageStore.open(folder / "other", TINY) as store:
        for index in range(60):
            store.append(*QUEUES[2 - index % 3], b"none of ours %d;" % index * 200)
    path = put_snapshot(sample.files, folder / "s")
    victim, theirs = segment_paths(path)[0], segment_paths(folder / "other")[0]
    held = sum(frame.header.count for frame in full_frames(victim))
    victim.write_bytes(theirs.read_bytes())
    flip_bit(victim, 51)
    losses = check_repair(path, sample)
    assert [(loss.file, loss.messages) for loss in losses] == [(str(victim), held)]


def test_missing_folder_of_the_only_lane_is_reported(samples: Samples, folder: Path) -> None:
    path = put_snapshot(samples["closed"].files, folder / "s")
    shutil.rmtree(path / "lane-00")
    assert [place.what for place in verify_folder(path).places] == ["a lane is missing"]
    assert [problem["what"] for problem in inspect_folder(path)["problems"]] == ["a lane is missing"]
    with pytest.raises(StoreCorrupt):
        MessageStore.open(path, TINY)


def test_gap_between_spares_is_no_damage_and_one_before_them_is(folder: Path) -> None:
    config = tiny(prewrite_bytes=300 << 10)
    with MessageStore.open(folder / "s", config) as store:
        fill(store, 0, 3)
        crashed = crash_copy(folder / "s", folder / "crashed")
    for path in (folder / "s", crashed):
        _, first, second, third, *_ = segment_paths(path)
        kept = third.read_bytes()
        second.unlink()
        assert verify_folder(path).ok and inspect_folder(path)["problems"] == []
        MessageStore.open(path, config).close()
        third.write_bytes(kept)
        for spare in (first, second):
            spare.unlink(missing_ok=True)
        assert [place.file for place in verify_folder(path).places] == [str(first)]
        assert [problem["file"] for problem in inspect_folder(path)["problems"]] == [str(first)]
        with pytest.raises(StoreCorrupt, match="a segment is missing"):
            MessageStore.open(path, config)


# -- order of sealing ---------------------------------------------------------------------------------


def test_segment_is_never_sealed_before_an_older_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sealer, "seal_full", lambda sealer, rest_s=0: None)
    with MessageStore.open(folder / "s", TINY) as store:
        fill(store, 0, 60)
        sealer = store._upkeep.sealer
        (lane, first), (_, second), *_ = sealer._full
        before = second.segment.path.read_bytes()
        with pytest.raises(RuntimeError, match="before an older segment"):
            sealer.seal_now(lane, second)
        assert second.segment.path.read_bytes() == before
        sealer.seal_now(lane, first)
        sealer.seal_now(lane, second)
        assert [sealed.segment.sequence for sealed in lane.view.sealed] == [1, 2]
