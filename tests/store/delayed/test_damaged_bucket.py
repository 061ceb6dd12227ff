"""A file of a topic's index that is damaged costs no answer."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..helpers import flip_bit, tiny
from .consumer import Hand

EVERY_BYTES = 24


def test_backlog_is_counted_wherever_a_bucket_is_damaged(tmp_path: Path, hand: Hand) -> None:
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
            assert sub.backlog() == (0, 0, 20)
            rebuilt.add(store.stats()["delayed"]["t"]["rebuilds"])
        shutil.rmtree(at)
    assert 1 in rebuilt  # some damage is found by the question itself
