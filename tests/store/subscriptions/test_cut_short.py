"""Calls that end a consumer or move a subscription, cut short by an interrupt, beside calls of others."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from functools import partial
from unittest import mock

import numpy as np
import pytest

from stratalog.store import Delivery, MessageStore, SubscriptionClosed

from ..interrupts import interrupt_at
from ..interrupts import places as all_places
from .helpers import TOPIC, fill

FAR_MS = 1 << 42


def test_a_close_that_was_interrupted_gives_all_back_when_it_is_made_again(store: MessageStore) -> None:
    fill(store, 3)
    for place in all_places():
        sub, other = store.subscribe(TOPIC, f"{place}"), store.subscribe(TOPIC, f"{place}")
        assert len(sub.receive(2)) == 2
        was, _ = interrupt_at(place, ("registry.py", "state.py"), sub.close)
        sub.close()
        assert len(other.receive(9)) == 3, place
        other.close()
        assert len(sub._state.table) == 0, "the last one was closed"
        if not was:
            break


@pytest.mark.parametrize("ends", ["deleted again", "looked for by the upkeep"])
def test_a_deletion_that_was_interrupted_keeps_no_place_in_what_is_due(store: MessageStore, ends: str) -> None:
    store.append(TOPIC, 0, b"x", deliver_at_ms=FAR_MS)
    for place in all_places():
        name = f"{place}"
        sub = store.subscribe(TOPIC, name)
        assert sub.receive() == []
        topic = store._delaying.delays.find(TOPIC)
        assert topic is not None and len(topic.due.pointers) == 1
        was, _ = interrupt_at(place, ("registry.py", "dispatcher.py"), partial(store.delete_subscription, TOPIC, name))
        if ends == "deleted again" or any(one.name == name for one in store.subscriptions(TOPIC)):
            store.delete_subscription(TOPIC, name)
        else:
            store._subscriptions().unacknowledged(TOPIC, 0, np.zeros(1, np.int64))
        assert len(topic.due.pointers) == 0, place
        if not was:
            break


def test_a_subscribe_that_was_interrupted_keeps_no_second_place_in_what_is_due(store: MessageStore) -> None:
    store.append(TOPIC, 0, b"x", deliver_at_ms=FAR_MS)
    with store.subscribe(TOPIC, "a") as sub:
        assert sub.receive() == []
    for place in all_places():
        again = partial(store.subscribe, TOPIC, f"{place}")
        was = interrupt_at(place, ("subscriptions/delays.py", "delayed/topic.py", "delayed/topic_index.py"), again)[0]
        gc.collect(1)  # the tracer's error holds itself, and the pointer
        with again():
            topic = store._delaying.delays.find(TOPIC)
            assert topic is not None and len(topic.due.pointers) == 1, place
        store.delete_subscription(TOPIC, f"{place}")
        if not was:
            break


def test_a_seek_that_was_interrupted_beside_a_compaction_loses_no_message(store: MessageStore) -> None:
    """A receive finds the seek unfinished, cannot finish it, and reads on from where the subscription was."""
    fill(store, 10)
    met = 0
    for place in all_places():
        sub = store.subscribe(TOPIC, f"{place}")
        sub.ack_batch(sub.receive(10))
        was, _ = interrupt_at(place, ("journal.py", "state.py", "cursor.py"), partial(sub.seek, "earliest"))
        if sub._state.unfinished.change is not None:
            met += 1
            with sub._state.changing:  # as a compaction holds it
                sub.receive(20)
        got = sub.receive(20)
        assert len(got) == sub.backlog().total, place
        if not was:
            break
    assert met


def test_an_object_that_is_closed_meanwhile_takes_nothing_for_a_coroutine(store: MessageStore) -> None:
    fill(store, 20)
    sub, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a")
    assert len(other.receive(1)) == 1
    take = sub._dispatcher.take_at_hand

    def close_first(count: int, visibility_ms: int, owner: int, check: Callable[[], object]) -> list[Delivery] | None:
        sub.close()
        return take(count, visibility_ms, owner, check)

    with mock.patch.object(sub._dispatcher, "take_at_hand", close_first), pytest.raises(SubscriptionClosed):
        asyncio.run(sub.receive_async(1))
    assert len(other.receive(100)) == 19
