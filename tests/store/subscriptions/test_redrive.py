"""Dead letters that are sent back to where they came from."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from pathlib import Path

import pytest

from stratalog.store import InvalidMessage, InvalidTopic, MessageStore
from stratalog.store.api import redriving
from stratalog.store.testing import SimulatedDisk

from ...clocks import SteppedClock
from ...seeds import draw_seed
from ..helpers import PATIENCE_S, tiny
from .helpers import TOPIC, fill

DEAD = "dead"
REDRIVE = "stratalog.redrive"


def bury(store: MessageStore, topic: str = TOPIC, name: str = "a") -> None:
    """All messages of a topic that a subscription has not acknowledged become dead letters."""
    with store.subscribe(topic, name, max_attempts=1, dead_letter_topic=DEAD) as sub:
        sub.nack_batch(sub.receive_batch(10_000).receipts, reason="broken")
        assert sub.receive() == []


def datas(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    return [one.data for one in store.read(topic, queue_id, 0, max_messages=10_000)]


def test_dead_letters_go_back_to_their_topics_and_queues_as_they_were(store: MessageStore) -> None:
    fill(store, 2, 0, 1)
    store.append("bills", 5, b"bill", key=b"k", properties={"kind": "card", "dead_letter.x": "mine"})
    bury(store)
    bury(store, "bills")
    assert store.redrive(DEAD) == 4
    assert datas(store, TOPIC, 0) == [b"0/0", b"0/1"] * 2 and datas(store, TOPIC, 2) == [b"2/0"] * 2
    before, after = store.read("bills", 5)
    assert (after.data, after.key, after.properties) == (before.data, before.key, before.properties)
    assert store.read(TOPIC, 0)[-1].properties is None
    assert store.redrive(DEAD) == 0, "each once"
    assert store.queue_bounds(DEAD, 0) == (0, 2), "they stay there"
    bury(store)
    assert store.redrive(DEAD) == 3, "they failed again"


def test_other_subscriptions_of_the_dead_letters_notice_nothing(store: MessageStore) -> None:
    fill(store, 3)
    bury(store)
    watch = store.subscribe(DEAD, "watch")
    (held,) = watch.receive(1)
    assert store.redrive(DEAD) == 3
    assert len(watch.receive()) == 2
    watch.ack(held)
    assert {one.name: one.backlog.total for one in store.subscriptions(DEAD)} == {"watch": 2, REDRIVE: 0}
    store.delete_subscription(DEAD, REDRIVE)
    assert store.redrive(DEAD) == 3, "all of them once more"


def test_some_of_them_or_those_of_one_queue_are_sent_back(store: MessageStore) -> None:
    fill(store, 5, 5, 5)
    bury(store)
    assert store.redrive(DEAD, queue_id=1, max_messages=2) == 2
    assert datas(store, TOPIC, 1)[5:] == [b"1/0", b"1/1"]
    assert store.redrive(DEAD, queue_id=1) == 3
    assert store.redrive(DEAD, queue_id=1) == store.redrive(DEAD, queue_id=77) == 0
    assert store.redrive(DEAD, max_messages=4) == 4
    assert store.redrive(DEAD) == 6
    assert [len(datas(store, TOPIC, queue_id)) for queue_id in range(3)] == [10, 10, 10]


def test_messages_without_an_origin_are_left_and_the_log_says_so(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, 1, 0, 0, 1)
    bury(store)
    for told in (
        None, {}, {"dead_letter.topic": "t"}, {"dead_letter.topic": "t", "dead_letter.queue_id": "-1"},
        {"dead_letter.topic": "t", "dead_letter.queue_id": "9" * 30},
        {"dead_letter.topic": "", "dead_letter.queue_id": "1"},
        {"dead_letter.topic": "t", "dead_letter.queue_id": "\u0663"}, {"dead_letter.queue_id": "1"},
        {"dead_letter.topic": "x" * 256, "dead_letter.queue_id": "1"},
    ):  # fmt: skip
        store.append(DEAD, 0, b"by hand", properties=told)
    store.configure_topic(TOPIC, queues=4)
    store.append(DEAD, 1, b"no such queue", properties={"dead_letter.topic": TOPIC, "dead_letter.queue_id": "4"})
    for sent in (2, 0):
        with caplog.at_level(logging.WARNING, "stratalog"):
            assert store.redrive(DEAD) == sent
        assert "10 message(s) were left" in caplog.records[-1].getMessage()
    assert store.topics() == [DEAD, TOPIC]
    (info,) = store.subscriptions(DEAD)
    assert info.backlog.total == 10


def test_what_comes_to_the_dead_letters_during_a_redrive_waits_for_the_next(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redriving, "SENT_TOGETHER", 1)
    fill(store, 3)
    bury(store)
    real = redriving.Redriving._send

    def send_and_fail(self: redriving.Redriving, *given: object) -> None:
        real(self, *given)  # type: ignore[arg-type]
        if store.queue_bounds(DEAD, 0)[1] < 20:
            bury(store)

    with monkeypatch.context() as patch:
        patch.setattr(redriving.Redriving, "_send", send_and_fail)
        assert store.redrive(DEAD) == 3
    assert store.queue_bounds(DEAD, 0) == (0, 6)
    assert store.redrive(DEAD) == 3


def test_it_ends_beside_a_writer_that_never_pauses_and_has_met_all_queues(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redriving, "SENT_TOGETHER", 1)
    fill(store, 2, 0, 3)
    bury(store)
    real = redriving.Redriving._send

    def send_and_append(self: redriving.Redriving, *given: object) -> None:
        real(self, *given)  # type: ignore[arg-type]
        for queue_id in (0, 1):
            store.append(DEAD, queue_id, b"by hand")
            assert store.queue_bounds(DEAD, queue_id)[1] < 100, "it goes on for ever"

    with monkeypatch.context() as patch:
        patch.setattr(redriving.Redriving, "_send", send_and_append)
        assert store.redrive(DEAD) == 5
    assert store.redrive(DEAD) == 0


def test_a_call_beside_another_one_sends_what_was_there_at_its_own_start(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 3)
    bury(store)
    real, counts, threads = redriving.Redriving._send, list[int](), list[threading.Thread]()

    def send_and_call_again(self: redriving.Redriving, *given: object) -> None:
        real(self, *given)  # type: ignore[arg-type]
        if not counts:
            counts.append(-1)
            bury(store)
        elif not threads:  # the new ones were met, and are left
            threads.append(threading.Thread(target=lambda: counts.append(store.redrive(DEAD))))
            threads[0].start()
            threads[0].join(0.2)

    monkeypatch.setattr(redriving.Redriving, "_send", send_and_call_again)
    assert store.redrive(DEAD) == 3
    threads[0].join(PATIENCE_S)
    assert counts == [-1, 3]


def test_dead_letters_larger_than_one_transaction_go_by_several(store: MessageStore) -> None:
    most = store._appender.most_atomic_bytes
    for at in range(8):
        store.append(TOPIC, 0, bytes([at]) * (most // 5))
    bury(store)
    assert store.redrive(DEAD) == 8
    assert datas(store, TOPIC, 0)[:8] == datas(store, TOPIC, 0)[8:]


def test_one_that_is_too_large_now_is_left_and_holds_up_no_other(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny()) as store:
        for size_bytes in (10, 60_000, 20):
            store.append(TOPIC, 0, bytes(size_bytes))
        bury(store)
    with MessageStore.open(tmp_path, tiny(max_message_bytes=4096, max_frame_bytes=4096)) as store:
        assert store.redrive(DEAD) == 2
        assert list(map(len, datas(store, TOPIC, 0))) == [10, 60_000, 20, 10, 20]


def test_no_crash_sends_one_twice_or_loses_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redriving, "SENT_TOGETHER", 3)
    disk, chance, crashed = SimulatedDisk(), random.Random(draw_seed()), list[SimulatedDisk]()
    with MessageStore.open(tmp_path, tiny(), disk=disk) as store:
        fill(store, 4, 4)
        bury(store)
        disk.on_operation = lambda operation: crashed.extend(disk.crash(chance) for _ in range(4))
        assert store.redrive(DEAD) == 8
        disk.on_operation = None
        crashed += [disk.crash(chance) for _ in range(4)]
    assert len(crashed) > 20
    counts = set[int]()
    for left in crashed:
        with MessageStore.open(tmp_path, tiny(), disk=left) as store:
            counts.add(store.redrive(DEAD))
            for queue_id in range(2):
                assert datas(store, TOPIC, queue_id) == [b"%d/%d" % (queue_id, at) for at in range(4)] * 2
    assert {0, 8} < counts, "before, between and after"


def test_threads_that_send_back_at_once_send_each_once(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redriving, "SENT_TOGETHER", 5)
    fill(store, 200)
    bury(store)
    barrier, counts = threading.Barrier(4), list[int]()

    def run() -> None:
        barrier.wait(PATIENCE_S)
        counts.append(store.redrive(DEAD))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sum(counts) + store.redrive(DEAD) == 200
    assert sorted(datas(store, TOPIC, 0)) == sorted([b"0/%d" % at for at in range(200)] * 2)


def test_in_several_lanes_each_is_sent_once(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, tiny(lanes=4)) as store:
        fill(store, *[2] * 8)
        bury(store)
        assert store.redrive(DEAD) == 16
        assert [store.queue_bounds(TOPIC, queue_id) for queue_id in range(8)] == [(0, 4)] * 8
        assert store.subscriptions(DEAD)[0].backlog.total == 0
        assert store.redrive(DEAD) == 0


def test_by_a_model_each_dead_letter_goes_back_once_whatever_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redriving, "SENT_TOGETHER", 4)
    rng = random.Random(draw_seed())
    path, sent = tmp_path / "0", set[tuple[int, int]]()
    jobs, letters = dict[int, list[bytes]](), dict[int, list[bytes]]()
    store = MessageStore.open(path, tiny())
    for turn in range(120):
        choice = rng.random()
        if choice < 0.4:
            queue_id, data = rng.randrange(3), b"%d" % turn
            store.append(TOPIC, queue_id, data)
            jobs.setdefault(queue_id, []).append(data)
        elif choice < 0.6 and jobs:
            bury(store)
            for queue_id, known in jobs.items():
                letters[queue_id] = list(known)  # each place of a job fails once
        elif choice < 0.9:
            asked, most = rng.choice([None, 0, 1, 2]), rng.choice([None, 1, 3])
            open_ones = [
                (queue_id, at) for queue_id, datas in letters.items() for at in range(len(datas))
                if (queue_id, at) not in sent and asked in (None, queue_id)
            ]  # fmt: skip
            count = store.redrive(DEAD, queue_id=asked, max_messages=most)
            assert count == min(len(open_ones), most or len(open_ones))
            for queue_id in {queue_id for queue_id, _ in open_ones}:
                mine = [at for of, at in open_ones if of == queue_id]
                back = datas(store, TOPIC, queue_id)[len(jobs[queue_id]) :]
                assert back == [letters[queue_id][at] for at in mine[: len(back)]], "in their order"
                sent |= {(queue_id, at) for at in mine[: len(back)]}
                jobs[queue_id] += back
        else:
            store.close()
            store = MessageStore.open(path, tiny())
        for queue_id, known in jobs.items():
            assert datas(store, TOPIC, queue_id) == known
    store.close()
    assert len(sent) > 10


def test_coroutines_send_back_as_well(store: MessageStore, clock: SteppedClock) -> None:
    fill(store, 3)
    bury(store)

    async def run() -> tuple[int, int]:
        return await store.redrive_async(DEAD, queue_id=0, max_messages=2), await store.redrive_async(DEAD)

    assert asyncio.run(run()) == (2, 1)


def test_wrong_arguments_are_refused_and_a_topic_without_messages_gets_no_subscription(store: MessageStore) -> None:
    with pytest.raises(InvalidTopic):
        store.redrive("")
    with pytest.raises(InvalidTopic):
        store.redrive(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidTopic):
        store.redrive(DEAD, queue_id=-1)
    for most in (0, -1, 1.5, True, "3"):
        with pytest.raises(InvalidMessage, match="max_messages"):
            store.redrive(DEAD, max_messages=most)  # type: ignore[arg-type]
    assert store.redrive(DEAD) == 0
    assert store.subscriptions() == []
