"""Acknowledgements on their way, and those that fail or are interrupted: their messages come again, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import pytest

from stratalog.store import Delivery, MessageStore, PublishBufferFull, StaleReceipt, StoreError, Subscription
from stratalog.store.subscriptions.ack_row import AckRow
from stratalog.store.subscriptions.cursor import Cursor

from ...clocks import SteppedClock
from ..helpers import PATIENCE_S, tiny
from .helpers import TOPIC, begin_ack, fill, on_way, places


def begin_to_ack(sub: Subscription, delivery: Delivery) -> Callable[[bool], None]:
    """An acknowledgement is on its way. The call that is returned answers it: is it stored?"""
    one = begin_ack(sub, delivery.receipt)
    return lambda is_stored: sub._acks.settle([one], None if is_stored else PublishBufferFull("full"))


@pytest.mark.parametrize("looks_before", [False, True])
@pytest.mark.parametrize("count", [1, 32])
def test_a_message_that_comes_back_after_a_close_comes_once(
    store: MessageStore, clock: SteppedClock, looks_before: bool, count: int
) -> None:
    fill(store, 6)
    sub = store.subscribe(TOPIC, "a")
    answer = begin_to_ack(sub, sub.receive(6)[2])
    sub.close()
    sub = store.subscribe(TOPIC, "a")
    came = sub.receive(count) if looks_before else []
    answer(False)
    clock.now += 1
    for _ in range(12):
        came += sub.receive(count)
    assert sorted(places(came)) == [(0, at) for at in range(6)]


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("order_by", ["queue", "key"])
def test_a_line_waits_beyond_a_close_for_an_acknowledgement_on_its_way(
    store: MessageStore, clock: SteppedClock, order_by: str, is_stored: bool
) -> None:
    for _ in range(4):
        store.append(TOPIC, 0, b"-", key=b"k")
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by=order_by)  # type: ignore[call-overload]  # one of the two
    answer = begin_to_ack(sub, sub.receive(1)[0])
    sub.close()
    sub = store.subscribe(TOPIC, "a", mode="ordered", order_by=order_by)  # type: ignore[call-overload]  # one of the two
    assert sub.receive(1) == []
    answer(is_stored)
    clock.now += 1
    came = []
    while got := sub.receive(1):
        assert len(got) == 1
        came += places(got)
        sub.ack(got[0])
    assert came == [(0, at) for at in range(is_stored, 4)]


def test_only_durable_acknowledgements_count_for_retention(store: MessageStore) -> None:
    fill(store, 6)
    sub = store.subscribe(TOPIC, "a")
    got = sub.receive(6)
    sub.ack_batch([got[1], got[4]])
    answers = [begin_to_ack(sub, got[at]) for at in (0, 2)]
    offsets, unacknowledged = np.arange(6), store._subscriptions().unacknowledged
    assert unacknowledged(TOPIC, 0, offsets).tolist() == [True, False, True, True, False, True]
    answers[0](True)
    answers[1](False)
    assert unacknowledged(TOPIC, 0, offsets).tolist() == [False, False, True, True, False, True]
    sub.ack(got[2])
    sub.seek({0: 5})
    assert unacknowledged(TOPIC, 0, offsets).tolist() == [False] * 5 + [True]


@pytest.mark.parametrize("is_stored", [False, True])
def test_what_is_being_acknowledged_comes_to_nobody_and_is_not_counted(
    store: MessageStore, clock: SteppedClock, is_stored: bool
) -> None:
    fill(store, 3)
    sub = store.subscribe(TOPIC, "a")
    got = sub.receive(3)
    answer = begin_to_ack(sub, got[1])
    assert sub.backlog() == (0, 2, 0)
    clock.now += 31
    assert places(sub.receive()) == [(0, 0), (0, 2)]
    for call in (sub.ack, sub.nack):
        with pytest.raises(StaleReceipt):
            call(got[1])
    answer(is_stored)
    assert sub.backlog() == (int(not is_stored), 2, 0)
    assert places(sub.receive()) == ([] if is_stored else [(0, 1)])


def ack(sub: Subscription, receipts: list[int], how: str) -> None:
    if how == "one":
        sub.ack(receipts[0])
    else:
        sub.ack_batch(receipts)


@pytest.mark.parametrize("how", ["one", "batch"])
def test_a_snapshot_beside_a_refused_acknowledgement_does_not_make_it_durable(
    tmp_path: Path, clock: SteppedClock, how: str
) -> None:
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        fill(store, 3)
        sub = store.subscribe(TOPIC, "a")
        first, *rest = sub.receive()

        def refused(_record: object) -> None:
            sub._shared.move_records()  # as retention does it
            raise PublishBufferFull("full")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sub._state.journal, "put" if how == "one" else "append", refused)
            with pytest.raises(PublishBufferFull):
                ack(sub, [first.receipt], how)
        assert sub.backlog().total == 3
        sub.ack_batch(rest)
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        assert places(store.subscribe(TOPIC, "a").receive()) == [(0, 0)]


def test_a_snapshot_beside_a_durable_acknowledgement_keeps_its_record(tmp_path: Path, clock: SteppedClock) -> None:
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        fill(store, 3)
        sub = store.subscribe(TOPIC, "a")
        got = [one.receipt for one in sub.receive(2)]
        append = sub._state.journal.append

        def slow(records: Sequence[bytes]) -> None:
            append(records)
            sub._shared.move_records()  # its thread does not know yet that it is durable

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sub._state.journal, "append", slow)
            sub.ack_batch(got[:1])
        assert not on_way(sub)
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        assert places(store.subscribe(TOPIC, "a").receive()) == [(0, 1), (0, 2)]


def test_a_snapshot_beside_a_single_acknowledgement_leaves_its_record(store: MessageStore) -> None:
    fill(store, 3)
    sub = store.subscribe(TOPIC, "a")
    state, commit = sub._state, sub._acks.group_commit
    settle, seen = commit._settle, list[tuple[list[bytes], int]]()

    def slow(acked: Sequence[AckRow], error: StoreError | None) -> None:
        seen.append(state._snapshot())  # durable, and its thread does not know it yet
        settle(acked, error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit, "_settle", slow)
        before = state.journal.next_offset
        sub.ack(sub.receive(1)[0])
    ((records, left_out_from),) = seen
    cursor = Cursor()
    for record in records:
        cursor.read(memoryview(record))
    assert 0 not in cursor.queue(0)
    assert left_out_from <= before
    assert not on_way(sub)


@pytest.mark.parametrize("how", ["one", "batch"])
def test_an_interrupted_acknowledgement_of_an_ordered_subscription_does_not_block_its_line(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    fill(store, 2)
    sub = store.subscribe(TOPIC, "a", mode="ordered")
    (got,) = sub.receive(1)
    seam = "put" if how == "one" else "append"
    done = getattr(sub._state.journal, seam)

    def interrupted(record: object) -> None:
        done(record)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sub._state.journal, seam, interrupted)
        with pytest.raises(KeyboardInterrupt):
            ack(sub, [got.receipt], how)
    with suppress(StaleReceipt) if how == "one" else nullcontext():  # it is acknowledged by then, maybe
        ack(sub, [got.receipt], how)
    assert places(sub.receive(wait_ms=int(PATIENCE_S * 1000))) == [(0, 1)]
