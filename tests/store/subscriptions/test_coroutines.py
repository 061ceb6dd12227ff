"""Coroutines that receive and acknowledge: they share records, hold up no thread, and lose nothing when they end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import SupportsIndex

import pytest

from stratalog.store import (
    MessageStore,
    PublishBufferFull,
    StaleReceipt,
    StoreClosed,
    StoreError,
    Subscription,
    SubscriptionClosed,
)
from stratalog.store.format.cursors import pack_ones
from stratalog.store.log.queue import RequestQueue
from stratalog.store.log.request import Request
from stratalog.store.subscriptions import group_commit, journal
from stratalog.store.subscriptions.ack_row import AckRow
from stratalog.store.testing import TunedConfig

from ..helpers import PATIENCE_S, crash_copy, small, tiny
from ..interrupts import interrupt_at, places
from .helpers import TOPIC, fill, fill_buffer, on_way, ticket_of


def test_coroutines_that_acknowledge_share_a_record_which_is_durable(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 30, 30)
        sub = store.subscribe(TOPIC, "a")
        got = sub.receive(60)
        before = sub._state.journal.next_offset

        async def ack_most() -> None:
            await asyncio.gather(*(sub.ack_async(one) for one in got[:50]))
            crash_copy(tmp_path / "store", tmp_path / "crashed")

        asyncio.run(ack_most())
        assert sub._state.journal.next_offset == before + 1
        assert sub.backlog() == (0, 10, 0)
    with MessageStore.open(tmp_path / "crashed", tiny()) as store:
        assert len(store.subscribe(TOPIC, "a").receive(60)) == 10


def test_each_message_goes_to_one_of_many_coroutines_and_is_acknowledged_once(store: MessageStore) -> None:
    fill(store, 150, 150, 150)
    sub, seen = store.subscribe(TOPIC, "a"), list[tuple[int, int]]()

    async def consume() -> None:
        while got := await sub.receive_async(2):
            for one in got:
                seen.append((one.message.queue_id, one.message.offset))
                await sub.ack_async(one)

    async def run() -> None:
        await asyncio.gather(*(consume() for _ in range(50)))

    asyncio.run(run())
    assert sorted(seen) == [(queue_id, offset) for queue_id in range(3) for offset in range(150)]
    assert sub.backlog().total == 0


def test_an_acknowledgement_whose_task_is_cancelled_becomes_durable(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 10)
        sub = store.subscribe(TOPIC, "a")
        got = sub.receive(10)

        async def cancel_half() -> None:
            tasks = [asyncio.create_task(sub.ack_async(one)) for one in got]
            await asyncio.sleep(0)  # now all have begun
            for task in tasks[::2]:
                task.cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(one) for one in found] == [asyncio.CancelledError, type(None)] * 5

        asyncio.run(cancel_half())
        with pytest.raises(StaleReceipt):
            sub.ack(got[0])
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        assert store.subscribe(TOPIC, "a").receive() == []


def test_a_record_that_is_refused_fails_all_its_coroutines_and_each_may_acknowledge_again(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 5)
    sub = store.subscribe(TOPIC, "a")
    got = sub.receive(5)

    def refuse(_record: Request) -> bool:
        raise PublishBufferFull("full")

    async def ack_all() -> list[type]:
        found = await asyncio.gather(*(sub.ack_async(one) for one in got), return_exceptions=True)
        return [type(one) for one in found]

    with monkeypatch.context() as patch:
        patch.setattr(sub._state.journal, "put", refuse)
        assert asyncio.run(ack_all()) == [PublishBufferFull] * 5
    assert sub.backlog().total == 5
    assert asyncio.run(ack_all()) == [type(None)] * 5
    assert asyncio.run(ack_all()) == [StaleReceipt] * 5


def test_a_record_of_coroutines_in_line_at_a_full_buffer_is_given_up_in_time(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", small(append_timeout_ms=20)) as store:
        fill(store, 2)
        sub = store.subscribe(TOPIC, "a")
        got = sub.receive(2)
        queue = fill_buffer(sub)

        async def ack_both() -> None:
            found = await asyncio.gather(*(sub.ack_async(one) for one in got), return_exceptions=True)
            assert {type(one) for one in found} == {PublishBufferFull}

        asyncio.run(ack_both())
        queue.release(queue.cap_bytes, 0)
        assert sub.backlog().total == 2


def test_more_coroutines_than_a_record_takes_share_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "MOST_AWAITED", 8)
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 30)
        sub = store.subscribe(TOPIC, "a")
        got = sub.receive(30)
        before = sub._state.journal.next_offset

        async def ack_all() -> None:
            await asyncio.wait_for(asyncio.gather(*(sub.ack_async(one) for one in got)), PATIENCE_S)

        asyncio.run(ack_all())
        assert sub._state.journal.next_offset == before + 4
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        assert store.subscribe(TOPIC, "a").receive() == []


def test_the_largest_record_fits_into_the_smallest_ring(tmp_path: Path) -> None:
    least = TunedConfig(segment_bytes=64 << 10, max_frame_bytes=4096, max_message_bytes=1, recent_bytes=0)
    with MessageStore.open(tmp_path / "store", least) as store:
        record = pack_ones(1, [(0, 1, 0)] * (group_commit.MOST_AWAITED + 1000))
        assert len(record) * 4 <= store._shared.lanes[0].ring.size_bytes


def test_one_of_the_coroutines_of_a_record_compacts(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LEAST_BYTES", 1)
    fill(store, 200)
    sub = store.subscribe(TOPIC, "a")
    got, runs = sub.receive(200), list[object]()
    aside = sub._state.parts.async_reads.aside

    async def counted(work: Callable[[], None], check_open: Callable[[], object]) -> None:
        runs.append(work)
        await aside(work, check_open)

    async def ack_all() -> None:
        await asyncio.gather(*(sub.ack_async(one) for one in got))

    monkeypatch.setattr(sub._state.parts.async_reads, "aside", counted)
    asyncio.run(ack_all())
    assert len(runs) == 1
    assert not sub._acks._is_compacted


def test_a_refused_record_of_many_is_taken_back_at_once(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, 300, 300)
    sub = store.subscribe(TOPIC, "a")
    got, restored = sub.receive(600), list[int]()
    commit = sub._acks.group_commit
    settle = commit._settle

    def counted(rows: Sequence[AckRow], error: StoreError | None) -> None:
        restored.append(len(rows))
        settle(rows, error)

    def refuse(_record: Request) -> bool:
        raise PublishBufferFull("full")

    async def ack_all() -> set[type]:
        found = await asyncio.gather(*(sub.ack_async(one) for one in reversed(got)), return_exceptions=True)
        return {type(one) for one in found}

    with monkeypatch.context() as patch:
        patch.setattr(sub._state.journal, "put", refuse)
        patch.setattr(commit, "_settle", counted)
        assert asyncio.run(ack_all()) == {PublishBufferFull}
    assert restored == [600]
    assert not on_way(sub)
    assert sub.backlog().total == 600
    assert asyncio.run(ack_all()) == {type(None)}


def test_a_loop_that_was_interrupted_still_acknowledges(store: MessageStore) -> None:
    fill(store, 600)
    sub = store.subscribe(TOPIC, "a")
    commit, got = sub._acks.group_commit, iter(sub.receive(600))
    look, interrupt = commit._look, partial(interrupt_at, files=("group_commit.py",))

    async def ack_three(place: int) -> tuple[bool, ...]:
        """The beginning of one is interrupted, and the look that another one waits for."""
        ticket, came = ticket_of(sub, next(got).receipt), list[bool]()
        future = ticket.of_coroutine()
        came.append(interrupt(place, work=partial(commit.begin, ticket))[0])
        await asyncio.wait_for(sub.ack_async(next(got)), PATIENCE_S / 2)
        with pytest.MonkeyPatch.context() as patch:  # from its second place on: asyncio loses a call that did not begin
            look_at = partial(interrupt, place + 1)
            patch.setattr(commit, "_look", lambda loop: came.append(look_at(work=partial(look, loop))[0]))
            await asyncio.wait_for(sub.ack_async(next(got)), PATIENCE_S / 2)
        if ticket.is_handed_over:
            await asyncio.wait_for(future, PATIENCE_S / 2)
        return tuple(came)

    for place in places():
        if not any(asyncio.run(ack_three(place))):
            break
    assert place > 20


def test_a_look_that_is_interrupted_before_it_begins_is_made_again(store: MessageStore) -> None:
    fill(store, 20)
    sub = store.subscribe(TOPIC, "a")
    commit, got = sub._acks.group_commit, sub.receive(20)

    async def ack_all() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(commit, "_look", lambda _loop: None)  # asyncio has called it, and it did not come to a step
            tasks = [asyncio.create_task(sub.ack_async(one)) for one in got]
            await asyncio.sleep(0)  # they begin
            await asyncio.sleep(0)  # the look is lost
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S / 2)

    for _ in range(2):
        asyncio.run(ack_all())
        fill(store, 20)
        got = sub.receive(20)
    assert not commit._looking


class Turn(list[bool]):
    """The turn of a group commit, with calls that come right before it is taken and before it is given back."""

    def __init__(self, before_take: Callable[[], object], before_back: Callable[[], object]) -> None:
        super().__init__([True])
        self._take, self._back = [before_take], [before_back]

    def __delitem__(self, at: SupportsIndex | slice) -> None:
        if self._take:
            self._take.pop()()
        super().__delitem__(at)

    def append(self, one: bool) -> None:
        if self._back:
            self._back.pop()()
        super().append(one)


def test_one_that_finds_no_turn_is_sent_by_the_one_that_had_it_for_nothing(store: MessageStore) -> None:
    fill(store, 9)
    sub = store.subscribe(TOPIC, "a")
    commit = sub._acks.group_commit

    async def ack_all() -> None:
        loop = asyncio.get_running_loop()
        late, *early = [ticket_of(sub, one.receipt) for one in sub.receive(9)]
        future = late.of_coroutine()

        def come_late() -> None:
            commit._awaited.append(late)
            commit._look(loop)

        commit._awaited.extend(early)
        commit._turn = Turn(commit._awaited.clear, come_late)  # as if another thread had sent the early ones
        commit._send(8)
        await asyncio.wait_for(future, PATIENCE_S / 2)

    asyncio.run(ack_all())


def test_a_record_in_line_is_given_up_whatever_became_of_the_one_before_meanwhile(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", small(append_timeout_ms=20)) as store:
        fill(store, 2)
        sub = store.subscribe(TOPIC, "a")
        first, second = sub.receive(2)
        commit = sub._acks.group_commit

        def put_late(record: Request) -> bool:
            """It stands in line, comes in and is durable, and so the next one stands there before this returns."""
            patch.undo()
            ticket = ticket_of(sub, second.receipt)
            seconds.append(ticket.of_coroutine())
            commit._awaited.append(ticket)
            commit._is_due = True
            full.append(fill_buffer(sub))
            record.answer()
            return False

        async def ack_both() -> None:
            await sub.ack_async(first)
            with pytest.raises(PublishBufferFull):
                await asyncio.wait_for(seconds[0], PATIENCE_S / 2)

        seconds, full = list[asyncio.Future[None]](), list[RequestQueue[Request]]()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sub._state.journal, "put", put_late)
            asyncio.run(ack_both())
        full[0].release(full[0].cap_bytes, 0)


def test_a_loop_that_stands_still_holds_up_no_thread(store: MessageStore) -> None:
    fill(store, 2)
    sub = store.subscribe(TOPIC, "a")
    first, second = sub.receive(2)

    async def ack_and_stand_still() -> None:
        task = asyncio.create_task(sub.ack_async(first))
        await asyncio.sleep(0)  # it has begun, and the loop has not looked at it
        thread = threading.Thread(target=sub.ack, args=(second,))
        thread.start()
        thread.join(PATIENCE_S / 4)
        assert not thread.is_alive()
        await task

    asyncio.run(ack_and_stand_still())
    assert sub.backlog().total == 0


def test_what_a_loop_left_behind_goes_with_the_next_acknowledgement(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 3)
        sub = store.subscribe(TOPIC, "a")
        first, second, third = sub.receive(3)
        loop = asyncio.new_event_loop()
        task = loop.create_task(sub.ack_async(first))
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        assert not task.done()
        sub.ack(second)
        asyncio.run(sub.ack_async(third))
        assert not on_way(sub)
        assert len(sub._acks.group_commit._looking) == 0
        del task
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        assert store.subscribe(TOPIC, "a").receive() == []


async def consume_until_the_end(sub: Subscription, close: Callable[[], None]) -> list[BaseException | None]:
    """Many coroutines receive and acknowledge, until `close` was called in a thread: what each has raised."""

    async def consume() -> None:
        while got := await sub.receive_async(1, wait_ms=int(PATIENCE_S * 1000)):
            await sub.ack_async(got[0])

    tasks = [asyncio.create_task(consume()) for _ in range(20)]
    await asyncio.sleep(0.01)  # they are at it; any moment will do
    await asyncio.to_thread(close)
    return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE_S / 4)


@pytest.mark.parametrize("closes", ["store", "subscription"])
def test_closing_under_coroutines_is_told_to_each(store: MessageStore, closes: str) -> None:
    fill(store, 400)
    sub = store.subscribe(TOPIC, "a")
    close = store.close if closes == "store" else sub.close
    found = asyncio.run(consume_until_the_end(sub, close))
    assert [type(one) for one in found] == [StoreClosed if closes == "store" else SubscriptionClosed] * 20
