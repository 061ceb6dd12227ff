"""Acknowledgements that fail or are interrupted: nothing is acknowledged by them, also after a reopening."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from stratalog.store import MessageStore, PublishBufferFull, StaleReceipt, StoreError, Subscription
from stratalog.store.subscriptions.acknowledging import AckRow
from stratalog.store.subscriptions.cursor import Cursor

from ...clocks import SteppedClock
from ..helpers import PATIENCE_S, tiny
from .helpers import TOPIC, fill, on_way, places


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
    state = sub._state
    settle, seen = state.acks.group_commit._settle, list[tuple[list[bytes], int]]()

    def slow(acked: Sequence[AckRow], error: StoreError | None) -> None:
        seen.append(state._snapshot())  # durable, and its thread does not know it yet
        settle(acked, error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state.acks.group_commit, "_settle", slow)
        before = state.journal.next_offset
        sub.ack(sub.receive(1)[0])
    ((records, left_out_from),) = seen
    cursor = Cursor()
    for record in records:
        cursor.read(memoryview(record))
    assert not cursor.has(0, 0)
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
