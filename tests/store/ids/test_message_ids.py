"""Message ids: what a topic has seen is answered with the old offset, over restarts, crashes and removed messages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stratalog.store import (
    InvalidMessage,
    MessageStore,
    PublishBufferFull,
    StoreClosed,
    StoreError,
    StoreFull,
    StorePoisoned,
    TopicFull,
)
from stratalog.store.api.trimming import TrimChanges
from stratalog.store.format.message_ids import digest_of
from stratalog.store.log.message_ids import IdPromise, IdTarget, PendingIds
from stratalog.store.log.request import NO_STREAM
from stratalog.store.testing import SimulatedDisk
from stratalog.store.topics.id_window import IdWindow
from stratalog.store.topics.id_windows import IdWindows
from stratalog.testing import VirtualClock

from ..disks import FailingDisk, GatedDisk
from ..helpers import crash_copy, start, tiny, until

START_MS = 1_700_000_000_000


def batch(store: MessageStore, *rows: tuple[Any, ...]) -> list[int]:
    """The offsets of (topic, queue, id) rows."""
    ids = [row[2] for row in rows]
    return [*store.append_batch([(topic, queue, b"x") for topic, queue, _ in rows], message_ids=ids)]


def is_repeat(store: MessageStore, topic: str, queue_id: int, message_id: str) -> bool:
    """Submit an empty message: whether the topic had its id."""
    ticket = store.submit(topic, queue_id, b"", message_id=message_id)
    ticket.result()
    return ticket.is_repeat


def awaited(make: Callable[[], Any]) -> Any:
    async def wait() -> Any:
        return await make()

    return asyncio.run(wait())


CALLS: dict[str, Callable[[MessageStore, str, int, str], int]] = {
    "append": lambda store, topic, queue, one: store.append(topic, queue, b"x", message_id=one),
    "submit": lambda store, topic, queue, one: store.submit(topic, queue, b"x", message_id=one).result(),
    "with a key": lambda store, topic, queue, one: store.append(topic, queue, b"x", key=b"k", message_id=one),
    "append_async": lambda store, topic, queue, one: awaited(
        lambda: store.append_async(topic, queue, b"x", properties={"a": "b"}, message_id=one)
    ),
    "append_batch": lambda store, topic, queue, one: batch(store, (topic, queue, one))[0],
    "append_batch_async": lambda store, topic, queue, one: awaited(
        lambda: store.append_batch_async([(topic, queue, b"x")], message_ids=[one])
    ).tolist()[0],
    "transaction": lambda store, topic, queue, one: transacted(store, (topic, queue, one))[0],
}


def transacted(store: MessageStore, *rows: tuple[Any, ...]) -> list[int]:
    with store.transaction() as tx:
        for at, (topic, queue, one) in enumerate(rows):
            tx.append(topic, queue, b"x", key=b"k" if at % 2 else None, message_id=one)
    return [*tx.offsets]


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("first", CALLS)
def test_every_call_answers_an_id_that_any_call_has_stored(tmp_path: Path, first: str, lanes: int) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        store.append_batch([("t", 1, b"before")] * 3)
        offset = CALLS[first](store, "t", 1, "o-17")
        assert offset == 3
        for again, call in CALLS.items():
            for queue in range(5):
                assert call(store, "t", queue, "o-17") == 3, again
        assert CALLS[first](store, "other", 1, "o-17") == 0, "an id belongs to its topic"
        assert store.queue_bounds("t", 1) == (0, 4)
        assert store.topics() == ["other", "t"] and store.queues("t") == [1]
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        assert [call(store, "t", 2, "o-17") for call in CALLS.values()] == [3] * len(CALLS)
        assert store.queue_bounds("t", 1) == (0, 4) and store.queues("t") == [1]


def test_a_ticket_says_whether_its_id_is_a_repeat(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        first, again = (store.submit("t", 0, data, message_id="a") for data in (b"one", b"two"))
        assert (first.result(), again.result()) == (0, 0)
        assert (first.is_repeat, again.is_repeat) == (False, True)
        assert [one.data for one in store.read("t", 0)] == [b"one"]
        assert not store.submit("t", 0, b"x").is_repeat
        heard: list[int] = []
        again.add_done_callback(lambda ticket: heard.append(ticket.result()))
        assert heard == [0] and again.exception() is None and "repeat" in repr(again)


def test_ids_that_differ_in_any_way_are_different(tmp_path: Path) -> None:
    ids = ["a", "A", "a ", "ä", "a\u0308", "\0", "\0\0", "0", "x" * 255, "x" * 254 + "y", "日" * 85]
    with MessageStore.open(tmp_path, tiny()) as store:
        assert [store.append("t", 0, b"", message_id=one) for one in ids] == list(range(len(ids)))
        assert [store.append("t", 0, b"", message_id=one) for one in ids] == list(range(len(ids)))
        assert store.append("t", 0, b"", message_id=np.str_("ä")) == 3


@pytest.mark.parametrize("wrong", [b"a", 17, 1.5, "", "x" * 256, "ä" * 128, "\ud800", True, ("a",)])
def test_what_is_no_id_is_refused_and_nothing_is_stored(tmp_path: Path, wrong: Any) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for name, call in CALLS.items():
            with pytest.raises(InvalidMessage, match="message_id"):
                call(store, "t", 0, wrong)
            assert store.topics() == [], name
        with pytest.raises(InvalidMessage, match="row 1") as raised:
            store.append_batch([("t", 0, b"")] * 3, message_ids=["a", wrong, "c"])
        assert raised.value.row == 1
        assert batch(store, ("t", 0, "a"), ("t", 0, "c")) == [0, 1]


@pytest.mark.parametrize("wrong", ["ab", b"ab", 5, ["a"], ["a"] * 3, {"a": 1}])
def test_a_column_of_ids_has_one_for_each_row(tmp_path: Path, wrong: Any) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        with pytest.raises(InvalidMessage, match="message_ids"):
            store.append_batch([("t", 0, b""), ("t", 0, b"")], message_ids=wrong)
        assert store.topics() == []
        assert store.append_batch([], message_ids=[]).tolist() == []


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_batch_stores_the_first_of_each_id_and_answers_all(tmp_path: Path, lanes: int) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        rows = [("t", 0, "a"), ("t", 0, None), ("t", 1, "a"), ("u", 0, "a"), ("t", 0, "b")]
        assert batch(store, *rows) == [0, 1, 0, 0, 2]
        assert batch(store, ("t", 2, "b"), ("t", 2, "c"), ("t", 2, "c"), ("t", 2, None)) == [2, 0, 0, 1]
        assert batch(store, ("t", 3, "a"), ("t", 3, "b")) == [0, 2]
        assert store.queues("t") == [0, 2]
        many = [("t", 0 if number < 5000 else 2, f"{number % 700}") for number in range(9800)]
        offsets = batch(store, *many)
        assert offsets[:700] * 14 == offsets
        assert store.queue_bounds("t", 0) == (0, 703)
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        assert batch(store, *many) == offsets


def test_a_transaction_leaves_repeats_out_and_stores_the_rest(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("jobs", 0, b"job", message_id="j")
        sub = store.subscribe("jobs", "workers")
        (delivery,) = sub.receive()
        with store.transaction() as tx:
            tx.append("jobs", 0, b"", message_id="j")
            tx.append("bills", 0, b"bill", message_id="j", key=b"k")
            tx.append("bills", 1, b"", message_id="j")
            tx.append("bills", 0, b"plain")
            tx.ack(delivery)
        assert tx.offsets.tolist() == [0, 0, 0, 1]
        assert sub.backlog().ready == 0
        assert [one.key for one in store.read("bills", 0)] == [b"k", None]
        assert transacted(store, ("bills", 0, "j")) == [0]
        with pytest.raises(RuntimeError, match="on purpose"), store.transaction() as tx:
            tx.append("bills", 0, b"", message_id="dropped")
            raise RuntimeError("on purpose")
        assert store.append("bills", 0, b"", message_id="dropped") == 2


def test_an_id_is_forgotten_by_age(tmp_path: Path) -> None:
    clock = VirtualClock(start_ms=START_MS)
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        store.configure_topic("t", id_window_ms=1000)
        assert store.append("t", 0, b"", message_id="a") == 0
        clock.advance(ms=999)
        assert store.append("t", 0, b"", message_id="a") == 0
        assert store.append("t", 0, b"", message_id="b") == 1
        clock.advance(ms=1)
        assert [store.append("t", 0, b"", message_id=one) for one in "aba"] == [2, 1, 2]
    with MessageStore.open(tmp_path, tiny(), clock=clock) as store:
        clock.advance(ms=999)
        assert [batch(store, ("t", 0, one)) for one in "ab"] == [[2], [3]]
        clock.jump_wall(ms=-100_000)
        assert store.append("t", 0, b"", message_id="c") == 4
        clock.jump_wall(ms=100_500)
        assert [store.append("t", 0, b"", message_id=one) for one in "bc"] == [3, 4]


def test_an_id_is_forgotten_by_number(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.configure_topic("t", id_window_count=3)
        assert [store.append("t", 0, b"", message_id=one) for one in "abca"] == [0, 1, 2, 0]
        assert [store.append("t", 0, b"", message_id=one) for one in "dbca"] == [3, 1, 2, 4]
        assert batch(store, *[("t", 0, one) for one in "defgh"]) == [3, 5, 6, 7, 8]
    with MessageStore.open(tmp_path, tiny()) as store:
        assert [store.append("t", 0, b"", message_id=one) for one in "hgfe"] == [8, 7, 6, 9]


def test_a_window_can_be_changed(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        assert batch(store, *[("t", 0, one) for one in "abcd"]) == [0, 1, 2, 3]
        settings = store.configure_topic("t", id_window_count=2, id_window_ms=99_999)
        assert (settings.id_window_count, settings.id_window_ms) == (2, 99_999)
        assert store.topic_settings("t") == settings
        assert len(store._windows.of("t")) == 2
        store.configure_topic("t", id_window_count=2)
        assert [store.append("t", 0, b"", message_id=one) for one in "da"] == [3, 4]
    with MessageStore.open(tmp_path, tiny()) as store:
        assert store.topic_settings("t").id_window_count == 2
        assert [store.append("t", 0, b"", message_id=one) for one in "dab"] == [3, 4, 5]
        for wrong in (0, -1, None, 1.5, "9", True, 10_000_001):
            with pytest.raises(InvalidMessage, match="id_window_count is an int from 1 to 10000000"):
                store.configure_topic("t", id_window_count=wrong)  # type: ignore[arg-type]
            with pytest.raises(InvalidMessage, match="id_window_ms is"):
                store.configure_topic("t", id_window_ms=wrong if wrong != 10_000_001 else 1 << 60)  # type: ignore[arg-type]


def test_a_deleted_topic_forgets_its_ids(tmp_path: Path) -> None:
    for lanes in (1, 3):
        path = tmp_path / str(lanes)
        with MessageStore.open(path, tiny(lanes=lanes)) as store:
            for queue in range(3):
                assert store.append("t", queue, b"", message_id=f"{queue}") == 0
            assert store.delete_topic("t")
            assert [store.append("t", queue, b"", message_id=f"{queue}") for queue in range(3)] == [1, 1, 1]
            assert store.delete_topic("t")
        with MessageStore.open(path, tiny(lanes=lanes)) as store:
            assert store.append("t", 0, b"", message_id="1") >= 0
            assert not is_repeat(store, "t", 0, "2")
            assert is_repeat(store, "t", 0, "1")


def test_a_deletion_keeps_the_ids_of_messages_that_it_does_not_delete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = TrimChanges._write
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"", message_id="before")

        def beside(trims: TrimChanges, changes: list[Any]) -> None:
            store.append("t", 0, b"", message_id="beside")
            write(trims, changes)

        monkeypatch.setattr(TrimChanges, "_write", beside)
        assert store.delete_topic("t")
        monkeypatch.undo()
        assert store.append("t", 0, b"", message_id="beside") == 1
        assert store.append("t", 0, b"", message_id="before") == 2
    with MessageStore.open(tmp_path, tiny()) as store:
        assert [store.append("t", 0, b"", message_id=one) for one in ("beside", "before")] == [1, 2]


def test_the_window_is_that_of_the_last_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resize = IdWindows.resize
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"", message_id="a")

        def late(windows: IdWindows, topic: str) -> None:
            monkeypatch.undo()
            start(lambda: store.configure_topic("t", id_window_count=20)).join()
            resize(windows, topic)

        monkeypatch.setattr(IdWindows, "resize", late)
        store.configure_topic("t", id_window_count=10)
        assert store.topic_settings("t").id_window_count == store._windows.of("t")._most == 20


def test_a_removed_message_is_answered_still(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        assert [store.append("t", 0, b"", message_id=one) for one in "ab"] == [0, 1]
        assert store.trim("t", 0, 2) == 2
        assert store.append("t", 0, b"", message_id="a") == 0
    with MessageStore.open(tmp_path, tiny()) as store:
        assert store.append("t", 0, b"", message_id="b") == 1
        assert store.queue_bounds("t", 0) == (2, 2)


def test_a_crash_keeps_the_ids_of_what_was_acknowledged(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "a", tiny(lanes=2)) as store:
        offsets = [store.append("t", number % 4, b"x" * number, message_id=f"{number}") for number in range(40)]
        crash_copy(tmp_path / "a", tmp_path / "b")
    with MessageStore.open(tmp_path / "b", tiny(lanes=2)) as store:
        assert [store.append("t", 0, b"", message_id=f"{number}") for number in range(40)] == offsets
        assert sum(store.queue_bounds("t", queue)[1] for queue in range(4)) == 40


@pytest.mark.parametrize("again", CALLS)
def test_a_second_append_waits_for_the_first_one_that_is_on_its_way(tmp_path: Path, again: str) -> None:
    disk = GatedDisk()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        store.append("t", 0, b"before")
        disk.gate.clear()
        first = store.submit("t", 0, b"x", message_id="a")
        got: list[int] = []
        waiting = start(lambda: got.append(CALLS[again](store, "t", 3, "a")))
        until(lambda: first._waiters)  # type: ignore[attr-defined]
        assert not first.done() and not got
        disk.gate.set()
        waiting.join()
        assert got == [1] == [first.result()]
        assert store.queues("t") == [0]


def _digest(message_id: str) -> bytes:
    return digest_of(message_id.encode())


@pytest.mark.parametrize("again", CALLS)
def test_a_second_append_fails_as_the_first_one_does(tmp_path: Path, again: str) -> None:
    disk = FailingDisk()
    store = MessageStore.open(tmp_path, tiny(), disk=disk)
    store.append("t", 0, b"before")
    store._windows.of("t")
    with store._flushers[0].building:  # nothing is taken meanwhile
        disk.fail = "force"
        first = store.submit("t", 0, b"x", message_id="a")
        errors: list[BaseException] = []

        def try_again() -> None:
            try:
                CALLS[again](store, "t", 1, "a")
            except StorePoisoned as error:
                errors.append(error)

        waiting = start(try_again)
        until(lambda: first._waiters)  # type: ignore[attr-defined]
    waiting.join()
    assert len(errors) == 1
    with pytest.raises(StorePoisoned):
        first.result()
    disk.fail = ""
    store.close()
    with MessageStore.open(tmp_path, tiny()) as store:
        there = store.queue_bounds("t", 0)[1] == 2
        assert is_repeat(store, "t", 1, "a") == there, "id and message are there, or neither"


def test_an_id_whose_append_found_no_room_is_free_again(tmp_path: Path) -> None:
    disk = GatedDisk()
    config = tiny(publish_buffer_bytes=100_000, append_timeout_ms=50)
    with MessageStore.open(tmp_path, config, disk=disk) as store:
        store.append("t", 0, b"before")
        disk.gate.clear()
        filler = [store.submit("t", 0, bytes(30_000)) for _ in range(3)]
        with pytest.raises(PublishBufferFull):
            store.append("t", 0, bytes(30_000), message_id="a")
        with pytest.raises(PublishBufferFull):
            store.append_batch([("t", 0, bytes(30_000))], message_ids=["b"])
        with pytest.raises(PublishBufferFull), store.transaction() as tx:
            tx.append("t", 0, bytes(30_000), message_id="c")
        with pytest.raises(PublishBufferFull):
            awaited(lambda: store.append_async("t", 0, bytes(30_000), message_id="d"))
        with pytest.raises(PublishBufferFull):
            awaited(lambda: store.append_batch_async([("t", 0, bytes(30_000))], message_ids=["e"]))
        disk.gate.set()
        assert [ticket.result() for ticket in filler] == [1, 2, 3]
        assert [store.append("t", 0, b"", message_id=one) for one in "abcde"] == [4, 5, 6, 7, 8]


def test_a_full_topic_takes_repeats_and_what_a_transaction_acknowledges(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.configure_topic("t", keep="until_acknowledged", retention_bytes=1000)
        subscription = store.subscribe("t", "s")
        store.append("t", 0, b"", message_id="first")
        with pytest.raises(TopicFull):
            for number in range(5000):
                store.append("t", 0, bytes(2000))
                if number % 50 == 0:
                    store._delaying.keeping.look_now()
        for call in CALLS.values():
            assert call(store, "t", 0, "first") == 0
        for rows in ([("t", 0, "first"), ("t", 0, "new")], [("t", 0, "new")]):
            with pytest.raises(TopicFull):
                batch(store, *rows)
            with pytest.raises(TopicFull):
                transacted(store, *rows)
        (one,) = subscription.receive(1)
        end = store.queue_bounds("t", 0)[1]
        with store.transaction() as tx:
            tx.append("t", 0, b"", message_id="first")
            tx.append("t", 0, b"", message_id="moved")
            tx.ack(one)
        assert tx.offsets.tolist() == [0, end]


@pytest.mark.parametrize("call", CALLS)
def test_an_append_that_found_no_room_searches_no_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"", message_id="known")

        def put(*given: Any, **more: Any) -> bool:
            raise PublishBufferFull("no room")

        kind = type(store._queues[0])
        with monkeypatch.context() as patch:
            patch.setattr(kind, "put", put)
            patch.setattr(kind, "requests", property(lambda queue: pytest.fail("searched")))
            with pytest.raises(PublishBufferFull):
                CALLS[call](store, "t", 0, "a")
        assert CALLS[call](store, "t", 0, "a") == 1


def test_a_second_append_is_stored_if_nothing_of_the_first_was_queued(tmp_path: Path) -> None:
    disk = GatedDisk()
    config = tiny(publish_buffer_bytes=100_000, append_timeout_ms=300)
    with MessageStore.open(tmp_path, config, disk=disk) as store:
        store.append("t", 0, b"before")
        disk.gate.clear()
        filler = [store.submit("t", 0, bytes(30_000)) for _ in range(3)]

        def find_no_room() -> None:
            with pytest.raises(PublishBufferFull):
                store.append("t", 0, bytes(30_000), message_id="a")

        refused = start(find_no_room)
        until(lambda: store._windows.of("t").find(_digest("a")) is not None)
        ticket = store.submit("t", 1, b"second", message_id="a")
        assert ticket.is_repeat and not ticket.done()
        refused.join()
        disk.gate.set()
        assert ticket.result() == 0 and not ticket.is_repeat
        assert [one.result() for one in filler] == [1, 2, 3]
        assert [one.data for one in store.read("t", 1)] == [b"second"]
        assert store.append("t", 0, b"", message_id="a") == 0


@pytest.mark.disk
def test_an_id_that_found_no_space_is_free_again(tmp_path: Path) -> None:
    disk = SimulatedDisk(capacity_bytes=1 << 20)
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        stored = 0
        with pytest.raises(StoreFull):
            for number in range(1000):
                store.append("t", 0, bytes(30_000), message_id=f"{number}")
                stored += 1
        disk.capacity_bytes = disk.used_bytes()  # nothing less is left over
        assert 0 < stored < 1000
        assert store.append("t", 0, bytes(30_000), message_id=f"{stored - 1}") == stored - 1
        with pytest.raises(StoreFull):
            store.append("t", 0, bytes(30_000), message_id=f"{stored}")
        disk.capacity_bytes = None
        assert store.append("t", 0, bytes(30_000), message_id=f"{stored}") == stored


def test_a_closed_store_takes_no_ids(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, tiny())
    store.append("t", 0, b"", message_id="a")
    store.close()
    for message_id in ("a", "b"):
        for topic in ("t", "new"):
            for call in CALLS.values():
                with pytest.raises(StoreClosed):
                    call(store, topic, 0, message_id)


def test_threads_with_the_same_ids_store_each_once(tmp_path: Path) -> None:
    names = list(CALLS)
    with MessageStore.open(tmp_path, tiny(lanes=3, durability="os")) as store:
        found: list[dict[int, int]] = [{} for _ in range(8)]
        together = threading.Barrier(8)

        def work(number: int) -> None:
            for at in range(60):
                if at % 10 == 0:
                    together.wait()
                call = CALLS[names[(number + at) % len(names)]]
                found[number][at] = call(store, "t", (number * 7 + at) % 5, f"{at}")

        for worker in [start(work, number) for number in range(8)]:
            worker.join()
        assert all(one == found[0] for one in found)
        assert sum(store.queue_bounds("t", queue)[1] for queue in store.queues("t")) == 60


def test_a_cancelled_append_gives_its_id_back_or_is_stored(tmp_path: Path) -> None:
    disk = GatedDisk()
    config = tiny(publish_buffer_bytes=100_000)
    with MessageStore.open(tmp_path, config, disk=disk) as store:
        store.append("t", 0, b"before")
        disk.gate.clear()
        filler = [store.submit("t", 0, bytes(30_000)) for _ in range(2)]

        async def cancel() -> None:
            queued = store.append_async("t", 0, bytes(10), message_id="queued")
            lined = [store.append_async("t", 0, bytes(50_000), message_id="lined")]
            lined.append(store.append_batch_async([("t", 0, bytes(50_000))], message_ids=["batch"]))  # type: ignore[arg-type]
            for future in (queued, *lined):
                future.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        asyncio.run(cancel())
        disk.gate.set()
        assert [ticket.result() for ticket in filler] == [1, 2]
        assert store.submit("t", 0, b"", message_id="queued").result() == 3
        assert is_repeat(store, "t", 0, "queued")
        assert [store.append("t", 0, b"", message_id=one) for one in ("lined", "batch")] == [4, 5]


def test_ids_share_a_record_and_no_reader_sees_it(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"", message_id="before")
        before = store.stats()["log"]["records"]
        batch(store, *[("t", number % 3, f"{number}") for number in range(300)])
        assert store.stats()["log"]["records"] == before + 1
        assert store.topics() == ["t"] and store.queues("t") == [0, 1, 2]
        assert sum(map(len, store.scan())) == 301
        with MessageStore.open(tmp_path, read_only=True) as reader:
            assert reader.topics() == ["t"] and sum(map(len, reader.scan())) == 301
            assert reader.topic_settings("t").id_window_count == 100_000


def test_columns_and_ids_share_a_frame(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"before", message_id="before")
        with store._flushers[0].building:
            tickets = [store.submit("t", 0, b"one", message_id="a", key=b"k")]
            columns = store.submit_columns([("t", 0), ("t", 1)], [0, 1, 0], [1, 1, 1], b"xyz")
            tickets += [store.submit("t", 1, b"two", message_id="b"), store.submit("u", 1, b"", message_id="b")]
        assert [ticket.result() for ticket in tickets] == [1, 1, 0]
        assert columns.result().tolist() == [2, 0, 3]
        assert [one.data for one in store.read("t", 0)] == [b"before", b"one", b"x", b"z"]
    with MessageStore.open(tmp_path, tiny()) as store:
        assert transacted(store, ("t", 5, "a"), ("t", 5, "b"), ("u", 5, "b")) == [1, 1, 0]


def test_a_frame_has_room_for_a_record_of_each_topic(tmp_path: Path) -> None:
    topics = [f"t{number}" for number in range(3000)]
    with MessageStore.open(tmp_path, tiny(segment_bytes=8 << 20, max_frame_bytes=4 << 20)) as store:
        store.append("first", 0, b"", message_id="a")
        rows = [(topic, 0, "a") for topic in topics]
        assert batch(store, *rows) == [0] * len(rows)
        with store._flushers[0].building:
            tickets = [store.submit(topic, 0, b"", message_id="b") for topic in topics]
        assert [ticket.result() for ticket in tickets] == [1] * len(topics)
    with MessageStore.open(tmp_path, tiny(segment_bytes=8 << 20, max_frame_bytes=4 << 20)) as store:
        assert batch(store, *rows) == [0] * len(rows)
        assert [store.append(topic, 0, b"", message_id="b") for topic in topics[::100]] == [1] * 30


def test_threads_that_fail_ids_at_once_give_one_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    window = IdWindow(1000, 1000)
    ids = PendingIds(IdTarget(window, NO_STREAM), [_digest("a"), _digest("b")], [0, 0], range(2))
    assert window.admit_all(ids)
    promise = window.promise_of(ids)
    assert isinstance(promise, IdPromise)
    bell = threading.Lock()  # as that of a thread that waits, and has not run yet when it is woken
    bell.acquire()
    promise._listed(bell)
    first, second = StorePoisoned("first"), StorePoisoned("second")
    answer, given = IdPromise.answer, list[StoreError | None]()

    def answer_beside(promise: IdPromise, error: StoreError | None = None) -> None:
        given.append(error)
        if len(given) == 1:
            window.fail(ids, second)  # the other thread: it finds no answer either
        answer(promise, error)

    monkeypatch.setattr(IdPromise, "answer", answer_beside)
    window.fail(ids, first)
    window.fail(ids, second)
    assert given == [first, first] and not bell.locked()
    assert window.is_empty and str(promise.exception()) == "first"
