"""A signal's handler may raise at any place of a change: the log and the process say the same of it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from stratalog.store import MessageStore, PublishBufferFull
from stratalog.store.delayed.topic import DelayedTopic
from stratalog.store.log.request import Request

from ..helpers import PATIENCE_S, crash_copy, until
from ..interrupts import Interrupted, interrupt_at, places
from .consumer import START_MS, Hand, topic_of

SOON_MS = 20_000  # it comes at once; where a bug holds it up, the test says so before the minute of `tests.planted`


def due_now(store: MessageStore) -> list[int]:
    """The offsets that a subscription gets by now."""
    with store.subscribe("t", "a") as sub:
        return sorted(one.message.offset for one in sub.receive_batch().deliveries())


def are_settled(topic: DelayedTopic) -> bool:
    """Whether all changes have their answer."""
    with topic.lock:
        topic.decisions.settle()
        return not topic.records.open


@pytest.mark.parametrize("how", ["cancel", "move"])
def test_an_interrupted_change_is_the_same_for_the_process_and_the_log(tmp_path: Path, how: str) -> None:
    hand, count = Hand(), 0

    def change(store: MessageStore, offset: int) -> bool:
        if how == "cancel":
            return store.cancel_delayed("t", 0, offset)
        return store.reschedule_delayed("t", 0, offset, START_MS + 1000)

    with hand.open(tmp_path / "s") as store:
        topic = topic_of(store)
        for place in places():
            offset = store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
            files = ("decisions.py", "hidden_streams.py", "log/queue.py")
            interrupted, result = interrupt_at(place, files, lambda: change(store, offset))  # noqa: B023  # called at once
            assert isinstance(result, Interrupted) if interrupted else result is True
            count += 1
            if not interrupted:
                break

        until(lambda: are_settled(topic))
        crash_copy(tmp_path / "s", tmp_path / "crashed")
        hand.now_ms = START_MS + 10
        here = due_now(store)
    with hand.open(tmp_path / "crashed") as store:
        assert due_now(store) == here
    assert set(here) < set(range(count))


@pytest.mark.parametrize("is_accepted", [True, False])
def test_an_interrupted_change_is_the_same_for_both_also_where_the_log_takes_no_other_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_accepted: bool
) -> None:
    hand = Hand()
    with hand.open(tmp_path / "s") as store:
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
        topic, records = topic_of(store), list[Request]()
        queue = topic.decisions.stream.lane.queue
        put = queue.put

        def put_one(request: Request, *, wait: bool = True) -> bool:
            if not request.count:
                return put(request, wait=wait)
            records.append(request)
            if len(records) > 1:
                raise PublishBufferFull("as if others had come first")
            if is_accepted:
                put(request, wait=wait)
            raise Interrupted

        with monkeypatch.context() as patch:
            patch.setattr(queue, "put", put_one)
            with pytest.raises(Interrupted):
                store.cancel_delayed("t", 0, 0)
        until(lambda: are_settled(topic))
        crash_copy(tmp_path / "s", tmp_path / "crashed")
        hand.now_ms = START_MS + 10
        assert due_now(store) == ([] if is_accepted else [0])
    with hand.open(tmp_path / "crashed") as store:
        assert due_now(store) == ([] if is_accepted else [0])


@pytest.mark.parametrize("takes_barriers", [True, False])  # a full publish buffer does, a log that is closed does not
@pytest.mark.parametrize("how", ["cancel", "move"])
def test_a_change_that_is_refused_leaves_the_message_pending_behind_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, takes_barriers: bool
) -> None:
    hand = Hand()
    with hand.open(tmp_path / "s") as store:
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
        topic = topic_of(store)
        queue = topic.decisions.stream.lane.queue
        put = queue.put

        def refuse(request: Request, *, wait: bool = True) -> bool:
            if takes_barriers and not request.count:
                return put(request, wait=wait)
            raise PublishBufferFull("as if there were no room")

        def change() -> bool:
            if how == "cancel":
                return store.cancel_delayed("t", 0, 0)
            return store.reschedule_delayed("t", 0, 0, START_MS + 1000)

        with monkeypatch.context() as patch:
            patch.setattr(queue, "put", refuse)
            for place in places():
                interrupted, result = interrupt_at(place, ("decisions.py",), change)
                assert isinstance(result, PublishBufferFull) or (interrupted and isinstance(result, Interrupted))
                until(lambda: are_settled(topic))
                assert topic.pending == 1
                if not interrupted:
                    break
        hand.now_ms = START_MS + 10
        assert due_now(store) == [0]


@pytest.mark.parametrize("to_ms", [0, START_MS])
def test_message_moved_to_a_time_that_is_over_is_in_an_index_that_is_made_anew_before_it_came(
    tmp_path: Path, to_ms: int
) -> None:
    hand = Hand()
    with hand.open(tmp_path / "s") as store, store.subscribe("t", "a") as sub:
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 1000)
        assert sub.receive() == []
        assert store.reschedule_delayed("t", 0, 0, to_ms)
        topic_of(store).why_anew = "the test says so"
        assert [one.message.offset for one in sub.receive(wait_ms=SOON_MS)] == [0]
        assert topic_of(store).last_rebuild == "the test says so"


def test_message_whose_change_is_refused_behind_its_time_is_in_an_index_that_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = Hand()
    with hand.open(tmp_path / "s") as store, store.subscribe("t", "a") as sub:
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
        assert sub.receive() == []
        topic = topic_of(store)

        def refuse(request: Request, *, wait: bool = True) -> bool:
            hand.now_ms += 100
            topic.look()  # what is due by then is given out, and it is not: somebody decides about it
            raise PublishBufferFull("as if there were no room")

        with monkeypatch.context() as patch:
            patch.setattr(topic.decisions.stream.lane.queue, "put", refuse)
            with pytest.raises(PublishBufferFull):
                store.cancel_delayed("t", 0, 0)
        topic.why_anew = "the test says so"
        assert [one.message.offset for one in sub.receive(wait_ms=SOON_MS)] == [0]
        assert topic.last_rebuild == "the test says so"


def test_an_interrupted_compaction_of_changes_holds_up_no_later_change(tmp_path: Path) -> None:
    hand = Hand()
    with hand.open(tmp_path / "s") as store:
        topic = topic_of(store)
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
        topic.parts.hidden.find_or_make(topic.decisions.stream.topic)
        for place in places():
            assert store.reschedule_delayed("t", 0, 0, START_MS + 20)
            interrupted, result = interrupt_at(place, ("decisions.py",), topic.decisions.compact)
            assert isinstance(result, Interrupted if interrupted else type(None))
            del result  # its traceback keeps what it has met
            thread = threading.Thread(target=store.reschedule_delayed, args=("t", 0, 0, START_MS + 30), daemon=True)
            thread.start()
            thread.join(PATIENCE_S / 4)
            assert not thread.is_alive()
            if not interrupted:
                break


@pytest.mark.parametrize("how", ["cancel", "move"])
@pytest.mark.parametrize("second", [PublishBufferFull, Interrupted])
def test_a_change_that_was_interrupted_before_the_log_had_it_is_given_back_though_the_log_takes_no_barrier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, second: type[BaseException]
) -> None:
    """Nobody would ever answer for it: a second interrupt, or a log that takes no more, is in the barrier's way."""
    hand = Hand()
    with hand.open(tmp_path / "s") as store:
        store.append("t", 0, b"x", deliver_at_ms=START_MS + 10)
        topic, asked = topic_of(store), list[Request]()

        def put(request: Request, *, wait: bool = True) -> bool:
            asked.append(request)
            raise Interrupted if len(asked) == 1 else second("of the barrier")

        with monkeypatch.context() as patch:
            patch.setattr(topic.decisions.stream.lane.queue, "put", put)
            with pytest.raises((Interrupted, PublishBufferFull)):
                if how == "cancel":
                    store.cancel_delayed("t", 0, 0)
                else:
                    store.reschedule_delayed("t", 0, 0, START_MS + 1000)
            assert [one.count for one in asked] == [1, 0], "a record and a barrier"
            is_settled = are_settled(topic)
            for left in list(topic.records.open.values()):
                left.is_refused = True  # else the store would wait for it for ever
        assert is_settled
        assert topic.pending == 1
        assert store.reschedule_delayed("t", 0, 0, START_MS + 20), "it holds up no later change"
        hand.now_ms = START_MS + 20
        assert due_now(store) == [0]
