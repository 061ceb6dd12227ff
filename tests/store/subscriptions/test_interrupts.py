"""A signal's handler may raise at any place of a receive or an acknowledgement: no message is lost by that."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from traceback import walk_tb
from unittest.mock import patch

import numpy as np
import pytest

from stratalog.store import DeliveryBatch, MessageStore, PublishBufferFull, StaleReceipt, StoreError, Subscription
from stratalog.store.log.queue import RequestQueue
from stratalog.store.log.request import Request
from stratalog.store.log.ticket import RecordTicket
from stratalog.store.subscriptions.cursor import Cursor
from stratalog.store.subscriptions.group_commit import GroupCommit
from stratalog.store.subscriptions.in_flight import Places
from stratalog.store.subscriptions.journal import Journal

from ...clocks import SteppedClock
from ...seeds import draw_seed
from ..helpers import tiny, until
from ..interrupts import Interrupted, interrupt_at, places
from .helpers import TOPIC, begin_ack, fill, on_way
from .helpers import places as places_of

FILES = (
    "dispatcher.py", "scanner.py", "in_flight.py", "state.py", "journal.py", "group_commit.py", "acknowledging.py",
    "subscriptions/subscription.py", "cursor.py",
)  # fmt: skip
COMPACTING = (*FILES, "turns.py")
CALLING = ("subscriptions/subscription.py", "receiving.py", "calling.py")
MESSAGES = 6
STEP = 5  # each run tries every fifth place, and the next run others


def receive(sub: Subscription) -> object:
    return sub.receive(4)


def receive_batch(sub: Subscription) -> object:
    return sub.receive_batch(4).deliveries()


@pytest.mark.parametrize("mode", ["shared", "ordered"])
@pytest.mark.parametrize("work", [receive, receive_batch])
def test_an_interrupted_receive_loses_no_message(
    tmp_path: Path, work: Callable[[Subscription], object], mode: str
) -> None:
    clock = SteppedClock()
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        fill(store, MESSAGES // 2, MESSAGES // 2)
        for place in islice(places(), random.Random(draw_seed()).randrange(STEP), None, STEP):
            name = f"s{place}"
            with store.subscribe(TOPIC, name, mode=mode) as sub:  # type: ignore[call-overload]  # one of the two
                if place % 2:
                    sub.nack_batch([one.receipt for one in sub.receive(1)])
                interrupted, result = interrupt_at(place, FILES, lambda sub=sub: work(sub))  # type: ignore[misc]  # the loop's
                assert isinstance(result, Interrupted if interrupted else list)
                clock.now += 31
                seen = set()
                while got := sub.receive():
                    seen |= set(places_of(got))
                    sub.ack_batch(got)
                assert len(seen) == MESSAGES
                assert sub.backlog().total == 0
            assert store.delete_subscription(TOPIC, name)
            if not interrupted:
                break


def is_ending(error: object) -> bool:
    """Whether an exception came while the call of a queue ended."""
    trace = error.__traceback__ if isinstance(error, BaseException) else None
    return any(frame.f_code.co_name == "end" for frame, _ in walk_tb(trace))


def receive_of_queue(sub: Subscription) -> object:
    return sub.receive_batch(queue_id=1)


def receive_of_queue_async(sub: Subscription) -> object:
    return asyncio.run(sub.receive_batch_async(queue_id=1))


@pytest.mark.parametrize("work", [receive_of_queue, receive_of_queue_async])
def test_an_interrupted_receive_of_a_queue_is_forgotten(tmp_path: Path, work: Callable[[Subscription], object]) -> None:
    """Else the subscription would take the longer way for a call that nobody makes any more."""
    with MessageStore.open(tmp_path / "store", tiny()) as store, store.subscribe(TOPIC, "s") as sub:
        for place in places():
            interrupted, result = interrupt_at(place, CALLING, partial(work, sub), KeyboardInterrupt)
            assert isinstance(result, KeyboardInterrupt if interrupted else DeliveryBatch)
            assert is_ending(result) or not sub._state.queue_calls
            sub._state.queue_calls._of.clear()
            if not interrupted:
                assert place > 20
                break


def durable(sub: Subscription) -> Cursor:
    """What the log says of a subscription."""
    cursor = Cursor()
    Journal(sub._state.parts, sub.topic, sub.name).load(cursor)
    return cursor


def said(cursor: Cursor) -> dict[int, set[int]]:
    """The acknowledged offsets of each queue."""
    return {queue_id: set(range(one.mark)) | set(one.above) for queue_id, one in cursor.queues.items()}


@pytest.mark.parametrize("mode", ["shared", "ordered"])
@pytest.mark.parametrize("how", ["one", "batch", "ticket"])
def test_an_interrupted_acknowledgement_holds_or_can_be_made_again(tmp_path: Path, how: str, mode: str) -> None:
    """It holds if its receipt is stale: then the log says it, too."""
    clock = SteppedClock()
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        fill(store, MESSAGES // 2, MESSAGES // 2)

        def ack(sub: Subscription, receipts: list[int]) -> None:
            if how == "batch":
                sub.ack_batch(receipts)
            elif how == "one":
                sub.ack(receipts[0])
            else:
                sub.submit_ack(receipts[0]).result()

        for place in islice(places(), random.Random(draw_seed()).randrange(STEP), None, STEP):
            with store.subscribe(TOPIC, f"s{place}", mode=mode) as sub:  # type: ignore[call-overload]  # one of the two
                firsts = [one for one in sub.receive() if one.message.offset == 0]
                acked = firsts if how == "batch" else firsts[:1]
                receipts = [one.receipt for one in acked]
                interrupted, result = interrupt_at(place, FILES, lambda: ack(sub, receipts))  # noqa: B023  # called at once
                assert isinstance(result, Interrupted if interrupted else type(None))
                try:
                    sub.ack_batch(receipts)
                    again = True
                except StaleReceipt:
                    again = False
                assert interrupted or not again
                until(lambda: not on_way(sub))
                there = {(queue_id, at) for queue_id, offsets in said(durable(sub)).items() for at in offsets}
                assert there == set(places_of(acked))
                clock.now += 31
                left = set()
                while got := sub.receive():
                    left |= set(places_of(got))
                    sub.ack_batch(got)
                assert len(left) == MESSAGES - len(acked)
                assert not left & set(places_of(acked))
            if not interrupted:
                break


@pytest.mark.parametrize("how", ["one", "batch", "ticket"])
def test_an_acknowledgement_that_fails_can_be_made_again_behind_an_interrupt(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 1)
        with store.subscribe(TOPIC, "s") as sub:
            (only,) = sub.receive()
            stream = sub._state.journal.stream
            assert stream is not None

            def refuse(_request: object, *, wait: bool = True) -> bool:
                raise PublishBufferFull(f"as if there were no room, wait or not: {wait}")

            def ack() -> None:
                if how == "batch":
                    sub.ack_batch([only.receipt])
                elif how == "one":
                    sub.ack(only)
                else:
                    sub.submit_ack(only)

            with monkeypatch.context() as patch:
                patch.setattr(stream.lane.queue, "put", refuse)
                for place in places():
                    interrupted, result = interrupt_at(place, FILES, ack)
                    assert isinstance(result, Interrupted if interrupted else PublishBufferFull)
                    assert sub.backlog().total == 1  # an interrupted undo ends with the next call
                    assert not on_way(sub)
                    assert said(sub._state.cursor)[0] == set()
                    if not interrupted:
                        break
            sub.ack(only)


def interrupted_ack(sub: Subscription, receipt: int) -> Request:
    """The record of an acknowledgement whose call was interrupted once the log had taken it."""
    stream, taken = sub._state.journal.stream, list[Request]()
    assert stream is not None

    def put(request: Request) -> None:
        taken.append(request)
        raise KeyboardInterrupt

    with patch.object(stream.lane.queue, "put", put), pytest.raises(KeyboardInterrupt):
        sub.submit_ack(receipt)
    return taken[0]


@pytest.mark.parametrize("error", [None, PublishBufferFull("as if there were no room")])
def test_the_answer_to_an_interrupted_acknowledgement_is_none_to_the_one_that_was_made_again(
    tmp_path: Path, error: StoreError | None
) -> None:
    """Both have the same receipt, and records of their own."""
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 1)
        with store.subscribe(TOPIC, "s") as sub:
            (only,) = sub.receive()
            first = interrupted_ack(sub, only.receipt)
            second = begin_ack(sub, only.receipt)
            first.answer(error)
            assert on_way(sub) == 1
            sub._acks.settle([second], None)
            assert not on_way(sub)
            assert said(sub._state.cursor)[0] == {0}


@pytest.mark.parametrize("taken_back", ["by an interrupt", "by a seek"])
def test_the_answer_to_an_acknowledgement_that_was_taken_back_frees_no_line(tmp_path: Path, taken_back: str) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 3)
        with store.subscribe(TOPIC, "s", mode="ordered") as sub:
            (first,) = sub.receive(1)
            if taken_back == "by a seek":
                one = begin_ack(sub, first.receipt)
                sub.seek("earliest")
                (first,) = sub.receive(1)
                sub._acks.settle([one], None)
            else:
                interrupted_ack(sub, first.receipt).answer()
            again = sub.receive(wait_ms=0)  # what was taken back comes again at once
            assert {delivery.message.offset for delivery in again} <= {0}, "the first message is out still"
            sub.ack([*again, first][0])
            assert [delivery.message.offset for delivery in sub.receive(1)] == [1]


@pytest.mark.parametrize(("how", "owner", "step"), [("submit_ack", RequestQueue, "put"), ("ack", GroupCommit, "write")])
def test_a_message_of_an_acknowledgement_that_two_interrupts_ended_comes_again(
    tmp_path: Path, how: str, owner: type, step: str
) -> None:
    """The second one comes in what the first one has set going."""
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 1)
        with store.subscribe(TOPIC, "s") as sub:
            (only,) = sub.receive()

            def end(*_: object, **__: object) -> None:
                raise KeyboardInterrupt

            acks = sub._acks
            with (
                patch.object(type(acks), "_finish", end),
                patch.object(owner, step, end),
                pytest.raises(KeyboardInterrupt),
            ):
                getattr(sub, how)(only.receipt)
            assert acks.cut_short, "the next call of any consumer gives it back"
            assert [one.message.offset for one in sub.receive(wait_ms=0)] == [0]


def test_a_ticket_is_answered_whatever_becomes_of_what_it_settles(tmp_path: Path) -> None:
    def settle(rows: list[int], error: StoreError | None) -> None:
        raise MemoryError

    with MessageStore.open(tmp_path / "store", tiny()) as store, store.subscribe(TOPIC, "s") as sub:
        stream = sub._acks._journal.stream
        assert stream is not None
        ticket = RecordTicket[int](stream, settle)
        with pytest.raises(MemoryError):
            ticket.answer()
        assert ticket.done()


def test_an_interrupted_compaction_holds_up_nobody_and_forgets_nothing(tmp_path: Path) -> None:
    """Also what others acknowledge meanwhile, and the log does not say yet."""
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, MESSAGES, MESSAGES)
        with store.subscribe(TOPIC, "s") as sub:
            state, got = sub._state, sub.receive()
            sub.ack_batch([one for one in got if one.message.offset in (1, 3)])
            begin_ack(sub, next(one.receipt for one in got if one.message.offset == 2))  # as another thread
            before = said(state.cursor)
            for place in places():
                state.journal._bytes = 1 << 20
                assert state.journal.wants_compaction
                interrupted, result = interrupt_at(place, COMPACTING, state.compact_in_time)
                assert isinstance(result, Interrupted if interrupted else type(None))
                assert not state.changing.locked()
                assert said(state.cursor) == before
                if not interrupted:
                    break
            assert said(durable(sub)) == {0: {1, 3}, 1: {1, 3}}


def test_an_interrupted_deletion_holds_up_nobody(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 1)
        for place in places():
            with store.subscribe(TOPIC, "s") as sub:
                state = sub._state
                interrupted, result = interrupt_at(
                    place, ("registry.py", "turns.py"), lambda: store.delete_subscription(TOPIC, "s")
                )
                assert isinstance(result, Interrupted if interrupted else bool)
                assert not state.changing.locked()
            if not interrupted:
                break


def test_an_interrupt_leaves_no_attempt_that_no_record_has(tmp_path: Path) -> None:
    """With one attempt at the most, its message would go to the dead letters without ever having been given out."""
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 1)
        with store.subscribe(TOPIC, "s", max_attempts=1, dead_letter_topic="dead") as sub:
            tries, message = sub._dispatcher.tries, Places(*np.array([[0], [0], [1]], np.int64))
            for place in places():
                interrupted, result = interrupt_at(place, ("redelivery.py", "attempts.py"), lambda: tries.note(message))
                if not interrupted:
                    break
                assert isinstance(result, Interrupted)
                assert tries.of(message.queues, message.offsets).tolist() == [0]
