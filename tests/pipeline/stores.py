"""Stores for the pipeline's tests, and their messages as rows to compare."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stratalog import MessageStore, StoreConfig, StoreReader
from stratalog.store.testing import TunedConfig

STREAMS = [("orders", 0), ("orders", 1), ("bills", 0), ("bills", 70_000), ("é", 3)]
SMALL = TunedConfig(segment_bytes=256 << 10, max_message_bytes=64 << 10, max_frame_bytes=64 << 10, recent_bytes=0)


class Row(NamedTuple):
    """A message as the data source gives it, times in ms."""

    topic: str
    queue_id: int
    offset: int
    timestamp: int
    deliver_at: int | None
    key: bytes | None
    properties: tuple[tuple[str, str], ...] | None
    data: bytes


def fill(store: MessageStore, chance: random.Random, count: int) -> None:
    """Appends with and without what is optional."""
    while count > 0:
        size = min(count, chance.choice([1, 20, 300]))
        datas = [chance.randbytes(chance.randrange(chance.choice([2, 100, 2_000]))) for _ in range(size)]
        if size == 1:
            store.append(
                *chance.choice(STREAMS), datas[0], key=chance.choice([None, b"", b"k%d" % count]),
                properties=chance.choice([None, {}, {"n": str(count), "é": ""}]),
                deliver_at_ms=chance.choice([None, 1_700_000_000_123]),
            )  # fmt: skip
        else:
            index = np.array([chance.randrange(len(STREAMS)) for _ in datas])
            store.append_columns(STREAMS, index, np.array([len(data) for data in datas]), b"".join(datas))
        count -= size


def make_store(path: Path, seed: int, count: int = 2_000, config: StoreConfig = SMALL) -> list[Row]:
    """A closed store with some segments; its rows, sorted."""
    with MessageStore.open(path, config) as store:
        fill(store, random.Random(seed), count)
        return scanned_rows(store)


def scanned_rows(store: StoreReader) -> list[Row]:
    """What `scan` gives, sorted."""
    rows: list[Row] = []
    for batch in store.scan():
        for at in range(len(batch)):
            extra = None if batch.extras is None else batch.extras[at]
            due, key, properties = (None, None, None) if extra is None else extra
            pairs = None if properties is None else tuple(sorted(json.loads(properties).items()))
            rows.append(
                Row(
                    batch.topic(at), batch.queue_id(at), int(batch.offsets[at]), int(batch.times_ms[at]), due, key,
                    pairs, bytes(batch.payload(at)),
                )
            )  # fmt: skip
    return sorted(rows, key=lambda row: (*row[:3], row.data or b""))


def rows_of(table: pa.Table) -> list[Row]:
    """The rows of a query's result, sorted; those of several stores at one offset by their data."""
    columns: list[list[Any]] = []
    for name in Row._fields:
        column = table.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
            columns.append([None if one is None else one // 1000 for one in column.to_pylist()])
        elif pa.types.is_map(column.type):
            columns.append([None if one is None else tuple(sorted(one)) for one in column.to_pylist()])
        else:
            columns.append(column.to_pylist())
    return sorted((Row(*row) for row in zip(*columns, strict=True)), key=lambda row: (*row[:3], row.data or b""))
