"""The settings of a subscription: who chooses them, and how they change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from stratalog.store import InvalidMessage, MessageStore, SubscriptionClosed

from ...clocks import SteppedClock
from .helpers import TOPIC, fill

DEAD = "orders/dead"
MADE: dict[str, Any] = {
    "precision_ms": 20, "max_attempts": 3, "dead_letter_topic": DEAD, "filter": {"tag": {"a"}}, "mode": "ordered",
    "order_by": "key",
}  # fmt: skip


def test_a_second_consumer_may_leave_out_precision_and_dead_letters(store: MessageStore) -> None:
    store.subscribe(TOPIC, "a", **MADE)
    left_out = {name: MADE[name] for name in ("mode", "order_by", "filter")}
    store.subscribe(TOPIC, "a", **left_out)
    store.subscribe(TOPIC, "a", **MADE)
    settings = store.subscriptions()[0].settings
    assert (settings.precision_ms, settings.max_attempts, settings.dead_letter_topic) == (20, 3, DEAD)


@pytest.mark.parametrize(
    ("other", "both"),
    [
        ({"precision_ms": 0}, "precision_ms=20, not 0"),
        ({"max_attempts": 4}, "max_attempts=3, not 4"),
        ({"dead_letter_topic": "dead/2"}, "dead_letter_topic='orders/dead', not 'dead/2'"),
        ({"mode": "shared"}, "mode='ordered', not 'shared'"),
        ({"order_by": "queue"}, "order_by='key', not 'queue'"),
        ({"filter": None}, "filter={'tag': .*}, not None"),
    ],
)  # fmt: skip
def test_a_second_consumer_with_another_setting_is_refused_with_both_values(
    store: MessageStore, other: dict[str, Any], both: str
) -> None:
    store.subscribe(TOPIC, "a", **MADE)
    with pytest.raises(InvalidMessage, match=both):
        store.subscribe(TOPIC, "a", **(MADE | other))
    assert store.subscriptions()[0].settings.precision_ms == 20


def test_a_change_of_settings_is_durable_and_holds_for_all_consumers(store: MessageStore, clock: SteppedClock) -> None:
    fill(store, 1)
    one, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a")
    one.change(max_attempts=1, dead_letter_topic=DEAD)
    one.change(precision_ms=7)
    other.receive(visibility_timeout_ms=1000)
    clock.now += 2
    assert other.receive() == []
    assert len(store.read(DEAD, 0, 0)) == 1
    store.close()
    with MessageStore.open(store.path) as again:
        settings = again.subscriptions()[0].settings
        assert (settings.precision_ms, settings.max_attempts, settings.dead_letter_topic) == (7, 1, DEAD)
        again.subscribe(TOPIC, "a", precision_ms=7)


def test_a_change_that_is_not_valid_changes_nothing(store: MessageStore) -> None:
    sub = store.subscribe(TOPIC, "a")
    bad: list[dict[str, Any]] = [
        {"max_attempts": 3}, {"dead_letter_topic": DEAD}, {"max_attempts": 0, "dead_letter_topic": DEAD},
        {"max_attempts": 1, "dead_letter_topic": TOPIC}, {"precision_ms": -1}, {"precision_ms": "1"},
    ]  # fmt: skip
    for one in bad:
        with pytest.raises(InvalidMessage):
            sub.change(**one)
    assert store.subscriptions()[0].settings.max_attempts is None
    sub.close()
    with pytest.raises(SubscriptionClosed):
        sub.change(precision_ms=1)


class Cross:
    """It says that it can be iterated, and cannot."""

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("cross")


@pytest.mark.parametrize(
    "values", [np.array(3), np.array("a"), Cross(), [1], [b"a"], "a", b"a", {"a": 1}, [], 7, None, ["a", np.nan]]
)
def test_values_of_a_filter_that_are_not_several_texts_are_refused_by_an_error_of_the_package(
    store: MessageStore, values: Any
) -> None:
    with pytest.raises(InvalidMessage, match="one or more str values"):
        store.subscribe(TOPIC, "odd", filter={"tag": values})
    assert store.subscriptions() == []
