"""Each message that has expired is counted once, whether a receive meets it first or retention."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any, Literal

import pytest

from stratalog.store import MessageStore
from stratalog.store.subscriptions.expiring import Expiring
from stratalog.store.testing import VirtualClock
from stratalog.store.topics.settings import KEEPS, Keep
from tests.seeds import draw_seed

from ..helpers import start, until
from ..topics.test_ttl import HOUR_MS, fill, info, opened
from .test_removed_counts import ByHand, retention_by_hand


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    retention_by_hand(monkeypatch, "topics.aging", "delayed.keeping")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def remove_all(store: MessageStore, clock: VirtualClock, remove: ByHand) -> None:
    """Retention takes all messages of the topic "t" that are there; they are older than its limit."""
    end = store.queue_bounds("t", 0)[1]
    for _ in range(20):
        fill(store, 60, "u", size=3_800)
        clock.advance(ms=HOUR_MS)
        remove()
        if store.queue_bounds("t", 0)[0] >= end:
            return
    raise AssertionError("retention did not come to them")


@pytest.mark.parametrize("mode", ["shared", "ordered"])
@pytest.mark.parametrize("keep", KEEPS)
def test_what_was_read_ahead_and_given_back_counts_once_if_retention_counts_it_first(
    tmp_path: Path, clock: VirtualClock, keep: Keep, mode: Literal["shared", "ordered"]
) -> None:
    with opened(tmp_path, clock, retention_ms=2 * HOUR_MS) as store:
        remove = ByHand(store)
        store.configure_topic("t", keep=keep, ttl_ms=HOUR_MS)
        sub = store.subscribe("t", "a", mode=mode)
        fill(store, 40)
        got = sub.receive(10)
        sub.ack_batch(got[:6])
        sub.nack_batch(got[6:])
        remove_all(store, clock, remove)
        assert (info(store).expired, info(store).removed_unacknowledged) == (34, 0)
        assert sub.receive(100) == []
        assert (info(store).expired, info(store).removed_unacknowledged) == (34, 0)
        fill(store, 3)
        assert len(sub.receive(1)) == 1
        clock.advance(ms=2 * HOUR_MS)
        assert sub.receive(100) == []
        assert info(store).expired == 37, "later ones count"


def test_what_retention_has_counted_as_lost_does_not_expire_too(tmp_path: Path, clock: VirtualClock) -> None:
    with opened(tmp_path, clock, retention_ms=2 * HOUR_MS) as store:
        remove = ByHand(store)
        sub = store.subscribe("t", "a")
        fill(store, 40)
        sub.ack_batch(sub.receive(10))
        remove_all(store, clock, remove)
        store.configure_topic("t", ttl_ms=HOUR_MS)
        assert sub.receive(100) == []
        assert (info(store).expired, info(store).removed_unacknowledged) == (0, 30)


def test_a_copy_that_expires_counts_though_retention_has_counted_those_around_it(
    tmp_path: Path, clock: VirtualClock
) -> None:
    with opened(tmp_path, clock, retention_ms=2 * HOUR_MS) as store:
        remove = ByHand(store)
        store.configure_topic("t", ttl_ms=HOUR_MS)
        sub = store.subscribe("t", "a")
        fill(store, 5)
        store.append("t", 0, b"late", deliver_at_ms=clock.wall_ms() + 90 * HOUR_MS)
        fill(store, 5)
        assert len(sub.receive(1)) == 1
        remove_all(store, clock, remove)
        assert (info(store).expired, info(store).backlog.total) == (10, 1)
        clock.advance(ms=99 * HOUR_MS)
        assert sub.receive(100) == []
        assert (info(store).expired, info(store).backlog.total) == (11, 0)


@pytest.mark.parametrize("mode", ["shared", "ordered"])
@pytest.mark.parametrize("keep", KEEPS)
def test_by_a_model_each_message_was_acknowledged_or_is_counted_once(
    tmp_path: Path, clock: VirtualClock, keep: Keep, mode: Literal["shared", "ordered"]
) -> None:
    rng, made, acked = random.Random(draw_seed()), 0, 0
    with opened(tmp_path, clock, retention_ms=2 * HOUR_MS) as store:
        remove = ByHand(store)
        store.configure_topic("t", keep=keep, ttl_ms=HOUR_MS)
        sub = store.subscribe("t", "a", mode=mode)
        for _ in range(60):
            count = rng.randrange(30)
            fill(store, count, size=rng.choice([50, 3_000]))
            made += count
            got = sub.receive(rng.randrange(1, 20), visibility_timeout_ms=HOUR_MS // 2)
            cut = rng.randrange(len(got) + 1)
            sub.ack_batch(got[:cut])
            acked += cut
            if rng.random() < 0.5:
                sub.nack_batch(got[cut:])
            clock.advance(ms=rng.randrange(HOUR_MS))
            if rng.random() < 0.4:
                fill(store, 60, "u", size=3_800)
                remove()
        clock.advance(ms=9 * HOUR_MS)
        remove_all(store, clock, remove)
        assert sub.receive(1000) == []
        assert info(store).backlog.total == 0
        assert info(store).expired + info(store).removed_unacknowledged + acked == made


def test_retention_in_the_middle_of_a_receive_counts_nothing_twice(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receive has found what has expired; retention takes it, and only then the receive lets it go."""
    with opened(tmp_path, clock, retention_ms=2 * HOUR_MS) as store:
        remove = ByHand(store)
        store.configure_topic("t", ttl_ms=HOUR_MS)
        sub = store.subscribe("t", "a")
        fill(store, 40)
        real, found = Expiring.are_over, threading.Event()
        go_on = threading.Event()

        def slow(expiring: Expiring, *given: Any) -> Any:
            over = real(expiring, *given)
            if over.any():
                found.set()
                until(go_on.is_set)
            return over

        monkeypatch.setattr(Expiring, "are_over", slow)
        clock.advance(ms=HOUR_MS + 1)
        receiver = start(lambda: sub.receive(100))  # they are not read ahead: the scanner lets them go
        until(found.is_set)
        remove_all(store, clock, remove)
        go_on.set()
        receiver.join()
        assert info(store).expired == 40
