"""What need not work beside a durable record: snapshots of a cursor, and the removal of what is deleted."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from stratalog.store import MessageStore, StoreFull, Subscription
from stratalog.store.subscriptions import journal as journal_module
from stratalog.store.subscriptions.journal import Journal

from .helpers import TOPIC, fill


def ack(sub: Subscription, receipt: int, how: str) -> None:
    if how == "one":
        sub.ack(receipt)
    else:
        sub.ack_batch([receipt])


@pytest.mark.parametrize("error", [StoreFull("no space is left"), OSError("a footer cannot be read")])
@pytest.mark.parametrize("how", ["one", "batch"])
def test_an_acknowledgement_is_durable_also_where_no_snapshot_can_be_written(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, how: str, error: Exception
) -> None:
    fill(store, 2)
    sub = store.subscribe(TOPIC, "a")
    got = sub.receive()
    monkeypatch.setattr(journal_module, "LEAST_BYTES", 1)
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "compact", compact := Mock(side_effect=error))
        ack(sub, got[0].receipt, how)
    assert compact.called
    ack(sub, got[1].receipt, how)
    assert sub.backlog().total == 0


@pytest.mark.parametrize("error", [StoreFull("no space is left"), OSError("a footer cannot be read")])
def test_a_subscription_is_deleted_also_where_its_records_stay(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fill(store, 2)
    store.subscribe(TOPIC, "a").receive()
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "forget", Mock(side_effect=error))
        assert store.delete_subscription(TOPIC, "a")
    assert store.subscriptions() == []
    assert len(store.subscribe(TOPIC, "a").receive()) == 2
