"""Messages by their offsets, which need not follow each other: the same as by single reads."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from stratalog.store import MessageStore
from stratalog.store.read import picking
from tests.seeds import draw_seed

from .helpers import tiny, until


def test_picked_messages_are_those_that_single_reads_give(tmp_path: Path) -> None:
    chance = random.Random(draw_seed())
    count = 600
    with MessageStore.open(tmp_path / "s", tiny()) as store:
        for number in range(count):
            data, key = b"%d" % number + bytes(chance.choice([10, 2_000])), b"k%d" % number
            store.append("t", number % 2, data, key=key, deliver_at_ms=number)
        until(lambda: len(store._lanes[0].view.sealed) > 3)
        store.trim("t", 0, 20)
        for _ in range(30):
            offsets = np.array(sorted(chance.sample(range(count // 2 + 10), chance.choice([1, 5, 200]))), np.int64)
            batch = store._fetcher.read_at("t", 0, offsets)
            found = [store.read("t", 0, offset, 1)[0] for offset in offsets.tolist() if 20 <= offset < count // 2]
            assert batch.messages() == found
        assert len(store._fetcher.read_at("unknown", 0, np.arange(3))) == 0


def test_long_lists_are_cut(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", tiny(segment_bytes=1 << 20)) as store:
        store.append_batch([("t", 0, b"%d" % number) for number in range(3_000)])
        offsets = np.arange(0, 3_000, 2)
        stream = store._streams.get("t", 0)
        assert stream is not None
        runs = picking.picked_runs(stream, offsets)
        assert [len(run) for run in runs] == [1_024, 476]
        assert [int(payload) for payload in map(bytes, store._fetcher.read_at("t", 0, offsets).payloads())] == [
            *range(0, 3_000, 2)
        ]
