"""Transactions over several lanes: all of one is durable and visible at once in all of its lanes."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from stratalog import (
    MessageStore,
    StoreReader,
)
from stratalog.store import compact_store, verify_folder
from stratalog.store.format.joint import JointPlace, joint_bytes, joint_of, pack_joint
from stratalog.store.format.layout import JOINT, lane_name
from stratalog.store.log.ticket import SubmitRequest

from ...seeds import draw_seed
from ..helpers import (
    KIB,
    contents,
    frames_of,
    full_frames,
    scanned,
    small,
    start,
    tiny,
    until,
)
from ..shards.test_together import SEEN_BY_SCANS, looking
from .helpers import LANES, NAMES, commit, hand_over, sizes, step


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
