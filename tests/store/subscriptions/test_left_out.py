"""What nobody is to get is not looked at again after each opening."""

from __future__ import annotations

import pytest

from stratalog.store import MessageStore, PublishBufferFull
from stratalog.store.subscriptions import dispatcher

from ...clocks import SteppedClock
from ..helpers import tiny
from .helpers import TOPIC, begin_ack, places
from .test_attempts import crashed

WANTED = {"tag": {"a"}}


def fill_with(store: MessageStore, tags: str) -> None:
    for tag in tags:
        store.append(TOPIC, 0, b"-", properties={"tag": tag})


@pytest.mark.parametrize("closed", ["subscription", "store"])
def test_what_a_filter_left_out_is_durable_when_its_subscription_or_the_store_was_closed(
    store: MessageStore, clock: SteppedClock, closed: str
) -> None:
    fill_with(store, "bbabbbabb")
    sub = store.subscribe(TOPIC, "a", filter=WANTED)
    assert places(sub.receive()) == [(0, 2), (0, 6)]
    (sub if closed == "subscription" else store).close()
    store.close()
    with MessageStore.open(store.path, tiny(), clock=clock) as again:
        assert again.subscriptions()[0].backlog == (2, 0, 0)
        assert places(again.subscribe(TOPIC, "a", filter=WANTED).receive()) == [(0, 2), (0, 6)]


def test_what_a_filter_leaves_out_is_durable_now_and_then(
    store: MessageStore, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "NOTED_MESSAGES", 20)
    sub = store.subscribe(TOPIC, "a", filter=WANTED)
    frames = store.stats()["log"]["frames"]
    for _ in range(50):
        fill_with(store, "bb")
        assert sub.receive() == []
    store.flush()
    assert store.stats()["log"]["frames"] - frames <= 100 + 5, "one record for many messages"
    with crashed(store, clock) as again:
        assert again.subscriptions()[0].backlog == (0, 0, 0)


def test_a_seek_brings_back_what_was_left_out_before_it(store: MessageStore, clock: SteppedClock) -> None:
    fill_with(store, "bbabb")
    sub = store.subscribe(TOPIC, "a", filter=WANTED)
    sub.ack_batch(sub.receive())
    sub.seek("earliest")
    sub.close()
    store.flush()  # a record of the closing that is not to be would be there now
    with crashed(store, clock) as again:
        assert again.subscriptions()[0].backlog == (5, 0, 0)
        assert places(again.subscribe(TOPIC, "a", filter=WANTED).receive()) == [(0, 2)]


def test_an_acknowledgement_that_fails_is_in_no_record_of_what_was_left_out(
    store: MessageStore, clock: SteppedClock
) -> None:
    fill_with(store, "aabb")
    sub = store.subscribe(TOPIC, "a", filter=WANTED)
    got = sub.receive()
    row = begin_ack(sub, got[0].receipt)  # its record is not written, and may fail
    sub._state.note_left_out()
    store.flush()
    with crashed(store, clock) as again:
        assert again.subscriptions()[0].backlog == (2, 0, 0)
    sub._acks.settle([row], PublishBufferFull("full"))
    assert sub.backlog() == (1, 1, 0)
