"""Ids of large batches: no object is kept of any, and each leaves the window by itself."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from stratalog.store import MessageStore, MessageTooLarge, StoreClosed
from stratalog.store.format.message_ids import ID_BYTES, digest_of
from stratalog.store.log.message_ids import IdTarget, PendingIds
from stratalog.store.log.request import NO_STREAM
from stratalog.store.topics.id_window import IdWindow

from ..disks import GatedDisk
from ..helpers import start, tiny, until
from .test_message_ids import CALLS, is_repeat

COUNT = 192


def names(count: int = COUNT, prefix: str = "") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def append(store: MessageStore, ids: list[str], queues: int = 3) -> list[int]:
    rows = [("t", number % queues, b"x") for number in range(len(ids))]
    return [*store.append_batch(rows, message_ids=ids)]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("lanes", [1, 2])
def test_every_call_answers_an_id_of_a_large_batch(tmp_path: Path, call: str, lanes: int) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        offsets = append(store, names())
        assert offsets == [number // 3 for number in range(COUNT)]
        for row in (0, 1, COUNT // 2, COUNT - 1):
            assert CALLS[call](store, "t", 2, f"{row}") == offsets[row]
        assert append(store, names()[::-1]) == offsets[::-1]
        assert sum(store.queue_bounds("t", queue)[1] for queue in range(3)) == COUNT


def test_ids_of_a_large_batch_leave_the_window_one_by_one(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.configure_topic("t", id_window_count=COUNT)
        append(store, names(), queues=1)
        window = store._windows.of("t")
        for number in range(10):
            store.append("t", 1, b"", message_id=f"new {number}")
            assert (store.topic_settings("t").id_window_count, len(window)) == (COUNT, COUNT)
            assert is_repeat(store, "t", 2, f"{number + 1}"), "the oldest one that is left"
        assert store.append("t", 3, b"", message_id="9") == 0, "it has left"
        append(store, names(prefix="more "), queues=1)
        assert len(window) == COUNT
        assert {frame.end for frame in window._frames} == {window.settled}, "frames that have left are not kept"


def test_an_id_that_came_again_stays_when_the_rest_of_its_first_frame_leaves(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.configure_topic("t", id_window_count=COUNT)
        append(store, names(), queues=1)
        store.append("t", 1, b"", message_id="new")
        assert store.append("t", 2, b"", message_id="0") == 0, "it had left, and is stored again"
        for number in range(5):
            store.append("t", 1, b"", message_id=f"new {number}")
            assert is_repeat(store, "t", 3, "0")


def test_batches_and_messages_of_one_frame_have_their_own_places(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"", message_id="first")
        tickets, batches = [], []
        with store._flushers[0].building:  # they share a frame
            tickets.append(store.submit("t", 0, b"", message_id="a"))
            identified = store._identified
            for prefix in ("x", "y"):
                batch = identified._batch([("t", 0, b"")] * COUNT, names(prefix=prefix))
                batch._hand_over(batch._rows())
                batches.append(batch)
            tickets.append(store.submit("t", 0, b"", message_id="b"))
        assert [ticket.result(9) for ticket in tickets] == [1, 2 + 2 * COUNT]
        for number, prefix in enumerate("xy"):
            batches[number]._groups[0][1].result(9)
            expected = [2 + number * COUNT + row for row in range(COUNT)]
            assert append(store, names(prefix=prefix)) == expected
        expected_all = [0, 1, 2 + 2 * COUNT]
        assert [store.append("t", 1, b"", message_id=one) for one in ("first", "a", "b")] == expected_all
    with MessageStore.open(tmp_path, tiny()) as store:
        assert append(store, names(prefix="y")) == [2 + COUNT + row for row in range(COUNT)]


def test_a_batch_after_messages_without_ids_has_its_own_places(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"", message_id="first")
        with store._flushers[0].building:  # they share a frame
            for _ in range(5):
                store.submit("t", 0, b"")
            batch = store._identified._batch([("t", 0, b"")] * COUNT, names())
            batch._hand_over(batch._rows())
        store.flush()
        assert append(store, names()) == [6 + row for row in range(COUNT)]
    with MessageStore.open(tmp_path, tiny()) as store:
        assert append(store, names()) == [6 + row for row in range(COUNT)]


def test_nothing_is_kept_of_messages_and_batches_that_are_durable(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", 0, b"", message_id="first")
        with store._flushers[0].building:  # they share a frame
            ticket = store.submit("t", 0, b"", message_id="a")
            batch = store._identified._batch([("t", 0, b"")] * COUNT, names())
            batch._hand_over(batch._rows())
        assert ticket.result() == 1
        store.flush()
        assert store._windows.of("t")._on_way == {}


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_forked_child_fails_a_batch_once_and_not_once_an_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_durable: bool
) -> None:
    disk = GatedDisk()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        store.append("t", 0, b"before", message_id="before")
        if not is_durable:
            disk.gate.clear()
        window = store._windows.of("t")
        appended = start(append, store, names())
        until(lambda: len(window._on_way) == (0 if is_durable else COUNT))
        if is_durable:
            appended.join()
        failed = list[object]()
        monkeypatch.setattr(IdWindow, "fail", lambda window, ids, error: failed.append(ids))
        store._windows.of("t").after_fork(StoreClosed("a child"))
        monkeypatch.undo()
        disk.gate.set()
        appended.join()
        assert len(failed) == (not is_durable), "and not what is durable"


@pytest.mark.parametrize("lanes", [1, 2])
def test_all_messages_of_the_largest_transaction_may_have_ids(
    tmp_path: Path, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.store.subscriptions.committing.MOST_MESSAGES", COUNT)
    rows = [(f"t{number % 2}", number % 4, b"x") for number in range(COUNT)]
    with MessageStore.open(tmp_path, tiny(lanes=lanes)) as store:
        for _ in range(2):
            with store.transaction() as tx:
                tx.append_batch(rows, message_ids=names())
            assert tx.offsets.tolist() == [number // 4 for number in range(COUNT)], "also of those that are there"
        tx = store.transaction()
        tx.append_batch(rows[1:], message_ids=names(COUNT - 1, "more "))
        tx.append("t0", 0, b"x", message_id="one")
        with pytest.raises(MessageTooLarge, match=f"has {COUNT + 1} messages and"):
            tx.append("t0", 0, b"x", message_id="two")
        tx.commit()
        assert len(tx.offsets) == COUNT


def test_ids_take_room_in_a_transaction_when_they_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 10 * (100 + ID_BYTES)
    monkeypatch.setattr("stratalog.store.subscriptions.committing.MOST_BYTES", most)
    rows = [("t", 0, bytes(100))] * 3
    with MessageStore.open(tmp_path, tiny()) as store:
        tx = store.transaction()
        for turn in range(3):
            tx.append_batch(rows, message_ids=[f"{turn} {row}" for row in range(3)])
        for second, ids in ((101 - ID_BYTES, ["a", "b"]), (101, ["a", None])):
            with pytest.raises(MessageTooLarge, match=f"11 messages and {most + 1} bytes; it can have .* and {most}"):
                tx.append_batch([("t", 0, b""), ("t", 0, bytes(second))], message_ids=ids)  # the first would fit
        with pytest.raises(MessageTooLarge, match=f"10 messages and {most + 1} bytes"):
            tx.append("t", 0, bytes(101), message_id="a")
        tx.append("t", 0, bytes(100), message_id="a")
        tx.commit()
        assert tx.offsets.tolist() == list(range(10))


def test_a_batch_of_which_another_append_has_an_id_notes_none_of_its_own() -> None:
    """So nobody waits for it, and there is nothing to give back."""
    window = IdWindow(1000, 1000)
    target, digests = IdTarget(window, NO_STREAM), [digest_of(name.encode()) for name in names(20)]
    first = PendingIds(target, digests[7:8], [0], range(1))
    second = PendingIds(target, digests, [0] * 20, range(20))
    assert window.admit_all(first)
    assert not window.admit_all(second)
    assert [window.find(digest) for digest in digests] == [first if at == 7 else None for at in range(20)]
    window.free(first)
    assert window.admit_all(second) and window.find(digests[7]) is second


def test_batches_and_submits_of_the_same_ids_beside_each_other_store_each_once(tmp_path: Path) -> None:
    """A submit notes its id without the lock that a batch holds."""
    rounds, count, interval = 30, 64, sys.getswitchinterval()
    with MessageStore.open(tmp_path, tiny(durability="os")) as store:
        found: dict[str, list[int]] = {}
        together = threading.Barrier(3)

        def work(how: str) -> None:
            given = found[how] = []
            for turn in range(rounds):
                ids = [f"{turn}/{number}" for number in range(count)]
                together.wait()
                if how == "batch":
                    given += append(store, ids, queues=1)
                else:
                    ids = ids[::-1] if how == "back" else ids
                    offsets = [store.submit("t", 0, b"x", message_id=one) for one in ids]
                    some = [one.result() for one in offsets]
                    given += some[::-1] if how == "back" else some

        sys.setswitchinterval(1e-6)
        try:
            for worker in [start(work, how) for how in ("batch", "forth", "back")]:
                worker.join()
        finally:
            sys.setswitchinterval(interval)
        assert found["batch"] == found["forth"] == found["back"]
        assert store.queue_bounds("t", 0)[1] == rounds * count
