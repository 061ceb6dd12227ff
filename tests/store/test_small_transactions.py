"""What makes small transactions cheap changes nothing that is seen of them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from stratalog import InvalidTopic, MessageStore, MessageTooLarge, Subscription, Transaction
from stratalog.store.format.cursors import pack_one, pack_ones
from stratalog.store.subscriptions.state import TAKEN_TOGETHER

from .helpers import KIB, scanned, tiny, until

MOST_CALLS = {"two appends": 37, "three appends and an acknowledgement": 69}  # 32 and 62, and some to spare


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        yield store


def calls_of(work: Callable[[], object]) -> list[str]:
    """The functions in Python that this thread calls."""
    names: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            names.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return names


@pytest.mark.parametrize("what", MOST_CALLS)
def test_a_small_transaction_takes_few_calls(store: MessageStore, what: str) -> None:
    """Its thread costs what it calls: 54 and 95 calls made 40 threads a quarter slower."""
    store.append_batch([("in", 0, b"job")] * 3)
    sub = store.subscribe("in", "s")
    given = iter(sub.receive(3))

    def work() -> None:
        with store.transaction() as tx:
            tx.append("out", 0, b"one")
            tx.append("out", 1, b"two")
            if what != "two appends":
                tx.append("out", 2, b"three")
                tx.ack(next(given))

    work()  # it makes the queues
    names = min(calls_of(work), calls_of(work), key=len)
    assert len(names) <= MOST_CALLS[what], names


# -- the usual message ------------------------------------------------------------------------------------------


def test_of_a_known_queue_a_wrong_message_is_an_error_all_the_same(store: MessageStore) -> None:
    store.append_batch([("a", 1, b"before"), ("a", 0, b"before")])
    with store.transaction() as tx:
        for queue_id in (True, 1.0):
            with pytest.raises(InvalidTopic):
                tx.append("a", queue_id, b"")  # type: ignore[arg-type]  # the test's wrong value
        with pytest.raises(MessageTooLarge):
            tx.append("a", 1, b"x" * (64 * KIB + 1))
        tx.append("a", 1, b"y" * 64 * KIB)
        tx.append("a", 1, bytearray(b"z"))
    assert scanned(store) == {("a", 0): {0: b"before"}, ("a", 1): {0: b"before", 1: b"y" * 64 * KIB, 2: b"z"}}


def test_columns_and_ids_stay_with_their_messages_wherever_these_are(store: MessageStore) -> None:
    store.append("a", 0, b"seen", message_id="seen")
    with store.transaction() as tx:
        tx.append("a", 0, b"0")
        tx.append("a", 0, b"1", message_id="one")
        tx.append("a", 0, b"again", message_id="seen")
        tx.append("a", 0, b"2", key=b"two")
        tx.append("a", 0, b"3")
        tx.append("a", 0, b"4", deliver_at_ms=4)
        tx.append("a", 0, b"5", message_id="five", properties={"five": "5"})
        tx.append("a", 0, b"6")
    assert tx.offsets.tolist() == [1, 2, 0, 3, 4, 5, 6, 7]
    found = [(one.data, one.key, one.properties, one.deliver_at_ms) for one in store.read("a", 0, offset=1)]
    assert found == [
        (b"0", None, None, None), (b"1", None, None, None), (b"2", b"two", None, None), (b"3", None, None, None),
        (b"4", None, None, 4), (b"5", None, {"five": "5"}, None), (b"6", None, None, None),
    ]  # fmt: skip
    for name, offset in (("one", 2), ("five", 6)):
        assert store.append("a", 0, b"again", message_id=name) == offset


# -- many in a frame ----------------------------------------------------------------------------------------------


def test_transactions_that_share_a_frame_with_others_have_their_own_offsets(store: MessageStore) -> None:
    """Beside them are appends, a batch, a flush, and one with an acknowledgement."""
    store.append_batch([("in", 0, b"job")] * 3 + [("a", 0, b"first"), ("b", 0, b"first")])
    sub = store.subscribe("in", "s")
    given = sub.receive(3)
    found: dict[bytes, tuple[tuple[str, int], int]] = {}

    def transact(number: int) -> None:
        datas = [b"tx%d-%d" % (number, at) for at in range(3)]
        with store.transaction() as tx:
            for at, data in enumerate(datas):
                tx.append("ab"[at % 2], 0, data)
            if number < len(given):
                tx.ack(given[number])
        assert tx.offsets is tx.offsets
        assert tx.offsets.base is None, "it holds the offsets of the others in memory"
        for at, (data, offset) in enumerate(zip(datas, tx.offsets.tolist(), strict=True)):
            found[data] = ("ab"[at % 2], 0), offset

    def append(number: int) -> None:
        data = b"append%d" % number
        found[data] = ("a", 0), store.append("a", 0, data)

    def batch(number: int) -> None:
        rows = [(name, 0, b"%s batch%d" % (name.encode(), number)) for name in "ab"]
        for row, offset in zip(rows, store.append_batch(rows).tolist(), strict=True):
            found[row[2]] = (row[0], 0), offset

    def flush(_: int) -> None:
        store.flush()

    works = [transact, append, transact, batch, flush, transact, transact]
    threads = [threading.Thread(target=work, args=(number,)) for number, work in enumerate(works)]
    flusher, frames = store._flushers[0], store.stats()["log"]["frames"]
    with flusher.building:
        for at, thread in enumerate(threads, 1):
            thread.start()
            until(lambda: flusher.queue.waiting >= at)  # noqa: B023  # called at once
    for thread in threads:
        thread.join()
    assert store.stats()["log"]["frames"] == frames + 1
    contents = scanned(store)
    assert {data: contents[name][offset] for data, (name, offset) in found.items()} == {data: data for data in found}
    assert len(found) == 4 * 3 + 1 + 2
    assert sub.backlog().total == 1  # the first and the third thread had one each


# -- acknowledgements ---------------------------------------------------------------------------------------------


def by_ack(store: MessageStore, sub: Subscription, delivery: Any) -> None:
    sub.ack(delivery)


def by_ticket(store: MessageStore, sub: Subscription, delivery: Any) -> None:
    sub.submit_ack(delivery).result()


def by_transaction(store: MessageStore, sub: Subscription, delivery: Any) -> None:
    with store.transaction() as tx:
        tx.ack(delivery)


WAYS = [by_ack, by_ticket, by_transaction]


def with_jobs(store: MessageStore, count: int) -> tuple[Subscription, list[Any]]:
    """A subscription that has all messages out."""
    store.append_batch([("in", 0, b"%d" % at) for at in range(count)])
    sub = store.subscribe("in", "s")
    return sub, list(sub.receive(count))


@pytest.mark.parametrize("ack", WAYS)
def test_durable_acknowledgements_are_counted_by_each_look_and_do_not_pile_up(
    store: MessageStore, ack: Callable[..., None]
) -> None:
    total, looks = 5 * TAKEN_TOGETHER, iter([1, TAKEN_TOGETHER - 1, TAKEN_TOGETHER, TAKEN_TOGETHER + 1, 3])
    sub, given = with_jobs(store, total)
    look = next(looks)
    for at, one in enumerate(given, 1):
        ack(store, sub, one)
        assert len(sub._state.stored) <= TAKEN_TOGETHER
        if at == look:
            assert sub.backlog().total == total - at
            assert sub.positions()[0].mark_delete == at
            (info,) = store.subscriptions("in")
            assert (info.backlog.total, info.positions[0].mark_delete) == (total - at, at)
            look += next(looks, total)
    assert sub.backlog().total == 0


@pytest.mark.parametrize("ack", WAYS)
@pytest.mark.parametrize("then", ["seek", "close", "delete", "reopen"])
def test_acknowledgements_that_nobody_looked_at_count_as_before(
    tmp_path: Path, ack: Callable[..., None], then: str
) -> None:
    """After a seek, and for the next subscription of the name, they count for nothing; else they count."""
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        sub, given = with_jobs(store, 9)
        for one in given[:5]:
            ack(store, sub, one)
        if then == "seek":
            sub.seek("earliest")
        elif then == "close":
            sub.close()
        elif then == "delete":
            store.delete_subscription("in", "s")
        if then != "reopen":
            sub = sub if then == "seek" else store.subscribe("in", "s")
            assert sub.backlog().total == (4 if then == "close" else 9)
            again = sub.receive(20)
            assert [one.message.offset for one in again] == list(range(5 if then == "close" else 0, 9))
            for one in again:
                ack(store, sub, one)
            assert sub.backlog().total == 0
    with MessageStore.open(tmp_path / "store") as store:
        assert store.subscribe("in", "s").backlog().total == (4 if then == "reopen" else 0)


def test_messages_of_a_work_queue_go_though_nobody_looked_at_their_acknowledgements(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        store.configure_topic("in", keep="until_acknowledged")
        sub, given = with_jobs(store, 9)
        for one in given:
            by_transaction(store, sub, one)
        assert store._subscriptions().acknowledged("in", 0, 0, 9) == [9]
        assert not store._subscriptions().unacknowledged("in", 0, np.arange(9)).any()


def test_the_record_of_one_message_is_that_of_a_list_of_one() -> None:
    for place in ((0, 0, 0), (7, 3, 1 << 40), ((1 << 31) - 1, (1 << 32) - 1, (1 << 62) - 1)):
        for life in (1, (1 << 32) - 1):
            assert pack_one(life, *place) == pack_ones(life, [place])


def test_a_transaction_that_has_ended_holds_nothing_of_what_it_stored(store: MessageStore) -> None:
    """A program may keep its transactions."""

    def kept(tx: Transaction) -> list[Any]:
        return [value for value in vars(tx).values() if isinstance(value, list | dict) and value]

    sub, given = with_jobs(store, 2)
    with store.transaction() as tx:
        tx.append("a", 0, b"x")
        tx.ack(given[0])
        assert len(kept(tx)) == 1
    assert not kept(tx)
    assert tx._messages is None
    assert sub.backlog().total == 1
