"""Deleted subscriptions: nothing of them stays in memory, and nothing of them counts for the next one of their name."""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import suppress

import pytest

from stratalog.store import MessageStore, SubscriptionClosed
from stratalog.store.format.cursors import pack_ones

from ..helpers import PATIENCE_S
from .helpers import TOPIC, begin_ack, fill, places


def test_nothing_of_a_deleted_subscription_stays_in_memory(store: MessageStore) -> None:
    fill(store, 50)
    sub = store.subscribe(TOPIC, "a")
    sub.ack_batch(sub.receive()[1::2])
    state = weakref.ref(sub._state)
    assert store.delete_subscription(TOPIC, "a")
    assert store.subscriptions() == []
    del sub
    gc.collect()
    assert state() is None


def test_open_objects_of_a_deleted_subscription_say_so(store: MessageStore) -> None:
    fill(store, 2)
    sub = store.subscribe(TOPIC, "a")
    (got,) = sub.receive(1)
    store.delete_subscription(TOPIC, "a")
    again = store.subscribe(TOPIC, "a")
    for call in (sub.receive, sub.backlog, lambda: sub.ack(got), lambda: sub.seek("latest"), sub.change):
        with pytest.raises(SubscriptionClosed, match="was deleted; subscribe again"):
            call()
    sub.close()
    assert places(again.receive()) == [(0, 0), (0, 1)], "the next one of the name has nothing of it"


def test_an_acknowledgement_on_its_way_counts_for_no_later_subscription_of_the_name(store: MessageStore) -> None:
    fill(store, 3)
    sub = store.subscribe(TOPIC, "a")
    late = begin_ack(sub, sub.receive(1)[0].receipt)  # its record is not written yet
    store.delete_subscription(TOPIC, "a")
    store.subscribe(TOPIC, "a").ack(store.subscribe(TOPIC, "a").receive(2)[1])
    sub._state.journal.append([pack_ones(late.life, [(late.queue_id, late.era, late.offset)])])
    store.close()
    with MessageStore.open(store.path) as again:
        assert places(again.subscribe(TOPIC, "a").receive()) == [(0, 0), (0, 2)]


def test_threads_that_make_and_delete_one_name_at_once_leave_one_or_none(store: MessageStore) -> None:
    fill(store, 10)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(30):
                sub = store.subscribe(TOPIC, "a")
                with suppress(SubscriptionClosed):
                    sub.receive(1)
                if number % 2:
                    store.delete_subscription(TOPIC, "a")
        except BaseException as error:  # is looked at in the test's thread
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not failed
    store.subscribe(TOPIC, "a")
    assert len(store._subscriptions()._known) == 1
    store.delete_subscription(TOPIC, "a")
    assert store.subscriptions() == []
    assert not store._subscriptions()._known


def test_to_forget_a_deleted_subscription_waits_for_nobody(store: MessageStore) -> None:
    fill(store, 2)
    sub = store.subscribe(TOPIC, "a")
    store.delete_subscription(TOPIC, "a")
    shared = store._subscriptions()._shared(TOPIC, "a")
    with shared.state.changing:  # as one who makes it anew has it, and who may wait for the store's upkeep
        assert not shared.retire()
    assert shared.retire()
    assert sub.closed
    assert len(store.subscribe(TOPIC, "a").receive()) == 2
