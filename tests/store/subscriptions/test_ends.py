"""Consumers that go away: objects that are closed, coroutines that are cancelled, child processes, other settings."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import InvalidMessage, MessageStore, StaleReceipt, StoreClosed, SubscriptionClosed
from stratalog.store.subscriptions.journal import Journal

from ...clocks import SteppedClock
from ..helpers import PATIENCE_S, tiny, until
from .helpers import TOPIC, fill, places

LONG_MS = int(PATIENCE_S * 1000)


def test_receipts_of_two_openings_differ_though_the_clock_says_the_same(tmp_path: Path, clock: SteppedClock) -> None:
    clock.wall_ms = lambda: 1_700_000_000_000  # type: ignore[method-assign]  # a clock that stands
    for first in (True, False):
        with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
            if first:
                fill(store, 3)
            sub = store.subscribe(TOPIC, "a")
            got = sub.receive(3)
            if first:
                old = got[2]
                sub.ack_batch(got[:2])
            else:
                with pytest.raises(StaleReceipt):
                    sub.ack(old)
                assert places(got) == [(0, 2)]


def test_closing_an_object_ends_a_receive_that_waits_in_it(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        sub, ended = store.subscribe(TOPIC, "a"), threading.Event()

        def receive() -> None:
            with pytest.raises(SubscriptionClosed):
                sub.receive(wait_ms=LONG_MS)
            ended.set()

        thread = threading.Thread(target=receive)
        thread.start()
        until(lambda: len(store._fetcher.waiting) > 0)
        sub.close()
        assert ended.wait(PATIENCE_S / 4)
        thread.join()


def test_a_store_that_is_closed_between_two_steps_of_a_receive_says_so(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sub = store.subscribe(TOPIC, "a")
    pool, take, closed = store._fetcher.async_reads._threads(), sub._take, list[bool]()

    def take_and_close(*given: Any) -> None:
        assert take(*given) is None
        threading.Thread(target=store.close).start()
        until(lambda: pool._shutdown)
        closed.append(True)

    monkeypatch.setattr(sub, "_take", take_and_close)
    with pytest.raises(StoreClosed):
        asyncio.run(sub.receive_async(wait_ms=LONG_MS))
    assert closed


def test_an_acknowledgement_is_durable_though_the_store_is_closed_before_its_journal_is_compacted(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 1)
    sub = store.subscribe(TOPIC, "a")
    (one,) = sub.receive(1)
    asked: list[bool] = []

    def wants_compaction(journal: Journal) -> bool:
        asked.append(True)
        if len(asked) == 1:  # behind the record, in the loop
            store.close()
        return True

    monkeypatch.setattr(Journal, "wants_compaction", property(wants_compaction))
    asyncio.run(sub.ack_async(one))
    assert asked


def test_a_cancelled_receive_gives_back_what_a_thread_took_for_it(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 1)
    sub = store.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic="dead")
    begun, goes_on, ended, take = threading.Event(), threading.Event(), threading.Event(), sub._take

    def slow(*wanted: object) -> object:
        begun.set()
        goes_on.wait(PATIENCE_S)
        try:
            return take(*wanted)  # type: ignore[arg-type]  # as it was given
        finally:
            ended.set()

    async def cancelled() -> None:
        task = asyncio.create_task(sub.receive_async(1))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        goes_on.set()
        await asyncio.to_thread(ended.wait, PATIENCE_S)

    with monkeypatch.context() as patch:
        patch.setattr(sub, "_take", slow)
        asyncio.run(cancelled())
    until(lambda: sub.backlog().in_flight == 0)
    assert [(one.message.offset, one.attempt) for one in sub.receive()] == [(0, 1)]
    assert store.queue_bounds("dead", 0) == (0, 0)


@pytest.mark.parametrize("call", ["receive", "receive_batch", "seek"])
def test_a_child_is_refused_though_the_parent_was_receiving_when_it_forked(store: MessageStore, call: str) -> None:
    fill(store, 1)
    sub = store.subscribe(TOPIC, "a")
    with sub._dispatcher.receiving:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(PATIENCE_S))  # where it hangs
            try:
                getattr(sub, call)(*(["earliest"] if call == "seek" else []))
            except BaseException:  # the child must not go on with the tests
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0


def test_a_consumer_that_names_no_dead_letters_leaves_those_of_the_others(
    store: MessageStore, clock: SteppedClock
) -> None:
    fill(store, 1)
    store.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic="dead")
    sub = store.subscribe(TOPIC, "a")
    sub.receive(visibility_timeout_ms=1000)
    clock.now += 2
    assert sub.receive() == []
    assert store.queue_bounds("dead", 0) == (0, 1)
    assert store.subscriptions()[0].settings.dead_letter_topic == "dead"


def test_the_dead_letters_of_a_topic_go_to_another_topic(store: MessageStore) -> None:
    with pytest.raises(InvalidMessage, match="name another topic"):
        store.subscribe(TOPIC, "a", max_attempts=1, dead_letter_topic=TOPIC)
    assert store.subscriptions() == []


def test_two_threads_that_close_one_object_close_it_once(store: MessageStore) -> None:
    fill(store, 1)
    sub, other = store.subscribe(TOPIC, "a"), store.subscribe(TOPIC, "a")
    (got,) = other.receive()
    barrier = threading.Barrier(2)

    def close() -> None:
        barrier.wait(PATIENCE_S)
        sub.close()

    threads = [threading.Thread(target=close) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sub.close()
    other.ack(got)
