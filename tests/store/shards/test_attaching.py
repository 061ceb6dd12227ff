"""What was committed is in the store once, in order, and as any other message."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random

import numpy as np
import pytest

from stratalog.store import (
    InvalidMessage,
    InvalidTopic,
    MessageStore,
    MessageTooLarge,
    ReplayDiffers,
    ShardWriter,
    StoreClosed,
    StoreConfig,
    StoreReadOnly,
    StoreUnusable,
    abort_shards,
    commit_shards,
    inspect_folder,
    sweep_shards,
    verify_folder,
)
from stratalog.store.segment import sealing
from stratalog.store.segment.sealing import FooterNames, StreamNames
from stratalog.store.testing import SimulatedDisk
from stratalog.store.testing.faults import Operation

from ..helpers import small, tiny, until
from .helpers import Row, append, attaching, content, held, left_in, queues_of, rows_of, scanned, staged


def appended(store: MessageStore, rows: list[Row]) -> None:
    store.append_batch(rows)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("lanes", [1, 3])
def test_attached_messages_follow_the_log_and_the_log_goes_on_behind_them(tmp_path: Path, lanes: int) -> None:
    before, first, between, second, after = (rows_of(f"part{at}", 50 + 300 * (at % 2)) for at in range(5))
    with MessageStore.open(tmp_path, small(lanes=lanes)) as store:
        appended(store, before)
    assert commit_shards(tmp_path, staged(tmp_path, first, calls=3), name="one") == (True, True, 350)
    with MessageStore.open(tmp_path, small()) as store:
        appended(store, between)
        staged_now = staged(tmp_path, second)
        assert commit_shards(tmp_path, staged_now, name="two", wait_ms=60_000).is_attached
        assert store.attach_pending() == 0
        appended(store, after)
        wanted = queues_of(before, first, between, second, after)
        assert content(store) == wanted
        assert scanned(store) == wanted
        assert store.stats()["bulk"] == {"commits": 1, "messages": 350}
    report = verify_folder(tmp_path)
    assert report.damages == []
    assert report.messages == sum(map(len, wanted.values()))
    with MessageStore.open(tmp_path, small()) as store:
        assert content(store) == wanted
    assert left_in(tmp_path) == []


@pytest.mark.usefixtures("both_ways")
def test_offsets_are_given_by_shard_and_row_order(tmp_path: Path) -> None:
    MessageStore.open(tmp_path).close()
    parts = [[("t", 0, b"%d-%d" % (part, at)) for at in range(10)] for part in range(3)]
    made = [staged(tmp_path, rows, partition=at) for at, rows in enumerate(parts)]
    commit_shards(tmp_path, [*made[2], *made[0], *made[1]], name="x")
    with MessageStore.open(tmp_path) as store:
        assert list(store.get_range("t", 0, 0, 99).values()) == [row[2] for at in (2, 0, 1) for row in parts[at]]


@pytest.mark.usefixtures("both_ways")
def test_all_columns_arrive(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store, ShardWriter(tmp_path) as writer:
        writer.append_columns(
            [("t", 5)], [0, 0, 0], [1, 0, 2], b"abc", keys=([1, -1, 0], b"k"), properties=([-1, 9, -1], b'{"a":"b"}'),
            deliver_at_ms=[-1, 7_000, -1],
        )  # fmt: skip
        commit_shards(tmp_path, writer.finish(), name="x", wait_ms=0)
        store.attach_pending()
        found = store.read("t", 5, 0, max_messages=9)
    assert [(one.data, one.key, one.properties, one.deliver_at_ms) for one in found] == [
        (b"a", b"k", None, None), (b"", None, {"a": "b"}, 7_000), (b"bc", b"", None, None)
    ]  # fmt: skip


@pytest.mark.usefixtures("both_ways")
def test_large_messages_and_many_streams_arrive(tmp_path: Path) -> None:
    """More new streams than one frame defines, and messages whose lengths take four bytes."""
    MessageStore.open(tmp_path).close()
    count = 5000
    with ShardWriter(tmp_path) as writer:
        writer.append_columns([("t", at) for at in range(count)], np.arange(count), np.full(count, 2), b"ab" * count)
        writer.append_columns([("big", 0)], [0, 0], [100_000, 1], bytes(100_001))
        commit_shards(tmp_path, writer.finish(), name="x")
    with MessageStore.open(tmp_path) as store:
        assert len(store.queues("t")) == count
        assert store.get_range("t", 4999, 0, 9) == {0: b"ab"}
        assert store.get_range("big", 0, 0, 9) == {0: bytes(100_000), 1: b"\0"}
    assert verify_folder(tmp_path).damages == []


@pytest.mark.usefixtures("both_ways")
def test_an_open_store_attaches_by_itself_and_wakes_readers(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        store.append("t", 0, b"first")
        found: list[bytes] = []
        reader = threading.Thread(
            target=lambda: found.extend(one.data for one in store.read("t", 0, 1, wait_ms=60_000))
        )
        reader.start()
        with MessageStore.open(tmp_path, read_only=True) as other:
            commit_shards(tmp_path, staged(tmp_path, [("t", 0, b"second")]), name="x", wait_ms=0)
            assert [one.data for one in other.read("t", 0, 1, wait_ms=60_000)] == [b"second"]
        reader.join(60)
        assert found == [b"second"]


@pytest.mark.usefixtures("both_ways")
def test_a_replayed_commit_changes_nothing(tmp_path: Path) -> None:
    MessageStore.open(tmp_path).close()
    rows = rows_of("x", 100)
    first = staged(tmp_path, rows)
    assert commit_shards(tmp_path, first, name="q", batch=4).is_new
    again = [*staged(tmp_path, rows[:30], partition=0), *staged(tmp_path, rows[30:], partition=1)]
    assert commit_shards(tmp_path, again, name="q", batch=4) == (False, True, 100)
    assert commit_shards(tmp_path, staged(tmp_path, rows), name="q").is_new  # a transaction's name, not the query's
    assert commit_shards(tmp_path, staged(tmp_path, rows), name="q", batch=5).is_new
    assert not commit_shards(tmp_path, staged(tmp_path, rows), name="q", batch=4).is_new  # an older one
    with MessageStore.open(tmp_path) as store:
        assert content(store) == queues_of(rows, rows, rows)
    assert left_in(tmp_path) == []


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("batch", [None, 7])
def test_a_replay_with_other_rows_is_refused(tmp_path: Path, batch: int | None) -> None:
    MessageStore.open(tmp_path).close()
    rows = rows_of("x", 100)
    commit_shards(tmp_path, staged(tmp_path, rows), name="q", batch=batch)
    for other in (rows[:-1], [*rows[:-1], ("t0", 0, rows[-1][2])], [*rows[:-1], (*rows[-1][:2], b"other".ljust(40))]):
        with pytest.raises(ReplayDiffers, match="other rows"):
            commit_shards(tmp_path, staged(tmp_path, other), name="q", batch=batch)
    with MessageStore.open(tmp_path) as store:
        assert content(store) == queues_of(rows)


def test_a_batch_that_comes_late_is_refused(tmp_path: Path) -> None:
    """Nobody knows whether it is a replay: dropping it may lose rows, and taking it may repeat them."""
    MessageStore.open(tmp_path).close()
    for batch in range(1, 70):
        commit_shards(tmp_path, staged(tmp_path, [("t", batch, b"%d" % batch)]), name="q", batch=batch)
    for batch in (2, 0):
        with pytest.raises(ReplayDiffers, match="after batch 69"):
            commit_shards(tmp_path, staged(tmp_path, [("t", batch, b"%d" % batch)]), name="q", batch=batch)
    for batch in (69, 60):
        again = staged(tmp_path, [("t", batch, b"%d" % batch)])
        assert not commit_shards(tmp_path, again, name="q", batch=batch).is_new
    with pytest.raises(ReplayDiffers, match="other rows"):
        commit_shards(tmp_path, staged(tmp_path, [("t", 60, b"x")]), name="q", batch=60)


@pytest.mark.usefixtures("both_ways")
def test_a_commit_without_rows_is_remembered(tmp_path: Path) -> None:
    MessageStore.open(tmp_path).close()
    assert commit_shards(tmp_path, [], name="q", batch=0).is_new
    assert not commit_shards(tmp_path, [], name="q", batch=0).is_new
    with pytest.raises(ReplayDiffers):
        commit_shards(tmp_path, staged(tmp_path, rows_of("x", 3)), name="q", batch=0)


@pytest.mark.usefixtures("both_ways")
def test_applied_commits_survive_retention(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=200_000)) as store:
        commit_shards(tmp_path, staged(tmp_path, rows_of("x", 10)), name="q", batch=1, wait_ms=0)
        store.attach_pending()
        for _ in range(20):
            store.append_batch([("t", 0, bytes(4000))] * 20)
        until(lambda: store._upkeep.removal.removed_segments > 3)
    with pytest.raises(ReplayDiffers):
        commit_shards(tmp_path, staged(tmp_path, rows_of("y", 10)), name="q", batch=1)


def test_names_that_never_come_again_are_forgotten(tmp_path: Path) -> None:
    MessageStore.open(tmp_path).close()
    for at in range(5):
        commit_shards(tmp_path, staged(tmp_path, rows_of("x", 3)), name=f"once-{at}", keep=False)
    with MessageStore.open(tmp_path) as store:
        commit_shards(tmp_path, staged(tmp_path, rows_of("x", 3)), name="kept", wait_ms=0)
        store.attach_pending()
        assert len(store._lanes[0].commits.packed) < 60
        assert content(store) == queues_of(*[rows_of("x", 3)] * 6)


@pytest.mark.usefixtures("as_segments")
def test_trim_and_retention_treat_attached_segments_as_others(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        commit_shards(tmp_path, staged(tmp_path, [("t", 0, bytes(1000))] * 100), name="x", wait_ms=0)
        store.attach_pending()
        store.append_batch([("t", 0, bytes(1000))] * 200)
        assert store.trim("t", 0, 150) == 150
        until(lambda: store._upkeep.removal.removed_segments >= 2)
        assert store.queue_bounds("t", 0) == (150, 300)
        assert len(store.get_range("t", 0, 150, 999)) == 150
    assert verify_folder(tmp_path).damages == []


def test_staged_and_aborted_rows_are_never_seen(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        rows = rows_of("x", 10)
        loser, winner = staged(tmp_path, rows, attempt=0), staged(tmp_path, rows, attempt=1)
        with ShardWriter(tmp_path) as dropped:
            append(dropped, rows)
        commit_shards(tmp_path, winner, name="x", wait_ms=0)
        store.attach_pending()
        assert content(store) == queues_of(rows)
        assert abort_shards(tmp_path, loser) == 1
        assert abort_shards(tmp_path, winner) in (0, 1)
        staged(tmp_path, rows)
        assert sweep_shards(tmp_path) == []  # too young
        assert len(sweep_shards(tmp_path, older_than_s=-60)) == 1
        assert left_in(tmp_path) == []


@pytest.mark.usefixtures("both_ways")
def test_what_a_manifest_names_is_neither_aborted_nor_swept(tmp_path: Path) -> None:
    rows = rows_of("x", 10)
    with MessageStore.open(tmp_path) as store:
        attacher = store._running.attacher
        assert attacher is not None
        with attacher._attaching:  # the store's own looks wait
            shards = staged(tmp_path, rows)
            assert not commit_shards(tmp_path, shards, name="x", wait_ms=0).is_attached
            assert abort_shards(tmp_path, shards) == 0
            assert sweep_shards(tmp_path, older_than_s=-60) == []
            assert not commit_shards(tmp_path, staged(tmp_path, rows), name="x", wait_ms=0).is_new
            with pytest.raises(ReplayDiffers):
                commit_shards(tmp_path, staged(tmp_path, rows[1:]), name="x", wait_ms=0)
            assert store.attach_pending() == 1
        assert content(store) == queues_of(rows)


def test_a_task_that_lost_goes_on_writing_and_changes_nothing(tmp_path: Path) -> None:
    """A speculative attempt that nobody has stopped."""
    MessageStore.open(tmp_path).close()
    rows = rows_of("x", 100)
    with ShardWriter(tmp_path, transaction="q", partition=0, attempt=0) as loser:
        append(loser, rows_of("loser", 50))
        winner = staged(tmp_path, rows, transaction="q", partition=0, attempt=1)
        append(loser, rows_of("loser", 50))
        assert commit_shards(tmp_path, winner, name="q").is_attached
        append(loser, rows_of("loser", 50))
        loser.finish()
    with MessageStore.open(tmp_path) as store:
        assert content(store) == queues_of(rows)


@pytest.mark.usefixtures("as_segments")
def test_a_commit_that_was_cut_between_two_shards_is_finished(tmp_path: Path) -> None:
    """Cuts behind each name that attaching gives."""
    rows = [rows_of(f"part{at}-", 20) for at in range(3)]
    for cut in range(1, 6):
        disk = SimulatedDisk()
        left: list[SimulatedDisk] = []
        path = tmp_path / str(cut)
        with MessageStore.open(path, tiny(), disk=disk) as store:
            store.append_batch(rows[0])
            shards = [shard for part in rows for shard in staged(path, part, disk=disk)]
            forced = 0

            def count(operation: Operation) -> None:
                nonlocal forced
                forced += operation.kind == "force_folder" and operation.path.name == "lane-00"
                if forced == cut and not left:  # noqa: B023  # it is called in this turn of the loop
                    left.append(disk.kill())  # noqa: B023  # the same

            disk.on_operation = count
            commit_shards(path, shards, name="q", wait_ms=0, disk=disk)
            store.attach_pending()
            disk.on_operation = None
        if left:
            with MessageStore.open(path, tiny(), disk=left[0]) as store:
                assert content(store) == queues_of(rows[0], *rows)
                store.append_batch(rows[0])
                assert scanned(store) == queues_of(rows[0], *rows, rows[0])


def test_a_commit_that_has_returned_survives_a_power_cut_before_it_is_attached(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    rows = rows_of("x", 20)
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store, held(store):
        commit_shards(tmp_path, staged(tmp_path, rows, disk=disk), name="q", wait_ms=0, disk=disk)
        left = disk.crash(Random(0), "none")
    with MessageStore.open(tmp_path, tiny(), disk=left) as store:
        assert content(store) == queues_of(rows)


@pytest.mark.usefixtures("as_segments")
def test_a_manifest_is_durable_before_it_is_attached_also_if_its_committer_died(tmp_path: Path) -> None:
    """Killed between the rename and the force of the folder; then the power is cut while the next one attaches."""
    rows = [rows_of(f"part{at}-", 20) for at in range(3)]
    disk = SimulatedDisk()
    MessageStore.open(tmp_path, tiny(), disk=disk).close()
    shards = [shard for part in rows for shard in staged(tmp_path, part, disk=disk)]
    killed: list[SimulatedDisk] = []

    def kill(operation: Operation) -> None:
        is_force = (operation.kind, operation.path.name) == ("force_folder", "incoming")
        if is_force and not killed and any(path.suffix == ".manifest" for path in disk.files()):
            killed.append(disk.kill())

    disk.on_operation = kill
    commit_shards(tmp_path, shards, name="q", disk=disk)
    cuts: list[SimulatedDisk] = []
    killed[0].on_operation = lambda _: cuts.append(killed[0].crash(Random(0), "none"))
    MessageStore.open(tmp_path, tiny(), disk=killed[0]).close()
    assert len(cuts) > 10
    for cut in cuts:
        with MessageStore.open(tmp_path, tiny(), disk=cut) as store:
            assert content(store) in ({}, queues_of(*rows))


def test_wrong_columns_are_refused_and_lose_nothing(tmp_path: Path) -> None:
    MessageStore.open(tmp_path).close()
    with ShardWriter(tmp_path, config=StoreConfig(max_message_bytes=100)) as writer:
        with pytest.raises(InvalidTopic):
            writer.append_columns([("", 0)], [0], [1], b"x")
        with pytest.raises(InvalidTopic):
            writer.append_columns([("a\x01", 0)], [0], [1], b"x")
        with pytest.raises(InvalidMessage):
            writer.append_columns([("a", 0)], [1], [1], b"x")
        with pytest.raises(InvalidTopic):
            writer.append_columns(["a"], [0], [1], b"x")  # type: ignore[list-item]  # the error is the test
        with pytest.raises(MessageTooLarge):
            writer.append_columns([("a", 0)], [0], [101], bytes(101))
        assert writer.append_columns([("a", 0)], [0], [1], b"x") == 1
        shards = writer.finish()
        with pytest.raises(StoreClosed):
            writer.append_columns([("a", 0)], [0], [1], b"x")
    with pytest.raises(InvalidMessage):
        commit_shards(tmp_path, [*shards, *shards], name="x")
    for name in ("", "x" * 256, "\ud800", 7):
        with pytest.raises(InvalidMessage):
            commit_shards(tmp_path, shards, name=name)  # type: ignore[arg-type]  # the error is the test
    assert commit_shards(tmp_path, shards, name="x").rows == 1


def test_shards_of_another_store_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        MessageStore.open(tmp_path / name).close()
    shards = staged(tmp_path / "a", rows_of("x", 5))
    folder = shards[0].folder
    (tmp_path / "b" / "incoming").mkdir()
    (tmp_path / "a" / "incoming" / folder).rename(tmp_path / "b" / "incoming" / folder)
    with pytest.raises(StoreUnusable, match="another store"):
        commit_shards(tmp_path / "b", shards, name="x")
    with pytest.raises(StoreUnusable, match="no store"):
        ShardWriter(tmp_path)


def test_a_reader_attaches_nothing(tmp_path: Path) -> None:
    MessageStore.open(tmp_path).close()
    with MessageStore.open(tmp_path, read_only=True) as reader, pytest.raises(StoreReadOnly):
        reader.attach_pending()  # type: ignore[attr-defined]  # as its caller finds out


@pytest.mark.usefixtures("as_segments")
def test_inspect_tells_of_attached_segments(tmp_path: Path) -> None:
    MessageStore.open(tmp_path).close()
    commit_shards(tmp_path, staged(tmp_path, rows_of("x", 30)), name="x")
    found = inspect_folder(tmp_path)
    assert found["totals"]["messages"] == 30


def test_a_commit_takes_the_names_of_its_own_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all the lane's streams are put together for a full footer alone."""
    attaching(monkeypatch.setattr, as_segments=True)
    monkeypatch.setattr(sealing, "FEW_STREAMS", 0)
    put_together: list[FooterNames] = []
    whole = FooterNames.whole

    def counted(names: FooterNames) -> StreamNames:
        put_together.append(names)
        return whole(names)

    monkeypatch.setattr(FooterNames, "whole", counted)
    with MessageStore.open(tmp_path, small()) as store:
        store.append_batch([(f"t{number}", 0, b"x") for number in range(600)])
        for number in range(6):
            commit_shards(tmp_path, staged(tmp_path, rows_of(f"c{number}", 40)), name=f"c{number}")
            until(lambda: not left_in(tmp_path))
            fulls = sum(one.record.full for one in store._lanes[0].view.sealed)
            assert len({id(names) for names in put_together}) <= fulls
        assert len(store._lanes[0].view.sealed) >= 6
        assert fulls < 4
