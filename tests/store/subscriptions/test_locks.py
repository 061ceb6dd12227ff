"""Who waits for whom: nobody who holds a lock waits for those that need it to go on."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from stratalog.store import MessageStore
from stratalog.store.delayed.topic import DelayedTopic

from ..helpers import PATIENCE_S
from .helpers import TOPIC, fill

HOUR_MS = 3_600_000


def delayed_topic(store: MessageStore) -> DelayedTopic:
    """A topic with two delayed messages, one of them cancelled."""
    at_ms = store._shared.clock.wall_ms() + HOUR_MS
    for _ in range(2):
        store.append(TOPIC, 1, b"later", deliver_at_ms=at_ms)
    assert store.cancel_delayed(TOPIC, 1, 0)
    assert store._running.delays is not None
    return store._running.delays.topic(TOPIC)


class ToldLock:
    """A lock that tells when somebody asks for it."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.asked = threading.Event()

    def __enter__(self) -> None:
        self.asked.set()
        self.inner.acquire()

    def __exit__(self, *_: object) -> None:
        self.inner.release()


def test_counting_a_backlog_does_not_hold_up_the_subscription_while_it_waits_for_the_delays(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sub = store.subscribe(TOPIC, "a", mode="ordered")
    topic = delayed_topic(store)
    fill(store, 2)
    told = ToldLock(topic.lock)
    with topic.lock:
        monkeypatch.setattr(topic, "lock", told)
        thread = threading.Thread(target=sub.backlog)
        thread.start()
        assert told.asked.wait(PATIENCE_S)
        is_free = sub._state.lock.acquire(timeout=PATIENCE_S / 4)
        if is_free:
            sub._state.lock.release()
    thread.join(PATIENCE_S)
    assert is_free


def test_compacting_changes_does_not_hold_the_lock_of_its_topic_while_it_waits_for_the_log(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = delayed_topic(store)
    hidden, ended = topic.parts.hidden, []
    append = hidden.append

    def slow(*args: Any) -> Any:
        thread = threading.Thread(target=lambda: topic.pending, daemon=True)
        thread.start()
        thread.join(PATIENCE_S / 4)  # no time at all, but where it hangs
        ended.append(not thread.is_alive())
        return append(*args)

    monkeypatch.setattr(hidden, "append", slow)
    topic.decisions.compact()
    assert ended == [True]
    assert not store.cancel_delayed(TOPIC, 1, 0)
    assert store.cancel_delayed(TOPIC, 1, 1)
