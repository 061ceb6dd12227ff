"""Acknowledgements that fail or are interrupted: nothing is acknowledged by them, also after a reopening."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from stratalog.store import MessageStore, PublishBufferFull, Subscription

from ...clocks import SteppedClock
from ..helpers import tiny
from .helpers import TOPIC, fill, places


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

        def refused(records: Sequence[bytes]) -> None:
            sub._shared.move_records()  # as retention does it
            raise PublishBufferFull("full")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sub._state.journal, "append", refused)
            with pytest.raises(PublishBufferFull):
                ack(sub, [first.receipt], how)
        assert sub.backlog().total == 3
        sub.ack_batch(rest)
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        assert places(store.subscribe(TOPIC, "a").receive()) == [(0, 0)]


@pytest.mark.parametrize("how", ["one", "batch"])
def test_a_snapshot_beside_a_durable_acknowledgement_keeps_its_record(
    tmp_path: Path, clock: SteppedClock, how: str
) -> None:
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
            ack(sub, got[:1], how)
        assert not sub._state.on_way
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        assert places(store.subscribe(TOPIC, "a").receive()) == [(0, 1), (0, 2)]


@pytest.mark.parametrize("how", ["one", "batch"])
def test_an_interrupted_acknowledgement_of_an_ordered_subscription_does_not_block_its_line(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    fill(store, 2)
    sub = store.subscribe(TOPIC, "a", mode="ordered")
    (got,) = sub.receive()
    append = sub._state.journal.append

    def interrupted(records: Sequence[bytes]) -> None:
        append(records)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sub._state.journal, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ack(sub, [got.receipt], how)
    ack(sub, [got.receipt], how)
    assert places(sub.receive()) == [(0, 1)]
