"""The history checker: it sees every kind of broken promise, and none in what a real store does."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.store import MessageStore
from stratalog.store.testing import History

T = "t", 0


def rules(history: History) -> list[str]:
    return sorted({violation.rule for violation in history.check()})


def sent(history: History, offset: int, data: bytes) -> None:
    history.acknowledged(history.begin(*T, data), offset)


def test_good_history_has_no_violation() -> None:
    history = History()
    sent(history, 0, b"a")
    early, late = history.begin(*T, b"b"), history.begin(*T, b"c")
    history.acknowledged(late, 1)
    history.acknowledged(early, 2)
    history.unknown(history.begin(*T, b"d"))
    history.refused(history.begin(*T, b"e"))
    history.read(*T, 0, b"a", reader="r")
    history.read(*T, 1, b"c", reader="r")
    history.found(*T, 0, [(0, b"a"), (1, b"c"), (2, b"b"), (3, b"d")])
    assert history.check() == []


def lost(history: History) -> None:
    sent(history, 1, b"b")
    history.found(*T, 0, [(0, b"a")])


def harmed(history: History) -> None:
    sent(history, 1, b"b")
    history.unknown(history.begin(*T, b"x"))
    history.found(*T, 0, [(0, b"a"), (1, b"x")])


def read_and_lost(history: History) -> None:
    history.unknown(history.begin(*T, b"b"))
    history.read(*T, 1, b"b")
    history.found(*T, 0, [(0, b"a")])


def given_twice(history: History) -> None:
    first, second = history.begin(*T, b"b"), history.begin(*T, b"c")
    history.acknowledged(first, 1)
    history.acknowledged(second, 1)
    history.found(*T, 2, [])


def found_twice(history: History) -> None:
    history.found(*T, 0, [(0, b"a"), (1, b"a")])


def hole(history: History) -> None:
    history.unknown(history.begin(*T, b"c"))
    history.found(*T, 0, [(0, b"a"), (2, b"c")])


def from_nowhere(history: History) -> None:
    history.found(*T, 0, [(0, b"a"), (1, b"?")])


def refused_and_found(history: History) -> None:
    history.refused(history.begin(*T, b"b"))
    history.found(*T, 0, [(0, b"a"), (1, b"b")])


def overtaken(history: History) -> None:
    sent(history, 2, b"b")
    sent(history, 1, b"c")
    history.found(*T, 0, [(0, b"a"), (1, b"c"), (2, b"b")])


def read_differently(history: History) -> None:
    history.read(*T, 0, b"a")
    history.read(*T, 0, b"A")
    history.found(*T, 0, [(0, b"a")])


def read_again(history: History) -> None:
    history.read(*T, 0, b"a", reader="r")
    history.read(*T, 0, b"a", reader="r")
    history.found(*T, 0, [(0, b"a")])


@pytest.mark.parametrize(
    ("story", "rule"),
    [
        (lost, "kept"), (harmed, "kept"), (read_and_lost, "kept"), (given_twice, "once"), (found_twice, "once"),
        (hole, "dense"), (from_nowhere, "sent"), (refused_and_found, "sent"), (overtaken, "ordered"),
        (read_differently, "same"), (read_again, "in order"),
    ],
)  # fmt: skip
def test_broken_promise_is_seen(story: Callable[[History], None], rule: str) -> None:
    history = History()
    sent(history, 0, b"a")
    story(history)
    assert rules(history) == [rule]


def test_what_retention_took_is_no_loss() -> None:
    history = History()
    for offset in range(4):
        sent(history, offset, b"%d" % offset)
    history.read(*T, 0, b"0")
    history.found(*T, 2, [(2, b"2"), (3, b"3")])
    assert history.check() == []


def test_reader_that_begins_anew_may_read_again() -> None:
    history = History()
    sent(history, 0, b"a")
    history.read(*T, 0, b"a", reader="r")
    history.reopened("r")
    history.read(*T, 0, b"a", reader="r")
    history.found(*T, 0, [(0, b"a")])
    assert history.check() == []


def test_real_store_under_threads_has_a_good_history(tmp_path: Path) -> None:
    history, stop = History(), threading.Event()

    def produce(store: MessageStore, number: int) -> None:
        chance = random.Random(number)
        for serial in range(25):
            queue, data = chance.randrange(3), b"%d/%d" % (number, serial)
            send = history.begin("t", queue, data)
            history.acknowledged(send, store.append("t", queue, data))

    def consume(store: MessageStore, name: str) -> None:
        reached = [0, 0, 0]
        while not stop.is_set():
            for queue in range(3):
                for message in store.read("t", queue, reached[queue], max_messages=16):
                    history.read("t", queue, message.offset, message.data, reader=name)
                    reached[queue] = message.offset + 1

    with MessageStore.open(tmp_path) as store:
        readers = [threading.Thread(target=consume, args=(store, f"reader {i}")) for i in range(2)]
        writers = [threading.Thread(target=produce, args=(store, number)) for number in range(6)]
        for thread in (*readers, *writers):
            thread.start()
        for thread in writers:
            thread.join()
        stop.set()
        for thread in readers:
            thread.join()
    with MessageStore.open(tmp_path) as store:
        for queue in range(3):
            first, _ = store.queue_bounds("t", queue)
            history.found(
                "t", queue, first, [(m.offset, m.data) for m in store.read("t", queue, first, max_messages=10**6)]
            )
    assert history.check() == []
