"""A receive looks at the queues that have news, and misses none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import numpy as np
import pytest

from stratalog.store import MessageStore, Subscription, commit_shards
from stratalog.store.subscriptions import news

from ...seeds import draw_seed
from ..helpers import tiny, until
from ..shards.helpers import attaching, staged
from .helpers import TOPIC, fill, places
from .test_growth import one_each

FEW = 100
MODES: tuple[Literal["shared", "ordered"], ...] = ("shared", "ordered")


def steps_of(work: Callable[[], object]) -> int:
    """How many lines of the package's Python run in this thread."""
    steps = [0]

    def trace(frame: FrameType, event: str, given: Any) -> Any:
        steps[0] += event == "line"
        return trace if "/subscriptions/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps[0]


def drain(sub: Subscription) -> list[tuple[int, int]]:
    found = []
    while got := sub.receive():
        found += places(got)
        sub.ack_batch(got)
    return found


@pytest.mark.parametrize("settings", [{}, {"mode": "ordered"}], ids=["shared", "ordered"])
def test_a_receive_costs_by_the_queues_with_news(tmp_path: Path, settings: dict[str, Any]) -> None:
    def steps(queues: int) -> int:
        with MessageStore.open(tmp_path / str(queues), tiny(segment_bytes=1 << 20)) as store:
            one_each(store, queues)
            sub = store.subscribe(TOPIC, "a", start="earliest", **settings)
            drain(sub)
            store.append(TOPIC, 3, b"x")
            drain(sub)
            store.append(TOPIC, 3, b"x")
            return steps_of(lambda: sub.ack(sub.receive(1)[0]))

    assert steps(4 * FEW) <= 1.1 * steps(FEW)


def test_queues_with_news_have_their_turns(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny(segment_bytes=1 << 20)) as store:
        one_each(store, FEW)
        sub = store.subscribe(TOPIC, "a", start="latest")
        drain(sub)
        for queue_id in (90, 5, 40):
            store.append_batch([(TOPIC, queue_id, b"x")] * 4)
        turns = [sub.receive_batch(2).stream_names[0][1] for _ in range(6)]
        assert sorted(turns[:3]) == sorted(turns[3:]) == [5, 40, 90]


@pytest.mark.parametrize("seed", range(2))
def test_no_message_of_many_queues_is_missed(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small segments are sealed, and go, between any two receives of subscriptions that share the news."""
    monkeypatch.setattr(news, "FEW_QUEUES", 4)
    monkeypatch.setattr(news, "FEW_MESSAGES", 8)
    chance = np.random.default_rng([draw_seed(), seed])
    with MessageStore.open(tmp_path / "s", tiny(lanes=2)) as store:
        fill(store, *[1] * 12)
        subs = [store.subscribe(TOPIC, f"s{at}", mode=mode) for at, mode in enumerate(MODES)]
        got: list[set[tuple[int, int]]] = [set(), set()]
        for _ in range(150):
            store.append_batch([(TOPIC, int(queue_id), bytes(900)) for queue_id in chance.integers(0, 40, 20)])
            at = int(chance.integers(0, 2))
            batch = subs[at].receive(int(chance.integers(1, 30)))
            got[at].update(places(batch))
            (subs[at].nack_batch if chance.random() < 0.1 else subs[at].ack_batch)(batch)
        for at, sub in enumerate(subs):
            got[at].update(drain(sub))
            assert sub.backlog().total == 0
        assert got[0] == got[1]


def test_segments_that_were_never_open_are_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news, "FEW_QUEUES", 4)
    attaching(monkeypatch.setattr, as_segments=True)
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        fill(store, *[1] * 12)
        sub = store.subscribe(TOPIC, "a")
        drain(sub)
        assert sub.receive() == []
        commit_shards(store.path, staged(store.path, [(TOPIC, 7, b"x")] * 3), name="x", wait_ms=0)
        until(lambda: store.queue_bounds(TOPIC, 7) == (0, 4))
        (lane,) = store._lanes
        assert lane.view.sealed[-1].record.entries == 3, "it was never open"
        assert places(sub.receive()) == [(7, 1), (7, 2), (7, 3)]
        store.append(TOPIC, 5, b"x")  # into a segment behind it
        assert places(sub.receive()) == [(5, 1)]
