"""Rounds that fail: all of a transaction is stored, or nothing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from stratalog import (
    MessageStore,
    PublishBufferFull,
    StoreClosed,
    StoreFull,
    StorePoisoned,
)
from stratalog.store import verify_folder
from stratalog.store.api.commits import commit_shards
from stratalog.store.log.at_once import AtOnce
from stratalog.store.log.joint_group import JointGroup

from ..disks import FailingDisk, GatedDisk
from ..helpers import (
    PATIENCE_S,
    contents,
    start,
    tiny,
    until,
)
from ..shards.helpers import rows_of, staged
from ..test_reserve import disk_of, fill
from .helpers import LANES, NAMES, commit, cursor_lane, hand_over, sizes, step


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
