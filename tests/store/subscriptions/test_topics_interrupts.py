"""An interrupt at any place of the code for several topics, or for one queue: no message is lost by that."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from stratalog.store import MessageStore, StaleReceipt
from stratalog.store.testing import VirtualClock

from ...seeds import draw_seed
from ..helpers import tiny
from ..interrupts import Interrupted, interrupt_at, places
from .helpers import fill
from .test_topics import whole

TOPICS = ["a", "b"]
MANY = ("members.py", "topics_receiving.py", "topics_subscription.py", "receipt_topics.py", "wake_times.py",
        "topics_acks.py", "topic_news.py")  # fmt: skip
ONE = ("queue_receiving.py", "calling.py", "redelivery.py", "lines.py", "place_list.py", "receiving.py")
STEP = 11  # each run tries every eleventh place, and the next run others
WORK: dict[str, tuple[tuple[str, ...], Callable[[Any], object]]] = {
    "a few": (MANY, lambda sub: sub.receive(1)),
    "many": (MANY, lambda sub: sub.receive_batch(5)),
    "of one topic": (MANY, lambda sub: sub.receive(5, topic="b")),
    "of one queue": (ONE, lambda sub: sub.receive(5, topic="b", queue_id=1)),
    "given back": (MANY, lambda sub: sub.nack_batch(sub.receive_batch().receipts)),
}


@pytest.mark.parametrize("mode", ["shared", "ordered"])
@pytest.mark.parametrize("what", WORK)
def test_an_interrupt_loses_no_message(tmp_path: Path, what: str, mode: str) -> None:
    clock, (files, work) = VirtualClock(), WORK[what]
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        for topic in TOPICS:
            fill(store, 2, 2, topic=topic)
        for place in islice(places(), random.Random(draw_seed()).randrange(STEP), None, STEP):
            with store.subscribe(TOPICS, f"s{place}", mode=mode) as sub:  # type: ignore[call-overload]  # one of the two
                if place % 2:
                    sub.nack_batch([one.receipt for one in sub.receive(3)])
                interrupted, result = interrupt_at(place, files, lambda sub=sub: work(sub))  # type: ignore[misc]  # the loop's
                assert isinstance(result, Interrupted) == interrupted
                clock.advance(ms=31_000)
                seen = set()
                while got := sub.receive():
                    seen |= set(whole(got))
                    sub.ack_batch(got)
                assert len(seen) == 8
                assert sub.backlog().total == 0
            assert store.delete_subscription(TOPICS, f"s{place}")
            if not interrupted:
                break


def test_an_interrupted_acknowledgement_of_two_topics_is_whole_or_not_there(tmp_path: Path) -> None:
    clock, files = VirtualClock(), (*MANY, "committing.py", "joint_acks.py", "acknowledging.py")
    with MessageStore.open(tmp_path / "store", tiny(), clock=clock) as store:
        for topic in TOPICS:
            fill(store, 2, topic=topic)
        for place in islice(places(), random.Random(draw_seed()).randrange(STEP), None, STEP):
            with store.subscribe(TOPICS, f"s{place}") as sub:
                batch = sub.receive_batch()
                interrupted, _ = interrupt_at(place, files, lambda: sub.ack_batch(batch.receipts))  # noqa: B023  # called at once
                try:
                    sub.ack_batch(batch.receipts)
                    again = True
                except StaleReceipt:
                    again = False
                assert interrupted or not again
                clock.advance(ms=31_000)
                assert sub.receive() == []
                assert sub.backlog().total == 0
            if not interrupted:
                break


def test_an_interrupted_opening_leaves_nobody_listening(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", tiny()) as store:
        for topic in TOPICS:
            fill(store, 1, topic=topic)
        for place in islice(places(), random.Random(draw_seed()).randrange(STEP), None, STEP):
            name, kept = f"s{place}", list[object]()

            def opens() -> None:
                kept.append(store.subscribe(pattern="*", name=name))  # noqa: B023  # called at once

            interrupted, _ = interrupt_at(place, ("topics_opening.py", "members.py", "topic_news.py"), opens)
            if not interrupted:
                break
            kept.clear()
            store.append("c", 0, b"x")  # who is no more is found out
            store.append("a", 0, b"x")
            assert len(store.subscribe(TOPICS, name).receive(100)) >= 2
            store.delete_subscription(store.topics(), name)
