"""Transactions of messages: all of one is durable and visible at once, or nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog import (
    InvalidMessage,
    InvalidTopic,
    MessageStore,
    MessageTooLarge,
    PublishBufferFull,
    StoreClosed,
    StoreConfig,
    StoreCorrupt,
    StoreFull,
    StorePoisoned,
    StoreReader,
    Transaction,
)
from stratalog.store import compact_store, inspect_folder, plan_scan, read_part, rebuild_store, verify_folder
from stratalog.store.api.checks import check_extras
from stratalog.store.format.layout import ATOMIC, BLOCK_BYTES
from stratalog.store.log.atomic_group import AtomicGroup
from stratalog.store.log.request import Request
from stratalog.store.log.ticket import SubmitRequest

from .disks import FailingDisk, GatedDisk
from .helpers import (
    KIB,
    contents,
    crash_copy,
    flip_bit,
    frames_of,
    full_frames,
    overwrite,
    scanned,
    seal_of,
    segment_path,
    small,
    tiny,
    until,
)
from .test_reserve import disk_of, full_store

QUEUES = [("a", 0), ("b", 3), ("c", 1)]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        yield store


def put_some(tx: Transaction, count: int = 6, size: int = 10) -> list[bytes]:
    """Messages to the queues by turns; their data."""
    datas = [b"%d;" % at + b"x" * size for at in range(count)]
    for at, data in enumerate(datas):
        tx.append(*QUEUES[at % 3], data)
    return datas


def is_empty(store: StoreReader) -> bool:
    return not store.topics() and not scanned(store)


# -- the face -----------------------------------------------------------------------------------------------


def test_a_transaction_stores_all_of_it_with_offsets_in_the_order_of_its_appends(store: MessageStore) -> None:
    store.append("a", 0, b"before")
    with store.transaction() as tx:
        tx.append("a", 0, b"one")
        tx.append_batch([("b", 3, b"two"), ("a", 0, bytearray(b"three"))])
        tx.append("b", 3, memoryview(b"four"))
        assert store.queue_bounds("a", 0) == (0, 1)
    assert tx.offsets.tolist() == [1, 0, 2, 1]
    assert tx.offsets.dtype == np.int64
    assert contents(store, QUEUES[:2]) == {
        ("a", 0): {0: b"before", 1: b"one", 2: b"three"},
        ("b", 3): {0: b"two", 1: b"four"},
    }


def test_keys_properties_and_delivery_times_are_stored(store: MessageStore) -> None:
    with store.transaction() as tx:
        tx.append("a", 0, b"1", key=b"k")
        tx.append("a", 0, b"2", properties={"p": "q"})
        tx.append("a", 0, b"3", deliver_at_ms=77)
        tx.append("a", 0, b"4")
        tx.append("a", None, b"5", key=b"k", queues=[0])
    found = [(m.data, m.key, m.properties, m.deliver_at_ms) for m in store.read("a", 0)]
    assert found == [
        (b"1", b"k", None, None), (b"2", None, {"p": "q"}, None), (b"3", None, None, 77), (b"4", None, None, None),
        (b"5", b"k", None, None),
    ]  # fmt: skip


def test_an_exception_in_the_block_drops_all(store: MessageStore) -> None:
    for kind in (ValueError, KeyboardInterrupt, GeneratorExit):
        with pytest.raises(kind), store.transaction() as tx:
            put_some(tx)
            raise kind
    assert is_empty(store)


def test_a_rollback_drops_all(store: MessageStore) -> None:
    tx = store.transaction()
    put_some(tx)
    tx.rollback()
    with store.transaction() as tx:
        put_some(tx)
        tx.rollback()
    assert is_empty(store)


def test_a_commit_inside_the_block_is_its_end(store: MessageStore) -> None:
    with store.transaction() as tx:
        datas = put_some(tx)
        tx.commit()
        assert len(tx.offsets) == len(datas)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_after_its_end_every_call_but_offsets_raises(store: MessageStore, end: str) -> None:
    tx = store.transaction()
    with pytest.raises(InvalidMessage, match="not committed"):
        _ = tx.offsets
    getattr(tx, end)()
    calls: list[Callable[[], object]] = [
        tx.commit, tx.rollback, tx.__enter__, lambda: tx.append("a", 0, b""), lambda: tx.append_batch([]),
        lambda: tx.ack(1),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(InvalidMessage, match=f"was {'committed' if end == 'commit' else 'rolled back'}"):
            call()


def test_an_empty_transaction_writes_nothing(store: MessageStore) -> None:
    before = store.stats()["log"]
    with store.transaction() as tx:
        tx.append_batch([])
    assert tx.offsets.tolist() == []
    assert store.stats()["log"] == before


WRONG: list[tuple[Callable[[Any], object], type[Exception]]] = [
    (lambda tx: tx.append("a", 0, "text"), InvalidMessage),
    (lambda tx: tx.append("", 0, b""), InvalidTopic),
    (lambda tx: tx.append("\x01cursor\x01a\x01b", 0, b""), InvalidTopic),
    (lambda tx: tx.append("a", -1, b""), InvalidTopic),
    (lambda tx: tx.append("a", 0, b"x" * 65 * KIB), MessageTooLarge),
    (lambda tx: tx.append("a", 0, b"", key="k"), InvalidMessage),
    (lambda tx: tx.append("a", 0, b"", deliver_at_ms=-1), InvalidMessage),
    (lambda tx: tx.append_batch(7), InvalidMessage),
    (lambda tx: tx.append_batch([("a", 0, b"good"), ("a", 0, None)]), InvalidMessage),
    (lambda tx: tx.append_batch("abc"), InvalidMessage),
    (lambda tx: tx.ack("x"), InvalidMessage),
    (lambda tx: tx.ack(5), InvalidMessage),
    (lambda tx: tx.ack(5, subscription="s"), InvalidMessage),
]


def test_a_wrong_argument_is_an_error_at_once_and_the_transaction_goes_on(store: MessageStore) -> None:
    with store.transaction() as tx:
        tx.append("a", 0, b"1")
        for call, kind in WRONG:
            with pytest.raises(kind):
                call(tx)
        tx.append("a", 0, b"2")
    assert scanned(store) == {("a", 0): {0: b"1", 1: b"2"}}


def test_a_queue_that_a_configured_topic_does_not_have_is_an_error_at_once(store: MessageStore) -> None:
    store.configure_topic("t", queues=2)
    with store.transaction() as tx:
        with pytest.raises(InvalidTopic, match="no queue 5"):
            tx.append("t", 5, b"x")
        with pytest.raises(InvalidTopic, match="no queue 2") as caught:
            tx.append_batch([("t", 1, b"x"), ("t", 2, b"x")])
        assert caught.value.row == 1
        tx.append("t", None, b"one")
        tx.append("t", None, b"other")
    assert scanned(store) == {("t", 0): {0: b"one"}, ("t", 1): {0: b"other"}}


def test_a_row_that_changes_after_the_append_is_stored_as_it_was(store: MessageStore) -> None:
    data = bytearray(b"before")
    with store.transaction() as tx:
        tx.append("a", 0, data)
        tx.append_batch([("a", 0, data)])
        data[:] = b"after!"
    assert scanned(store) == {("a", 0): {0: b"before", 1: b"before"}}


def test_too_many_messages_or_bytes_are_an_error_that_says_how_many_and_store_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path, small()) as store:
        monkeypatch.setattr("stratalog.store.subscriptions.committing.MOST_MESSAGES", 9)
        monkeypatch.setattr("stratalog.store.subscriptions.committing.MOST_BYTES", 200 * KIB)
        tx = store.transaction()
        tx.append_batch([("a", 0, b"x")] * 8)
        with pytest.raises(MessageTooLarge, match=r"10 messages.* it can have 9 and 204800"):
            tx.append_batch([("a", 0, b"")] * 2)
        tx.append("a", 0, b"y")
        with pytest.raises(MessageTooLarge, match="10 messages"):
            tx.append("a", 0, b"")
        assert is_empty(store)
        tx.commit()
        assert store.queue_bounds("a", 0) == (0, 9), "after the error it is as before"
        tx = store.transaction()
        tx.append_batch([("b", 0, b"x" * 64 * KIB)] * 3)
        with pytest.raises(MessageTooLarge, match="204801 bytes"):
            tx.append("b", 0, b"z" * (8 * KIB + 1))
        with pytest.raises(MessageTooLarge, match="204801 bytes"):
            tx.append("b", 0, b"z" * 8 * KIB, key=b"k")
        assert ("b", 0) not in scanned(store)
        tx.commit()
        assert store.queue_bounds("b", 0) == (0, 3)


def test_in_a_store_of_several_lanes_one_may_be_in_one_lane(tmp_path: Path) -> None:
    """`rounds` has those that are in several."""
    with MessageStore.open(tmp_path, tiny(lanes=4)) as store:
        for queue in range(16):
            with store.transaction() as tx:
                tx.append_batch([("t", queue, b"x")] * 2)
        assert {name: len(rows) for name, rows in scanned(store).items()} == {("t", queue): 2 for queue in range(16)}


def test_a_closed_store_takes_none(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path)
    tx = store.transaction()
    put_some(tx)
    store.close()
    for call in (store.transaction, tx.commit):
        with pytest.raises(StoreClosed):
            call()
    with MessageStore.open(tmp_path) as again:
        assert is_empty(again)


def test_a_reader_has_no_transactions(store: MessageStore) -> None:
    with StoreReader.open(store.path) as reader:
        assert not hasattr(reader, "transaction")


# -- in coroutines ------------------------------------------------------------------------------------------


def test_coroutines_commit_at_the_end_of_their_blocks_or_drop_all(store: MessageStore) -> None:
    async def one(number: int) -> int:
        async with store.transaction() as tx:
            tx.append("a", 0, b"%d" % number)
            tx.append("b", 3, b"%d" % number)
        return int(tx.offsets[1])

    async def none() -> None:
        async with store.transaction() as tx:
            put_some(tx)
            raise ValueError

    async def all_of_them() -> list[int]:
        with pytest.raises(ValueError):
            await none()
        return await asyncio.gather(*map(one, range(50)))

    assert sorted(asyncio.run(all_of_them())) == list(range(50))
    found = scanned(store)
    assert found["a", 0] == found["b", 3]


def test_a_coroutine_that_is_cancelled_in_line_stores_nothing_and_leaves_the_line(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        queue = store._queues[0]

        async def commit() -> None:
            async with store.transaction() as tx:
                put_some(tx)

        async def run() -> None:
            with queue._lock:
                queue.used_bytes += queue.cap_bytes
                queue._taken_bytes += queue.cap_bytes
            task = asyncio.create_task(commit())
            await asyncio.sleep(0.01)
            assert len(queue._line) == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not queue._line
            queue.release(queue.cap_bytes, 0)

        asyncio.run(run())
        store.append("a", 0, b"x")
        assert scanned(store) == {("a", 0): {0: b"x"}}


# -- failures -----------------------------------------------------------------------------------------------


def test_a_full_disk_stores_nothing_of_it(tmp_path: Path) -> None:
    disk = disk_of()
    with full_store(tmp_path / "s", disk) as store:
        ends = [store.queue_bounds("t", queue) for queue in range(4)]
        for _ in range(3):
            with pytest.raises(StoreFull), store.transaction() as tx:
                tx.append_batch([("t", queue, b"x") for queue in range(4)])
        assert [store.queue_bounds("t", queue) for queue in range(4)] == ends


def test_a_full_publish_buffer_stores_nothing_of_it(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(append_timeout_ms=20)) as store:
        queue = store._queues[0]
        with queue._lock:
            queue.used_bytes += queue.cap_bytes
            queue._taken_bytes += queue.cap_bytes
        with pytest.raises(PublishBufferFull), store.transaction() as tx:
            put_some(tx)

        async def commit() -> None:
            async with store.transaction() as tx:
                put_some(tx)

        with pytest.raises(PublishBufferFull):
            asyncio.run(commit())
        queue.release(queue.cap_bytes, 0)
        store.flush()
        assert is_empty(store)


@pytest.mark.parametrize("kind", ["write", "force"])
def test_a_failed_write_poisons_and_the_next_opening_has_all_or_nothing(tmp_path: Path, kind: str) -> None:
    disk = FailingDisk()
    store = MessageStore.open(tmp_path, tiny(), disk=disk)
    store.append("a", 0, b"before")
    disk.fail = kind
    with pytest.raises(StorePoisoned), store.transaction() as tx:
        put_some(tx)
    with pytest.raises(InvalidMessage):
        _ = tx.offsets
    assert scanned(store) == {("a", 0): {0: b"before"}}
    store.close()
    with MessageStore.open(tmp_path) as again:
        assert sum(map(len, scanned(again).values())) in (1, 7)


# -- the frame ----------------------------------------------------------------------------------------------


def torn_case(tmp_path: Path) -> tuple[Path, Any, dict[Any, Any]]:
    """A store that was killed just when a transaction was durable: its folder, the frame, and what was there before."""
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        store.append("a", 0, b"before" * 100)
        before = scanned(store)
        with store.transaction() as tx:
            put_some(tx, 6, 3000)
        crashed = crash_copy(tmp_path / "store", tmp_path / "crashed")
    frame = next(frame for frame in full_frames(segment_path(crashed, 1)) if frame.header.flags & ATOMIC)
    overwrite(segment_path(crashed, 1), frame.header.end, bytes(8 * KIB))  # a mark that came later
    return crashed, frame, before


@pytest.mark.parametrize("at", range(7))
def test_a_torn_transaction_at_the_logs_end_is_gone_as_a_whole(tmp_path: Path, at: int) -> None:
    """A block of it was not written; with the last case, all of it was."""
    crashed, frame, before = torn_case(tmp_path)
    path = segment_path(crashed, 1)
    if at < 6:
        overwrite(path, int(frame.starts()[at]) + 1500, bytes(600))
    with StoreReader.open(crashed) as reader:
        assert scanned(reader) == before  # it is vouched for by nothing
    report = verify_folder(crashed)
    assert report.ok, report.damages
    assert report.messages == (1 if at < 6 else 7)
    assert (report.torn_bytes > 0) == (at < 6)
    assert inspect_folder(crashed)["problems"] == []
    for _ in range(2):
        with MessageStore.open(crashed) as store:
            assert sum(map(len, scanned(store).values())) == (1 if at < 6 else 7)
            assert scanned(store)["a", 0][0] == before["a", 0][0]
    with MessageStore.open(crashed) as store:
        assert store.append("b", 3, b"next") == (0 if at < 6 else 2)
    assert verify_folder(crashed).ok


@pytest.mark.parametrize("at", range(7))
@pytest.mark.parametrize("hit", ["payload", "frame"])
def test_a_repair_of_damage_before_a_torn_transaction_keeps_none_of_it(tmp_path: Path, at: int, hit: str) -> None:
    crashed, frame, _ = torn_case(tmp_path)
    path = segment_path(crashed, 1)
    if at < 6:
        overwrite(path, int(frame.starts()[at]) + 1500, bytes(600))
    first = next(frame for frame in full_frames(path) if frame.header.count)
    flip_bit(path, int(first.starts()[0]) + 5 if hit == "payload" else first.header.position + 3, 1)
    with pytest.raises(StoreCorrupt):
        MessageStore.open(crashed)
    with MessageStore.open(crashed, repair=True) as store:
        assert [loss.messages for loss in store.losses] == [1]
        assert sum(map(len, scanned(store).values())) == (0 if at < 6 else 6)
        left = scanned(store)
    with MessageStore.open(crashed) as store:
        assert scanned(store) == left
    assert verify_folder(crashed).ok


@pytest.mark.parametrize("at", range(6))
def test_what_an_opening_has_cut_stays_away_when_its_seal_and_footer_are_lost(tmp_path: Path, at: int) -> None:
    """The next segment says how many messages this one had."""
    crashed, frame, _ = torn_case(tmp_path)
    path = segment_path(crashed, 1)
    overwrite(path, int(frame.starts()[at]) + 1500, bytes(600))
    with MessageStore.open(crashed) as store:
        store.append_batch([(*name, b"after") for name in QUEUES])
        expected = scanned(store)
    seal = seal_of(path)
    assert seal is not None
    overwrite(path, seal.footer_position, b"\xff" * 64)
    overwrite(path, BLOCK_BYTES, b"\xff" * BLOCK_BYTES)
    with pytest.raises(StoreCorrupt):
        MessageStore.open(crashed)
    with MessageStore.open(crashed, repair=True) as store:
        assert [loss.messages for loss in store.losses] == [0]
        assert scanned(store) == expected, "none of the transaction, and each offset as it was"
    with MessageStore.open(crashed) as store:
        assert scanned(store) == expected
    assert verify_folder(crashed).ok


def test_damage_in_a_durable_transaction_is_reported_and_a_repair_keeps_the_rest(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        with store.transaction() as tx:
            put_some(tx, 6, 3000)
        store.append("a", 0, b"after")
        store.append("a", 0, b"after")
    path = segment_path(tmp_path / "store", 1)
    frame = next(frame for frame in frames_of(path) if frame.header.flags & ATOMIC)
    flip_bit(path, int(frame.starts()[2]) + 5, 1)
    assert not verify_folder(tmp_path / "store").ok
    with MessageStore.open(tmp_path / "store", repair=True) as store:
        assert sum(loss.messages or 0 for loss in store.losses) == 1
        assert {name: len(rows) for name, rows in scanned(store).items()} == {("a", 0): 4, ("b", 3): 2, ("c", 1): 1}


@pytest.mark.parametrize("alignment", ["pad", "trim", "adaptive"])
def test_transactions_share_frames_with_other_appends_of_all_kinds(tmp_path: Path, alignment: Any) -> None:
    """Readers beside them, in this process and in another one, never see half of a transaction."""
    rounds, failed = 60, list[object]()
    with MessageStore.open(tmp_path / "store", small(alignment=alignment)) as store:
        store.append_batch([(*name, b"first") for name in QUEUES])

        def transact() -> None:
            for at in range(rounds):
                with store.transaction() as tx:
                    for name in QUEUES:
                        tx.append(*name, b"%d" % at * 500, key=b"k" if at % 3 else None)

        def append() -> None:
            for at in range(rounds):
                store.append("other", 0, b"x" * at * 20)
                store.append_columns([("other", 0)], [0, 0], [1, 2], b"xyz")

        def look(reader: StoreReader) -> None:
            while any(thread.is_alive() for thread in writing):
                sizes = dict.fromkeys(QUEUES, 0)
                for batch in reader.scan():
                    for name in batch.stream_names:
                        if name in sizes:
                            sizes[name] += int((batch.stream_index == batch.stream_names.index(name)).sum())
                if len(set(sizes.values())) > 1:
                    failed.append(sizes)

        with StoreReader.open(tmp_path / "store") as other:
            writing = [threading.Thread(target=work) for work in (transact, transact, append, append)]
            looking = [threading.Thread(target=look, args=(one,)) for one in (store, other)]
            for thread in [*writing, *looking]:
                thread.start()
            for thread in [*writing, *looking]:
                thread.join()
            until(lambda: len(other.read("a", 0, max_messages=1000)) == 2 * rounds + 1)
        assert not failed
        assert {len(rows) for name, rows in scanned(store).items() if name in QUEUES} == {2 * rounds + 1}


def column_group(store: MessageStore, topic: str, size: int) -> Request:
    (part,) = store._columns.parts([(topic, 0)], [0, 0], [size, size], b"x" * 2 * size, None, None, None)
    return part.groups[0]


@pytest.mark.parametrize("with_columns", [False, True])
def test_of_a_frame_that_is_durable_in_part_nothing_is_shown_answered_or_vouched_for(
    tmp_path: Path, with_columns: bool
) -> None:
    """The last block is held back: the transaction ends in it, and what shares its frame waits as well."""
    with MessageStore.open(tmp_path, small(alignment="trim")) as store:
        store.append("a", 0, b"before")
        flusher = store._flushers[0]
        lane = flusher.lane
        with flusher.building:
            mark, outcomes = lane.under_way.forced_mark, list[object]()
            streams = store._appender.find_or_make([("a", 0), ("b", 3)])
            group = AtomicGroup(streams, [b"x" * 5000] * 2, [None, None], outcomes.append)
            beside = column_group(store, "c", 3000) if with_columns else SubmitRequest(streams[0], b"y" * 6000, 6000)
            lane.build([beside, group])
            (write,) = lane.plan(follows=True)
            write.perform()
            assert not lane.complete(write).shown
            assert lane.durable < lane.tail < lane.durable + 4 * KIB
            assert (lane.under_way.forced_mark, outcomes, group.done(), beside.done()) == (mark, [], False, False)
            assert store.queue_bounds("a", 0) == (0, 1)
            (write,) = lane.plan(follows=False)
            write.perform()
            assert lane.complete(write).requests == 2
            assert (outcomes, group.done(), beside.done()) == ([None], True, True)
        assert store.queue_bounds("a", 0) == (0, 2 if with_columns else 3)


def test_a_transaction_beside_columns_is_in_an_atomic_frame(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small()) as store:
        flusher = store._flushers[0]
        with flusher.building:
            streams = store._appender.find_or_make([("a", 0), ("b", 3)])
            extras = [check_extras(None, b"k", None), None]
            group = AtomicGroup(streams, [b"one", b"two"], extras, lambda error: None)
            flusher.lane.build([column_group(store, "c", 3), group])
            flusher.write_out()
        assert (store.read("a", 0)[0].key, store.read("b", 3)[0].key) == (b"k", None)
    (frame,) = full_frames(segment_path(tmp_path, 1))
    assert frame.header.flags & ATOMIC


def test_a_transaction_is_one_frame_whatever_is_queued_before_it(tmp_path: Path) -> None:
    disk = GatedDisk()
    with MessageStore.open(tmp_path, small(), disk=disk) as store:
        disk.gate.clear()
        tickets = [store.submit("other", 0, b"x" * 3000) for _ in range(30)]
        thread = threading.Thread(target=lambda: commit(store))
        thread.start()
        until(lambda: any(request.count == 9 for request in store._queues[0].requests))
        tickets += [store.submit("other", 0, b"x" * 3000) for _ in range(30)]
        disk.gate.set()
        thread.join()
        for ticket in tickets:
            ticket.result()
    frames = [frame for frame in frames_of(segment_path(tmp_path, 1)) if frame.header.flags & ATOMIC]
    numbers = [set(frame.numbers.tolist()) for frame in frames]
    assert len(frames) == 1 and len(numbers[0]) >= 3


def commit(store: MessageStore) -> None:
    with store.transaction() as tx:
        put_some(tx, 9, 5000)


def test_all_that_reads_or_rewrites_a_log_takes_atomic_frames(tmp_path: Path) -> None:
    """Plans of bulk reads, lost footers made again, and a compaction."""
    with MessageStore.open(tmp_path, tiny()) as store:
        for at in range(80):
            with store.transaction() as tx:
                for name in QUEUES:
                    tx.append(*name, b"%d;" % at * 60, key=b"k" if at % 2 else None)
        until(lambda: store.stats()["segments"]["sealed"] > 2)
        expected = scanned(store)
        store.trim("a", 0, 70)
    batches = [batch for part in plan_scan(tmp_path).parts for batch in read_part(part)]
    assert sum(map(len, batches)) == 2 * 80 + 10
    sealed = segment_path(tmp_path, 1)
    record = seal_of(sealed)
    assert record is not None
    overwrite(sealed, record.footer_position, bytes(record.footer_bytes))
    assert not verify_folder(tmp_path).ok
    rebuild_store(tmp_path)
    assert verify_folder(tmp_path).ok
    with MessageStore.open(tmp_path, tiny()) as store:
        assert scanned(store)["b", 3] == expected["b", 3]
    compact_store(tmp_path)
    assert verify_folder(tmp_path).ok
    with MessageStore.open(tmp_path, tiny()) as store:
        assert scanned(store)["c", 1] == expected["c", 1]


def test_two_threads_that_commit_one_transaction_store_it_once(store: MessageStore) -> None:
    outcomes = list[str]()
    for _ in range(30):
        tx = store.transaction()
        tx.append("a", 0, b"x")
        barrier = threading.Barrier(3)

        def end(tx: Transaction = tx, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            try:
                tx.commit()
                outcomes.append("stored")
            except InvalidMessage:
                outcomes.append("refused")

        threads = [threading.Thread(target=end) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (outcomes.count("stored"), outcomes.count("refused")) == (30, 60)
    assert store.queue_bounds("a", 0) == (0, 30)


def test_offsets_and_contents_survive_sealing_and_a_new_opening(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for at in range(60):
            with store.transaction() as tx:
                put_some(tx, 6, 800)
            assert tx.offsets.tolist() == [2 * at, 2 * at, 2 * at, 2 * at + 1, 2 * at + 1, 2 * at + 1]
        until(lambda: store.stats()["segments"]["sealed"] > 2)
        expected = scanned(store)
    assert verify_folder(tmp_path).ok
    with MessageStore.open(tmp_path, StoreConfig(durability="os")) as store:
        assert scanned(store) == expected
        with store.transaction() as tx:
            put_some(tx)
        assert tx.offsets.tolist() == [120, 120, 120, 121, 121, 121]
