"""Transactions over several lanes: all of one is durable and visible at once in all of its lanes, or nothing."""

from __future__ import annotations

import asyncio
import random
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stratalog import (
    MessageStore,
    PublishBufferFull,
    StoreClosed,
    StoreCorrupt,
    StoreFull,
    StorePoisoned,
    StoreReader,
    StoreUnusable,
    Subscription,
)
from stratalog.store import compact_store, inspect_folder, look_into_folder, verify_folder
from stratalog.store.api.commits import commit_shards
from stratalog.store.format.joint import JointPlace, joint_bytes, joint_of, pack_joint
from stratalog.store.format.layout import JOINT, lane_name
from stratalog.store.log.at_once import AtOnce
from stratalog.store.log.crew import Crew
from stratalog.store.log.joint_group import JointGroup
from stratalog.store.log.rounds import Rounds
from stratalog.store.log.sealer import Sealer
from stratalog.store.log.streams import lane_of
from stratalog.store.log.ticket import SubmitRequest
from stratalog.store.recovery.lane_recovery import LaneRecovery
from stratalog.store.testing import Operation, SimulatedDisk

from ..seeds import draw_seed
from .disks import BadSectors, FailingDisk, GatedDisk
from .helpers import (
    KIB,
    PATIENCE_S,
    contents,
    crash_copy,
    flip_bit,
    frames_of,
    full_frames,
    mark,
    overwrite,
    scanned,
    seal_of,
    small,
    start,
    tiny,
    until,
)
from .shards.helpers import rows_of, staged
from .shards.test_together import SEEN_BY_SCANS, looking
from .test_reserve import disk_of, fill

LANES = 3
NAMES = [("t", next(queue for queue in range(99) if lane_of("t", queue, LANES) == lane)) for lane in range(LANES)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", tiny(lanes=LANES)) as store:
        yield store


def commit(store: MessageStore, data: bytes = b"x", names: Sequence[tuple[str, int]] = tuple(NAMES)) -> list[int]:
    """One message in each lane; their offsets."""
    with store.transaction() as tx:
        for name in names:
            tx.append(*name, data)
    return list(map(int, tx.offsets))


def hand_over(store: MessageStore, data: bytes = b"x") -> JointGroup:
    """The same, handed over and not waited for."""
    tx = store.transaction()
    for name in NAMES:
        tx.append(*name, data)
    request = tx._end().hand_over(lambda request: request.queue.put(request))
    assert isinstance(request, JointGroup)
    return request


def cursor_lane(sub: Subscription) -> int:
    """The lane of a subscription's records."""
    stream = sub._state.journal.stream
    assert stream is not None
    return stream.lane.index


def sizes(store: StoreReader) -> list[int]:
    return [store.queue_bounds(*name)[1] for name in NAMES]


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread takes rounds: the test calls `step`."""
    monkeypatch.setattr(Rounds, "start", lambda self: None)
    monkeypatch.setattr(Crew, "do_all", lambda self, calls: [call() for call in calls])


def step(store: MessageStore) -> bool:
    rounds = store._running.rounds
    assert rounds is not None
    return rounds.step()


# -- what is stored -----------------------------------------------------------------------------------------


def test_offsets_are_in_the_order_of_the_appends_and_an_opening_finds_all(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store:
        store.append(*NAMES[1], b"before")
        with store.transaction() as tx:
            tx.append_batch([(*NAMES[at % LANES], b"%d" % at) for at in range(9)])
            tx.append(*NAMES[0], b"9", key=b"k", properties={"p": "q"}, deliver_at_ms=7)
        assert tx.offsets.tolist() == [0, 1, 0, 1, 2, 1, 2, 3, 2, 3]
        found = store.read(*NAMES[0], 3)[0]
        assert (found.data, found.key, found.properties, found.deliver_at_ms) == (b"9", b"k", {"p": "q"}, 7)
        assert all(lane.under_way.is_idle for lane in store._lanes)
        assert [queue.used_bytes for queue in [*store._queues, store._shared.rounds]] == [0] * (LANES + 1)  # type: ignore[union-attr]
        expected = contents(store, NAMES)
    assert verify_folder(tmp_path).ok
    with MessageStore.open(tmp_path) as again:
        assert contents(again, NAMES) == expected == scanned(again)
        assert commit(again) == [4, 4, 3]
    compact_store(tmp_path)
    assert verify_folder(tmp_path).ok


def test_of_one_lane_it_is_the_lanes_own_request(store: MessageStore) -> None:
    assert commit(store, names=[NAMES[1]] * 3) == [0, 1, 2]
    assert store._running.rounds is not None and store._running.rounds.rounds == 0


def test_each_part_says_where_all_parts_lie(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store:
        store.append(*NAMES[1], b"before" * 500)
        commit(store)
    found = [full_frames(tmp_path / lane_name(lane) / "000000000001.seg")[-1] for lane in range(LANES)]
    places = tuple(JointPlace(lane, 1, frame.header.position) for lane, frame in enumerate(found))
    assert [joint_of(frame.head) for frame in found] == [places] * LANES
    assert [len(frame.definitions()) for frame in found] == [1, 0, 1]


def test_the_column_is_found_from_the_end_and_one_that_makes_no_sense_is_too_long() -> None:
    places = [JointPlace(0, 7, 8192), JointPlace(63, 1 << 40, 1 << 33)]
    packed = pack_joint(places)
    assert joint_bytes(JOINT, b"before" + packed) == len(packed)
    assert joint_bytes(0, packed) == 0
    assert joint_bytes(JOINT, b"") == 1
    assert joint_bytes(JOINT, b"\xff" * 8) > 8


def test_parts_lie_where_they_say_also_at_the_borders_of_segments(tmp_path: Path, by_hand: None) -> None:
    """Before each round a lane has a frame that is not written yet: then it ends anywhere, and the round pads it."""
    chance = random.Random(seed := draw_seed())
    print("seed", seed)
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store:
        for _ in range(120):
            flusher = store._flushers[lane := chance.randrange(LANES)]
            (stream,) = store._appender.find_or_make([NAMES[lane]])
            with flusher.building:
                data = bytes(chance.randrange(3000))
                flusher.lane.build([SubmitRequest(stream, data, len(data))])
            request = hand_over(store, bytes(chance.randrange(5000)))
            assert step(store)
            assert request.exception(0) is None
        until(lambda: store.stats()["segments"]["sealed"] > 2 * LANES)
    found = {
        JointPlace(lane, frame.header.sequence, frame.header.position): joint_of(frame.head)
        for lane in range(LANES)
        for path in sorted((tmp_path / lane_name(lane)).glob("*.seg"))
        for frame in frames_of(path)
        if frame.header.flags & JOINT
    }
    assert len(found) == 120 * LANES
    assert all(place.position % (4 * KIB) == 0 for place in found), "a footer in its place leaves nothing of its head"
    assert all(
        found[place] == places and place in places for mine, places in found.items() for place in (mine, *places)
    )


def test_what_a_thread_has_submitted_before_comes_before(store: MessageStore) -> None:
    for at in range(30):
        tickets = [store.submit(*NAMES[at % LANES], b"s") for at in range(40)]
        offsets = commit(store)
        for name, offset in zip(NAMES, offsets, strict=True):
            mine = [ticket.result() for row, ticket in enumerate(tickets) if NAMES[row % LANES] == name]
            assert max(mine) < offset


def test_many_threads_and_coroutines_share_rounds(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small(lanes=LANES)) as store:
        done: list[list[int]] = []

        def work() -> None:
            for _ in range(20):
                done.append(commit(store))

        async def one() -> None:
            async with store.transaction() as tx:
                for name in NAMES:
                    tx.append(*name, b"y")
            done.append(tx.offsets.tolist())

        async def some() -> None:
            await asyncio.gather(*[one() for _ in range(60)])

        workers = [start(work) for _ in range(6)] + [start(lambda: asyncio.run(some()))]
        for worker in workers:
            worker.join()
        assert sizes(store) == [180] * LANES
        assert sorted(done) == [[at] * LANES for at in range(180)], "each transaction has the same place in all queues"
        assert store._running.rounds is not None and store._running.rounds.rounds < 180


# -- seen at once -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["the writing process", "another process", "a scan", "a scan of another process"])
def test_all_lanes_show_it_at_one_step(tmp_path: Path, by_hand: None, who: str) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store:
        for name in NAMES:
            store.append(*name, b"old")
        reader = StoreReader.open(tmp_path) if "another" in who else store
        seen: list[int] = []

        def look() -> None:
            if "scan" in who:
                seen.append(sum(map(len, reader.scan())))
            else:
                found = sizes(reader)
                assert found in ([1] * LANES, [2] * LANES), f"some lanes have it and others have not: {found}"
                seen.append(sum(found))

        hand_over(store)
        files = (*SEEN_BY_SCANS, "rounds.py")
        with looking(look, files if "scan" in who else (*files, "at_once.py", "in_flight.py", "publisher.py")):
            assert step(store)
        look()
        assert sorted(seen) == seen
        assert set(seen) == {LANES, 2 * LANES}
        reader.close()


def test_readers_beside_never_see_half(tmp_path: Path) -> None:
    rounds, failed = 80, list[object]()
    with MessageStore.open(tmp_path, small(lanes=LANES)) as store, StoreReader.open(tmp_path) as other:
        commit(store)

        def transact() -> None:
            for at in range(rounds):
                commit(store, b"%d" % at * 300)

        def append() -> None:
            for at in range(rounds):
                store.append("other", at % 9, b"x" * at * 20)

        def look(reader: StoreReader) -> None:
            while any(worker.thread.is_alive() for worker in writing):
                found = {name: 0 for name in NAMES}
                for batch in reader.scan():
                    for at, name in enumerate(batch.stream_names):
                        if name in found:
                            found[name] += int((batch.stream_index == at).sum())
                if len(set(found.values())) > 1:
                    failed.append(found)

        writing = [start(work) for work in (transact, transact, append, append)]
        looking = [start(look, one) for one in (store, other)]
        for worker in [*writing, *looking]:
            worker.join()
        assert not failed
        until(lambda: sizes(other) == [2 * rounds + 1] * LANES)


# -- errors -------------------------------------------------------------------------------------------------


def test_a_full_disk_in_one_lane_stores_nothing_in_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store:
        commit(store)
        make_room = AtOnce.make_room_of

        def full(self: Any, *given: Any) -> None:
            if self._lane.index == 2:
                raise StoreFull("no space")
            make_room(self, *given)

        monkeypatch.setattr(AtOnce, "make_room_of", full)
        for _ in range(2):
            with pytest.raises(StoreFull):
                commit(store)
        assert commit(store, names=NAMES[:2]) == [1, 1]
        monkeypatch.undo()
        assert commit(store) == [2, 2, 1]


def test_of_a_round_that_has_no_space_those_that_fit_are_stored(
    tmp_path: Path, by_hand: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store:
        given = [hand_over(store, data) for data in (b"x", b"y" * 9000, b"z")]
        make_room = AtOnce.make_room_of

        def full(self: Any, most_bytes: int, *given: Any) -> None:
            if most_bytes > 9000:
                raise StoreFull("no space")
            make_room(self, most_bytes, *given)

        monkeypatch.setattr(AtOnce, "make_room_of", full)
        assert step(store)
        assert [type(one.exception(0)) for one in given] == [type(None), StoreFull, type(None)]
        assert [[row.data for row in store.read(*name, 0)] for name in NAMES] == [[b"x", b"z"]] * LANES


def test_on_a_full_disk_acknowledgements_alone_are_stored(tmp_path: Path) -> None:
    disk = disk_of()
    with MessageStore.open(tmp_path / "s", tiny(lanes=2), disk=disk) as store:
        store.append_batch([("t", queue, b"job") for queue in range(4)] * 5)
        subs = [store.subscribe("t", f"s{at}") for at in range(9)]
        given = [sub.receive(6) for sub in subs]
        lanes = {cursor_lane(sub): at for at, sub in enumerate(subs)}
        assert set(lanes) == {0, 1}
        fill(store, disk)
        ends = [store.queue_bounds("t", queue)[1] for queue in range(4)]
        for at in range(3):
            with pytest.raises(StoreFull), store.transaction() as tx:
                tx.append_batch([("t", queue, b"x") for queue in range(4)])
                for lane in range(2):
                    tx.ack(given[lanes[lane]][at])
            with store.transaction() as tx:
                for lane in range(2):
                    tx.ack(given[lanes[lane]][at])
        assert [store.queue_bounds("t", queue)[1] for queue in range(4)] == ends
        assert [subs[lanes[lane]].backlog().in_flight for lane in range(2)] == [3, 3]


def test_a_full_publish_buffer_stores_nothing(tmp_path: Path, by_hand: None) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=LANES, append_timeout_ms=20)) as store:
        queue = store._shared.rounds
        assert queue is not None
        with queue._lock:
            queue.used_bytes += queue.cap_bytes
            queue._taken_bytes += queue.cap_bytes
        with pytest.raises(PublishBufferFull):
            commit(store)

        async def one() -> None:
            async with store.transaction() as tx:
                for name in NAMES:
                    tx.append(*name, b"y")

        with pytest.raises(PublishBufferFull):
            asyncio.run(one())
        queue.release(queue.cap_bytes, 0)
        assert sizes(store) == [0] * LANES


@pytest.mark.parametrize("kind", ["write", "force"])
def test_after_a_failed_write_in_one_lane_the_next_opening_has_all_or_nothing(tmp_path: Path, kind: str) -> None:
    disk = FailingDisk()
    store = MessageStore.open(tmp_path, tiny(lanes=LANES), disk=disk)
    commit(store)
    disk.fail = kind
    with pytest.raises(StorePoisoned):
        commit(store)
    for call in (lambda: commit(store), lambda: store.append(*NAMES[0], b"")):
        with pytest.raises(StorePoisoned):
            call()
    assert sizes(store) == [1] * LANES
    store.close()
    with MessageStore.open(tmp_path) as again:
        assert sizes(again) in ([1] * LANES, [2] * LANES)
        commit(again)
    assert verify_folder(tmp_path).ok


def test_another_lane_fails_while_a_round_takes_what_is_queued(tmp_path: Path) -> None:
    """The lane's queue refuses then, and gives nothing any more: the round fails, and nobody waits for it."""
    disk = GatedDisk()
    store = MessageStore.open(tmp_path, tiny(lanes=LANES), disk=disk)
    commit(store)
    disk.gate.clear()
    tickets = [store.submit(*NAMES[0], b"first")]
    until(lambda: store._queues[0]._in_flight == 1)
    tickets += [store.submit(*NAMES[0], b"second")]
    committing = start(commit, store, b"x", NAMES[:2])
    until(store._flushers[1].building.locked)
    store._flushers[2].fail(OSError("of another lane"))
    assert isinstance(tickets[1].exception(PATIENCE_S), StorePoisoned)
    disk.gate.set()
    with pytest.raises(StorePoisoned, match="of another lane"):
        committing.join()
    closing = start(store.close)
    closing.join()
    assert tickets[0].exception(0) is None
    with MessageStore.open(tmp_path) as again:
        assert sizes(again) == [2, 1, 1]


def test_a_bug_in_a_round_poisons_and_everybody_is_answered(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(JointGroup, "cut", broken)
    with pytest.raises(StorePoisoned, match="a bug"):
        commit(store)
    with pytest.raises(StorePoisoned):
        store.append(*NAMES[0], b"")


def test_a_close_takes_what_waits_and_refuses_what_comes(tmp_path: Path) -> None:
    disk = GatedDisk()
    store = MessageStore.open(tmp_path, tiny(lanes=LANES), disk=disk)
    disk.gate.clear()
    workers = [start(commit, store) for _ in range(4)]
    rounds = store._running.rounds
    assert rounds is not None
    until(lambda: sum(isinstance(one, JointGroup) for one in rounds.queue.requests) >= 3)
    closing = start(store.close)
    until(lambda: rounds.queue.refusal is not None)
    disk.gate.set()
    for worker in [*workers, closing]:
        worker.join()
    with pytest.raises(StoreClosed):
        commit(store)
    with MessageStore.open(tmp_path) as again:
        assert sizes(again) == [4] * LANES


def test_rounds_commits_trims_and_deletions_wait_for_no_other_for_ever(tmp_path: Path) -> None:
    """All that holds several lanes still, or a topic of several lanes, by turns and at once."""
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store:
        ended = threading.Event()

        def transact() -> None:
            while not ended.is_set():
                commit(store, b"z" * 500)

        def attach() -> None:
            for at in range(6):
                commit_shards(tmp_path, staged(tmp_path, rows_of("new", 20, queues=9)), name=f"q{at}")

        def delete() -> None:
            for _ in range(15):
                store.append_batch([("gone", queue, b"x") for queue in range(9)])
                store.delete_topic("gone")

        transacting = [start(transact) for _ in range(2)]
        others = [start(attach), start(delete)]
        try:
            for worker in others:
                worker.join()
        finally:
            ended.set()
        for worker in transacting:
            worker.join()
        mine = [[data for data in rows.values() if data == b"z" * 500] for rows in contents(store, NAMES).values()]
        assert len(set(map(len, mine))) == 1
    assert verify_folder(tmp_path).ok


# -- after a crash ------------------------------------------------------------------------------------------


@pytest.fixture(params=[512, 4 * KIB])
def block_bytes(request: pytest.FixtureRequest) -> int:
    """The blocks of the segments' writes."""
    blocks: int = request.param
    return blocks


def crashed(tmp_path: Path, block_bytes: int, before: int = 2) -> tuple[Path, list[Any], dict[Any, Any]]:
    """A store that was killed when a round was durable and nothing came after it: its folder, the parts, and what was
    there before.
    """
    with MessageStore.open(tmp_path / "store", tiny(lanes=LANES, block_bytes=block_bytes)) as store:
        for _ in range(before):
            commit(store, b"before" * 300)
        old = contents(store, NAMES)
        commit(store, b"new" * 2000)
        left = crash_copy(tmp_path / "store", tmp_path / "crashed")
    parts = []
    for lane in range(LANES):
        path = left / lane_name(lane) / "000000000001.seg"
        frame = next(frame for frame in reversed(full_frames(path)) if frame.header.flags & JOINT)
        overwrite(path, frame.header.end, bytes(8 * KIB))  # a mark that came later
        parts.append(frame)
    shutil.rmtree(left / "LIVE", ignore_errors=True)
    (left / "LIVE").unlink(missing_ok=True)
    return left, parts, old


def path_of(folder: Path, lane: int) -> Path:
    return folder / lane_name(lane) / "000000000001.seg"


def tear(folder: Path, frame: Any, how: str) -> None:
    """Take a part away: all of it, its head, or some bytes."""
    path = path_of(folder, frame.header.lane)
    begin, end = frame.header.position, frame.header.end
    if how == "all":
        overwrite(path, begin, bytes(end - begin))
    elif how == "head":
        overwrite(path, begin, bytes(88))
    else:
        overwrite(path, end - 1500, bytes(600))


@pytest.mark.parametrize("how", ["all", "head", "bytes"])
@pytest.mark.parametrize("lacking", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_a_round_that_lacks_a_part_is_cut_in_all_lanes(
    tmp_path: Path, block_bytes: int, lacking: tuple[int, ...], how: str
) -> None:
    folder, parts, old = crashed(tmp_path, block_bytes)
    for lane in lacking:
        tear(folder, parts[lane], how)
    with StoreReader.open(folder) as reader:
        assert len(set(sizes(reader))) == 1
    report = verify_folder(folder)
    assert report.ok, report.damages
    assert report.messages == sum(map(len, old.values()))
    found = inspect_folder(folder)
    assert found["problems"] == [] and {row["next_offset"] for row in found["queues"]} == {2}
    with MessageStore.open(folder) as store:
        assert contents(store, NAMES) == old
        assert commit(store) == [2] * LANES
    with MessageStore.open(folder) as store:
        assert contents(store, NAMES) == {name: {**rows, 2: b"x"} for name, rows in old.items()}
    assert verify_folder(folder).ok


def test_a_round_that_is_whole_stays(tmp_path: Path, block_bytes: int) -> None:
    folder, _, old = crashed(tmp_path, block_bytes)
    report = verify_folder(folder)
    assert report.ok and report.messages == sum(map(len, old.values())) + LANES
    assert {row["next_offset"] for row in inspect_folder(folder)["queues"]} == {3}
    with MessageStore.open(folder) as store:
        assert sizes(store) == [3] * LANES


@pytest.mark.parametrize("opened", range(LANES))
def test_a_second_crash_between_two_lanes_comes_to_the_same(
    tmp_path: Path, block_bytes: int, monkeypatch: pytest.MonkeyPatch, opened: int
) -> None:
    """The first recovery dies when so many lanes were recovered."""
    run = LaneRecovery.run
    for lacking in range(LANES):
        folder, parts, old = crashed(tmp_path / str(lacking), block_bytes)
        tear(folder, parts[lacking], "all")
        count = 0

        def dies(self: LaneRecovery) -> Any:
            nonlocal count
            if count == opened:
                raise KeyboardInterrupt
            count += 1
            return run(self)

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(LaneRecovery, "run", dies)
            MessageStore.open(folder)
        with MessageStore.open(folder) as store:
            assert contents(store, NAMES) == old


def test_a_seal_record_that_a_second_crash_has_torn_says_nothing(
    tmp_path: Path, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be that of a lane whose part was cut: it does not prove that the round was complete."""
    folder, parts, old = crashed(tmp_path, block_bytes)
    tear(folder, parts[2], "all")
    run, count = LaneRecovery.run, 0

    def dies(self: LaneRecovery) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt
        return run(self)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(LaneRecovery, "run", dies)
        MessageStore.open(folder)
    overwrite(path_of(folder, 0), 4 * KIB + 40, bytes(4 * KIB - 40))
    with StoreReader.open(folder) as reader:
        assert len(set(sizes(reader))) == 1
    with MessageStore.open(folder) as store:
        assert contents(store, NAMES) == old


def test_a_part_that_counts_is_forced_before_another_lane_is_sealed_with_its_own(
    tmp_path: Path, block_bytes: int, by_hand: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill left it with the kernel alone. The power fails when one lane was recovered."""
    disk, left = SimulatedDisk(), list[SimulatedDisk]()

    def watch(operation: Operation) -> None:
        if operation.kind == "force" and operation.path.parent.name == lane_name(2):
            left.append(disk.kill())

    with MessageStore.open(tmp_path, tiny(lanes=LANES, block_bytes=block_bytes), disk=disk) as store:
        hand_over(store, b"old")
        assert step(store)
        hand_over(store, b"new")
        disk.on_operation = watch
        assert step(store)
        disk.on_operation = None
    run, count = LaneRecovery.run, 0

    def dies(self: LaneRecovery) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt
        return run(self)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(LaneRecovery, "run", dies)
        MessageStore.open(tmp_path, disk=left[-1])  # of the last force, that of the part
    after = left[-1].crash(random.Random(0), "none")
    with MessageStore.open(tmp_path, disk=after) as store:
        assert sizes(store) == [2] * LANES


def test_a_round_with_messages_without_bytes_is_cut_as_well(tmp_path: Path, block_bytes: int) -> None:
    with MessageStore.open(tmp_path / "store", tiny(lanes=LANES, block_bytes=block_bytes)) as store:
        commit(store)
        commit(store, b"")
        left = crash_copy(tmp_path / "store", tmp_path / "crashed")
    for lane in range(LANES):
        frame = full_frames(path_of(left, lane))[-1]
        overwrite(path_of(left, lane), frame.header.end if lane else frame.header.position, bytes(8 * KIB))
    for _ in range(2):
        with MessageStore.open(left) as store:
            assert sizes(store) == [1] * LANES
        assert verify_folder(left).ok


def test_streams_that_a_cut_part_has_named_get_other_numbers(tmp_path: Path, block_bytes: int) -> None:
    with MessageStore.open(tmp_path / "store", tiny(lanes=LANES, block_bytes=block_bytes)) as store:
        commit(store)
        fresh = [(f"n{at}", at) for at in range(20)]
        with store.transaction() as tx:
            tx.append_batch([(*name, b"x") for name in fresh])
        left = crash_copy(tmp_path / "store", tmp_path / "crashed")
    for lane in range(LANES):
        frame = next(frame for frame in reversed(full_frames(path_of(left, lane))) if frame.header.flags & JOINT)
        overwrite(path_of(left, lane), frame.header.position if lane == 1 else frame.header.end, bytes(8 * KIB))
    with MessageStore.open(left) as store:
        assert store.topics() == ["t"]
        store.append_batch([(*name, b"y") for name in reversed(fresh)])
    assert verify_folder(left).ok
    with MessageStore.open(left) as store:
        assert [store.read(*name, 0)[0].data for name in fresh] == [b"y"] * 20


def test_damage_that_hides_a_part_is_reported_and_nothing_else_is_cut(tmp_path: Path, block_bytes: int) -> None:
    """A lane that has gone on after the round says that the round was complete."""
    with MessageStore.open(tmp_path / "store", tiny(lanes=LANES, block_bytes=block_bytes)) as store:
        commit(store)
        commit(store, b"new" * 500)
        store.append(*NAMES[1], b"later")
        store.append(*NAMES[1], b"later")
        left = crash_copy(tmp_path / "store", tmp_path / "crashed")
    frames = [frame for frame in full_frames(path_of(left, 1)) if frame.header.flags & JOINT]
    flip_bit(path_of(left, 1), frames[-1].payload_start + 5)
    for lane in (0, 2):
        frame = full_frames(path_of(left, lane))[-1]
        overwrite(path_of(left, lane), frame.header.end, bytes(8 * KIB))
    (damage,) = verify_folder(left).damages
    assert str(path_of(left, 1)) in damage
    with pytest.raises(StoreCorrupt, match="lane-01"):
        MessageStore.open(left)
    with MessageStore.open(left, repair=True) as store:
        assert sizes(store) == [2, 4, 2]
        assert [loss.messages for loss in store.losses] == [1]
    with MessageStore.open(left) as store:
        assert sizes(store) == [2, 4, 2]


def test_a_damaged_part_of_a_lane_with_a_damaged_seal_record_is_a_loss_of_that_lane_alone(
    tmp_path: Path, block_bytes: int
) -> None:
    """Its own recovery takes what stands there for a record of a close: the part was durable."""
    folder, parts, _ = crashed(tmp_path, block_bytes)
    flip_bit(path_of(folder, 1), 4 * KIB + 19)
    flip_bit(path_of(folder, 1), parts[1].payload_start + 5)
    with pytest.raises(StoreCorrupt, match="lane-01"):
        MessageStore.open(folder)
    with MessageStore.open(folder, repair=True) as store:
        assert sizes(store) == [3] * LANES
        assert [len(store.read(*name, 0)) for name in NAMES] == [3, 2, 3]
        assert [loss.messages for loss in store.losses] == [1]


def gone_on(tmp_path: Path, block_bytes: int) -> tuple[Path, list[Any]]:
    """A store that was killed when lane 1 had gone on after a round, and no other lane: its folder, and the parts."""
    with MessageStore.open(tmp_path / "store", tiny(lanes=LANES, block_bytes=block_bytes)) as store:
        commit(store)
        commit(store, b"new" * 500)
        store.append(*NAMES[1], b"later")
        store.append(*NAMES[1], b"later")
        left = crash_copy(tmp_path / "store", tmp_path / "crashed")
    (left / "LIVE").unlink()
    parts = []
    for lane in range(LANES):
        frame = next(frame for frame in reversed(full_frames(path_of(left, lane))) if frame.header.flags & JOINT)
        parts.append(frame)
        if lane != 1:
            overwrite(path_of(left, lane), frame.header.end, bytes(8 * KIB))
    return left, parts


@pytest.mark.parametrize("damaged", [0, 2])
def test_damage_of_the_last_part_of_a_lane_is_reported_if_another_lane_has_gone_on(
    tmp_path: Path, damaged: int, block_bytes: int
) -> None:
    left, parts = gone_on(tmp_path, block_bytes)
    flip_bit(path_of(left, damaged), parts[damaged].payload_start + 5)
    (damage,) = verify_folder(left).damages
    assert str(path_of(left, damaged)) in damage
    assert [str(path_of(left, damaged)) in str(problem) for problem in inspect_folder(left)["problems"]] == [True]
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match=lane_name(damaged)):
            MessageStore.open(left)
    with MessageStore.open(left, repair=True) as store:
        assert sizes(store) == [2, 4, 2]
        assert [len(store.read(*name, 0)) for name in NAMES] == [
            2 - (lane == damaged) + 2 * (lane == 1) for lane in range(3)
        ]
        assert [loss.messages for loss in store.losses] == [1]
    with MessageStore.open(left) as store:
        assert sizes(store) == [2, 4, 2]
    assert verify_folder(left).ok


@pytest.mark.parametrize("damaged", [0, 2])
def test_without_a_whole_part_of_a_lane_the_others_stay_if_another_lane_has_gone_on(
    tmp_path: Path, block_bytes: int, damaged: int
) -> None:
    left, parts = gone_on(tmp_path, block_bytes)
    tear(left, parts[damaged], "all")
    with MessageStore.open(left) as store:
        assert sizes(store) == [2 - (damaged == lane) + 2 * (lane == 1) for lane in range(LANES)]
    assert verify_folder(left).ok


def test_a_lane_that_cannot_be_read_proves_nothing(tmp_path: Path, block_bytes: int) -> None:
    """The part of another lane is torn, and so the round is cut."""
    folder, parts, old = crashed(tmp_path, block_bytes)
    tear(folder, parts[2], "bytes")
    begin = parts[1].header.position
    with pytest.raises(StoreUnusable):
        MessageStore.open(folder, disk=BadSectors(path_of(folder, 1), begin, begin + 4 * KIB))
    tear(folder, parts[1], "all")
    with MessageStore.open(folder) as store:
        assert contents(store, NAMES) == old


@pytest.mark.parametrize("gone", range(LANES))
def test_a_lane_whose_folder_is_gone_cuts_nothing_in_the_others(tmp_path: Path, block_bytes: int, gone: int) -> None:
    folder, _, _ = crashed(tmp_path, block_bytes)
    shutil.rmtree(folder / lane_name(gone))
    with pytest.raises(StoreCorrupt):
        MessageStore.open(folder)
    with MessageStore.open(folder, repair=True) as store:
        assert sizes(store) == [0 if lane == gone else 3 for lane in range(LANES)]


def test_a_reader_without_a_writer_sees_a_whole_round_that_one_lane_proves(tmp_path: Path, block_bytes: int) -> None:
    with MessageStore.open(tmp_path / "store", tiny(lanes=LANES, block_bytes=block_bytes)) as store:
        commit(store)
        commit(store)
        store.append(*NAMES[1], b"later")
        left = crash_copy(tmp_path / "store", tmp_path / "crashed")
    (left / "LIVE").unlink()
    for lane in (0, 2):
        frame = full_frames(path_of(left, lane))[-1]
        overwrite(path_of(left, lane), frame.header.end, bytes(8 * KIB))
    with StoreReader.open(left) as reader:
        assert sizes(reader) == [2] * LANES


def test_a_reader_without_a_writer_takes_a_begun_segment_for_a_proof_in_each_lane(
    tmp_path: Path, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sealer, "seal_full", lambda self, **how: None)
    with MessageStore.open(tmp_path / "store", tiny(lanes=LANES, block_bytes=block_bytes)) as store:
        commit(store)
        commit(store)
        flusher = store._flushers[1]
        with flusher.building:
            AtOnce(flusher).make_room_of(50 * KIB, lambda: 0)
            assert flusher.lane.segment is not None
            flusher.write_out()
        left = crash_copy(tmp_path / "store", tmp_path / "crashed")
    (left / "LIVE").unlink()
    for lane in range(LANES):
        frame = next(frame for frame in reversed(full_frames(path_of(left, lane))) if frame.header.flags & JOINT)
        assert seal_of(path_of(left, lane)) is None
        overwrite(path_of(left, lane), frame.header.end, bytes(8 * KIB))
    with StoreReader.open(left) as reader:
        assert sizes(reader) == [2] * LANES


def test_a_store_that_is_only_looked_at_takes_none_and_nobody_waits(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store:
        commit(store)
    with look_into_folder(tmp_path) as looked:
        assert isinstance(looked, MessageStore) and sizes(looked) == [1] * LANES
        with pytest.raises(StoreUnusable):
            commit(looked)


def test_a_quiet_lane_marks_its_part(store: MessageStore) -> None:
    commit(store)
    mark(store)
    assert all(lane.marked == lane.under_way.forced_mark for lane in store._lanes)


def test_threads_that_cannot_be_started_leave_the_writes_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    crew, made = Crew(), list[int]()
    monkeypatch.setattr("stratalog.store.device.background.start_new_thread", _no_thread)
    crew.do_all([lambda at=at: made.append(at) for at in range(3)])  # type: ignore[misc]
    assert sorted(made) == [0, 1, 2]
    crew.close()


def test_calls_side_by_side_all_end_before_the_first_error_comes_out() -> None:
    crew, ended = Crew(), list[int]()

    def call(at: int) -> Callable[[], None]:
        def run() -> None:
            ended.append(at)
            if at != 2:
                raise OSError(at)

        return run

    for _ in range(3):
        ended.clear()
        with pytest.raises(OSError):
            crew.do_all([call(at) for at in range(4)])
        assert sorted(ended) == [0, 1, 2, 3]
    crew.close()
    crew.close()


def _no_thread(*_: object) -> None:
    raise RuntimeError("can't start new thread")
