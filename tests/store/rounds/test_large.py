"""Large transactions: more than one frame has, and all of it is durable and visible at once."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from stratalog import MessageStore, PublishBufferFull, StoreClosed, StoreFull, StorePoisoned, StoreReader, Ticket
from stratalog.store import commit_shards, compact_store, inspect_folder, rebuild_store, verify_folder
from stratalog.store.device.background import NoThread
from stratalog.store.format.layout import JOINT, MORE, REST, lane_name
from stratalog.store.log import at_once
from stratalog.store.log.at_once import AtOnce
from stratalog.store.log.rounds import Rounds
from stratalog.store.log.write import VisibleEntries
from stratalog.store.log.writes import PendingFrame, WritesInFlight

from ...seeds import draw_seed
from ..disks import FailingDisk
from ..helpers import KIB, PATIENCE_S, contents, full_frames, scanned, small, start, tiny, until
from ..shards.helpers import held, rows_of, staged
from ..shards.test_together import SEEN_BY_SCANS, looking
from ..test_reserve import disk_of
from .helpers import LANES, NAMES, step

ROW_FLAGS = JOINT | MORE | REST


def store_rows(store: MessageStore, rows: int, size: int = 9) -> list[int]:
    """One transaction of messages in all lanes; their offsets."""
    with store.transaction() as tx:
        tx.append_batch([(*NAMES[at % LANES], b"%d" % at + bytes(size)) for at in range(rows)])
    return list(map(int, tx.offsets))


def total(store: StoreReader) -> int:
    """The messages of all queues."""
    return sum(store.queue_bounds(topic, queue)[1] for topic in store.topics() for queue in store.queues(topic))


def test_frames_of_each_lane_say_how_they_belong_together(tmp_path: Path, small_frames: None) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=LANES)) as store:
        store.append(*NAMES[1], b"before")
        assert store_rows(store, 40)[:6] == [0, 1, 0, 1, 2, 1]
    found = [full_frames(tmp_path / lane_name(lane) / "000000000001.seg") for lane in range(LANES)]
    flags = [[frame.header.flags & ROW_FLAGS for frame in frames if frame.header.count] for frames in found]
    part = [JOINT | MORE, REST | MORE, REST]
    assert flags == [part, [0, *part], part]
    assert [frame.header.count for frame in found[0]] == [6, 6, 2]


@pytest.mark.parametrize("lanes", [1, LANES])
def test_an_opening_tools_and_readers_find_all_of_it_in_its_order(
    tmp_path: Path, small_frames: None, lanes: int
) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store, StoreReader.open(tmp_path) as other:
        store.append(*NAMES[0], b"before")
        with store.transaction() as tx:
            for at in range(50):
                kind = {"key": b"k%d" % at, "properties": {"p": str(at)}} if at % 3 else {"deliver_at_ms": at}
                tx.append(*NAMES[at % LANES], b"%d" % at, **kind)
        for at, offset in enumerate(tx.offsets.tolist()):
            found = store.read(*NAMES[at % LANES], offset)[0]
            wanted = (b"k%d" % at, {"p": str(at)}, None) if at % 3 else (None, None, at)
            assert (found.data, found.key, found.properties or None, found.deliver_at_ms) == (b"%d" % at, *wanted)
        expected = contents(store, NAMES)
        until(lambda: contents(other, NAMES) == expected)
        assert store.append(*NAMES[0], b"after") == 18
        expected = contents(store, NAMES)
        assert all(lane.under_way.is_idle for lane in store._lanes)
        assert {queue.used_bytes for queue in store._shared.all_queues} == {0}
    report = verify_folder(tmp_path)
    assert report.ok and report.messages == 52
    assert {row["next_offset"] for row in inspect_folder(tmp_path)["queues"]} == {16, 17, 19}
    compact_store(tmp_path)
    with MessageStore.open(tmp_path) as again:
        assert contents(again, NAMES) == expected == scanned(again)
    rebuild_store(tmp_path)
    assert verify_folder(tmp_path).ok


@pytest.mark.parametrize("lanes", [1, LANES])
def test_one_that_is_larger_than_the_ring_and_a_segment_is_stored(tmp_path: Path, lanes: int) -> None:
    chance = random.Random(seed := draw_seed())
    print("seed", seed)
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        rows = [(*chance.choice(NAMES), chance.randbytes(chance.randrange(64 * KIB))) for _ in range(250 * lanes)]
        assert sum(len(data) for _, _, data in rows) > max(lane.ring.size_bytes for lane in store._lanes)
        with store.transaction() as tx:
            tx.append_batch(rows)
        for (topic, queue, data), offset in zip(rows, tx.offsets.tolist(), strict=True):
            assert store.read(topic, queue, offset)[0].data == data
        store.append(*NAMES[0], b"after")
        until(lambda: store.stats()["segments"]["unsealed"] == 0)
    assert verify_folder(tmp_path).ok
    with MessageStore.open(tmp_path) as store:
        assert total(store) == len(rows) + 1


def test_one_of_more_messages_than_a_frame_has_needs_no_other_setting(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small(lanes=2)) as store:
        with store.transaction() as tx:
            tx.append_batch([("t", at % 7, b"%d" % at) for at in range(20_000)])
            tx.append("u", 0, b"last")
        assert tx.offsets.tolist() == [at // 7 for at in range(20_000)] + [0]
        assert [row.data for row in store.read("t", 3, 100, max_messages=2)] == [b"703", b"710"]


@pytest.mark.parametrize("lanes", [1, LANES])
def test_acknowledgements_of_several_records_go_with_it(
    tmp_path: Path, small_frames: None, monkeypatch: pytest.MonkeyPatch, lanes: int
) -> None:
    monkeypatch.setattr("stratalog.store.subscriptions.joint_acks.RECORD_ACKS", 4)
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        store.append_batch([("in", at % 5, b"%d" % at) for at in range(60)])
        subs = [store.subscribe("in", name) for name in ("a", "b")]
        given = [sub.receive(60) for sub in subs]
        with store.transaction() as tx:
            tx.append_batch([("out", 0, b"x")] * 9)
            for mine in given:
                for delivery in mine[:50]:
                    tx.ack(delivery)
        assert tx.offsets.tolist() == list(range(9))
        with store.transaction() as tx:  # acknowledgements alone
            for delivery in given[0][50:]:
                tx.ack(delivery)
        assert [sub.backlog().in_flight for sub in subs] == [0, 10]
    with MessageStore.open(tmp_path) as store:
        left = [len(store.subscribe("in", name).receive(60, wait_ms=0)) for name in ("a", "b")]
        assert left == [0, 10]
        assert total(store) == 69


@pytest.mark.parametrize("lanes", [1, LANES])
def test_messages_with_ids_are_stored_once(tmp_path: Path, small_frames: None, lanes: int) -> None:
    ids = [f"id{at}" if at % 4 else None for at in range(40)]
    rows = [(*NAMES[at % LANES], b"%d" % at) for at in range(40)]
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        first = store.append(*rows[5], message_id="id5")
        with store.transaction() as tx:
            tx.append_batch(rows, message_ids=ids)
            tx.append(*rows[7], message_id="id7")
        offsets = tx.offsets.tolist()
        assert offsets[5] == first and offsets[40] == offsets[7] and total(store) == 40
        assert [store.read(*row[:2], offset)[0].data for row, offset in zip(rows, offsets, strict=False)] == [
            data for _, _, data in rows
        ]
        assert store.append(*rows[39], message_id="id39") == offsets[39]
    with MessageStore.open(tmp_path) as store:
        with store.transaction() as tx:
            tx.append_batch(rows, message_ids=ids)
        assert [tx.offsets[at] for at in range(40) if at % 4] == [offsets[at] for at in range(40) if at % 4]
        assert total(store) == 50


def test_coroutines_commit_one(tmp_path: Path, small_frames: None) -> None:
    async def run(store: MessageStore) -> None:
        async with store.transaction() as tx:
            tx.append_batch([("t", 0, b"x")] * 30)
        assert tx.offsets.tolist() == list(range(30))

    with MessageStore.open(tmp_path, tiny()) as store:
        asyncio.run(run(store))
        assert total(store) == 30


# -- seen at once -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, LANES])
@pytest.mark.parametrize("who", ["the writing process", "another process", "a scan", "a scan of another process"])
def test_readers_see_all_of_it_at_one_step(
    tmp_path: Path, by_hand: None, small_frames: None, who: str, lanes: int
) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        reader = StoreReader.open(tmp_path) if "another" in who else store
        seen = set[int]()

        def look() -> None:
            found = sum(map(len, reader.scan())) if "scan" in who else total(reader)
            assert found in (0, 25), f"{found} of 25 are seen"
            seen.add(found)

        tx = store.transaction()
        tx.append_batch([(*NAMES[at % LANES], b"%d" % at) for at in range(25)])
        tx._end().hand_over(lambda request: request.queue.put(request))
        files = (*SEEN_BY_SCANS, "rounds.py", "round_part.py", "writes.py")
        with looking(look, files if "scan" in who else (*files, "at_once.py", "publisher.py")):
            assert step(store)
        look()
        assert seen == {0, 25}
        reader.close()


@pytest.mark.parametrize("of_a_bulk_commit", [False, True])
def test_what_is_shown_of_several_frames_never_gets_less(
    tmp_path: Path, small_frames: None, monkeypatch: pytest.MonkeyPatch, of_a_bulk_commit: bool
) -> None:
    """Nobody looks before the frames are answered one by one: a look would have filled tables that stay full."""
    show = WritesInFlight._show
    shown = list[tuple[int, int]]()

    def show_and_look(lane: WritesInFlight, frame: PendingFrame, count: int, told: list[VisibleEntries]) -> None:
        before = frame.table.visible
        show(lane, frame, count, told)
        shown.append((before, frame.table.visible))

    monkeypatch.setattr(at_once, "MAX_FRAME_MESSAGES", 4)
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"before")
        monkeypatch.setattr(WritesInFlight, "_show", show_and_look)
        if of_a_bulk_commit:
            with held(store):
                commit_shards(tmp_path, staged(tmp_path, rows_of("q", 20)), name="q", wait_ms=0)
                store.attach_pending()
        else:
            store_rows(store, 25)
        assert len(shown) > 1
        assert all(after >= before for before, after in shown), shown


@pytest.mark.parametrize("lanes", [1, LANES])
def test_readers_beside_appends_never_see_half(tmp_path: Path, small_frames: None, lanes: int) -> None:
    failed = list[object]()
    with MessageStore.open(tmp_path, small(lanes=lanes)) as store, StoreReader.open(tmp_path) as other:

        def transact() -> None:
            for _ in range(25):
                store_rows(store, 10 * LANES, 300)

        def append() -> None:
            for at in range(200):
                store.append("other", at % 9, b"x" * at * 20)

        def look(reader: StoreReader) -> None:
            while any(worker.thread.is_alive() for worker in writing):
                found = {name: 0 for name in NAMES}
                for batch in reader.scan():
                    for at, name in enumerate(batch.stream_names):
                        if name in found:
                            found[name] += int((batch.stream_index == at).sum())
                if len(set(found.values())) > 1 or found[NAMES[0]] % 10:
                    failed.append(found)

        writing = [start(work) for work in (transact, transact, append)]
        looking = [start(look, one) for one in (store, other)]
        for worker in [*writing, *looking]:
            worker.join()
        assert not failed
        assert [store.queue_bounds(*name)[1] for name in NAMES] == [500] * LANES
    assert verify_folder(tmp_path).ok


# -- errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_full_disk_refuses_all_of_it_and_what_fits_is_stored_after_it(tmp_path: Path, lanes: int) -> None:
    disk = disk_of(4 << 20)
    with MessageStore.open(tmp_path, tiny(lanes=lanes), disk=disk) as store:
        store.append("t", 0, b"before")
        for _ in range(2):
            with pytest.raises(StoreFull), store.transaction() as tx:
                tx.append_batch([("t", at % 4, bytes(60 * KIB)) for at in range(90)])
        assert total(store) == 1
        with store.transaction() as tx:
            tx.append_batch([("t", at % 4, bytes(60 * KIB)) for at in range(4)])
        assert total(store) == 5
    with MessageStore.open(tmp_path, disk=disk) as store:
        assert total(store) == 5


@pytest.mark.parametrize("kind", ["write", "force"])
@pytest.mark.parametrize("lanes", [1, LANES])
def test_after_a_failed_write_the_next_opening_has_all_or_nothing(
    tmp_path: Path, small_frames: None, kind: str, lanes: int
) -> None:
    disk = FailingDisk()
    store = MessageStore.open(tmp_path, tiny(lanes=lanes), disk=disk)
    store_rows(store, 30)
    disk.fail = kind
    with pytest.raises(StorePoisoned):
        store_rows(store, 30)
    with pytest.raises(StorePoisoned):
        store.append(*NAMES[0], b"x")
    disk.fail = ""
    store.close()
    with MessageStore.open(tmp_path) as again:
        assert total(again) in (30, 60)
        store_rows(again, 30)
    assert verify_folder(tmp_path).ok


def test_a_store_with_one_lane_has_a_thread_for_them_once_it_needs_one(
    tmp_path: Path, small_frames: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store_rows(store, 6)
        assert store._running.rounds is None
        begin = Rounds.start

        def none(self: Rounds) -> None:
            raise NoThread

        def interrupted(self: Rounds) -> None:
            begin(self)
            raise KeyboardInterrupt

        for bad, error in ((none, Exception), (interrupted, KeyboardInterrupt)):
            with monkeypatch.context() as patched:
                patched.setattr(Rounds, "start", bad)
                with pytest.raises(error):
                    store_rows(store, 30)
            assert store._running.rounds is None
            store.flush()
        assert total(store) == 6
        assert store_rows(store, 30)[-1] == 11
        store.flush()
        tx = store.transaction()
        tx.append_batch([("t", 0, b"x")] * 30)
    with pytest.raises(StoreClosed):
        tx.commit()
    with MessageStore.open(tmp_path) as again:
        assert total(again) == 36


def test_it_waits_at_a_full_publish_buffer_as_any_other(tmp_path: Path, by_hand: None, small_frames: None) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=LANES, append_timeout_ms=20)) as store:
        queue = store._shared.rounds
        assert queue is not None
        with queue._lock:
            queue.used_bytes += 1
            queue._taken_bytes += 1
        with pytest.raises(PublishBufferFull), store.transaction() as tx:
            tx.append_batch([(*NAMES[at % LANES], bytes(60 * KIB)) for at in range(queue.cap_bytes // (60 * KIB) + 1)])
        queue.release(1, 0)
        assert total(store) == 0


def test_appends_beside_it_find_room_as_if_it_were_not_there(
    tmp_path: Path, small_frames: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue of the rounds has charged its bytes, and the one of the lane does not charge them again."""
    used, write = list[int](), AtOnce.write
    config = small(append_timeout_ms=20, publish_buffer_bytes=200_000)
    with MessageStore.open(tmp_path, config) as store:
        store.append("u", 0, b"before")
        queue = store._queues[0]
        appended = list[Ticket]()

        def append_and_write(once: AtOnce) -> None:
            used.append(queue.used_bytes)
            appended.append(store.submit("u", 0, bytes(60_000)))
            write(once)

        monkeypatch.setattr(AtOnce, "write", append_and_write)
        assert len(store_rows(store, 80, 2000)) == 80
        assert used == [0]
        assert [ticket.result(PATIENCE_S) for ticket in appended] == [1]
        assert {one.used_bytes for one in store._shared.all_queues} == {0}
        assert {one._under_way for one in store._shared.all_queues} == {0}
