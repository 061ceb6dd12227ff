"""Rows of Arrow as columns of messages: their streams."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from stratalog.pipeline.sink_columns import columns_of
from stratalog.store.api.shard_writer import _numbered
from tests.seeds import draw_seed


@pytest.mark.parametrize(("rows", "queues"), [(1, 1), (7, 3), (400, 3), (400, 350), (400, 1 << 31), (0, 1)])
def test_each_row_has_its_own_stream(rows: int, queues: int) -> None:
    chance = random.Random(draw_seed())
    wanted = [(chance.choice(["orders", "bills", "é"]), chance.randrange(queues)) for _ in range(rows)]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([topic for topic, _ in wanted], pa.string()),
            pa.array([queue for _, queue in wanted], pa.int64()),
            pa.array([b"x"] * rows, pa.binary()),
        ],
        ["topic", "queue_id", "data"],
    )
    found = columns_of(batch)
    assert [found.streams[at] for at in found.stream_index.tolist()] == wanted
    assert len(found.streams) <= max(rows, 1)


@pytest.mark.parametrize("most", [1, 5, 2_000, 1 << 40])
def test_different_values_are_those_of_a_sort(most: int) -> None:
    values = np.random.default_rng(draw_seed()).integers(0, most, 300)
    for column in (values, values[:1], values[:0]):
        found, wanted = _numbered(column), np.unique(column, return_inverse=True)
        assert [one.tolist() for one in found] == [one.tolist() for one in wanted]
