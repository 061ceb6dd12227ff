"""Hooks that raise, at each place that calls one: nobody sleeps for ever, and what is durable is answered.

A hook of one that only wants to know (readers, caches, callbacks) has no say: the store goes on. A hook that is a step
of the log (a new segment, a full one) poisons the store, and everybody is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stratalog.store import MessageStore, StoreError, StorePoisoned, commit_shards
from stratalog.store.device.steps import for_each
from stratalog.store.format.commit_names import CommitNames
from stratalog.store.live.publisher import Publisher
from stratalog.store.log.lane_machine import LaneMachine
from stratalog.store.log.request import BlockingRequest, Request, answer_all
from stratalog.store.log.streams import Lows, lane_of
from stratalog.store.read.waiting import ThreadRead

from .helpers import PATIENCE_S, start, tiny, until
from .shards import helpers as shards

Harm = Callable[[MessageStore], object]
SOON_S = 15.0  # until somebody counts as asleep for ever: a planted bug is found within a minute
Q = 0


def broken(*_: object, **__: object) -> Any:
    """What every hook of these tests does."""
    raise MemoryError("a hook")


def lane_of_store(store: MessageStore) -> LaneMachine:
    return store._lanes[0]


def publisher_of(store: MessageStore) -> Publisher:
    publisher = store._running.live
    assert isinstance(publisher, Publisher)
    return publisher


def harm_live_page(store: MessageStore) -> None:
    publisher_of(store)._page.set_word = broken  # type: ignore


def harm_mirror(store: MessageStore) -> None:
    publisher = publisher_of(store)
    idle = dict.fromkeys(("provide", "retire", "close"), lambda: None)
    publisher._mirror = SimpleNamespace(is_read=True, look=broken, **idle)  # type: ignore
    publisher._told[0].mirror = SimpleNamespace(bring_up=broken)  # type: ignore


def harm_view(store: MessageStore) -> None:
    lane_of_store(store).on_view = broken


def harm_waiting(store: MessageStore) -> None:
    store._running.waiting.tell = broken  # type: ignore


def harm_feeder(store: MessageStore) -> None:
    store._running.feeder = SimpleNamespace(look=broken, close=lambda: None)  # type: ignore


def harm_delays(store: MessageStore) -> None:
    delays = store._running.delays
    assert delays is not None
    delays.topics["t"] = None  # type: ignore
    delays.arrived = broken  # type: ignore
    delays.close = lambda **_: None  # type: ignore


def harm_lookers(store: MessageStore) -> None:
    store._upkeep.lookers.insert(0, broken)
    store._upkeep.call_lookers()


def harm_guards(store: MessageStore) -> None:
    store._upkeep.removal.guards.append(broken)


def harm_removed(store: MessageStore) -> None:
    store._upkeep.removal._removed = broken


def harm_ticket(store: MessageStore) -> None:
    store.submit("t", Q, b"with a callback").add_done_callback(broken)


def harm_ticket_for_good(store: MessageStore) -> None:
    def leave(_: object) -> None:
        raise SystemExit(1)

    store.submit("t", Q, b"with a callback").add_done_callback(leave)


async def later(store: MessageStore) -> int:
    return await store.append_async("t", Q, b"z")


LISTENERS: list[Harm] = [
    harm_live_page, harm_mirror, harm_view, harm_waiting, harm_feeder, harm_delays, harm_lookers, harm_guards,
    harm_removed, harm_ticket, harm_ticket_for_good,
]  # fmt: skip


@pytest.mark.parametrize("harm", LISTENERS, ids=lambda harm: harm.__name__[5:])
def test_hook_of_a_listener_that_raises_harms_no_append(tmp_path: Path, harm: Harm) -> None:
    with MessageStore.open(tmp_path, tiny(retention_bytes=64 << 10)) as store:
        store.append("t", Q, b"first")
        harm(store)
        sent = start(lambda: [store.append("t", Q, bytes(4000)) for _ in range(60)])  # three segments
        sent.join()
        end = store.queue_bounds("t", Q)[1]
        assert end >= 61
        assert store.append_batch([("t", Q, b"x"), ("t", Q, b"y")]).tolist() == [end, end + 1]
        assert asyncio.run(later(store)) == end + 2
        assert store._running.poison is None


def test_page_tells_later_what_its_hook_did_not_tell(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        publisher, lane = publisher_of(store), lane_of_store(store)
        page = publisher._page
        assert page is not None
        store.append("t", Q, b"first")
        publisher._page = SimpleNamespace(set_word=broken)
        store.append("t", Q, b"second")
        publisher._page = page
        publisher.provide()
        assert publisher._told[0].mark == lane.under_way.forced_mark


def harm_full(store: MessageStore) -> None:
    lane_of_store(store)._on_full = broken


def harm_segment(store: MessageStore) -> None:
    lane_of_store(store).on_segment = broken


def harm_next_segment(store: MessageStore) -> None:
    lane_of_store(store).next_segment = broken


def harm_progress(store: MessageStore) -> None:
    lane = lane_of_store(store)
    lane._on_progress, lane._report_at = broken, -1


def harm_page_for_good(store: MessageStore) -> None:
    """No error of a hook's, but the end of its thread."""

    def leave() -> None:
        raise SystemExit(1)

    lane_of_store(store).under_way.on_forced = leave


def harm_clock(store: MessageStore) -> None:
    lane_of_store(store)._clock_ms = broken


def harm_arrived(store: MessageStore) -> None:
    store._flushers[0]._on_durable = broken


def harm_poisoned(store: MessageStore) -> None:
    """The store is not told that a lane failed: those of that lane are."""
    store._flushers[0]._on_poison = broken
    harm_clock(store)


STEPS: list[Harm] = [
    harm_full, harm_segment, harm_next_segment, harm_progress, harm_page_for_good, harm_clock, harm_arrived,
    harm_poisoned,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("harm", STEPS, ids=lambda harm: harm.__name__[5:])
def test_hook_of_a_step_that_raises_leaves_nobody_asleep(tmp_path: Path, harm: Harm) -> None:
    store = MessageStore.open(tmp_path, tiny())
    try:
        store.append("t", Q, b"first")
        harm(store)
        ends: list[object] = []

        def produce() -> None:
            try:
                for _ in range(60):
                    store.append("t", Q, bytes(4000))
            except StoreError as error:
                ends.append(error)

        producers = [start(produce) for _ in range(4)]
        for producer in producers:
            producer.join(SOON_S)
        assert len(ends) == 4 and all(isinstance(error, StorePoisoned) for error in ends)
        with pytest.raises(StorePoisoned):
            store.append("t", Q, b"after")
    finally:
        start(store.close).join(SOON_S)


def test_trim_that_cannot_be_shown_keeps_no_other_request_from_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MessageStore.open(tmp_path, tiny())
    store.append_batch([("t", Q, b"%d" % number) for number in range(4)])
    monkeypatch.setattr(Lows, "show", broken)
    queue = store._queues[0]
    with store._flushers[0].building:  # so that they share a frame
        trimming = start(store.trim, "t", Q, 2)
        until(lambda: bool(queue._items))
        tickets = [store.submit("t", Q, b"more") for _ in range(3)]
        appending = start(store.append, "t", Q, b"blocked")
        until(lambda: len(queue._items) == 5)
    assert [ticket.result(PATIENCE_S) for ticket in tickets] == [4, 5, 6]
    for thread in (trimming, appending):
        thread.join(SOON_S)
    store.close()
    monkeypatch.undo()
    with MessageStore.open(tmp_path, tiny()) as store:
        assert store.queue_bounds("t", Q) == (2, 8)


def test_commit_whose_step_raises_is_told_and_so_are_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("bulk", number, b"row") for number in range(5)]
    store = MessageStore.open(tmp_path, tiny())
    store.append("t", Q, b"first")
    with shards.held(store):
        commit_shards(tmp_path, shards.staged(tmp_path, rows), name="q", wait_ms=0)
        monkeypatch.setattr(CommitNames, "add", broken)
        with pytest.raises(MemoryError):
            store.attach_pending()
        with pytest.raises(StorePoisoned):
            store.append("t", Q, b"after")
    monkeypatch.undo()
    store.close()
    with MessageStore.open(tmp_path, tiny()) as store:
        store.attach_pending()
        assert store.queue_bounds("bulk", 0) == (0, 1)


def test_waiting_read_that_raises_keeps_no_other_from_waking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        store.append("t", Q, b"first")
        found: list[int] = []
        wait_ms = int(PATIENCE_S * 1000)
        readers = [
            start(lambda: found.append(len(store.read("t", Q, 1, max_messages=1, wait_ms=wait_ms)))) for _ in range(3)
        ]
        waiting = store._running.waiting
        until(lambda: len(waiting) == 3)
        raised: list[ThreadRead] = []
        real = ThreadRead.try_complete

        def try_complete(read: ThreadRead) -> bool:
            if not raised:
                raised.append(read)
                broken()
            return real(read)

        monkeypatch.setattr(ThreadRead, "try_complete", try_complete)
        store.append("t", Q, b"second")
        until(lambda: len(found) == 2)
        assert len(raised) == 1 and len(waiting) == 1
        store.append("t", Q, b"third")  # the one that has raised is told again
        for reader in readers:
            reader.join()
        assert found == [1, 1, 1]


def test_answer_that_raises_keeps_no_other_from_its_own() -> None:
    class Bad(Request):
        __slots__ = ()
        answer = broken

    requests = [BlockingRequest(), Bad.__new__(Bad), Request.__new__(Request), Bad.__new__(Bad)]
    for request in requests[1:]:
        request._waiters, request._done = None, False
    with pytest.raises(MemoryError):
        answer_all(requests)
    assert requests[0].lock.acquire(timeout=0)  # type: ignore
    assert requests[2].done()


def test_each_is_called_although_others_raise() -> None:
    called: list[int] = []

    def call(number: int) -> None:
        called.append(number)
        if number % 2:
            raise SystemExit(number)

    with pytest.raises(SystemExit, match="1"):
        for_each(range(5), call)
    assert called == [0, 1, 2, 3, 4]


def test_poison_reaches_every_lane_although_the_readers_cannot_be_told(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, tiny(lanes=2))
    one, other = (next(q for q in range(99) if lane_of("t", q, 2) == lane) for lane in range(2))
    store.append("t", one, b"x")
    store._running.waiting.look_at_all = broken  # type: ignore
    store._lanes[0]._clock_ms = broken
    with pytest.raises(StorePoisoned):
        store.append("t", one, b"y")
    with pytest.raises(StorePoisoned):
        store.append("t", other, b"z")
    store.close()
