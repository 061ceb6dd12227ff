"""Messages that are at hand: a loop takes them itself, and waits for no thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import pytest

from stratalog.store import MessageStore
from stratalog.store.subscriptions import acknowledging

from ..interrupts import Interrupted, interrupt_at, places
from .helpers import TOPIC, fill


def test_what_is_at_hand_is_received_without_a_thread(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, 20)
    sub, reads = store.subscribe(TOPIC, "a"), list[object]()
    aside = sub._state.parts.async_reads.aside

    async def counted(work: partial[None], check_open: Callable[[], object]) -> None:
        reads.append(work)
        await aside(work, check_open)

    monkeypatch.setattr(sub._state.parts.async_reads, "aside", counted)

    async def receive() -> list[int]:
        return [one.message.offset for _ in range(20) for one in await sub.receive_async(1)]

    assert asyncio.run(receive()) == list(range(20))
    assert len(reads) == 1


class BusyLock:
    """A lock that another thread has whenever it is asked, and no more when it is taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def locked(self) -> bool:
        return True

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_loop_lets_no_thread_pass_at_the_lock(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would sleep, and all its coroutines with it."""
    fill(store, 2)
    sub, passed = store.subscribe(TOPIC, "a"), list[object]()
    first, second = sub.receive()
    monkeypatch.setattr(sub._state, "lock", BusyLock())
    monkeypatch.setattr(acknowledging, "let_pass", passed.append)
    asyncio.run(sub.ack_async(first))
    assert passed == []
    sub.ack(second)
    assert len(passed) == 1


class LateLock:
    """A lock that was free when it was last asked, and is taken since."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def locked(self) -> bool:
        return False

    def __enter__(self) -> None:
        raise AssertionError("a loop waits")

    def __exit__(self, *_given: object) -> None:
        self.release()


def test_a_loop_waits_for_no_thread_that_has_just_begun_to_receive(store: MessageStore) -> None:
    fill(store, 20)
    sub = store.subscribe(TOPIC, "a")
    sub.receive(1)
    free, sub._dispatcher.receiving = sub._dispatcher.receiving, LateLock()  # type: ignore[assignment]
    assert sub._dispatcher.take_at_hand(1, 1000, 0, sub._settings) is None
    sub._dispatcher.receiving.release()
    assert sub._dispatcher.take_at_hand(1, 1000, 0, sub._settings) is not None
    sub._dispatcher.receiving = free


def test_an_interrupt_of_a_loop_that_receives_lets_others_receive(store: MessageStore) -> None:
    fill(store, 600)
    sub = store.subscribe(TOPIC, "a")
    sub.receive(1)
    for place in places():
        take = partial(sub._dispatcher.take_at_hand, 1, 1000, 0, sub._settings)
        came, result = interrupt_at(place, ("dispatcher.py",), take)
        assert isinstance(result, Interrupted) is came
        assert not sub._dispatcher.receiving.locked()
        del result  # its traceback keeps what it has met
        if not came:
            break
        sub.receive(32)  # so some are at hand again
    assert place > 3
