"""A file of a topic's index that is damaged costs no answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.store import MessageStore

from ..helpers import flip_bit, tiny
from .consumer import Hand

EVERY_BYTES = 24


def _trim_and_append(store: MessageStore, now_ms: int) -> bool:
    """Three of queue 0 go, and one comes."""
    store.trim("t", 0, 3)
    return store.append("t", 0, b"y", deliver_at_ms=now_ms + 5) == 7


@pytest.mark.parametrize(
    ("call", "answer", "left"),
    [
        (lambda store, now_ms: None, None, 20),
        (lambda store, now_ms: store.cancel_delayed("t", 1, 2), True, 19),
        (lambda store, now_ms: store.reschedule_delayed("t", 1, 2, now_ms + 7), True, 20),
        (_trim_and_append, True, 18),
    ],
    ids=["backlog", "cancel", "reschedule", "trim, append"],
)
def test_calls_answer_wherever_a_bucket_is_damaged(
    tmp_path: Path, hand: Hand, call: Callable[[MessageStore, int], bool | None], answer: bool | None, left: int
) -> None:
    whole, at = tmp_path / "whole", tmp_path / "at"
    with hand.open(whole, tiny()) as store, store.subscribe("t", "s") as sub:
        for number in range(20):
            store.append("t", number % 3, b"x", deliver_at_ms=hand.now_ms + 1_000 * (number + 1))
        assert sub.backlog().delayed == 20
    (bucket,) = whole.glob("delayed/*/*.bucket")
    rebuilt = set()
    for position in range(0, bucket.stat().st_size, EVERY_BYTES):
        shutil.copytree(whole, at)
        flip_bit(at / bucket.relative_to(whole), position)
        with hand.open(at, tiny()) as store, store.subscribe("t", "s") as sub:
            assert call(store, hand.now_ms) == answer
            assert sub.backlog() == (0, 0, left)
            rebuilt.add(store.stats()["delayed"]["t"]["rebuilds"])
        shutil.rmtree(at)
    assert 1 in rebuilt  # some damage is found by the question itself
