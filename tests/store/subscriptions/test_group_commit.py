"""Acknowledgements of many threads in one record: all become durable, whatever becomes of one of the threads."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from stratalog.store import (
    Delivery,
    MessageStore,
    PublishBufferFull,
    StaleReceipt,
    StoreClosed,
    StorePoisoned,
    Subscription,
)
from stratalog.store.log.request import Request
from stratalog.store.subscriptions import group_commit
from stratalog.store.subscriptions.group_commit import FEWEST_THREADS, LOOK_S, AckRate, AckTicket

from ...clocks import SteppedClock
from ...seeds import draw_seed
from ..helpers import PATIENCE_S, small, tiny
from ..interrupts import Interrupted, interrupt_at, places
from .helpers import TOPIC, fill, fill_buffer, on_way

GIVING_UP = ("group_commit.py", "acknowledging.py", "state.py")
STEP = 3  # each run tries every third place, and the next run others


def in_threads(calls: Sequence[Callable[[], object]]) -> list[BaseException | None]:
    """Make calls, each in a thread: what each has raised."""
    found: list[BaseException | None] = [None] * len(calls)

    def make(at: int) -> None:
        try:
            calls[at]()
        except BaseException as error:  # the caller looks at it
            found[at] = error

    threads = [threading.Thread(target=make, args=(at,)) for at in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    return found


def hold_records(sub: Subscription, patch: pytest.MonkeyPatch) -> list[Request]:
    """Records of single acknowledgements are not handed to the log from now on: those that would have been."""
    held: list[Request] = []

    def hold(record: Request) -> bool:
        held.append(record)
        return True

    patch.setattr(sub._state.journal, "put", hold)
    return held


def wait_until(is_so: Callable[[], bool]) -> None:
    """Look until something is so."""
    told = threading.Event()
    for _ in range(int(PATIENCE_S * 1000)):
        if is_so():
            return
        told.wait(0.001)  # nobody sets it
    raise AssertionError("it does not come")


def test_those_that_come_while_a_record_is_on_its_way_share_the_next_one(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 6, 6)
        sub = store.subscribe(TOPIC, "a")
        got = sub.receive(11)
        with pytest.MonkeyPatch.context() as patch:
            held = hold_records(sub, patch)
            threads = [threading.Thread(target=sub.ack, args=(one,)) for one in got]
            threads[0].start()
            wait_until(lambda: len(held) == 1)
            for thread in threads[1:]:
                thread.start()
            wait_until(lambda: len(sub._acks.group_commit._waiting) == 10)
            assert len(held) == 1
        before = sub._state.journal.next_offset
        held[0].stream.lane.queue.put(held[0])
        for thread in threads:
            thread.join(PATIENCE_S)
        assert sub._state.journal.next_offset == before + 2
        assert sub.backlog().total == 1
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        assert len(store.subscribe(TOPIC, "a").receive()) == 1


def test_a_submitted_one_waits_at_the_cap_and_is_given_up_in_time(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", small(append_timeout_ms=20)) as store:
        fill(store, 2)
        sub = store.subscribe(TOPIC, "a")
        first, second = sub.receive(2)
        queue = fill_buffer(sub)
        with pytest.raises(PublishBufferFull):
            sub.submit_ack(first)
        assert sub.backlog().total == 2
        queue.release(queue.cap_bytes, 0)
        for one in (first, second):
            sub.submit_ack(one).result(PATIENCE_S)
        assert sub.backlog().total == 0


def test_a_stale_receipt_fails_alone(store: MessageStore) -> None:
    fill(store, 30)
    sub = store.subscribe(TOPIC, "a")
    got = sub.receive(30)
    sub.ack_batch(got[::3])
    errors = in_threads([lambda one=one: sub.ack(one) for one in got])  # type: ignore[misc]  # the loop's
    assert [type(error) for error in errors] == [StaleReceipt, type(None), type(None)] * 10
    assert sub.backlog().total == 0


def test_a_record_that_is_refused_leaves_all_its_messages_with_their_consumers(store: MessageStore) -> None:
    fill(store, 12)
    sub = store.subscribe(TOPIC, "a")
    got = sub.receive(12)
    with pytest.MonkeyPatch.context() as patch:
        held = hold_records(sub, patch)
        errors: list[BaseException | None] = []
        calls = [partial(sub.ack, one) for one in got]
        thread = threading.Thread(target=lambda: errors.extend(in_threads(calls)))
        thread.start()
        wait_until(lambda: len(held) == 1 and len(sub._acks.group_commit._waiting) == 11)
        for at in range(2):  # the answer to the first one brings the next, with all of the others
            wait_until(lambda: len(held) > at)  # noqa: B023  # called at once
            held[at].answer(PublishBufferFull("full"))
        thread.join(PATIENCE_S)
        assert len(held) == 2
    assert {type(error) for error in errors} == {PublishBufferFull}
    assert sub.backlog().total == 12
    assert not on_way(sub)
    assert in_threads(calls) == [None] * 12
    assert sub.backlog().total == 0


def test_a_record_in_line_at_a_full_buffer_is_given_up_in_time(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", small(append_timeout_ms=20)) as store:
        fill(store, 2)
        sub = store.subscribe(TOPIC, "a")
        got = sub.receive(2)
        queue = fill_buffer(sub)
        errors = in_threads([lambda one=one: sub.ack(one) for one in got])  # type: ignore[misc]  # the loop's
        assert {type(error) for error in errors} == {PublishBufferFull}
        queue.release(queue.cap_bytes, 0)
        sub.ack(got[0])
        sub.ack(got[1])
        assert sub.backlog().total == 0


def test_closing_the_store_fails_those_that_are_in_no_record(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "store", tiny())
    fill(store, 3)
    sub = store.subscribe(TOPIC, "a")
    got = sub.receive(3)
    errors: list[BaseException | None] = []
    with pytest.MonkeyPatch.context() as patch:
        held = hold_records(sub, patch)
        thread = threading.Thread(
            target=lambda: errors.extend(in_threads([lambda: sub.ack(got[0]), lambda: sub.ack(got[1])]))
        )
        thread.start()
        wait_until(lambda: len(held) == 1 and on_way(sub) == 2)
    store.close()
    held[0].answer(StoreClosed("closed"))
    thread.join(PATIENCE_S)
    assert {type(error) for error in errors} == {StoreClosed}
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        assert store.subscribe(TOPIC, "a").backlog().total == 3


def test_an_interrupt_of_one_leaves_none_of_the_others_asleep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ("group_commit.py", "acknowledging.py", "state.py")
    monkeypatch.setattr(group_commit, "GATHER_S", 10 * PATIENCE_S)  # the first one does not look by itself
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 2)
        for place in islice(places(), random.Random(draw_seed()).randrange(STEP), None, STEP):
            with store.subscribe(TOPIC, f"s{place}") as sub:
                first, second = sub.receive()
                commit = sub._acks.group_commit
                commit._gathering.wanted = 2
                other = threading.Thread(target=sub.ack, args=(first,))
                other.start()
                wait_until(lambda: len(commit._waiting) == 1)  # noqa: B023  # called at once
                interrupted, result = interrupt_at(place, files, lambda: sub.ack(second))  # noqa: B023  # called at once
                assert isinstance(result, Interrupted if interrupted else type(None))
                if interrupted and sub._state.table.row_of(second.receipt) >= 0:
                    with suppress(StaleReceipt):
                        sub.ack(second)  # if it was not handed over, it may be made again
                other.join(PATIENCE_S)
                assert not other.is_alive()
                wait_until(lambda: not on_way(sub))
                assert sub.backlog() == (0, int(sub.backlog().in_flight), 0)
                assert sub.backlog().in_flight <= int(interrupted)
            assert store.delete_subscription(TOPIC, f"s{place}")
            if not interrupted:
                break


def start_acking(sub: Subscription, one: Delivery) -> threading.Thread:
    """Acknowledge a message in a thread; that it fails is fine."""

    def ack() -> None:
        with suppress(StorePoisoned, PublishBufferFull):
            sub.ack(one)

    thread = threading.Thread(target=ack)
    thread.start()
    return thread


def stands_in_line(sub: Subscription) -> bool:
    """Whether the newest record waits at the cap."""
    newest = sub._acks.group_commit._in_time
    return newest is not None and newest[0].stream.lane.queue.is_in_line(newest[0])


def interrupt_refused(sub: Subscription, place: int) -> tuple[threading.Thread, bool]:
    """The log refuses a record of two acknowledgements, and the thread that sends it is interrupted at a place."""

    def refuse(_record: Request) -> bool:
        raise StorePoisoned("the log has failed")

    (first, second), commit = sub.receive(), sub._acks.group_commit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sub._state.journal, "put", refuse)
        commit._gathering.wanted = 2
        other = start_acking(sub, first)
        wait_until(lambda: len(commit._waiting) == 1)
        interrupted, result = interrupt_at(place, GIVING_UP, lambda: sub.ack(second))
        assert isinstance(result, Interrupted if interrupted else StorePoisoned)
        if commit._waiting:  # the second one has not come so far
            commit._send()
        other.join(PATIENCE_S)
    return other, interrupted


def interrupt_in_line(sub: Subscription, place: int) -> tuple[threading.Thread, bool]:
    """A record stands in line for too long, and the thread that gives it up is interrupted at a place."""
    (first, _), commit = sub.receive(), sub._acks.group_commit
    queue = fill_buffer(sub)
    other = start_acking(sub, first)
    wait_until(lambda: stands_in_line(sub))
    assert commit._in_time is not None
    commit._in_time = (commit._in_time[0], 0.0)
    interrupted, result = interrupt_at(place, GIVING_UP, commit._look_at_line)
    assert isinstance(result, Interrupted if interrupted else type(None))
    queue.release(queue.cap_bytes, 0)  # what stands in line, still or again, comes in
    other.join(PATIENCE_S)
    return other, interrupted


@pytest.mark.parametrize("interrupt", [interrupt_refused, interrupt_in_line])
def test_an_interrupt_of_the_one_that_gives_a_record_up_leaves_none_of_the_others_asleep(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interrupt: Callable[[Subscription, int], tuple[threading.Thread, bool]],
) -> None:
    monkeypatch.setattr(group_commit, "GATHER_S", 10 * PATIENCE_S)  # the first one does not look by itself
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        fill(store, 2)
        for place in islice(places(), random.Random(draw_seed()).randrange(STEP), None, STEP):
            with store.subscribe(TOPIC, f"s{place}") as sub:
                other, interrupted = interrupt(sub, place)
                assert not other.is_alive()
                assert not on_way(sub)
                assert sub._acks.group_commit._turn == [True]
            assert store.delete_subscription(TOPIC, f"s{place}")
            if not interrupted:
                break


def test_an_interrupted_close_of_the_store_leaves_nobody_asleep_whose_record_stands_in_line(tmp_path: Path) -> None:
    for place in islice(places(), random.Random(draw_seed()).randrange(3 * STEP), None, 3 * STEP):
        store = MessageStore.open(tmp_path / f"s{place}", small(append_timeout_ms=int(PATIENCE_S * 1000)))
        fill(store, 1)
        sub = store.subscribe(TOPIC, "a")
        got, errors = sub.receive(1), list[BaseException | None]()
        queue = fill_buffer(sub)
        calls = [partial(sub.ack, one) for one in got]
        thread = threading.Thread(target=lambda: errors.extend(in_threads(calls)))  # noqa: B023  # started at once
        thread.start()
        wait_until(lambda: stands_in_line(sub))  # noqa: B023  # called at once
        interrupted, result = interrupt_at(place, ("log/request.py", *GIVING_UP), store.close)
        assert isinstance(result, Interrupted if interrupted else type(None))
        del result  # its traceback keeps what it has met
        with queue._lock:  # nobody comes in from the line by this
            queue.used_bytes -= queue.cap_bytes
            queue._taken_bytes -= queue.cap_bytes
        store.close()
        thread.join(PATIENCE_S / 4)
        assert not thread.is_alive()
        assert [type(error) for error in errors] == [StoreClosed]
        if not interrupted:
            break


def test_a_record_that_an_interrupt_hands_over_twice_is_whole_both_times(store: MessageStore) -> None:
    fill(store, 2)
    sub = store.subscribe(TOPIC, "a")
    got = sub.receive()
    put, state = sub._state.journal.put, sub._state
    with pytest.MonkeyPatch.context() as patch:

        def put_twice(record: Request) -> bool:
            put(record)
            wait_until(record.done)
            return put(record)  # as the interrupted thread does, late

        patch.setattr(state.journal, "put", put_twice)
        sub.ack(got[0])
    store.flush()
    stream = state.journal.stream
    assert stream is not None
    records = state.parts.reads.reader.read_batch(stream, 0, 10, 1 << 20).payloads()
    assert bytes(records[-1]) == bytes(records[-2]) != b""
    sub.ack(got[1])
    assert sub.backlog().total == 0


def test_an_interrupted_acknowledgement_takes_nothing_back_of_another_one_of_its_receipt(store: MessageStore) -> None:
    fill(store, 1)
    sub = store.subscribe(TOPIC, "a")
    (one,) = sub.receive()
    with pytest.MonkeyPatch.context() as patch:
        held = hold_records(sub, patch)
        thread = start_acking(sub, one)
        wait_until(lambda: len(held) == 1)
        for place in places():
            interrupted, result = interrupt_at(place, ("acknowledging.py", "state.py"), lambda: sub.ack(one))
            assert isinstance(result, Interrupted if interrupted else StaleReceipt)
            if not interrupted:
                break
    held[0].stream.lane.queue.put(held[0])
    thread.join(PATIENCE_S)
    assert sub.backlog().total == 0


def test_threads_sleep_until_the_answer_also_where_none_waits_at_the_cap(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", small(append_timeout_ms=0)) as store:
        fill(store, 2)
        sub, looks = store.subscribe(TOPIC, "a"), list[None]()
        with pytest.MonkeyPatch.context() as patch:
            held = hold_records(sub, patch)
            patch.setattr(sub._acks.group_commit, "_look_at_line", lambda: looks.append(None))
            first, second = (start_acking(sub, one) for one in sub.receive(2))
            wait_until(lambda: len(looks) >= 2)
            began, before = time.monotonic(), len(looks)
            threading.Event().wait(0.05)  # nobody sets it
            most = 100 + 2_000 * (time.monotonic() - began)
            assert len(looks) - before < most  # at most one in 2 ms each; tens of thousands without a sleep
        for thread in (first, second):
            while thread.is_alive():
                for record in held:
                    record.answer()
                thread.join(0.01)


def test_a_record_in_line_is_looked_at_when_its_time_is_over(
    store: MessageStore, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came into line a moment after its thread began to sleep."""
    fill(store, 1)
    sub, looks = store.subscribe(TOPIC, "a"), list[float]()
    commit = sub._acks.group_commit

    class Sleep:
        def acquire(self, timeout: float) -> bool:
            clock.now += timeout
            return len(looks) == 3

    ticket = AckTicket().of_thread()
    ticket.lock = Sleep()  # type: ignore[assignment]  # it takes no time
    over_s = clock.now + commit._timeout_s + 0.01
    commit._waiting.append(ticket)
    monkeypatch.setattr(commit, "_in_time", (None, over_s * 1000))
    monkeypatch.setattr(commit, "_send", lambda: None)
    monkeypatch.setattr(commit, "_look_at_line", lambda: looks.append(clock.now))
    commit._wait(ticket)
    assert looks[2] == pytest.approx(over_s, abs=1e-6)


def test_many_fast_threads_share_records_and_few_or_slow_ones_do_not_wait() -> None:
    now = [0.0]

    def wanted(threads: int, acknowledgements: int) -> int:
        gathering = AckRate(lambda: now[0])
        for at in range(acknowledgements):
            gathering.note([at % threads])
        now[0] += LOOK_S
        gathering.note([0])
        return gathering.wanted

    assert wanted(40, 400) == 35
    assert wanted(40, 100) == 20
    assert wanted(40, 40) == 1
    assert wanted(FEWEST_THREADS - 1, 400) == 1


def test_what_is_wanted_and_does_not_come_is_not_waited_for(store: MessageStore) -> None:
    fill(store, 3)
    sub = store.subscribe(TOPIC, "a")
    sub._acks.group_commit._gathering.wanted = 1000
    for one in sub.receive():
        sub.ack(one)
    assert sub.backlog().total == 0
    assert AckTicket().of_thread().thread_id == threading.get_ident()
